"""A whole tiny profile with the shipped model: every layer, and what each of them promises."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.forging import edit_line, reseal

from search_to_signal.base.errors import ModelFileError, RecordError, RunDirectoryError, RunFailedError
from search_to_signal.base.progress import PlainProgress, Progress
from search_to_signal.cli import main
from search_to_signal.layers.audit.layer import replay
from search_to_signal.layers.probe import answers as probe_process
from search_to_signal.layers.probe.answers import Barriers, ProbeTask, write_answers_apart
from search_to_signal.layers.reproduction import reproduce
from search_to_signal.layers.settings import AnchorSettings, ApiReference, ProbeSettings, RestartSettings
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.layers import LAYERS
from search_to_signal.run.execution import Execution
from search_to_signal.run.profile import Profile, load_profile
from search_to_signal.verify.directory import verify
from search_to_signal.verify.recompute import RecomputeOptions, recompute

LAYER_DIRECTORIES = {layer.key for layer in LAYERS if load_profile("smoke").asks_for(layer.key)}
OTHER_DIRECTORIES = {"audit", "report"}


def tiny_profile() -> Profile:
    """The smoke profile, two groups or prompts everywhere."""
    smoke = load_profile("smoke")
    return msgspec.structs.replace(
        smoke,
        groups=2,
        restart=RestartSettings(),
        audit=smoke.audit[:1],
        breadth=tuple(msgspec.structs.replace(cell, groups=2) for cell in smoke.breadth),
        anchor=AnchorSettings(conditions=("native",)),
        probe=ProbeSettings(prompts=2, completions=2),
        api=ApiReference(completions=3),
    )


@pytest.fixture(scope="module")
def results(cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished results directory, with the cohort of all tests; tests that change it work on a copy."""
    out = tmp_path_factory.mktemp("layers") / "tiny"
    shutil.copytree(cohort, out / "cohort")
    reproduce(tiny_profile(), out, Execution(jobs=2), PlainProgress())
    return out


def manifest(run: Path) -> dict[str, Any]:
    """A run's manifest as plain data."""
    read: dict[str, Any] = json.loads((run / "manifest.json").read_bytes())
    return read


def tree(directory: Path) -> dict[str, bytes]:
    """Every file of the layers by relative path; the audit and the report are written anew each time."""
    files = (path for path in directory.rglob("*") if path.is_file())
    runs = {path.relative_to(directory): path for path in files}
    # Beside the runs of its cells the audit has files of its own.
    made = (("report",), ("SHA256SUMS",), *(("audit", name.name) for name in runs if len(name.parts) == 2))
    return {
        str(name): path.read_bytes()
        for name, path in runs.items()
        if not any(name.parts[: len(own)] == own for own in made)
    }


