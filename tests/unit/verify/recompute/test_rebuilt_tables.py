"""Tables made again: a number that records do not give is named, with checksums made again or not."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.synthetic_results import write_synthetic_results

from search_to_signal.claims.page import write_ledger
from search_to_signal.claims.settings import implementation
from search_to_signal.credit import MAPPINGS
from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.layers.audit.layer import replay
from search_to_signal.records.checksums import BLOCKS, write_blocks
from search_to_signal.records.manifest import read_manifest, run_directories, runs_below, write_manifest
from search_to_signal.records.provenance import source
from search_to_signal.report.build import report
from search_to_signal.verify import tables

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results directory with audit and report."""
    root = write_synthetic_results(
        tmp_path_factory.mktemp("rebuilt"), conditions=("frozen", "native"), seeds=(1, 2), groups=10
    )
    cells = [*runs_below(root / "breadth"), *runs_below(root / "audit")]
    recorded = [*run_directories(root / "cohort"), *cells]
    replay(recorded, root / "audit", list(MAPPINGS), list(NORMALIZERS))
    report(root, root / "report", lambda written: write_ledger(written, implementation()))
    return root


def nudge(path: Path) -> Callable[[], None]:
    """Change one digit; returns what puts it back."""
    text = path.read_text(encoding="utf-8")
    at = max(i for i, letter in enumerate(text) if letter.isdigit())
    path.write_text(text[:at] + ("7" if text[at] != "7" else "3") + text[at + 1 :], encoding="utf-8")
    return lambda: path.write_text(text, encoding="utf-8") and None


def test_what_the_records_give_is_accepted_and_nothing_else(results: Path) -> None:
    write_blocks(results)
    found = list(tables.table_findings(results))
    assert found == []
    index = results / BLOCKS
    lines = index.read_bytes().splitlines(keepends=True)
    index.unlink()
    names = ["report/core_results.csv", "report/core_results.tex", "report/report.md", "audit/signal.csv"]
    undo = [nudge(results / name) for name in names]
    (results / "report" / "more.csv").write_text("1\n", encoding="utf-8")
    found = list(tables.table_findings(results))
    for restore in undo:
        restore()
    (results / "report" / "more.csv").unlink()
    assert sorted(finding.where for finding in found) == sorted([*names, "report/more.csv"])
    for kept in ([lines[0], *lines], lines[1:]):
        index.write_bytes(b"".join(kept))
        assert any(finding.where == BLOCKS for finding in tables.table_findings(results))
    index.unlink()


def test_another_version_is_not_compared(results: Path) -> None:
    assert tables.other_source(results)
    for run in runs_below(results):
        write_manifest(run, msgspec.structs.replace(read_manifest(run), source=source()))
    assert not tables.other_source(results)
