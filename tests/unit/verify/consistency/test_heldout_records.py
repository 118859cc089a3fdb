"""Held-out files are held against the cohort in the order in which the evaluation wrote them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from spec.synthetic_runs import write_lines
from tests.unit.conftest import write_run

from search_to_signal.layers.heldout.checks import problems as heldout_problems
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.heldout import BehaviourRecord, HeldoutManifest, HeldoutRecord, write_heldout
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord, Outcome
from search_to_signal.report.results import RecordedRun, Results
from search_to_signal.run.texts import ParsedTexts

SPLITS = ("heldout_50", "heldout_100", "heldout_200")


@pytest.fixture
def results(tmp_path: Path, manifest: Callable[..., Manifest]) -> Path:
    """Two conditions and two seeds, whose names sort otherwise, with their held-out files."""
    for condition in ("factorized", "frozen"):
        for seed in (42, 3407):
            write_run(tmp_path / "cohort" / f"{condition}-s{seed}", condition, seed)
    folder, runs = tmp_path / "heldout", Results(tmp_path).cohort
    folder.mkdir()
    best = {
        run.path: max(read_records(run.directory / HEURISTICS, HeuristicRecord), key=lambda h: h.score).id
        for run in runs
    }
    scores = [
        HeldoutRecord(
            run=path, split=split, heuristic=best[path], outcome=Outcome.VALID, detail="", scores=(-1.0,)
        )
        for split in ("heldout_50", "heldout_100", "heldout_200")
        for path in best
    ]
    valid = (r.program_sha256 for run in runs for group in run.groups for r in group if r.score is not None)
    behaviours = [
        BehaviourRecord(program_sha256=str(program), outcome=Outcome.VALID, behaviour_sha256="0" * 64)
        for program in dict.fromkeys(valid)
    ]
    write_lines(folder / "scores.jsonl", scores)
    write_lines(folder / "behaviours.jsonl", behaviours)
    _describe(folder, runs, manifest({}))
    return tmp_path


def _describe(folder: Path, runs: Sequence[RecordedRun], plain: Manifest) -> None:
    write_heldout(
        folder,
        HeldoutManifest(
            status="complete",
            purpose="formal",
            problem="tsp",
            splits=SPLITS,
            instances=1,
            behaviour_split="embedded",
            behaviour_instances=4,
            timeout_s=1.0,
            runs={run.path: sha256_file(run.directory / "completions.jsonl") for run in runs},
            files={name: sha256_file(folder / name) for name in ("scores.jsonl", "behaviours.jsonl")},
            source=plain.source,
            environment=plain.environment,
            isolation={},
        ),
    )


def test_several_seeds_in_the_order_of_the_evaluation_are_no_problem(results: Path) -> None:
    told = [problem for problem in heldout_problems(results, ParsedTexts()) if "isolation" not in problem]
    assert told == []


@pytest.mark.parametrize("name", ["scores.jsonl", "behaviours.jsonl"])
def test_another_order_is_a_problem(results: Path, name: str, manifest: Callable[..., Manifest]) -> None:
    folder = results / "heldout"
    lines = (folder / name).read_bytes().splitlines(keepends=True)
    (folder / name).write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))
    _describe(folder, Results(results).cohort, manifest({}))
    assert any(f"{name} does not hold" in problem for problem in heldout_problems(results, ParsedTexts()))
