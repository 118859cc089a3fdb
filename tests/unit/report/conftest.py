"""A results directory with several layers and its report, made once for all tests of figures and pages."""

from pathlib import Path

import pytest
from tests.drawing import drawn, not_drawn
from tests.synthetic_results import write_synthetic_results

from search_to_signal.claims.page import write_ledger
from search_to_signal.report.build import report
from search_to_signal.report.tables.catalogue import Evidence, read_evidence


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cohort, restarts, breadth and API reference of synthetic runs, with report and ledger inside."""
    root = tmp_path_factory.mktemp("synthetic") / "results"
    write_synthetic_results(root, conditions=("frozen", "native", "factorized"), seeds=(1, 2), groups=30)
    with not_drawn():
        report(root, root / "report", write_ledger)
    return root


@pytest.fixture(scope="session")
def evidence(results: Path) -> Evidence:
    """What figures, pages and findings are made of."""
    return read_evidence(results)


@pytest.fixture(scope="session")
def drawn_report(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of their report with its figures drawn, which takes ten times as long."""
    place = tmp_path_factory.mktemp("drawn") / "report"
    with drawn():
        report(results, place, write_ledger)
    return place


@pytest.fixture(scope="session")
def figures(drawn_report: Path) -> Path:
    return drawn_report / "figures"
