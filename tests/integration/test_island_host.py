"""The island host of docs/examples: run with resets, stopped, verified, forged, reported."""

import csv
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cohorts import StoppingAfter
from tests.profiles import profile_head

from search_to_signal.base.progress import PlainProgress
from search_to_signal.cli import main
from search_to_signal.records.checksums import write_sums
from search_to_signal.run.loop import run
from search_to_signal.run.profile import load_profile
from search_to_signal.verify.directory import verify
from search_to_signal.verify.recompute import RecomputeOptions, recompute

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "island_host.py"
ALLOWED = ("--host", "island_host:IslandHost")
RECORDS = ("completions", "steps", "generations", "heuristics")
PROFILE = f"""{profile_head("frozen", groups=7, seed=42)}
host = "island_host:IslandHost"

[host_settings]
islands = 2
reset = 3

[generation]
group_size = 4
max_prompt_tokens = 1024
max_completion_tokens = 320
"""
Row = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where somebody works: the example, a profile that names it, and what its run recorded."""
    directory = tmp_path_factory.mktemp("islands")
    shutil.copy(EXAMPLE, directory)
    (directory / "islands.toml").write_text(PROFILE, encoding="utf-8")
    sys.path.append(str(directory))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)  # where the processes of the runs look
        assert main(["run", "--profile", "islands.toml", "--out", "out"]) == 0
    yield directory
    sys.path.remove(str(directory))
    sys.modules.pop("island_host", None)


def whole(place: Path) -> Path:
    """The run directory of the results."""
    return place / "out" / "cohort" / "frozen-s42"


def rows(directory: Path, name: str) -> list[Row]:
    """A record file."""
    return [json.loads(line) for line in (directory / f"{name}.jsonl").read_text("utf-8").splitlines()]


def test_it_is_recorded_in_its_own_words(place: Path) -> None:
    """Its operator, its resets, programs shown as versions, and the scores that make its clusters."""
    steps, completions = rows(whole(place), "steps"), rows(whole(place), "completions")
    assert [step["collapsed"] for step in steps] == [False, False, False, True, False, False, True]
    assert {record["operator"] for record in (*steps, *completions)} == {"improvement"}
    prompts = [generation["prompt"] for generation in rows(whole(place), "generations")]
    assert all("def select_next_node_v0(" in prompt for prompt in prompts)
    assert any("def select_next_node_v1(" in prompt for prompt in prompts)
    valid = [record for record in completions if record["score"] is not None]
    assert len({tuple(record["instance_scores"]) for record in valid}) > 3
    assert all("instance_scores" not in record for record in completions if record["score"] is None)


def test_it_verifies_with_leave_and_its_table_has_its_operator(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records agree; the host plays them again; the report has a row for the name, and none of CALM's."""
    assert main(["verify", str(place / "out")]) == 0
    capsys.readouterr()
    assert main(["verify", "--recompute", *ALLOWED, str(place / "out")]) == 0, capsys.readouterr()
    with (place / "out" / "report" / "smoke_operators.csv").open(newline="", encoding="utf-8") as lines:
        found = {row["row"] for row in csv.DictReader(lines)}
    assert {"frozen/improvement", "frozen-s42/improvement"} <= found
    assert not any("crossover" in row for row in found)


def test_a_stopped_run_goes_on_to_the_same_bytes(place: Path) -> None:
    """Islands, clusters and the next reset come back out of the records."""
    (config,) = load_profile(str(place / "islands.toml")).runs()
    # Behind the fifth group islands have several clusters again after a reset.
    with pytest.raises(KeyboardInterrupt):
        run(config, place / "stopped", StoppingAfter(5))
    run(config, place / "stopped", PlainProgress(), resume=True)
    for name in RECORDS:
        assert (place / "stopped" / f"{name}.jsonl").read_bytes() == (
            whole(place) / f"{name}.jsonl"
        ).read_bytes(), name


def changed(place: Path, name: str, changes: dict[str, str]) -> Path:
    """A copy of the run with text of its records replaced, and checksums made anew."""
    copy = Path(shutil.copytree(whole(place), place / name))
    for record in RECORDS:
        path = copy / f"{record}.jsonl"
        text = path.read_text(encoding="utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    write_sums(copy)
    return copy


def recomputed(run_directory: Path) -> str:
    """What recomputing finds otherwise, in lines."""
    return "\n".join(recompute(run_directory, RecomputeOptions(), PlainProgress()).problems)


def test_a_forged_operator_is_found(place: Path) -> None:
    """What is no name is no record; another name than the host draws contradicts no record, and the host."""
    (problem, *_) = verify(changed(place, "shouted", {'"improvement"': '"Improvement!"'})).problems
    assert "operator" in problem
    copy = changed(place, "renamed", {'"improvement"': '"mutation"'})
    assert verify(copy).problems == ()
    assert "steps.jsonl:1 (step 0): operator is mutation" in recomputed(copy)


def test_forged_instance_scores_are_found(place: Path) -> None:
    """Another score has another mean; two that change places have the same, and are asked of the program."""
    record = [row for row in rows(whole(place), "completions") if row["score"] is not None][-1]
    scores = record["instance_scores"]
    where = f"step {record['step']}, completion {record['index']}"
    raised = [scores[0] + 1, *scores[1:]]
    problems = verify(changed(place, "raised", {compact(scores): compact(raised)})).problems
    assert any(f"{where}: score is {record['score']}, the mean of its instance" in told for told in problems)
    swapped = [scores[8], *scores[1:8], scores[0], *scores[9:]]
    copy = changed(place, "swapped", {compact(scores): compact(swapped)})
    assert verify(copy).problems == ()
    assert f"{where}: instance_scores ({swapped[0]}" in recomputed(copy)


def test_scores_that_nobody_asked_for_are_found(place: Path) -> None:
    """A record without them, where the seed has them, is told."""
    record = [row for row in rows(whole(place), "completions") if row["score"] is not None][-1]
    copy = changed(place, "without", {f',"instance_scores":{compact(record["instance_scores"])}': ""})
    where = f"step {record['step']}, completion {record['index']}"
    assert any(f"{where}: 0 instance scores, where 16 are due" in told for told in verify(copy).problems)


def compact(scores: list[float]) -> str:
    """Numbers as records have them."""
    return json.dumps(scores, separators=(",", ":"))
