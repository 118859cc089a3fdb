"""Packed runs come back byte for byte; what is missing, cut or changed is named with what it was."""

import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from tests.command import Capture, Command, Make, Patch
from tests.forging import edit_line, reseal
from tests.plans import plan_text

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.cli import main
from search_to_signal.records.checksums import seal, sha256_file, write_sums
from search_to_signal.records.manifest import read_manifest, write_roster
from search_to_signal.records.reader import GENERATIONS
from search_to_signal.sandbox.programs import program_sha256
from search_to_signal.study import container, unpacking
from search_to_signal.study.container import read_container, write_container
from search_to_signal.study.packed_run import guessed_program, restored


def files(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def results(make_run: Make, tmp_path: Path) -> Path:
    """A results directory of one frozen and one trained run."""
    for condition in ("frozen", "native"):
        make_run(tmp_path / "results" / "main" / "cohort" / f"{condition}-s1", condition, 1)
    return tmp_path / "results" / "main"


def evidence_of(results: Path) -> Path:
    return results.parent.parent / "evidence"


def pack(results: Path, *options: str) -> Path:
    """Pack a results directory beside it; returns the packed evidence."""
    into = evidence_of(results)
    assert main(["pack", str(results), "--into", str(into), *options]) == 0
    return into


def test_every_byte_comes_back(results: Path, tmp_path: Path) -> None:
    packed = pack(results, "--adapters", "*")
    assert main(["unpack", str(packed), "--out", str(tmp_path / "out")]) == 0
    assert files(tmp_path / "out" / "main") == files(results)


@pytest.mark.parametrize(
    ("within", "at", "ended"),
    [(container, "packed_runs", [0, 2]), (unpacking, "unpack_rest", [2, 0])],
    ids=["before", "while"],
)
def test_of_two_commands_into_one_place_one_is_told_of_the_other(
    results: Path,
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Capture,
    within: ModuleType,
    at: str,
    ended: list[int],
) -> None:
    packed, out, step = pack(results, "--adapters", "*"), tmp_path / "out", getattr(within, at)
    command = ["unpack", str(packed), "--out", str(out)]
    codes: list[int] = []

    def interrupted(*given: object) -> object:
        monkeypatch.setattr(within, at, step)
        codes.append(main(command))
        return step(*given)

    monkeypatch.setattr(within, at, interrupted)
    capsys.readouterr()
    codes.append(main(command))
    assert codes == ended
    told = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert told == [
        f"s2s: error: {out / 'main'} is not empty: let another command that writes it end, "
        "give another --out, or remove what a stopped command left"
    ]
    assert files(out / "main") == files(results)


def test_weights_are_left_out_unless_asked_for(results: Path, tmp_path: Path, s2s: Command) -> None:
    packed = pack(results)
    said = s2s("unpack", packed, "--out", tmp_path / "out")
    assert "main: 2 files were not packed: final adapters" in said.out
    missing = set(files(results)) - set(files(tmp_path / "out" / "main"))
    assert missing == {
        f"cohort/native-s1/adapter/adapter_{end}" for end in ("config.json", "model.safetensors")
    }


def test_runs_that_came_without_their_weights_are_packed(results: Path, tmp_path: Path) -> None:
    whole = files(pack(results))
    shutil.rmtree(results / "cohort" / "native-s1" / "adapter")
    shutil.rmtree(tmp_path / "evidence")
    assert files(pack(results)) == whole
    shutil.rmtree(tmp_path / "evidence")
    into = str(tmp_path / "evidence")
    assert main(["pack", str(results), "--into", into, "--adapters", "*"]) == RunDirectoryError.exit_code


def test_a_layer_s_list_that_is_not_of_what_is_there_is_left_out(results: Path, make_run: Make) -> None:
    write_sums(results / "cohort")
    packed = pack(results)
    assert (packed / "main" / "cohort" / "SHA256SUMS").is_file()
    make_run(results / "cohort" / "frozen-s2", "frozen", 2)
    assert not (pack(results) / "main" / "cohort" / "SHA256SUMS").exists()


def test_a_file_below_several_lists_is_hashed_once(results: Path, monkeypatch: Patch) -> None:
    write_sums(results / "cohort")
    seal(results, "a title")
    hashed: list[Path] = []

    def recorded_hash(path: Path) -> str:
        hashed.append(path)
        return sha256_file(path)

    monkeypatch.setattr("search_to_signal.study.packing.sha256_file", recorded_hash)
    pack(results)
    assert results / "cohort" / "frozen-s1" / "completions.jsonl" in hashed
    assert len(hashed) == len(set(hashed))


def test_what_an_interrupted_run_left_is_no_damage(
    results: Path, make_run: Make, tmp_path: Path, s2s: Command
) -> None:
    make_run(results / "cohort" / "interrupted" / "frozen-s1-1", "frozen", 1)
    seal(results, "a study")
    packed = pack(results, "--adapters", "*")
    said = s2s("unpack", packed, "--out", tmp_path / "out")
    assert "files of interrupted runs" in said.out
    missing = set(files(results)) - set(files(tmp_path / "out" / "main"))
    assert missing
    assert all(name.startswith("cohort/interrupted/") for name in missing)


def test_a_run_is_added_without_writing_others_again(results: Path, make_run: Make, s2s: Command) -> None:
    first = files(pack(results))
    make_run(results / "cohort" / "native-s2", "native", 2)
    assert "main: 1 runs packed, 2 packed before" in s2s("pack", results, "--into", evidence_of(results)).out
    second = files(evidence_of(results))
    kept = [name for name in first if "native-s1" in name or "frozen-s1" in name]
    assert kept
    assert all(first[name] == second[name] for name in kept)


def test_a_run_in_place_of_a_packed_one_is_named(results: Path, s2s: Command) -> None:
    pack(results)
    edit_line(results / "cohort" / "native-s1" / "heuristics.jsonl", 1, lambda line: line.update(code="pass"))
    write_sums(results / "cohort" / "native-s1")
    command = ("pack", results, "--into", evidence_of(results))
    said = s2s(*command)
    assert "main: in place of what was packed before: cohort/native-s1\n" in said.out + said.err
    said = s2s(*command)
    assert "in place of" not in said.out + said.err


def test_a_planned_run_that_has_just_begun_is_not_packed(results: Path) -> None:
    begun = results / "cohort" / "native-s2"
    begun.mkdir()
    (begun / "steps.jsonl").touch()
    (results / "cohort" / "native-s2.log").touch()
    write_roster(results / "cohort", ["frozen-s1", "native-s1", "native-s2"])
    rest = read_container(pack(results) / "main" / "files.xz")
    assert "cohort/native-s2.log" in rest
    assert not any(name.startswith("cohort/native-s2/") for name in rest)


def test_tables_stay_open_and_what_is_made_again_is_left_out(results: Path) -> None:
    made = {"report/core.csv": "a,b\n", "report/index.html": "<p>", "BLOCKS.jsonl": "{}"}
    for name, text in {**made, "notes.txt": "by hand", "cohort/odd.csv": "c,d\n"}.items():
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text(text)
    packed = pack(results) / "main"
    assert (packed / "report" / "core.csv").read_text() == "a,b\n"
    assert [path.name for path in (packed / "report").rglob("*")] == ["core.csv"]
    assert not (packed / "BLOCKS.jsonl").exists()
    assert set(read_container(packed / "files.xz")) == {"notes.txt", "cohort/odd.csv"}


def test_what_would_not_be_found_again_is_not_packed(results: Path, s2s: Command) -> None:
    """Into its own directory it would be packed itself the next time: refused before anything is written."""
    before = files(results)
    said = s2s("pack", results, "--into", results / "evidence", code=2)
    assert "is inside the directory that is packed" in said.err
    assert files(results) == before
    # Tables would take it for that one: it is refused before anything of it is written.
    (results / "cohort" / "native-s1").rename(results / "cohort" / "factorized-s1")
    into = evidence_of(results)
    said = s2s("pack", results, "--into", into, code=4)
    assert "cohort/factorized-s1 has the configuration of native-s1" in said.err
    assert not list(into.rglob("*"))


def test_a_seal_that_is_older_than_a_run_is_not_packed(results: Path, make_run: Make, tmp_path: Path) -> None:
    seal(results, "a study")
    make_run(results / "cohort" / "frozen-s2", "frozen", 2)
    packed = pack(results, "--adapters", "*")
    assert not (packed / "main" / "SHA256SUMS").exists()
    assert main(["unpack", str(packed), "--out", str(tmp_path / "out")]) == 0
    seal(results, "a study")
    packed = pack(results, "--adapters", "*")
    assert main(["unpack", str(packed), "--out", str(tmp_path / "again")]) == 0
    assert files(tmp_path / "again" / "main") == files(results)


def test_what_no_rule_explains_stays(results: Path, tmp_path: Path) -> None:
    run = results / "cohort" / "native-s1"
    edit_line(run / "completions.jsonl", 2, lambda line: line.update(response_sha256="0" * 64, parents=["x"]))
    edit_line(run / "completions.jsonl", 4, lambda line: line.update(archive_gap=0.25, advantage=9.5))
    edit_line(run / "heuristics.jsonl", 1, lambda line: line.update(code="pass", id="1" * 64))
    edit_line(run / "steps.jsonl", 0, lambda line: line.update(prompt_sha256="2" * 64))
    reseal(results)
    packed = pack(results, "--adapters", "*")
    assert main(["unpack", str(packed), "--out", str(tmp_path / "out")]) == 0
    assert files(tmp_path / "out" / "main") == files(results)
    facts = read_manifest(results / "cohort" / "frozen-s1").facts
    short = b'{"step":0,"prompt":"a","completions":["b"]}\n'
    with pytest.raises(RunDirectoryError, match="token ids cannot be restored: give --model DIR"):
        restored({GENERATIONS: short}, facts, None)


def test_all_but_token_ids_comes_out_without_their_tokenizer(
    results: Path, tmp_path: Path, s2s: Command
) -> None:
    packed, run = pack(results, "--adapters", "*"), Path("cohort", "native-s1")
    container = packed / "main" / run / "records.xz"
    parts = read_container(container)
    lines = [msgspec.json.decode(line, type=dict[str, object]) for line in parts[GENERATIONS].splitlines()]
    for line in lines:
        del line["prompt_ids"]
    write_container(container, {**parts, GENERATIONS: b"\n".join(map(msgspec.json.encode, lines))})
    command = ["unpack", str(packed), "--out", str(tmp_path / "out"), "--model", str(tmp_path / "other")]
    told = [line for line in s2s(*command, code=1).out.splitlines() if line.startswith("PROBLEM")]
    assert len(told) == 1
    assert "main: 1 run without token ids: the tokenizer of its model is not here" in told[0]
    assert f"({tmp_path / 'other'} is not it): give --model DIR of tiny and another --out" in told[0]
    out, recorded = files(tmp_path / "out" / "main"), files(results)
    texts = (run / "generations-without-ids.jsonl").as_posix()
    assert set(recorded) - set(out) == {(run / GENERATIONS).as_posix()}
    assert set(out) - set(recorded) == {texts}
    # The index of blocks is made again of the files that are there.
    assert {name for name in set(out) & set(recorded) if out[name] != recorded[name]} <= {"BLOCKS.jsonl"}
    whole = [msgspec.json.decode(line) for line in recorded[(run / GENERATIONS).as_posix()].splitlines()]
    for restored_line, line in zip(map(msgspec.json.decode, out[texts].splitlines()), whole, strict=True):
        assert restored_line["prompt"] == line["prompt"]
        assert restored_line["completions"] == line["completions"]


def test_a_damaged_run_is_not_packed(results: Path, s2s: Command) -> None:
    with (results / "cohort" / "native-s1" / "steps.jsonl").open("a") as file:
        file.write("\n")
    said = s2s("pack", results, "--into", evidence_of(results), code=4)
    assert "cohort/native-s1/steps.jsonl: bytes differ from SHA256SUMS" in said.err


@pytest.mark.parametrize("given", ["results", "results/other"])
def test_what_is_no_profile_of_the_plan_is_not_packed_beside_it(
    results: Path, tmp_path: Path, s2s: Command, given: str
) -> None:
    """The directory above the profiles, or one of another plan, would stand there as one more profile."""
    into = tmp_path / "evidence"
    into.mkdir()
    (into / "plan.toml").write_text(plan_text({}))
    shutil.copytree(results, tmp_path / "results" / "other")
    said = s2s("pack", results, tmp_path / given, "--into", into, code=2)
    assert f"{tmp_path / given} is not named like a profile of {into / 'plan.toml'}" in said.err
    assert [path.name for path in into.iterdir()] == ["plan.toml"]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [_cut, _change, Path.unlink])
