"""Anyone executes a recorded run again: equal here, and one edited record is named."""

import resource
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.forging import edit_line, edit_manifest
from tests.forked import RUNS_FORKED, Commands

from search_to_signal.base.errors import RunFailedError
from search_to_signal.base.package_data import MODELS
from search_to_signal.cli import main
from search_to_signal.records.manifest import read_manifest
from search_to_signal.run.texts import Tokenizers
from search_to_signal.study.container import read_container
from search_to_signal.verify.rerun import runnable_config

Said = tuple[int, str, str]
CARD = {"device": "cuda", "dtype": "bfloat16", "quantization": "none"}


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> Said:
    """Exit code, output and errors of a command."""
    code = main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_runs_come_out_again_and_an_edit_is_named(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trained run is executed and equal; held against an edited copy, the edited field is named."""
    code, out, _ = said(capsys, "rerun", cohort, "--sample", 1, "--seed", 1, "--out", tmp_path / "out")
    (name,) = (path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert (code, f"drawn from 2 runs: {name} (--seed 1 draws the same ones)" in out) == (0, True)
    assert f"{name}: EQUAL: 2 of 2 groups are the recorded ones\n" in out
    assert "s2s: EQUAL: 1 of 1 runs have equal records\n" in out

    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    edit_line(copy / name / "completions.jsonl", 4, lambda line: line.update(exposure=0.125))
    code, out, _ = said(capsys, "rerun", copy, name, "--out", tmp_path / "out")
    assert code == 1
    assert (
        f"{name}: first difference: group 1, completions.jsonl, completion 0: exposure: recorded 0.125" in out
    )
    assert "0 of 1 runs have equal records; 1 of them" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frozen-s42", "--out", "{cohort}/new"], "is inside the directory that is checked"),
        (["../elsewhere"], "has no run '../elsewhere': choose one of frozen-s42, native-s42"),
        ([], "name the runs"),
        (["frozen-s42", "--seed", "3"], "--seed draws a sample"),
        (["frozen-s42", "--jobs", "0"], "at least 1"),
        (["frozen-s42", "--rule", "nowhere:rule"], "cannot load 'nowhere:rule'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    cohort: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Exit code 2 and a sentence, before anything runs."""
    code, _, err = said(capsys, "rerun", cohort, *(text.format(cohort=cohort) for text in arguments))
    assert (code, message in err) == (2, True)


def test_final_adapters_are_made_of_recorded_updates(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte, also from packed evidence without them; an edited advantage is found at its step."""
    assert main(["pack", str(cohort), "--into", str(tmp_path / "ev")]) == 0
    name = f"{cohort.name}/native-s42"
    code, out, _ = said(capsys, "retrain", tmp_path / "ev", name, "--out", tmp_path / "out")
    assert (code, f"s2s: 1 adapter as recorded, in {tmp_path / 'out'}\n" in out) == (0, True)
    for file in sorted((cohort / "native-s42" / "adapter").iterdir()):
        assert (tmp_path / "out" / name / "adapter" / file.name).read_bytes() == file.read_bytes()

    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    edit_line(copy / "native-s42" / "completions.jsonl", 4, lambda line: line.update(advantage=0.125))
    code, _, err = said(capsys, "retrain", copy, "native-s42", "--out", tmp_path / "other")
    assert (code != 0, "the update of step 1 gives another adapter here" in err) == (True, True)
    assert not (tmp_path / "other" / "native-s42" / "adapter").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frozen-s42", "--out", "{out}"], "frozen-s42: the run was not trained"),
        (["native-s42", "--out", "{cohort}"], "is inside the directory that is checked"),
        (["native-s42", "--out", "{out}", "--jobs", "0"], "--jobs takes a number of at least 1"),
    ],
)
def test_an_adapter_that_cannot_be_made_is_one_line(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Exit code 2 before anything runs, and nothing is written among the records."""
    given = (text.format(cohort=cohort, out=tmp_path / "out") for text in arguments)
    code, _, err = said(capsys, "retrain", cohort, *given)
    assert (code, message in err) == (2, True)


def test_a_full_disk_says_what_was_written(cohort: Path, tmp_path: Path, commands: Commands) -> None:
    """The reason stands in the line of the command that was given, not in a log that has no room for it."""
    out = str(tmp_path / "out")
    limits = {resource.RLIMIT_FSIZE: 20_000}
    unwritten = {"PYTHONDONTWRITEBYTECODE": "1"}  # bytecode would be cut, too
    done = commands.run(
        "retrain", cohort, "native-s42", "--out", out, limits=limits, boot=RUNS_FORKED, **unwritten
    )
    assert (done.returncode, done.stderr.count("\n")) == (RunFailedError.exit_code, 1)
    assert "(File too large): make room, then give the command again" in done.stderr
    assert not list((tmp_path / "out").rglob("adapter*.*"))


def test_nothing_is_written_over(cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An adapter that lies where one would go, and records that an output links to, stay as they are."""
    mine = tmp_path / "mine" / "native-s42" / "adapter" / "adapter_model.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    code, _, err = said(capsys, "retrain", cohort, "native-s42", "--out", tmp_path / "mine")
    assert (code, f"{mine} does not belong" in err) == (2, True)
    assert mine.read_text() == "mine"
    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "native-s42").symlink_to(copy / "native-s42")
    before = sorted(copy.rglob("*"))
    for command in ("retrain", "rerun"):
        code, _, err = said(capsys, command, copy, "native-s42", "--out", tmp_path / "links")
        assert (code, "is inside the directory that is checked" in err) == (2, True)
    assert sorted(copy.rglob("*")) == before


TOKENS = {
    "a token that its model does not have": lambda line: line["completion_ids"][0].append(1 << 40),
    "the model takes at most 2048": lambda line: line.update(prompt_ids=[5] * 20_000),
    "does not hold the tokens of every completion": lambda line: line["completion_ids"].pop(),
}


@pytest.mark.parametrize("told", TOKENS)
def test_tokens_that_no_model_has_read_are_one_line(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], told: str
) -> None:
    """What somebody wrote into the records is named; it is no crash that a log is to explain."""
    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    edit_line(copy / "native-s42" / "generations.jsonl", 1, TOKENS[told])
    code, _, err = said(capsys, "retrain", copy, "native-s42", "--out", tmp_path / "out")
    assert code == RunFailedError.exit_code
    assert told in err


def test_code_and_models_that_a_directory_names_do_not_run(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A problem of somebody's own and a model by path are refused, whatever the manifest says."""
    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    edit_manifest(copy / "frozen-s42", lambda line: line["config"].update(problem="strangers:own"))
    code, _, err = said(capsys, "rerun", copy, "frozen-s42")
    assert (code, "third-party code" in err) == (2, True)
    edit_manifest(copy / "native-s42", lambda line: line["model_files"].update({"config.json": "0" * 64}))
    code, _, err = said(capsys, "rerun", copy, "native-s42")
    assert (code, "is not here with the recorded checksums (--model DIR)" in err) == (2, True)


def test_a_model_is_known_by_its_files_and_not_by_what_converted_them(cohort: Path) -> None:
    """A newer gguf writes another source.json; the weights are the same, and so is the tokenizer."""
    manifest = read_manifest(cohort / "native-s42")
    files = {**manifest.model_files, "source.json": "0" * 64}
    other = msgspec.structs.replace(manifest, model_files=files)
    assert runnable_config(other, ()).model == runnable_config(manifest, ()).model
    assert Tokenizers(()).directory_of(files) == Tokenizers(()).directory_of(manifest.model_files)


def test_a_packed_run_comes_back_and_is_executed_again(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Token ids are left out and found again by the tokenizer; packed evidence can be executed as it is."""
    assert main(["pack", str(cohort), "--into", str(tmp_path / "ev"), "--adapters", "*"]) == 0
    packed = tmp_path / "ev" / cohort.name
    assert b"completion_ids" not in read_container(packed / "native-s42" / "records.xz")["generations.jsonl"]
    assert main(["unpack", str(tmp_path / "ev"), "--out", str(tmp_path / "out")]) == 0
    for path in cohort.rglob("*"):
        if path.is_file():
            assert (
                tmp_path / "out" / cohort.name / path.relative_to(cohort)
            ).read_bytes() == path.read_bytes()
    code, out, _ = said(capsys, "rerun", tmp_path / "ev", f"{cohort.name}/frozen-s42")
    assert (code, "s2s: EQUAL: 1 of 1 runs" in out) == (0, True)


def test_a_packed_run_of_a_model_of_one_s_own_is_executed_again(
    cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--model gives weights, and the tokenizer that token ids follow from; without it a line says so."""
    assert main(["pack", str(cohort), "--into", str(tmp_path / "ev")]) == 0
    model = shutil.copytree(MODELS / "qwen2-2.1m", tmp_path / "mine")
    for module in ("verify.rerun", "run.texts"):
        monkeypatch.setattr(f"search_to_signal.{module}.MODELS", tmp_path / "none")
    for command in (["rerun"], ["retrain", "--out", tmp_path / "out"]):
        given = [*command, tmp_path / "ev", f"{cohort.name}/native-s42"]
        code, _, err = said(capsys, *given)
        assert (code == 0, "--model DIR" in err) == (False, True)
        code, _, err = said(capsys, *given, "--model", model)
        assert (code, err) == (0, "")


def test_a_run_of_a_card_is_refused_where_there_is_none(
    cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before its model is loaded, and not among the runs that are drawn."""
    monkeypatch.setattr("search_to_signal.run.machine_check.visible_cards", list)
    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    edit_manifest(copy / "native-s42", lambda line: line["config"].update(loading=CARD))
    code, _, err = said(capsys, "rerun", copy, "native-s42", "--out", tmp_path / "out")
    assert (code, "nvidia-smi finds none here" in err) == (2, True)
    assert not (tmp_path / "out").exists()
    _, out, _ = said(capsys, "rerun", copy, "--sample", 2, "--seed", 1, "--out", tmp_path / "out")
    assert "drawn from 1 runs: frozen-s42" in out
    assert "not drawn: native-s42: the run used an NVIDIA card" in out
