"""Tables of the matched update layer, from its records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TypeVar

from search_to_signal.base.errors import RecordError
from search_to_signal.records.reader import read_records
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, PairRecord, UpdateRecord
from search_to_signal.report.results import NoTableError, Origin, Results
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Noted,
    Table,
    TableSpec,
    count_cell,
    label,
    to_markdown,
)

LAYER = "updates"
VARIANTS = {"fresh": "one step", "history": "several steps", "sgd": "plain descent"}
Record = TypeVar("Record", PairRecord, UpdateRecord)
Lines = Sequence[tuple[int, Record]]


Read = Callable[[Record], float | None]
"""A column: a number that a record may have."""

COSINE, STEPS = "Cosine", "Steps"
OF_COMPLETIONS = "Largest withheld difference (completion means)"
OF_TOKENS = "Largest withheld difference (single tokens)"
COSINES: dict[str, Read[PairRecord]] = {
    COSINE: lambda pair: pair.cosine,
    "Cosine, not by construction": lambda pair: None if pair.by_construction else pair.cosine,
}
PAIR_COLUMNS: dict[str, Read[PairRecord]] = {
    **COSINES,
    "Product cosine": lambda pair: pair.product_cosine,
    "Norm ratio": lambda pair: pair.norm_ratio,
    "Sign agreement": lambda pair: pair.sign_agreement,
    OF_COMPLETIONS: lambda pair: _with_credit(pair, pair.withheld_max_difference),
    OF_TOKENS: lambda pair: _with_credit(pair, pair.withheld_token_max_difference),
}
COUNT_COLUMNS: dict[str, Callable[[PairRecord], bool]] = {
    "Comparisons": lambda pair: True,
    "Without credit": lambda pair: pair.relation == "without_credit",
    "By construction": lambda pair: pair.by_construction,
}
UPDATE_COLUMNS: dict[str, Read[UpdateRecord]] = {
    "Change": lambda update: update.delta_norm,
    "Product change": lambda update: update.product_norm,
    "Mean withheld change (completion means)": lambda update: update.withheld_mean_change,
    "Largest withheld change (completion means)": lambda update: update.withheld_max_change,
    "Largest withheld change (single tokens)": lambda update: update.withheld_token_max_change,
    "Training tokens": lambda update: update.training_tokens,
}


@dataclass(frozen=True)
class MatchedRecords:
    """The layer's records with their line numbers, and the directory by which cells refer to them."""

    place: str
    updates: Lines[UpdateRecord]
    pairs: Lines[PairRecord]

    @property
    def normalizer(self) -> str:
        """The first normalizer, the reference for the others."""
        return self.updates[0][1].normalizer


def load_matched(directory: Path) -> MatchedRecords:
    """Read the layer's directory; raises RecordError for one that is unreadable or empty."""
    updates = tuple(enumerate(read_records(directory / UPDATES, UpdateRecord), start=1))
    pairs = tuple(enumerate(read_records(directory / PAIRS, PairRecord), start=1))
    if not updates:
        raise RecordError(f"{directory / UPDATES} is empty: make the matched updates again")
    return MatchedRecords(directory.name, updates, pairs)


Made = Callable[[MatchedRecords], list[Line]]


def _matched(title: str, columns: tuple[str, ...] = ()) -> Callable[[Made], TableSpec[Made]]:
    """Make a table of the layer of the rows that the function below yields of its records."""

    def spec(function: Made) -> TableSpec[Made]:
        def rows(results: Results) -> Noted:
            records = results.once(_records)
            return Noted(function(records), _note(records))

        return TableSpec(function.__name__, title, LAYER, "Updates", "", columns, function, rows)

    return spec


@_matched("Two mappings, one initial adapter", (STEPS, *COUNT_COLUMNS, *PAIR_COLUMNS))
def matched_mappings(records: MatchedRecords) -> list[Line]:
    """Pairs of mappings under the first normalizer: does the credit reach the adapter?"""
    pairs = [item for item in records.pairs if item[1].first[1] == item[1].second[1] == records.normalizer]
    return _pair_lines(records, pairs, lambda pair: f"{pair.first[0]} – {pair.second[0]}")


@_matched("Two normalizers, over all mappings", (STEPS, *COUNT_COLUMNS, *PAIR_COLUMNS))
def matched_normalizers(records: MatchedRecords) -> list[Line]:
    """Each normalizer against the first, over all mappings."""
    pairs = [item for item in records.pairs if item[1].first[0] == item[1].second[0]]
    return _pair_lines(records, pairs, lambda pair: f"{pair.first[1]} – {pair.second[1]}")