def test_damage_is_named_with_what_it_was(
    results: Path, tmp_path: Path, s2s: Command, damage: Callable[[Path], None]
) -> None:
    packed = pack(results)
    path = packed / "main" / "cohort" / "native-s1" / "records.xz"
    damage(path)
    said = s2s("rebuild", packed, "--out", tmp_path / "shipped", code=4)
    assert "main/cohort/native-s1/records.xz" in (told := said.err)
    assert "it was the records of run main/cohort/native-s1" in told
    assert not (tmp_path / "shipped").exists()
    assert s2s("unpack", packed, "--out", tmp_path / "out", code=None).code in (1, 4)


def test_a_container_of_other_records_is_found_without_the_list(results: Path, tmp_path: Path) -> None:
    """Whoever writes the packed list anew still meets the run's own list."""
    packed = pack(results)
    for name in ("manifest.json", "config.json", "SHA256SUMS"):
        shutil.copy(packed / "main/cohort/frozen-s1" / name, packed / "main/cohort/native-s1" / name)
    assert main(["unpack", str(packed), "--out", str(tmp_path / "out")]) == 4


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("import numpy as np\n\ndef f(a):\n    # why\n    x = (a+1)\n\n    return  x", True),
        ("def f(a):\n    if a: return 1\n    return 2", False),
        ('def f(a):\n    """Says."""\n    return a', False),
        ("def f(a:\n    return a", None),
    ],
)
def test_guessed_programs(code: str, right: bool | None) -> None:
    """A guess is the canonical hash, another one, or none; it never fails."""
    guess = guessed_program(code)
    assert (None if guess is None else guess == program_sha256(code)) is right


def test_containers_hold_no_times_and_nothing_that_follows(results: Path) -> None:
    packed = pack(results)
    parts = read_container(packed / "main" / "cohort" / "native-s1" / "records.xz")
    line = msgspec.json.decode(parts["completions.jsonl"].splitlines()[0], type=dict[str, object])
    assert not {"response_sha256", "prompt_sha256", "reward", "advantage", "archive_gap"} & set(line)
    first = files(pack(results))
    shutil.rmtree(evidence_of(results))
    assert files(pack(results)) == first
    container = evidence_of(results) / "main" / "cohort" / "native-s1" / "records.xz"
    assert set(read_container(container)) >= {"generations.jsonl", "completions.jsonl"}
    lzma.open(container).close()
