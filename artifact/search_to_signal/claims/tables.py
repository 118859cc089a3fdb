"""Tables of numbers: the published ones, checked against their index, and those of a report."""

import ast
import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from search_to_signal.base.errors import ConfigError, LedgerError, reason
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.base.settings import load_toml
from search_to_signal.claims.intervals import Interval, is_number, rounded
from search_to_signal.records.files import read_regular, refuse_special_files
from search_to_signal.records.manifest import MANIFEST

T = TypeVar("T")
REPORT = "report.md"
"""The file that every report contains."""
_SEED = re.compile(r"-s(\d+)(?=$|[ /])")
_LONG_FORM = ("row", "column", "value", "spread", "n")
_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_NUMBER = re.compile(
    r"(?:(?<![\w\-)}])[+-])?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)*)"
    rf"|\b(?:{'|'.join(_WORDS)})\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]+")
# A formula in a cell; the letters of a command do not touch the number behind it.
_COMMAND = re.compile(r"\\(?:[A-Za-z]+\*?|.)", re.DOTALL)


def words_in(text: str) -> list[str]:
    """Return the words of a table cell without commands; formulas keep their letters."""
    return _WORD.findall(_COMMAND.sub(" ", text))


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a table cell as plain text, including those that touch letters."""
    return [plain_text(match[0]) for match in _NUMBER.finditer(_COMMAND.sub(" ", text))]


def plain_text(number: str) -> str:
    """Format a number in digits, without plus sign and thousands separators: 'Three' is 3, '+1,282' 1282."""
    word = number.lower()
    return str(_WORDS.index(word)) if word in _WORDS else number.replace(",", "").removeprefix("+")


class PublishedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unit and rounding of a column; without ``decimals`` its numbers are exact.

    Every true number is a multiple of ``step``, such as 0.05 for the percentage of 2,000 completions: a
    number printed with the decimals of such a multiple is exact. ``only`` limits the step to some rows.
    """

    unit: str
    decimals: int | None = None
    step: str = ""
    only: tuple[str, ...] = ()


class TableEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The index entry of a published table; columns that are not listed contain keys or text.

    ``printed`` has the document's heading for each heading that differs, empty where the document has none;
    ``added`` are columns that the document's rows lack.
    """

    name: str
    label: str
    title: str
    layer: str
    keys: tuple[str, ...] = ()
    columns: dict[str, PublishedColumn] = {}
    part: str = ""
    printed: dict[str, str] = {}
    added: tuple[str, ...] = ()


_REPORTED = TableEntry(name="", label="", title="", layer="")
"""The entry of a report's table, without information on its columns."""


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document that everything was transcribed from."""

    title: str
    sha256: str


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of index.toml."""

    document: Document
    table: tuple[TableEntry, ...]


@dataclass(frozen=True)
class ClaimTable:
    """Rows of text under headings; ``entry`` is the index entry of a published table."""

    name: str
    head: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    entry: TableEntry = field(default=_REPORTED, compare=False)

    def select(self, column: str, conditions: Sequence[str]) -> tuple[tuple[Mapping[str, str], ...], str]:
        """Return the rows that meet every condition, and the column's heading.

        Raises LedgerError for an unknown heading or when no row is left.
        """
        rows = self.rows
        for condition in conditions:
            self._known(_read_condition(condition)[0])
            rows = tuple(row for row in rows if meets(row, [condition]))
        if not rows:
            raise LedgerError(f"table {self.name} has no row with {', '.join(conditions)}")
        return rows, self.heading(column)

    def heading(self, name: str) -> str:
        """Return the heading of that name; of several ("first|second") the first that exists."""
        known = [part for part in (name, *name.split("|")) if part in self.head]
        return known[0] if known else self._known(name)

    @property
    def printed(self) -> tuple[str, ...]:
        """The columns with numbers of a published table, or all columns of a table of text."""
        return tuple(self.entry.columns) or self.head

    def numbers(self, row: Mapping[str, str], heading: str) -> list[str]:
        """Return the numbers in a cell; a cell of a report's table has one number or none."""
        text = row[heading]
        if self.entry is _REPORTED:
            return [text] if is_number(text) else []
        return numbers_in(text)

    def interval(self, row: Mapping[str, str], heading: str, text: str) -> Interval:
        """Return the interval of a printed number; exact in keys, in text and in a report's tables."""
        column = self.entry.columns.get(heading)
        if column is None or column.decimals is None:
            return rounded(text, Fraction(0))
        if column.step and Fraction(text) % Fraction(column.step) == 0 and meets(row, column.only):
            return rounded(text, Fraction(0))
        return rounded(text, Fraction(1, 10**column.decimals))

    def _known(self, heading: str) -> str:
        if heading not in self.head:
            raise LedgerError(f"table {self.name} has no column {heading!r}: it has {', '.join(self.head)}")
        return heading


