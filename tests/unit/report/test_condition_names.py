"""A mapping of somebody's own is shown by the name it gave itself, and runs for that nowhere."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.command import Make

from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import MANIFEST, Manifest
from search_to_signal.report.results import Results, shown_conditions
from search_to_signal.report.summary import build_findings
from search_to_signal.report.tables.catalogue import read_evidence
from search_to_signal.report.tables.core import core_results
from search_to_signal.run.resuming import mapping_facts
from search_to_signal.verify.directory import verify

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
