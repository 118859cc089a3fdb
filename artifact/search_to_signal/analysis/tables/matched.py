"""Tables of the matched update layer, from its records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Generic, TypeVar

from search_to_signal.analysis.results import NoTableError, Origin, Results
from search_to_signal.analysis.tables.cells import Cell, Row, Table, label
from search_to_signal.analysis.tables.files import to_markdown
from search_to_signal.errors import RecordError
from search_to_signal.records.reader import read_records
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, PairRecord, UpdateRecord

LAYER = "updates"
VARIANTS = {"fresh": "one step", "history": "several steps", "sgd": "plain descent"}
Record = TypeVar("Record", PairRecord, UpdateRecord)
Lines = Sequence[tuple[int, Record]]


@dataclass(frozen=True)
class RecordColumn(Generic[Record]):
    """A column: a number that a record may have."""

    read: Callable[[Record], float | None]
    decimals: int = 4


COSINE, STEPS = "Cosine", "Steps"
OF_COMPLETIONS = "Largest withheld difference (completion means)"
OF_TOKENS = "Largest withheld difference (single tokens)"
COSINES: dict[str, RecordColumn[PairRecord]] = {
    COSINE: RecordColumn(lambda pair: pair.cosine),
    "Cosine, not by construction": RecordColumn(lambda pair: None if pair.by_construction else pair.cosine),
}
PAIR_COLUMNS: dict[str, RecordColumn[PairRecord]] = {
    **COSINES,
    "Product cosine": RecordColumn(lambda pair: pair.product_cosine),
    "Norm ratio": RecordColumn(lambda pair: pair.norm_ratio),
    "Sign agreement": RecordColumn(lambda pair: pair.sign_agreement),
    OF_COMPLETIONS: RecordColumn(lambda pair: _with_credit(pair, pair.withheld_max_difference), 5),
    OF_TOKENS: RecordColumn(lambda pair: _with_credit(pair, pair.withheld_token_max_difference), 5),
}
COUNT_COLUMNS: dict[str, Callable[[PairRecord], bool]] = {
    "Without credit": lambda pair: pair.relation == "without_credit",
    "By construction": lambda pair: pair.by_construction,
}
UPDATE_COLUMNS: dict[str, RecordColumn[UpdateRecord]] = {
    "Change": RecordColumn(lambda update: update.delta_norm),
    "Product change": RecordColumn(lambda update: update.product_norm),
    "Mean withheld change (completion means)": RecordColumn(lambda update: update.withheld_mean_change, 5),
    "Largest withheld change (completion means)": RecordColumn(lambda update: update.withheld_max_change, 5),
    "Largest withheld change (single tokens)": RecordColumn(
        lambda update: update.withheld_token_max_change, 5
    ),
    "Training tokens": RecordColumn(lambda update: update.training_tokens, 0),
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


def mapping_table(records: MatchedRecords) -> Table:
    """Build the table of mapping pairs under the first normalizer: does the credit reach the adapter?"""
    pairs = [item for item in records.pairs if item[1].first[1] == item[1].second[1] == records.normalizer]
    rows = _pair_rows(records, pairs, lambda pair: f"{pair.first[0]} – {pair.second[0]}")
    return _table(records, "mappings", "Two mappings, one initial adapter", _PAIR_NAMES, rows)


def normalizer_table(records: MatchedRecords) -> Table:
    """Build the table of each normalizer against the first, over all mappings."""
    pairs = [item for item in records.pairs if item[1].first[0] == item[1].second[0]]
    rows = _pair_rows(records, pairs, lambda pair: f"{pair.first[1]} – {pair.second[1]}")
    return _table(records, "normalizers", "Two normalizers, over all mappings", _PAIR_NAMES, rows)


def cosine_table(records: MatchedRecords) -> Table:
    """Cosine of every two mappings under every normalizer, with and without those by construction."""
    pairs = [item for item in records.pairs if item[1].first[1] == item[1].second[1]]
    names = list(dict.fromkeys(f"{pair.first[0]} – {pair.second[0]}" for _, pair in pairs))
    rows = []
    for place, same in _grouped(pairs, lambda pair: pair.first[1]).items():
        by = _grouped(same, lambda pair: f"{pair.first[0]} – {pair.second[0]}", where=False)
        columns = [_cosines(records, by.get(name, [])) for name in names]
        rows += [Row(label(place, part), tuple(column[part] for column in columns)) for part in columns[0]]
    return _table(records, "cosines", "Cosine of adapter changes, by normalizer", tuple(names), rows)


def distance_table(records: MatchedRecords) -> Table:
    """Build the table of distances: how far each update moves the adapter and withheld contexts."""
    updates = [item for item in records.updates if item[1].normalizer == records.normalizer]
    rows = [
        Row(place, tuple(_number(records, UPDATES, same, *column) for column in UPDATE_COLUMNS.items()))
        for place, same in _grouped(updates, lambda record: record.mapping).items()
    ]
    return _table(records, "moves", "Distance moved", tuple(UPDATE_COLUMNS), rows)


def matched_table(make: Callable[[MatchedRecords], Table]) -> Callable[[Results], Table]:
    """A table of the layer from a results directory; raises NoTableError where the layer has not run."""
    return lambda results: make(results.once(_records))


def _records(results: Results) -> MatchedRecords:
    folder = results.folder(LAYER)
    if not (folder / SETUP).is_file():
        raise NoTableError(f"layer {LAYER} has begun and not ended: go on with it")
    return load_matched(folder)


def matched_tables(directory: Path) -> list[Table]:
    records = load_matched(directory)
    return [make(records) for make in (mapping_table, normalizer_table, cosine_table, distance_table)]


def matched_page(directory: Path) -> str:
    tables = matched_tables(directory)
    parts = [f"## {table.title}\n\n{to_markdown(table.text_rows())}" for table in tables]
    return "\n".join(["# Matched updates\n", f"{tables[0].note}\n", *parts])


_PAIR_NAMES = (STEPS, "Comparisons", *COUNT_COLUMNS, *PAIR_COLUMNS)


def _with_credit(pair: PairRecord, value: float) -> float | None:
    return None if pair.relation == "without_credit" else value


def _grouped(
    lines: Lines[Record], name: Callable[[Record], str], where: bool = True
) -> dict[str, list[tuple[int, Record]]]:
    """Records by a row's label, in the order of the file."""
    groups: dict[str, list[tuple[int, Record]]] = {}
    for line, record in lines:
        place = f"{record.problem} {record.model}, {VARIANTS[record.variant]}: " if where else ""
        groups.setdefault(f"{place}{name(record)}", []).append((line, record))
    return groups


