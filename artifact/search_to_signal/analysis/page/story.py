"""What the page says first: answers to three questions, each with its n, and how the best heuristic came."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from search_to_signal.analysis.results import RecordedRun
from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.analysis.tables.cells import Cell, Table
from search_to_signal.analysis.tables.changes import COLUMNS
from search_to_signal.progress import counted
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord

FIGURE = "learner_path"
_ENDPOINT = "Final best"
_BETTER = " minus frozen/better"


@dataclass(frozen=True)
class Finding:
    """An answer in words, the commands that lead to its records, and what would change it."""

    question: str
    answer: str
    commands: tuple[str, ...]
    doubt: str


def findings(evidence: Evidence) -> list[Finding]:
    """Those of the questions that the directory's tables answer; none of a smoke run."""
    if evidence.results.smoke:
        return []
    makers: tuple[Callable[[Evidence], Finding | None], ...] = (_reached, _kept, _searched)
    return [found for found in (make(evidence) for make in makers) if found is not None]


def _reached(evidence: Evidence) -> Finding | None:
    parts = [part for part in (_separated(evidence), _moved(evidence)) if part is not None]
    if not parts:
        return None
    return Finding(
        "Does the choice of reward reach the learner?",
        " ".join(answer for answer, _ in parts),
        tuple(command for _, command in parts),
        "More groups that the mappings do not tell apart, or cosines near 1.",
    )


def _separated(evidence: Evidence) -> tuple[str, str] | None:
    """How often two mappings give a group the same advantages, how near they are else, and the command."""
    table = evidence.tables.get("replay_pairs")
    trained = {run.facts.mapping for run in evidence.results.cohort if run.trained}
    rows = {} if table is None else dict(_pairs_of(table, trained))
    if table is None or not rows:
        return None

    def across(column: str) -> list[tuple[str, Cell]]:
        cells = ((name, table.cell(row, column)) for name, row in rows.items())
        return [(name, replace(cell, decimals=min(cell.decimals, 3))) for name, cell in cells]

    equal = across("Equivalent (%)")
    groups = " or ".join(sorted({str(cell.n) for _, cell in equal}))
    return (
        f"Two mappings give equal advantages (to 0.001) in {_range(equal)} of the same {groups} groups. "
        f"Equal by construction, as shifted and scaled images or flat, are {_built(across)} of those. "
        f"Within 0.05 are {_range(across('Within 0.05 (%)'))}, in another order "
        f"{_range(across('Order changes (%)'))}; the median of a group's largest difference is "
        f"{_range(across('Median difference'), '')}.",
        _trace(table),
    )


def _built(across: Callable[[str], list[tuple[str, Cell]]]) -> str:
    """How many of the groups that two mappings leave equal could not differ; over all pairs of mappings."""
    built, equal = (
        sum(int(cell.number or 0) for _, cell in across(column))
        for column in ("By construction", "Equivalent")
    )
    return f"{built} of {equal}"


def _pairs_of(table: Table, trained: set[str]) -> Iterator[tuple[str, str]]:
    """The name and the row of every pair of trained mappings."""
    for row in table.rows:
        cell, _, pair = row.label.partition("/")
        first, _, second = pair.partition(", ")
        if cell == "cohort" and {first, second} <= trained:
            yield f"{first} and {second}", row.label


def _moved(evidence: Evidence) -> tuple[str, str] | None:
    """In which directions two mappings move the weights, and the command."""
    table = evidence.tables.get("matched_mappings")
    cells = [] if table is None else [table.cell(row.label, "Cosine") for row in table.rows]
    known = [(cell.number, cell.n) for cell in cells if cell.number is not None]
    if table is None or not known:
        return None
    low, high = min(value for value, _ in known), max(value for value, _ in known)
    answer = (
        f"Matched updates by two mappings, from one adapter on the same tokens: mean cosines from {low:.2f} "
        f"to {high:.2f} in {len(known)} cells and kinds of update, {sum(n for _, n in known)} comparisons in "
        "all. A cosine of 1 is the same direction."
    )
    return answer, _trace(table)