def test_every_layer_of_the_profile_has_its_directory(results: Path) -> None:
    """What runs stands apart, says its layer in every manifest, and passes both checks."""
    assert {path.name for path in results.iterdir() if path.is_dir()} == LAYER_DIRECTORIES | OTHER_DIRECTORIES
    assert {layer.key for layer in LAYERS if layer.row} <= LAYER_DIRECTORIES
    for path in results.rglob("manifest.json"):
        assert manifest(path.parent)["config"]["layer"] == path.relative_to(results).parts[0]
    assert verify(results).problems == ()
    plain = ["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(plain, cwd=results, check=False).returncode == 0


def test_the_audit_reads_every_recorded_layer(results: Path) -> None:
    """Its three tasks are counted apart and together, and every run that it read is named."""
    page = (results / "audit" / "audit.md").read_text()
    for row in ("| tsp | 4 |", "| cvrp | 4 |", "| obp | 2 |", "| all | 10 |"):
        assert row in page
    for run in ("cohort/native-s42", "breadth/cvrp-qwen2-2.1m/native-s42", "audit/obp-qwen2-2.1m/frozen-s42"):
        assert f"| {run}/completions.jsonl |" in page


def test_exposures_otherwise_are_those_of_the_recorded_search(results: Path) -> None:
    """Inserted without condition, what was admitted keeps its exposure; a duplicate may have some."""
    found = [json.loads(line) for line in (results / "audit" / "exposures.jsonl").read_text().splitlines()]
    assert len(found) == 10
    for group in found:
        lines = (results / group["run"] / "completions.jsonl").read_text().splitlines()
        own = [record for record in map(json.loads, lines) if record["step"] == group["step"]]
        for record, free, drawn in zip(own, group["unconditional"], group["sampled"], strict=True):
            if record["exposure"] is None:
                assert free is drawn is None
                continue
            if record["archive_event"] == "admitted":
                assert free == record["exposure"]
            assert free >= record["exposure"]
            assert abs(drawn - record["exposure"]) < 0.1
    readings = (results / "audit" / "readings.csv").read_text()
    assert "all,D13,exposure_unconditional,search_exposure,10," in readings
    table = (results / "report" / "smoke_sensitivity.csv").read_text()
    assert "D13 exposure_sampled/search_exposure,Groups,10," in table


@pytest.mark.parametrize("name", ["completions", "generations", "steps", "heuristics"])
def test_a_replay_of_a_cut_run_says_so(results: Path, tmp_path: Path, name: str) -> None:
    """A record file that lost its first line is an error of one line, whichever file it is."""
    run = Path(shutil.copytree(results / "cohort" / "native-s42", tmp_path / "native-s42"))
    file = run / f"{name}.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(RecordError):
        replay([run], tmp_path / "out", ["search_exposure"], ["group"])


def test_a_restart_begins_with_its_parents_final_adapter(results: Path) -> None:
    """Equal checksums in both manifests, no update in any step, no reward in any record."""
    live, again = manifest(results / "cohort" / "native-s42"), manifest(results / "restart" / "native-s42")
    assert again["initial_adapter_sha256"] == live["final_adapter_sha256"] != live["initial_adapter_sha256"]
    steps = (results / "restart" / "native-s42" / "steps.jsonl").read_text().splitlines()
    assert [json.loads(step)["training_tokens"] for step in steps] == [0, 0]
    assert not (results / "restart" / "native-s42" / "adapter").exists()


def test_the_tokens_of_a_restart_are_drawn_again(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restart by its parent's adapter: the stored one, or one made again; without it, it is not checked."""
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    for part in ("anchor", "audit", "breadth", "probe", "updates", "cohort/frozen-s42"):
        shutil.rmtree(copy / part)
    (copy / "SHA256SUMS").unlink()
    read = "restart/native-s42: 2 groups, "
    # A restart has its parent's adapter; that updates make it is tested with the draws of a cohort.
    command = ["verify", str(copy), "--draws", "--updates", "0"]
    assert (main(command), read in capsys.readouterr().out) == (0, True)

    made = tmp_path / "made" / "cohort" / "native-s42"
    made.mkdir(parents=True)
    shutil.move(copy / "cohort" / "native-s42" / "adapter", made)
    assert main(command) == 0
    out = capsys.readouterr().out
    reason = (
        "the adapter of cohort/native-s42 is not stored: s2s retrain makes it, and --adapters DIR says where"
    )
    assert (read in out, f"NOT CHECKED 2 groups of restart/native-s42: {reason}" in out) == (False, True)
    arguments = [*command, "--adapters", str(tmp_path / "made")]
    assert (main(arguments), read in capsys.readouterr().out) == (0, True)

    tensors = made / "adapter" / "adapter_model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"\x01")
    assert main(arguments) == 1
    assert "PROBLEM restart/native-s42: not read to its end: the adapter in " in capsys.readouterr().out


def test_the_anchors_prefix_is_the_cohorts_frozen_run(results: Path) -> None:
    """The same seed without updates gives the same groups, however long the run is: prefixes are exact."""
    short = (results / "cohort" / "frozen-s42" / "completions.jsonl").read_bytes()
    long = (results / "anchor" / "frozen-s42" / "completions.jsonl").read_bytes()
    assert long.startswith(short)
    assert len(long) > len(short)


def test_all_checkpoints_answer_one_bank(results: Path) -> None:
    """The bank is one, the initial model is among the checkpoints, and every prompt is answered."""
    probe = json.loads((results / "probe" / "probe.json").read_bytes())
    assert probe["status"] == "complete"
    assert [checkpoint["name"] for checkpoint in probe["checkpoints"]] == ["initial", "native-s42"]
    assert {checkpoint["bank_sha256"] for checkpoint in probe["checkpoints"]} == {probe["bank_sha256"]}
    final = manifest(results / "cohort" / "native-s42")["final_adapter_sha256"]
    assert [checkpoint["adapter_sha256"] for checkpoint in probe["checkpoints"]] == [None, final]
    for name in ("initial", "native-s42"):
        lines = (results / "probe" / f"{name}.jsonl").read_text().splitlines()
        places = [(answer["prompt"], answer["position"]) for answer in map(json.loads, lines)]
        assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]


def stop_probe(results: Path) -> None:
    """Leave a probe as if it had been stopped after its first checkpoint."""
    probe = json.loads((results / "probe" / "probe.json").read_bytes())
    stopped = {**probe, "status": "running", "checkpoints": probe["checkpoints"][:1]}
    (results / "probe" / "probe.json").write_text(json.dumps(stopped))
    (results / "probe" / "native-s42.jsonl").rename(results / "probe" / "native-s42.partial")


@pytest.mark.parametrize("apart", [False, True])
def test_a_probe_does_not_depend_on_what_was_probed_before(
    results: Path, tmp_path: Path, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that was stopped after its first checkpoint ends with the same bytes.

    So it does where a checkpoint answers in a process of its own, as with an engine.
    """
    if apart:
        monkeypatch.setattr(probe_process, "write_answers", write_answers_apart)
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    before = tree(copy)
    stop_probe(copy)
    reproduce(tiny_profile(), copy, Execution(jobs=2), PlainProgress(), ["probe"])
    assert tree(copy) == before


def test_what_ends_a_probe_apart_is_told(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error there is the error here; a process that is killed is told as such."""
    here = os.getpid()

    def write(task: ProbeTask, progress: Progress) -> Barriers:
        if os.getpid() == here:
            return write_answers_apart(task, progress)
        raise ModelFileError("the adapter is damaged")

    monkeypatch.setattr(probe_process, "write_answers", write)
    monkeypatch.setattr(probe_process, "get_context", lambda _: get_context("fork"))  # it loads nothing
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    stop_probe(copy)
    (copy / "probe" / "native-s42.partial").unlink()
    with pytest.raises(ModelFileError, match="the adapter is damaged"):
        reproduce(tiny_profile(), copy, Execution(jobs=2), PlainProgress(), ["probe"])
    monkeypatch.setattr(probe_process, "_answer", kill)
    with pytest.raises(RunFailedError, match="checkpoint native-s42 failed with exit code -9"):
        reproduce(tiny_profile(), copy, Execution(jobs=2), PlainProgress(), ["probe"])


def kill(*_: object) -> None:
    """End like a process that ran out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_api_run_went_over_http(results: Path) -> None:
    """One request and one reported completion per group, from the model that the manifest's files are of."""
    run = results / "api" / "frozen-s42"
    config = manifest(run)["config"]
    assert (config["generation"]["api"]["base_url"], config["generation"]["group_size"]) == ("loopback", 1)
    groups = [json.loads(line) for line in (run / "generations.jsonl").read_text().splitlines()]
    requests = [request for group in groups for request in group["requests"]]
    assert len(groups) == len(requests) == 3
    assert {request["model"] for request in requests} == {config["model"]}
    counts = [json.loads(line) for line in (run / "completions.jsonl").read_text().splitlines()]
    for record, request in zip(counts, requests, strict=True):
        assert record["prompt_tokens"] == request["prompt_tokens"] > 0
        assert record["completion_tokens"] == request["completion_tokens"] > 0
    assert manifest(run)["model_files"] == manifest(results / "cohort" / "frozen-s42")["model_files"]


def test_what_is_complete_is_kept_in_every_layer(results: Path, tmp_path: Path) -> None:
    """A second call verifies everything and changes no file of any layer."""
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    before = tree(copy)
    reproduce(tiny_profile(), copy, Execution(jobs=2), PlainProgress())
    assert tree(copy) == before
    assert verify(copy).problems == ()


def test_an_unfinished_run_stops_no_other_layer(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside it a layer runs; there is no report yet, and updates do not step on what is not finished."""
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    (run,) = (copy / "breadth").glob("*/native-s42")
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"status": "complete"', '"status": "running"'))
    assert reproduce(tiny_profile(), copy, Execution(), PlainProgress(), ["probe"]) is None
    said = capsys.readouterr().out
    assert f"no report: {run.relative_to(copy)} not finished" in said
    with pytest.raises(RunDirectoryError):
        reproduce(tiny_profile(), copy, Execution(), PlainProgress(), ["updates"])


@pytest.mark.parametrize("layer", ["restart", "anchor", "probe"])
def test_a_layer_without_its_cohort_says_so(layer: str, tmp_path: Path) -> None:
    """Nothing is made, and the message names the command."""
    with pytest.raises(RunDirectoryError, match=r"run the cohort first.*--layer cohort"):
        reproduce(tiny_profile(), tmp_path / "out", Execution(), PlainProgress(), [layer])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "restart/native-s42/manifest.json",
            '"initial_adapter_sha256": "',
            '"initial_adapter_sha256": "0',
            "begin",
        ),
        (
            "cohort/native-s42/timings.jsonl",
            '"step":0',
            '"step": 0',
            "not made from the timings of native-s42",
        ),
        ("anchor/contract.json", '"margin":', '"margin": ', "contract.json is not what"),
        ("probe/bank.jsonl", '"prompt":0', '"prompt": 0', "bank.jsonl is not the recorded one"),
        ("probe/native-s42.jsonl", '"position":0', '"position":1', "does not answer every prompt"),
    ],
)
def test_verify_finds_layers_that_do_not_fit(
    results: Path, tmp_path: Path, file: str, old: str, new: str, problem: str
) -> None:
    """Consistent checksums do not hide a layer that stands on something else."""
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    write_sums(copy)
    assert any(problem in found for found in verify(copy).problems)


@pytest.fixture(scope="module")
def executed(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every program of the results gave: a state file, so that nothing below is executed twice."""
    state = tmp_path_factory.mktemp("recompute") / "state"
    recompute(results, RecomputeOptions(state=state), PlainProgress())
    return state


def test_every_layer_recomputes_to_what_is_recorded(results: Path, executed: Path) -> None:
    """Every run, the probe and the held-out evaluation agree; tokens nobody showed and updates are open."""
    before = tree(results)
    done = recompute(results, RecomputeOptions(state=executed), PlainProgress())
    assert done.problems == ()
    assert {places for places in done.not_compared.values()} == {("api/frozen-s42: all",), ("updates: all",)}
    assert done.counts["programs"] == 0
    runs = sum(1 for _ in results.rglob("manifest.json"))
    assert done.counts["parts"] == runs + len(("probe", "heldout", "updates"))
    assert tree(results) == before


def first(row: list[Any]) -> None:
    """Change the first number of a list."""
    row[0] += 1


RECOMPUTED: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "prompt ids": ("cohort/native-s42/generations.jsonl", lambda g: first(g["prompt_ids"]), "prompt_ids"),
    "ids": (
        "breadth/cvrp-qwen2-2.1m/native-s42/generations.jsonl",
        lambda g: first(g["completion_ids"][0]),
        "ids",
    ),
    "cut": ("restart/native-s42/steps.jsonl", lambda s: s.update(prompt_tokens_cut=1), "prompt_tokens_cut"),
    "end": (
        "anchor/frozen-s42/completions.jsonl",
        lambda c: c.update(truncated=not c["truncated"]),
        "truncated",
    ),
    "request": ("api/frozen-s42/generations.jsonl", lambda g: g["requests"][0].update(seed=1), "seeds"),
    "bank": ("probe/bank.jsonl", lambda b: b.update(frontier=-1.0), "bank"),
    "answer": ("probe/initial.jsonl", lambda a: a.update(text=a["text"] + " "), "response_sha256"),
    "answer's prompt": ("probe/native-s42.jsonl", lambda a: a.update(prompt_tokens=9), "prompt_tokens is 9"),
    "outcome": (
        "probe/native-s42.jsonl",
        lambda a: a.update(outcome="randomness", score=None),
        "outcome randomness",
    ),
    "held-out": ("heldout/scores.jsonl", lambda row: first(row["scores"]), "scores"),
    "behaviour": (
        "heldout/behaviours.jsonl",
        lambda row: row.update(behaviour_sha256="0" * 64),
        "behaviours",
    ),
}


# Edits of one list are in files of their own, and are looked for at once.
AT_ONCE = [
    ["prompt ids", "ids", "cut", "end", "request", "bank", "held-out"],
    ["answer", "answer's prompt", "behaviour"],
    ["outcome"],
]


@pytest.mark.parametrize("names", AT_ONCE, ids=lambda names: names[-1])
def test_recomputing_finds_resealed_edits_of_every_layer(
    results: Path, executed: Path, tmp_path: Path, names: list[str]
) -> None:
    """One field of one record of a layer, with lists made anew."""
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    for name in names:
        edit_line(copy / RECOMPUTED[name][0], 0, RECOMPUTED[name][1])
    reseal(copy)
    found = recompute(copy, RecomputeOptions(state=executed), PlainProgress()).problems
    for file, _, expected in (RECOMPUTED[name] for name in names):
        layer = file.split("/")[0]
        assert any(problem.startswith(layer) and expected in problem for problem in found), (file, found)


def test_every_edit_is_looked_for() -> None:
    """Of the list above none is left out."""
    assert sorted(name for names in AT_ONCE for name in names) == sorted(RECOMPUTED)
