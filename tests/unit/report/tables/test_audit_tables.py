"""The audit's tables: those of its directory, from the directory's records, and nothing replayed twice."""

from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.command import Command

from search_to_signal.credit import MAPPINGS
from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.layers.audit import tables as audit_module
from search_to_signal.layers.audit.layer import replay
from search_to_signal.layers.audit.tables import csv_text
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import run_directories
from search_to_signal.report.results import Results
from search_to_signal.report.tables.catalogue import build, catalogue

pytestmark = pytest.mark.slow

NAMES = ("pairs", "signal", "credit", "context", "readings")


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort, a cell of another problem, and the audit of both as an embedded profile writes it."""
    top = tmp_path_factory.mktemp("audited")
    for seed in (1, 2):
        for condition in ("frozen", "native"):
            write_synthetic_run(top / "cohort" / f"{condition}-s{seed}", condition, seed)
    cell = top / "audit" / "obp-m"
    write_synthetic_run(cell / "frozen-s1", "frozen", 1, layer="audit", config={"problem": "obp"})
    records = cell / "frozen-s1" / "completions.jsonl"
    records.write_text(records.read_text(encoding="utf-8").replace('"tsp"', '"obp"'), encoding="utf-8")
    write_sums(cell / "frozen-s1")
    runs = [*run_directories(top / "cohort"), cell / "frozen-s1"]
    replay(runs, top / "audit", list(MAPPINGS), list(NORMALIZERS), top)
    return top


@pytest.mark.parametrize("name", NAMES)
def test_the_directorys_files_follow_from_its_records(audited: Path, name: str) -> None:
    """Each table that ``s2s trace`` shows has the numbers of the CSV of its name, to the last digit there."""
    written = (audited / "audit" / f"{name}.csv").read_text(encoding="utf-8")
    assert csv_text(build(Results(audited), f"audit_{name}")) == written


def test_a_number_is_traced_to_the_runs_of_its_problem(audited: Path, s2s: Command) -> None:
    row = ("group/native/factorized", "share_0.001")
    said = s2s("trace", audited, "audit_pairs", f"obp/{row[0]}", row[1])
    assert said.out.count("records ") == 1
    said = s2s("trace", audited, "audit_pairs", f"all/{row[0]}", row[1])
    assert said.out.count("records ") == 5


def test_every_run_is_replayed_once_for_all_tables(audited: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    tally = audit_module.tally

    def counted(problem: str, *rest: object) -> object:
        calls.append(problem)
        return tally(problem, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(audit_module, "tally", counted)
    found = catalogue(Results(audited))
    assert {"replay_pairs", "replay_context", "sensitivity"} <= {table.name for table in found.tables}
    assert len(calls) == 5