def _kept(evidence: Evidence) -> Finding | None:
    table = evidence.tables.get("reward_changes")
    if table is None:
        return None
    trained = dict.fromkeys(run.condition for run in evidence.results.cohort if run.trained)
    moved = (
        f"{name}: {_range([(one, table.cell(one, column)) for one in trained])}"
        for name, column in COLUMNS.items()
    )
    seeds = max(cell.n for row in table.rows for cell in row.cells)
    return Finding(
        "What of a reward does the normalizer erase?",
        f"Groups whose advantages move when their rewards are changed, by reward, over "
        f"{counted(seeds, 'seed')}: {'; '.join(moved)}. A shift adds the group's frontier.",
        (_trace(table),),
        "Groups that move under a shift.",
    )


def _searched(evidence: Evidence) -> Finding | None:
    table = evidence.tables.get("paired_signs")
    rows = () if table is None else table.rows
    better = [row.label for row in rows if row.label.endswith(_BETTER)]
    if table is None or not better:
        return None
    cells = [(name.removesuffix(_BETTER), table.cell(name, _ENDPOINT)) for name in better]
    ended = (f"{name} in {cell.text()} of {counted(cell.n, 'seed')}" for name, cell in cells)
    least = 2.0 ** (1 - max(cell.n for _, cell in cells))
    floor = (
        f" A sign test over these seeds cannot go below p = {min(1.0, least):.2g}." if least > 0.05 else ""
    )
    return Finding(
        "Did search get better than without training?",
        f"After equally many groups, ended above frozen: {', '.join(ended)}.{_anchored(evidence)}{floor}",
        (_trace(table),),
        "More seeds, and the same comparison at equal time.",
    )


def _range(cells: list[tuple[str, Cell]], unit: str = " %") -> str:
    """The least and the greatest share, each with its name; without names where several are equal."""
    known = sorted(
        (cell.number, f"{cell.text()}{unit}", name) for name, cell in cells if cell.number is not None
    )
    if not known:
        return "none that is known"
    (_, least, first), (_, most, last) = known[0], known[-1]
    if len(known) == 1:
        return f"{least} ({first})"
    return least if least == most else f"{least} ({first}) to {most} ({last})"


def _trace(table: Table) -> str:
    return f"s2s trace . {table.name}"


def _anchored(evidence: Evidence) -> str:
    table = evidence.tables.get("anchor")
    conditions = {run.condition for run in evidence.results.cohort}
    rows = [] if table is None else [row for row in table.rows if row.label in conditions]
    if table is None or not rows:
        return ""
    gains = (
        f"{row.label} {cell.text()} (n = {cell.n})"
        for row in rows
        for cell in [table.cell(row.label, "Final difference")]
    )
    return f" Given the time that training took, the difference to frozen is {', '.join(gains)}."


@dataclass(frozen=True)
class Lineage:
    """From the seed to the best heuristic of a run; ``ancestors`` begins with the seed.

    Each next one has the one before among its parents: of several parents the better one, the first of
    equal ones.
    """

    run: str
    ancestors: tuple[HeuristicRecord, ...]

    @property
    def seed(self) -> HeuristicRecord:
        """What the search began with."""
        return self.ancestors[0]

    @property
    def best(self) -> HeuristicRecord:
        """What it found."""
        return self.ancestors[-1]


def best_lineage(evidence: Evidence) -> Lineage | None:
    """The lineage of the best heuristic of all runs of the cohort, the first of equal ones.

    None where the runs keep no heuristics.
    """
    found = [lineage for lineage in map(_lineage, evidence.results.cohort) if lineage is not None]
    return max(found, key=lambda lineage: lineage.best.score) if found else None


def _lineage(run: RecordedRun) -> Lineage | None:
    file = run.directory / HEURISTICS
    stored = list(read_records(file, HeuristicRecord)) if file.is_file() else []
    if not stored:
        return None
    parents = {(record.step, record.index): record.parents for group in run.groups for record in group}
    known: dict[str, HeuristicRecord] = {}
    for record in stored:
        known.setdefault(record.id, record)
    chain = [max(stored, key=lambda record: record.score)]
    while chain[-1].operator is not None:
        child = chain[-1]
        named = [known[name] for name in parents.get((child.step, child.index), ()) if name in known]
        # A forged parent of a later step would go round for ever.
        before = [record for record in named if record.operator is None or record.step < child.step]
        if not before:
            break
        chain.append(max(before, key=lambda record: record.score))
    return Lineage(run.path, tuple(reversed(chain)))
