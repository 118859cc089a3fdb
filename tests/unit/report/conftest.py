"""A results directory with several layers and its report, made once for all tests of figures and pages."""

from pathlib import Path

import pytest
from tests.drawing import drawn
from tests.synthetic_results import write_synthetic_results

from search_to_signal.claims.page import write_ledger
from search_to_signal.report.build import report


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cohort, restarts, breadth and API reference of synthetic runs, with report and ledger inside."""
    root = tmp_path_factory.mktemp("synthetic") / "results"
    write_synthetic_results(root, conditions=("frozen", "native", "factorized"), seeds=(1, 2), groups=30)
    with drawn():
        report(root, root / "report", write_ledger)
    return root


@pytest.fixture(scope="session")
def figures(results: Path) -> Path:
    """The directory of its figures."""
    return results / "report" / "figures"
