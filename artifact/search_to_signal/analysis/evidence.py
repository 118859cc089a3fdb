"""What figures and pages are made of: the runs of a results directory and the tables over them."""

from dataclasses import dataclass
from pathlib import Path

from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.catalogue import SMOKE, Catalogue, catalogue
from search_to_signal.analysis.tables.cells import NoTableError, Table


@dataclass(frozen=True)
class Evidence:
    """A results directory with every table that follows from it."""

    results: Results
    found: Catalogue

    @property
    def smoke(self) -> bool:
        """Whether all of it was made for a smoke test, and proves nothing."""
        return self.results.smoke

    @property
    def unit(self) -> str:
        """What the scores of the cohort measure, such as minus tour length."""
        return self.results.cohort[0].unit

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by name, without the prefix of smoke runs."""
        return {table.name.removeprefix(SMOKE): table for table in self.found.tables}

    def table(self, name: str) -> Table:
        """A table by its name; raises NoTableError with the reason where there is none."""
        tables = self.tables
        if name not in tables:
            raise NoTableError(self.found.absent.get(name, f"there is no table {name}"))
        return tables[name]


def read_evidence(directory: Path) -> Evidence:
    """Read a results directory; raises as load_runs and catalogue do."""
    results = Results(directory)
    return Evidence(results, catalogue(results))