def selected(table: ClaimTable, key: ast.expr) -> tuple[tuple[Mapping[str, str], ...], str]:
    """Return the rows and the column that TABLE[COLUMN, CONDITIONS...] of a formula selects."""
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    column, *conditions = [str(part.value) if isinstance(part, ast.Constant) else "" for part in parts]
    return table.select(column, conditions)


def cell_name(table: ClaimTable, row: Mapping[str, str], heading: str, k: int) -> str:
    """Return the entry id of the k-th number of a published cell: TABLE[KEYS, HEADING], and [k] in text."""
    labels = " ".join(row[key] for key in table.entry.keys)
    text = "" if heading in table.entry.columns else f"[{k}]"
    return f"{table.name}[{labels}, {heading}]{text}"


def meets(row: Mapping[str, str], conditions: Sequence[str]) -> bool:
    """Whether a row meets every "Heading=text" or "Heading!=text"; "first|second" matches either.

    Case and the choice of hyphen or underscore do not matter.
    """
    for condition in conditions:
        heading, unequal, wanted = _read_condition(condition)
        if (_plain(row[heading]) in wanted) == unequal:
            return False
    return True


def read_toml(path: Path, kind: type[T]) -> T:
    """Decode a TOML file strictly; raises LedgerError instead of ConfigError."""
    try:
        return load_toml(path, kind)
    except ConfigError as error:
        raise LedgerError(str(error)) from error


def load_published(directory: Path = PUBLISHED) -> dict[str, ClaimTable]:
    """Read every table of the index, by name.

    Raises LedgerError for a damaged index, and for a cell that its column forbids.
    """
    tables = {}
    for entry in read_toml(directory / "index.toml", Index).table:
        table = _read(directory / f"{entry.name}.csv", entry)
        missing = [name for name in (*entry.keys, *entry.columns) if name not in table.head]
        if missing:
            raise LedgerError(f"published table {table.name} lacks {', '.join(missing)}: restore the file")
        for row in table.rows:
            for name, column in entry.columns.items():
                text = row[name]
                if numbers_in(text) != [text] or len(text.partition(".")[2]) != (column.decimals or 0):
                    raise LedgerError(
                        f"published table {table.name}, {name}: {text!r} is not a number as printed"
                    )
        tables[entry.name] = table
    return tables


def implementation_table(name: str, facts: Mapping[str, str]) -> ClaimTable:
    """Make a table of Setting and Value from implemented settings; numbers are read from the texts."""
    entry = TableEntry(name=name, label="", title="", layer="", keys=("Setting",))
    rows = tuple({"Setting": setting, "Value": value} for setting, value in facts.items())
    return ClaimTable(name, ("Setting", "Value"), rows, entry)


def load_report(directory: Path) -> dict[str, ClaimTable]:
    """Read every CSV table of a report directory, by name; tables in long form become wide.

    Raises LedgerError where there is none, RunDirectoryError for a link or pipe in it.
    """
    if not directory.is_dir():
        raise LedgerError(f"there is no report in {directory}: run s2s report first")
    refuse_special_files(directory)
    return {path.stem: _wide(_read(path)) for path in sorted(directory.glob("*.csv"))}


