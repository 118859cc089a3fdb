"""Which runs may stand in one table, what is read back from them, and what their conditions are called."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.command import Make

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import MANIFEST, Manifest, Source, write_roster
from search_to_signal.report.results import Results, load_runs, shown_conditions
from search_to_signal.report.summary import build_findings
from search_to_signal.report.tables.catalogue import read_evidence
from search_to_signal.report.tables.core import core_results
from search_to_signal.run.resuming import mapping_facts
from search_to_signal.verify.directory import verify


def test_runs_come_by_condition_and_seed(make_run: Make, tmp_path: Path) -> None:
    for condition in ("native", "frozen", "factorized"):
        for seed in (3407, 42):
            make_run(tmp_path / f"{condition}-s{seed}", condition, seed)
    runs = [(run.condition, run.seed) for run in load_runs(tmp_path)]
    assert runs == [
        (condition, seed) for condition in ("frozen", "factorized", "native") for seed in (42, 3407)
    ]


def test_a_run_directory_is_a_cohort_of_one(make_run: Make, tmp_path: Path) -> None:
    (run,) = load_runs(make_run(tmp_path / "run", groups=3))
    assert [[record.index for record in group] for group in run.groups] == [[0, 1, 2, 3]] * 3
    assert run.metrics.valid_rate == 0.75
    (run,) = load_runs(make_run(tmp_path / "1" / "run"))
    np.testing.assert_allclose(run.best, [-6.9, -6.8, -6.7, -6.6])
    assert run.metrics.final_best == pytest.approx(-6.6)
    assert run.metrics.trajectory_auc == pytest.approx(-6.75)


def test_an_unfinished_or_short_run_stops_the_table(make_run: Make, tmp_path: Path) -> None:
    """A cohort with an unfinished run is refused, naming it: a table over the rest would look complete."""
    make_run(tmp_path / "frozen-s42", "frozen")
    make_run(tmp_path / "native-s42", status="running")
    with pytest.raises(RunDirectoryError, match="native-s42 is unfinished"):
        load_runs(tmp_path)
    run = make_run(tmp_path / "1" / "native-s42", groups=4)
    for name, kept in (("completions.jsonl", 12), ("steps.jsonl", 3)):
        file = run / name
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:kept]))
    write_sums(run)
    with pytest.raises(RunDirectoryError, match="does not hold 4 groups of 4"):
        load_runs(tmp_path / "1")


def test_runs_that_lie_apart_are_finished_runs_of_the_protocol(make_run: Make, tmp_path: Path) -> None:
    whole, apart = tmp_path / "whole", tmp_path / "apart"
    for condition in ("frozen", "native"):
        make_run(whole / "cohort" / f"{condition}-s42", condition)
    make_run(apart / "cohort" / "frozen-s7", "frozen", 7)
    results = Results(whole, apart)
    assert [run.name for run in results.finished] == ["frozen-s7", "frozen-s42", "native-s42"]
    assert [run.name for run in results.cohort] == ["frozen-s42", "native-s42"]
    assert results.finished[0].path == "cohort/frozen-s7"
    make_run(apart / "cohort" / "native-s8", seed=8, status="running")
    with pytest.raises(RunDirectoryError, match="native-s8 is unfinished"):
        _ = Results(whole, apart).finished
    shutil.rmtree(apart / "cohort" / "native-s8")
    make_run(apart / "cohort" / "native-s8", seed=8, config={"model": "other"})
    with pytest.raises(RunDirectoryError, match="native-s8"):
        _ = Results(whole, apart).finished


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"model": "other"}},
        {"config": {"purpose": "smoke"}},
        {"config": {"learner": {"learning_rate": 1.0}}},
        {"groups": 5},
        {"source": Source(sha256="other", commit=None, clean=None)},
    ],
    ids=["model", "purpose", "learner", "groups", "source"],
)
def test_mixed_protocols_are_refused(make_run: Make, tmp_path: Path, changes: dict[str, Any]) -> None:
    make_run(tmp_path / "frozen-s42", "frozen")
    make_run(tmp_path / "factorized-s42", "factorized")
    make_run(tmp_path / "native-s42", "native", **changes)
    with pytest.raises(RunDirectoryError, match="other than the rest: native-s42"):
        load_runs(tmp_path)


def test_runs_of_one_plan_may_be_of_several_sources(make_run: Make, tmp_path: Path) -> None:
    later, plan = Source(sha256="other", commit=None, clean=None), "a" * 64
    make_run(tmp_path / "frozen-s42", "frozen", plan_sha256=plan)
    make_run(tmp_path / "native-s42", "native", plan_sha256=plan, source=later)
    assert len(load_runs(tmp_path)) == 2
    make_run(tmp_path / "factorized-s42", "factorized", plan_sha256="b" * 64)
    with pytest.raises(RunDirectoryError, match=r"other than the rest: factorized-s42 \(in source\)"):
        load_runs(tmp_path)


def test_runs_that_are_missing_or_twice_are_named(make_run: Make, tmp_path: Path) -> None:
    for condition, seed in (("frozen", 42), ("native", 42), ("frozen", 3407)):
        make_run(tmp_path / f"{condition}-s{seed}", condition, seed)
    with pytest.raises(RunDirectoryError, match="has no run native-s3407"):
        load_runs(tmp_path)
    for condition in ("frozen", "native"):
        make_run(tmp_path / "1" / f"{condition}-s42", condition)
    names = [f"{condition}-s{seed}" for condition in ("frozen", "native") for seed in (42, 3407)]
    write_roster(tmp_path / "1", names[::2])
    assert len(load_runs(tmp_path / "1")) == 2
    write_roster(tmp_path / "1", names)
    with pytest.raises(RunDirectoryError, match="has no run frozen-s3407, native-s3407"):
        load_runs(tmp_path / "1")
    # Two directories of one condition and seed would count one seed as two.
    make_run(tmp_path / "2" / "native-s42", "native")
    make_run(tmp_path / "2" / "copy", "native")
    with pytest.raises(RunDirectoryError, match="native-s42 twice"):
        load_runs(tmp_path / "2")


@pytest.mark.parametrize("name", ["completions.jsonl", "steps.jsonl", "manifest.json"])
def test_a_changed_file_is_named(make_run: Make, tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "native-s42")
    file = run / name
    file.write_bytes(file.read_bytes().replace(b"tsp", b"tps", 1).replace(b"replacement", b"injection", 1))
    with pytest.raises(RunDirectoryError, match=rf"native-s42/{name} is missing or differs"):
        load_runs(tmp_path)


def test_nothing_to_load_is_an_error(make_run: Make, tmp_path: Path) -> None:
    """A directory without runs, or one that is not there, is an error, never an empty table."""
    make_run(tmp_path / "interrupted" / "native-s42-1")
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunDirectoryError, match="holds no run"):
            load_runs(directory)


SHAPE = {"purpose": "formal", "problem": "tsp", "split": "embedded", "model": "tiny", "seed": 42, "groups": 4}


def renamed(run: Path, condition: str, name: str) -> None:
    """Give a run the condition of somebody's own mapping, with the name that it gave itself."""
    manifest = msgspec.json.decode((run / MANIFEST).read_bytes())
    manifest["config"]["condition"], manifest["mapping_name"] = condition, name
    (run / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    write_sums(run)


def test_tables_and_page_show_the_name_and_load_no_module(make_run: Make, tmp_path: Path) -> None:
    make_run(tmp_path / "cohort" / "frozen-s42", "frozen")
    renamed(make_run(tmp_path / "cohort" / "x-s42", "native"), "nowhere_to_be_found:obj", "mine")
    results = Results(tmp_path)
    assert [row.label for row in core_results(results).rows] == ["frozen", "mine"]
    assert [run.facts.condition for run in results.cohort] == ["frozen", "nowhere_to_be_found:obj"]
    assert "nowhere_to_be_found" not in sys.modules
    make_run(tmp_path / "1" / "cohort" / "frozen-s42", "frozen")
    renamed(make_run(tmp_path / "1" / "cohort" / "x-s42", "native"), "nowhere_to_be_found:obj", "my own")
    answers = {found.question: found.answer for found in build_findings(read_evidence(tmp_path / "1"))}
    assert "ended above frozen: my own in " in answers["Did search get better than without training?"]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"a:b": "mine"}, ["mine"]),
        ({"a:b+rank": "mine", "a:b": "mine"}, ["mine+rank", "mine"]),
        ({"a:b": "mine", "c:d": "mine"}, ["a:b", "c:d"]),
        ({"a:b": "native"}, ["a:b"]),
        ({"a:b": "frozen"}, ["a:b"]),
        ({"a:b": "<b>mine"}, ["a:b"]),
        ({"a:b": ""}, ["a:b"]),
    ],
)
def test_a_name_that_is_taken_or_none_is_not_shown(
    manifest: Callable[..., Manifest], names: dict[str, str], shown: list[str]
) -> None:
    """Two conditions never share a name, and nobody's mapping passes for one of ours."""
    runs = [
        manifest({**SHAPE, "condition": condition, "generation": {"group_size": 4}}, mapping_name=name)
        for condition, name in names.items()
    ]
    assert list(shown_conditions(runs).values()) == shown


def test_a_run_records_the_name_of_somebodys_own_mapping_alone(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "named_rewards.py").write_text(
        "from search_to_signal.credit.mappings import Native\nmine = Native(name='mine')\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert mapping_facts("named_rewards:mine+rank") == {"mapping_name": "mine"}
    assert mapping_facts("native") == mapping_facts("frozen") == {}


def test_a_name_that_the_mapping_does_not_have_is_found(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "native", mapping_name="better")
    assert any("mapping_name is 'better'" in problem for problem in verify(run).problems)