def _pair_rows(
    records: MatchedRecords, pairs: Lines[PairRecord], name: Callable[[PairRecord], str]
) -> list[Row]:
    rows = []
    for place, same in _grouped(pairs, name).items():
        steps = Cell(len(same[0][1].steps), len(same), "groups stepped on", (_origin(records, PAIRS, same),))
        cells = [steps, *_counts(records, same).values()]
        cells += [_number(records, PAIRS, same, *column) for column in PAIR_COLUMNS.items()]
        rows.append(Row(place, tuple(cells)))
    return rows


def _counts(records: MatchedRecords, same: Lines[PairRecord]) -> dict[str, Cell]:
    """Count the comparisons, and those that are uninformative or follow from others."""
    origins = (_origin(records, PAIRS, same),)
    numbers = {name: sum(bool(read(pair)) for _, pair in same) for name, read in COUNT_COLUMNS.items()}
    return {
        name: Cell(number, len(same), f"number of comparisons ({name.lower()})", origins)
        for name, number in {"Comparisons": len(same), **numbers}.items()
    }


def _cosines(records: MatchedRecords, same: Lines[PairRecord]) -> dict[str, Cell]:
    means = {name: _number(records, PAIRS, same, name, column) for name, column in COSINES.items()}
    return {name.lower(): cell for name, cell in (*means.items(), *_counts(records, same).items())}


def _number(
    records: MatchedRecords, file: str, lines: Lines[Record], name: str, column: RecordColumn[Record]
) -> Cell:
    """Mean and sample deviation over the records that have the number."""
    known = [(line, record) for line, record in lines if column.read(record) is not None]
    values = [float(value) for _, record in known if (value := column.read(record)) is not None]
    return Cell(
        mean(values) if values else None,
        len(values),
        f"mean of {name.lower()} over single updates or comparisons",
        (_origin(records, file, known),),
        column.decimals,
        stdev(values) if len(values) > 1 else None,
    )


def _origin(records: MatchedRecords, file: str, lines: Lines[Record]) -> Origin:
    return Origin(f"{records.place}/{file}", tuple(line for line, _ in lines))


def _table(
    records: MatchedRecords, name: str, title: str, columns: tuple[str, ...], rows: Sequence[Row]
) -> Table:
    smoke = any(update.purpose == "smoke" for _, update in records.updates)
    note = f"{_NOTE} Normalizer {records.normalizer} where none is named."
    note += " From a smoke run, which is no evidence." if smoke else ""
    return Table(f"matched_{name}", title, LAYER, columns, tuple(rows), "Updates", note)


_NOTE = (
    "Within a row all is equal but credit: initial adapter, tokens, masks, reference log-probabilities "
    "and steps. One step: every group alone with a fresh optimizer, mean and deviation over groups. Several "
    "steps: one optimizer over all groups. Plain descent: the same without Adam, decay and clipping, at a "
    "rate of its own. Changes are of raw LoRA tensors, or of the product of their factors. Withheld numbers "
    "are of log-probabilities in completions not trained on: of the mean over each completion's tokens, or "
    "of every single token; the largest is over all of them, per comparison. Without credit: no cosine. By "
    "construction: equal credit, or, up to Adam's epsilon, proportional credit in a single step."
)
