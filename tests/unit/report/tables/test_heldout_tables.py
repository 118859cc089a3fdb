"""Held-out scores and behaviours: gaps to shipped references, and refusals of what does not belong."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import msgspec
import numpy as np
import pytest
from spec.synthetic_runs import write_synthetic_run

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.layers.heldout.tables import behaviours, heldout, optimality_gap
from search_to_signal.problems.tsp import reference_lengths
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.heldout import (
    BehaviourRecord,
    HeldoutManifest,
    HeldoutRecord,
    read_heldout,
    write_heldout,
)
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.schema import Outcome
from search_to_signal.report.results import Results


def cohort(root: Path) -> Results:
    """A cohort of two frozen seeds."""
    for seed in (1, 2):
        write_synthetic_run(root / "cohort" / f"frozen-s{seed}", "frozen", seed)
    return Results(root)


def held(root: Path, manifest: Callable[..., Manifest], scores: list[tuple[float, ...]]) -> Results:
    """A cohort of two seeds with a held-out evaluation on the first instances of one split."""
    results = cohort(root)
    folder = root / "heldout"
    folder.mkdir()
    lines = [
        HeldoutRecord(
            run=run.path, split="heldout_50", heuristic="h", outcome=Outcome.VALID, detail="", scores=found
        )
        for run, found in zip(results.cohort, scores, strict=True)
    ]
    programs = {
        r.program_sha256 for run in results.cohort for g in run.groups for r in g if r.score is not None
    }
    known = [
        BehaviourRecord(
            program_sha256=str(program),
            outcome=Outcome.VALID,
            behaviour_sha256=hashlib.sha256(str(program).encode()).hexdigest()[0],
        )
        for program in sorted(map(str, programs))
    ]
    for name, records in (("scores.jsonl", lines), ("behaviours.jsonl", known)):
        (folder / name).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    plain = manifest({})
    write_heldout(
        folder,
        HeldoutManifest(
            status="complete",
            purpose="formal",
            problem="tsp",
            splits=("heldout_50",),
            instances=2,
            behaviour_split="embedded",
            behaviour_instances=4,
            timeout_s=1.0,
            runs={run.path: sha256_file(run.directory / "completions.jsonl") for run in results.cohort},
            files={name: sha256_file(folder / name) for name in ("scores.jsonl", "behaviours.jsonl")},
            source=plain.source,
            environment=plain.environment,
            isolation={},
        ),
    )
    return Results(root)


def test_gaps_are_to_the_reference_tours(tmp_path: Path, manifest: Callable[..., Manifest]) -> None:
    """Tours a tenth and three tenths longer than the references: a gap of 20 %; the spread is over seeds."""
    first, second = reference_lengths("heldout_50")[:2].tolist()
    scores = [(-1.1 * first, -1.3 * second), (-first, -second)]
    table = heldout(held(tmp_path, manifest, scores))
    assert table.cell("frozen-s1", "Gap (%) heldout_50").value == pytest.approx(20.0)
    assert table.cell("frozen-s2", "Gap (%) heldout_50").value == pytest.approx(0.0)
    cell = table.cell("frozen", "Gap (%) heldout_50")
    assert (cell.value, cell.spread) == (pytest.approx(10.0), pytest.approx(20.0 / 2**0.5))
    assert table.cell("frozen-s2", "Gap (%) heldout_50").origins[0].lines == (2,)
    assert optimality_gap(np.array([-11.0, -12.0]), np.array([10.0, 10.0])) == pytest.approx(15.0)


def test_a_failed_heuristic_or_no_tour_has_no_gap(tmp_path: Path, manifest: Callable[..., Manifest]) -> None:
    table = heldout(held(tmp_path, manifest, [(-6.0, -6.0), ()]))
    assert table.cell("frozen-s2", "Score heldout_50").value is None
    assert table.cell("frozen", "Score heldout_50").value is None
    held(tmp_path / "1", manifest, [(6.0,), (6.0,)])
    folder = tmp_path / "1" / "heldout"
    write_heldout(folder, msgspec.structs.replace(read_heldout(folder), problem="my_problem:problem"))
    table = heldout(Results(tmp_path / "1"))
    assert table.columns == ("Score heldout_50",)
    assert "gap" not in table.note
    table = behaviours(held(tmp_path / "2", manifest, [(-6.0,), (-6.0,)]))
    valid, programs, distinct, share, _ = (cell.value for cell in table.rows[-1].cells)
    assert isinstance(valid, float)
    assert isinstance(programs, float)
    assert isinstance(distinct, float)
    assert distinct <= 16 <= programs <= valid
    assert share == pytest.approx(100.0 * distinct / programs)


def test_held_out_scores_of_another_cohort_are_refused(
    tmp_path: Path, manifest: Callable[..., Manifest]
) -> None:
    held(tmp_path, manifest, [(-6.0,), (-6.0,)])
    file = tmp_path / "heldout" / "scores.jsonl"
    text = file.read_bytes()
    file.write_bytes(text.replace(b"-6.0", b"-5.0"))
    with pytest.raises(RunDirectoryError, match=r"scores\.jsonl is not the recorded one"):
        heldout(Results(tmp_path))
    file.write_bytes(text)
    rmtree(tmp_path / "cohort" / "frozen-s2")
    with pytest.raises(RunDirectoryError, match="another cohort"):
        heldout(Results(tmp_path))
