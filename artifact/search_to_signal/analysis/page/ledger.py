"""The verdicts on the paper's numbers that ``s2s claims`` wrote next to a report, for the page."""

import csv
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.errors import RunDirectoryError, reason
from search_to_signal.records.files import read_regular
from search_to_signal.records.layers import in_paper_order

LEDGER = Path("claims") / "claims.csv"
COLUMNS = (
    *("id", "where", "layer", "quantity", "published", "unit", "reason"),
    *("direction", "embedded", "comparison", "beside"),
)
MISSING = "no counterpart"
NAMES = {"protocol": "Settings", **{layer.key: layer.name for layer in in_paper_order()}}
# Verdicts in the order of the page; others come last.
ORDER = (
    *("inconsistent", "text and equation disagree", "implemented otherwise"),
    *("consistent", "implemented as published", "not derivable"),
)

Row = Mapping[str, str]


@dataclass(frozen=True)
class JudgedLedger:
    """The entries of a ledger by verdict, in the order of ORDER."""

    by_verdict: Mapping[str, tuple[Row, ...]]

    @property
    def total(self) -> int:
        return sum(map(len, self.by_verdict.values()))

    @property
    def counts(self) -> list[tuple[str, list[int]]]:
        """Per layer, in the paper's order: the number of entries, then those with each verdict."""
        counted = [Counter(row["layer"] for row in rows) for rows in self.by_verdict.values()]
        layers = [*NAMES, *sorted(set().union(*counted) - set(NAMES))]
        rows = [(name, [counts[name] for counts in counted]) for name in layers]
        return [(NAMES.get(name, name), [sum(row), *row]) for name, row in rows if any(row)]

    @property
    def estimated(self) -> int:
        return self.directions.total()

    @property
    def directions(self) -> Counter[str]:
        """The number of entries by direction; entries without a counterpart are left out."""
        return Counter(direction for _, direction in self._given)

    @property
    def compared(self) -> Counter[str]:
        """The number of comparisons by direction: entries with the same numbers count once."""
        return Counter(direction for _, direction in set(self._given))

    @property
    def _given(self) -> list[tuple[str, str]]:
        """Comparison and direction of every entry that has a direction."""
        rows = (row for rows in self.by_verdict.values() for row in rows)
        return [
            (row["comparison"], row["direction"]) for row in rows if row["direction"] not in ("", MISSING)
        ]


def read_ledger(report: Path) -> JudgedLedger | None:
    """Read the ledger of a report; None where none was written.

    Raises RunDirectoryError for one that cannot be read.
    """
    path = report / LEDGER
    if not path.is_file():
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(read_regular(path).decode())))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunDirectoryError(
            f"cannot read {path}: {reason(error)}; make it again with s2s claims"
        ) from error
    if any(None in row.values() or not {*COLUMNS, "verdict"} <= set(row) for row in rows):
        raise RunDirectoryError(f"{path} lacks columns: make it again with s2s claims")
    names = dict.fromkeys(row["verdict"] for row in rows)
    verdicts = sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return JudgedLedger({name: tuple(row for row in rows if row["verdict"] == name) for name in verdicts})
