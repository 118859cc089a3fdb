"""What hangs on the open decisions, as rows: groups, rates and rankings that another reading changes."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from search_to_signal.analysis.metrics.audit import Audit
from search_to_signal.analysis.metrics.credit import CandidateClass, ClassCredit, CreditCounts, credit_table
from search_to_signal.analysis.metrics.readings import DECISIONS, ReadingTally
from search_to_signal.analysis.metrics.search import ratio

Line = dict[str, str | int | float | None]
Quantity = Callable[[ClassCredit], float | None]

IMPROVERS = {
    CandidateClass.PARENT_IMPROVING: "parent improvers",
    CandidateClass.STRICT_FRONTIER: "frontier improvers",
}
QUANTITIES: Mapping[str, Quantity] = {
    "positive rate": lambda entry: entry.positive_rate,
    "enrichment": lambda entry: entry.enrichment,
}
"""What mappings are ranked by, of each class of improvers; higher first."""

SENSITIVITY = """\
Each other reading of a decision (spec/decisions.toml) against the choice, under the paper's normalizer: in
how many groups an advantage changes by more than 0.001, the largest change, and by how many points the share
of each candidate class with positive advantage moves. The mappings are ranked by positive rate and by
enrichment of parent and of frontier improvers; the last column names the rankings that the reading changes.
Readings that change what is recorded are settings of a run, and no replay can tell what hangs on them."""


class Change(NamedTuple):
    """A ranking of the mappings that a reading changes, best first."""

    quantity: str
    chosen: str
    other: str


def reading_rows(audit: Audit, problem: str | None = None) -> Iterator[Line]:
    """One row per problem, reading and mapping that the reading is about, in the order of decisions."""
    for where in audit.groups if problem is None else (problem,):
        for (reading, mapping), tally in readings_of(audit, where).items():
            changes = changed_rankings(audit, where, reading)
            line: Line = {
                "problem": where,
                "decision": DECISIONS[reading],
                "reading": reading,
                "mapping": mapping,
            }
            line |= {"groups": tally.groups, "changed_groups": tally.changed}
            line |= {"changed_share": ratio(tally.changed, tally.groups), "max_difference": tally.largest}
            line |= {f"points_{name.value}": points for name, points in moved_rates(tally).items()}
            yield line | {"rankings_changed": "; ".join(map(said, changes)) or "none"}


def readings_of(audit: Audit, problem: str) -> dict[tuple[str, str], ReadingTally]:
    """The tallies of a problem by reading and mapping that it is about, in the order of decisions."""
    found = {key[1:]: t for key, t in audit.readings.items() if key[0] == problem and t.applies}
    return dict(sorted(found.items(), key=lambda item: DECISIONS[item[0][0]]))


def moved_rates(tally: ReadingTally) -> dict[CandidateClass, float | None]:
    """By how many points the share of each class with positive advantage moves; None of an empty class."""
    pairs = zip(credit_table(tally.chosen), credit_table(tally.other), strict=True)
    return {
        before.candidate_class: None
        if before.positive_rate is None or after.positive_rate is None
        else 100.0 * (after.positive_rate - before.positive_rate)
        for before, after in pairs
    }


def rankings(counts: Mapping[str, CreditCounts]) -> dict[str, str]:
    """The mappings in order by quantity: best first, equal ones in one place, those without a value last."""
    entries = {
        name: {entry.candidate_class: entry for entry in credit_table(found)}
        for name, found in counts.items()
    }
    return {
        f"{quantity} of {improvers}": _ordered({name: of(entry[kind]) for name, entry in entries.items()})
        for quantity, of in QUANTITIES.items()
        for kind, improvers in IMPROVERS.items()
    }


def chosen_rankings(audit: Audit, problem: str) -> dict[str, str]:
    """The rankings of the mappings under the choices."""
    found = next((reading for where, reading, _ in audit.readings if where == problem), None)
    return (
        {} if found is None else rankings({name: t.chosen for name, t in _of(audit, problem, found).items()})
    )


def changed_rankings(audit: Audit, problem: str, reading: str) -> list[Change]:
    """The rankings that are other ones under a reading."""
    tallies = _of(audit, problem, reading)
    before = rankings({name: tally.chosen for name, tally in tallies.items()})
    after = rankings({name: tally.other for name, tally in tallies.items()})
    return [Change(name, before[name], after[name]) for name in before if before[name] != after[name]]


def said(change: Change) -> str:
    """A changed ranking in words."""
    return f"{change.quantity}: {change.chosen} becomes {change.other}"


def _of(audit: Audit, problem: str, reading: str) -> dict[str, ReadingTally]:
    return {key[2]: tally for key, tally in audit.readings.items() if key[:2] == (problem, reading)}


def _ordered(values: Mapping[str, float | None]) -> str:
    # Sums of masses differ in their last bits where nothing else does.
    known = {name: round(value, 9) for name, value in values.items() if value is not None}
    places = [
        " = ".join(name for name, value in known.items() if value == level)
        for level in sorted(set(known.values()), reverse=True)
    ]
    absent = [name for name, value in values.items() if value is None]
    return " > ".join([*places, *([f"no value: {', '.join(absent)}"] if absent else [])])