class MergedTables(NamedTuple):
    """Tables by name, and the ``sources`` of which some are taken: names of the directories of reports."""

    tables: dict[str, ClaimTable]
    sources: tuple[str, ...]


def load_reports(results: Path, order: Sequence[str] = ()) -> MergedTables:
    """Read the tables of a results directory, or of all results directories below it (NAME/report).

    Where several have a table, the first one counts, by ``order`` and then by name: layers are never pooled.
    ``results`` may also be a report directory, as for a single run. Raises LedgerError where there is no
    report.
    """
    if (results / REPORT).is_file():
        return MergedTables(load_report(results), (results.resolve().parent.name,))
    below = {path.parent.name: path for path in sorted(results.glob("*/report")) if path.is_dir()}
    if (results / "report").is_dir() and not below:
        return MergedTables(load_report(results / "report"), (results.resolve().name,))
    if (results / MANIFEST).is_file():
        raise LedgerError(
            f"{results} is a single run, and its report is in another directory: make it (s2s report "
            f"{results} --out PAGE) "
            "and give --results PAGE"
        )
    if not results.is_dir():
        raise LedgerError(f"there is no directory {results}: check the path")
    if not below:
        raise LedgerError(f"there is no report in {results}: run s2s report first")
    names = [*(name for name in order if name in below), *(name for name in below if name not in order)]
    return first_of({name: load_report(below[name]) for name in names})


def first_of(reports: Mapping[str, Mapping[str, ClaimTable]]) -> MergedTables:
    """Merge reports: each table is that of the first report that has it."""
    merged: dict[str, ClaimTable] = {}
    sources = []
    for name, tables in reports.items():
        if tables.keys() - merged.keys():
            sources.append(name)
        merged = {**tables, **merged}
    return MergedTables(merged, tuple(sources))


def _read(path: Path, entry: TableEntry = _REPORTED) -> ClaimTable:
    try:
        text = read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"cannot read {path}: {reason(error)}") from error
    head, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if any(len(row) != len(head) for row in rows) or len(set(head)) != len(head):
        raise LedgerError(f"{path} has rows of different lengths or a heading twice: restore the file")
    return ClaimTable(path.stem, tuple(head), tuple(dict(zip(head, row, strict=True)) for row in rows), entry)


def _wide(table: ClaimTable) -> ClaimTable:
    """Reshape (row, column, value, spread, n) to one row per ``row`` with columns NAME, NAME sd, NAME n.

    A row CONDITION-sSEED/PART also gets columns Condition, Seed and Part; rows over seeds have no Seed.
    """
    if table.head != _LONG_FORM:
        return table
    rows: dict[str, dict[str, str]] = {}
    for cell in table.rows:
        name, label = cell["column"], cell["row"]
        if label not in rows:
            seed = _SEED.search(label)
            condition, _, part = _SEED.sub("", label).partition("/")
            keys = {"Condition": condition, "Seed": seed[1] if seed else "", "Part": part}
            rows[label] = {"row": label, **keys}
        wide = rows[label]
        wide |= {name: cell["value"], f"{name} sd": cell["spread"], f"{name} n": cell["n"]}
    head = tuple(dict.fromkeys(key for row in rows.values() for key in row))
    return ClaimTable(
        table.name, head, tuple({key: row.get(key, "") for key in head} for row in rows.values())
    )


# A ledger asks thousands of rows for a few hundred conditions, again and again.
@lru_cache(maxsize=4096)
def _read_condition(text: str) -> tuple[str, bool, frozenset[str]]:
    """Return a condition's heading, whether it is an inequality, and the plain texts that it names."""
    heading, _, wanted = text.partition("=")
    return heading.removesuffix("!"), heading.endswith("!"), frozenset(map(_plain, wanted.split("|")))


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    return text.strip().lower().replace("-", "_")