@_matched("Cosine of adapter changes, by normalizer")
def matched_cosines(records: MatchedRecords) -> list[Line]:
    """Cosine of every two mappings under every normalizer, with and without those by construction."""
    pairs = [item for item in records.pairs if item[1].first[1] == item[1].second[1]]
    names = list(dict.fromkeys(f"{pair.first[0]} – {pair.second[0]}" for _, pair in pairs))
    lines: list[Line] = []
    for place, same in _grouped(pairs, lambda pair: pair.first[1]).items():
        by = _grouped(same, lambda pair: f"{pair.first[0]} – {pair.second[0]}", where=False)
        columns = {}
        for name in names:
            own = by.get(name, [])
            means = {head: _number(records, PAIRS, own, head, read) for head, read in COSINES.items()}
            columns[name] = {**means, **_counts(records, own)}
        lines += [
            (label(place, part.lower()), {name: column[part] for name, column in columns.items()})
            for part in (*COSINES, *COUNT_COLUMNS)
        ]
    return lines


@_matched("Distance moved", tuple(UPDATE_COLUMNS))
def matched_moves(records: MatchedRecords) -> list[Line]:
    """How far each update moves the adapter and withheld contexts."""
    updates = [item for item in records.updates if item[1].normalizer == records.normalizer]
    return [
        (place, {name: _number(records, UPDATES, same, name, read) for name, read in UPDATE_COLUMNS.items()})
        for place, same in _grouped(updates, lambda record: record.mapping).items()
    ]


def _records(results: Results) -> MatchedRecords:
    folder = results.folder(LAYER)
    if not (folder / SETUP).is_file():
        raise NoTableError(f"layer {LAYER} has begun and not ended: go on with it")
    return load_matched(folder)


def matched_tables(directory: Path) -> list[Table]:
    records = load_matched(directory)
    specs = (matched_mappings, matched_normalizers, matched_cosines, matched_moves)
    return [spec.of_lines(spec.function(records), _note(records)) for spec in specs]


def matched_page(directory: Path) -> str:
    tables = matched_tables(directory)
    parts = [f"## {table.title}\n\n{to_markdown(table.text_rows())}" for table in tables]
    return "\n".join(["# Matched updates\n", f"{tables[0].note}\n", *parts])


def _with_credit(pair: PairRecord, value: float) -> float | None:
    return None if pair.relation == "without_credit" else value


def _grouped(
    lines: Lines[Record], name: Callable[[Record], str], where: bool = True
) -> dict[str, list[tuple[int, Record]]]:
    groups: dict[str, list[tuple[int, Record]]] = {}
    for line, record in lines:
        place = f"{record.problem} {record.model}, {VARIANTS[record.variant]}: " if where else ""
        groups.setdefault(f"{place}{name(record)}", []).append((line, record))
    return groups


def _pair_lines(
    records: MatchedRecords, pairs: Lines[PairRecord], name: Callable[[PairRecord], str]
) -> list[Line]:
    lines: list[Line] = []
    for place, same in _grouped(pairs, name).items():
        steps = Cell(len(same[0][1].steps), len(same), "groups stepped on", (_origin(records, PAIRS, same),))
        numbers = {head: _number(records, PAIRS, same, head, read) for head, read in PAIR_COLUMNS.items()}
        lines.append((place, {STEPS: steps, **_counts(records, same), **numbers}))
    return lines


def _counts(records: MatchedRecords, same: Lines[PairRecord]) -> Cells:
    """Count the comparisons, and those that are uninformative or follow from others."""
    origin, cells = _origin(records, PAIRS, same), {}
    for name, read in COUNT_COLUMNS.items():
        number, formula = sum(bool(read(pair)) for _, pair in same), f"number of comparisons ({name.lower()})"
        cells[name] = count_cell(number, formula, origin, n=len(same))
    return cells


def _number(records: MatchedRecords, file: str, lines: Lines[Record], name: str, read: Read[Record]) -> Cell:
    """Mean and sample deviation over the records that have the number."""
    known = [(line, record) for line, record in lines if read(record) is not None]
    values = [float(value) for _, record in known if (value := read(record)) is not None]
    formula = f"mean of {name.lower()} over single updates or comparisons"
    decimals = 0 if name == "Training tokens" else 5 if "withheld" in name else 4
    middle = mean(values) if values else None
    spread = stdev(values) if len(values) > 1 else None
    return Cell(middle, len(values), formula, (_origin(records, file, known),), decimals, spread)


def _origin(records: MatchedRecords, file: str, lines: Lines[Record]) -> Origin:
    return Origin(f"{records.place}/{file}", tuple(line for line, _ in lines))


def _note(records: MatchedRecords) -> str:
    smoke = any(update.purpose == "smoke" for _, update in records.updates)
    note = f"{_NOTE} Normalizer {records.normalizer} where none is named."
    return f"{note} From a smoke run, which is no evidence." if smoke else note


_NOTE = (
    "Within a row all is equal but credit: initial adapter, tokens, masks, reference log-probabilities "
    "and steps. One step: every group alone with a fresh optimizer, mean and deviation over groups. Several "
    "steps: one optimizer over all groups. Plain descent: the same without Adam, decay and clipping, at a "
    "rate of its own. Changes are of raw LoRA tensors, or of the product of their factors. Withheld numbers "
    "are of log-probabilities in completions not trained on: of the mean over each completion's tokens, or "
    "of every single token; the largest is over all of them, per comparison. Without credit: no cosine. By "
    "construction: equal credit, or, up to Adam's epsilon, proportional credit in a single step."
)
