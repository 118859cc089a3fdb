"""The metrics of a run, each registered once for tables, figures and plans, and differences between runs.

Every difference in a table and every pair in a figure is checked here (paper, equal-horizon effects).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.credit.normalizers import Normalizer, find_normalizer
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.report.metrics import search
from search_to_signal.report.metrics.replay import differing_groups, equal_share, flat_share, flat_valid_share
from search_to_signal.report.metrics.search import CreditCounts, count_credit
from search_to_signal.report.results import SHARED, NoTableError, Origin, RecordedRun, protocol
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    PartsOf,
    by_part,
    change_of,
    count_cell,
    difference_cells,
    lines_of,
    mean_cell,
    number_cell,
    over_seeds,
)

OfRun = Callable[[RecordedRun], float | None]
Groups = Sequence[Sequence[CompletionRecord]]


@dataclass(frozen=True)
class Measure:
    """A metric: its name in plans, its column in tables, and its value for a run, None where it has none.

    Tables show ``factor`` times the value with so many ``decimals``.
    """

    field: str
    heading: str
    formula: str
    of_run: OfRun
    factor: float = 1.0
    decimals: int = 4

    @property
    def change(self) -> str:
        """The heading of the column of its differences."""
        return change_of(self.heading)

    def cell(self, run: RecordedRun) -> Cell:
        return self.of(self.of_run(run), run.all_completions)

    def of(self, value: float | None, *origins: Origin) -> Cell:
        """Make the cell of a value, scaled to the unit of the column."""
        scaled = value if value is None or self.factor == 1.0 else self.factor * value
        return number_cell(scaled, self.formula, *origins, decimals=self.decimals)


def _measure(
    field: str, heading: str, formula: str, of_run: OfRun | None = None, decimals: int = 4
) -> Measure:
    """A field of RunMetrics, or ``of_run``; what is headed (%) is a share of 1, shown in percent."""
    value = of_run or attrgetter(f"metrics.{field}")
    if heading.endswith("(%)"):
        return Measure(field, heading, f"{formula}, in percent", value, factor=100.0, decimals=2)
    return Measure(field, heading, formula, value, decimals=decimals)


def _of_groups(metric: Callable[[Groups], float | None]) -> OfRun:
    return lambda run: metric(run.groups)


def _of_credit(metric: Callable[[CreditCounts], float | None]) -> OfRun:
    """By the advantages that the learner saw; a run without a learner has none."""
    return lambda run: (None if run.advantages is None else metric(count_credit(run.batch, run.advantages)))


def _of_signal(metric: Callable[[GroupBatch, Normalizer], float | None]) -> OfRun:
    """By the advantages that mappings would have given the run's groups under its normalizer."""
    return lambda run: metric(run.batch, find_normalizer(run.facts.normalizer))


def _differing_share(batch: GroupBatch, normalizer: Normalizer) -> float | None:
    differ = differing_groups(batch, normalizer)
    return search.ratio(int(differ.sum()), len(differ))


FINAL_BEST = _measure(
    "final_best", "Final best", "best score after the last group, the seed heuristic included"
)
AUC = _measure("trajectory_auc", "Trajectory AUC", "mean over groups of the best score so far (D19)")
VALID = _measure("valid_rate", "Valid (%)", "valid completions / completions")
VALID_ONLY = _measure("valid_only_performance", "Valid-only perf.", "mean score of valid completions")
IMPROVE = _measure(
    "improve_yield", "Improve yield (%)", "completions better than their best prompt base / completions"
)
FRONTIER = _measure(
    "strict_frontier_yield", "Frontier (%)", "completions better than the frontier before them / completions"
)
RESPONSES = _measure("response_uniqueness", "Unique responses (%)", "distinct response texts / completions")
PROMPTS = _measure("prompt_uniqueness", "Unique prompts (%)", "distinct prompts / groups")
PARENTS = _measure("parent_uniqueness", "Unique parents (%)", "distinct sets of parents / groups")
CORE = (FINAL_BEST, AUC, VALID, VALID_ONLY, IMPROVE)
_OF_BATCH: Mapping[Measure, Callable[[GroupBatch], float | None]] = {
    VALID: search.valid_rate,
    VALID_ONLY: search.valid_only_performance,
    IMPROVE: search.improve_yield,
    FRONTIER: search.strict_frontier_yield,
}
STREAM = tuple(_OF_BATCH)
"""The measures of the proposal stream, which some groups of a run have, too."""
ALL = (*CORE, FRONTIER, RESPONSES, PROMPTS, PARENTS)

PROGRAMS = _measure(
    "valid_program_uniqueness",
    "Distinct programs (%)",
    "distinct canonical programs / valid completions",
    _of_groups(search.program_uniqueness),
)
COPIES = _measure(
    "valid_parent_copies",
    "Copies of a parent (%)",
    "valid completions whose program is one of their prompt's bases / valid completions",
    _of_groups(search.parent_copies),
)
COPIED_SCORES = _measure(
    "valid_parent_scores",
    "Score of a parent, other code (%)",
    "valid completions that score within 1e-7 of one of their prompt's bases and are none of them / "
    "valid completions",
    _of_groups(search.copied_scores),
)
NOT_COPIED = _measure(
    "valid_rate_without_copies",
    "Valid, no copy (%)",
    "valid completions whose program is none of their prompt's bases / completions",
    _of_groups(search.valid_rate_without_copies),
)
NEW_FORMS = _measure(
    "new_forms_with_new_scores",
    "New form and new score",
    "admitted heuristics of a run whose program, numbers aside, is none of its earlier heuristics' and "
    "whose score no valid completion before it had within 1e-7",
    lambda run: search.new_forms(run.groups, run.heuristics),
    decimals=1,
)
RETUNED = _measure(
    "admitted_with_other_numbers",
    "Parents with other numbers (%)",
    "admitted heuristics that differ from a base of their prompt in numbers alone / admitted",
    lambda run: search.retuned_admissions(run.groups, {one.id: one.code for one in run.heuristics}),
)
EACH_ONCE = _measure(
    "valid_only_performance_of_programs",
    "Valid-only perf., each program once",
    "mean score of distinct valid programs",
    _of_groups(search.distinct_performance),
)
MEDIAN = _measure(
    "valid_only_median",
    "Valid-only median",
    "median score of valid completions",
    _of_groups(search.median_performance),
)
USABLE = _measure(
    "usable_rate",
    "Usable function (%)",
    "completions with rationale, code and required function / completions",
    _of_groups(search.usable_rate),
)
VALID_OF_USABLE = _measure(
    "valid_of_usable",
    "Valid of usable (%)",
    "valid completions / completions with a usable function",
    _of_groups(search.valid_of_usable),
)
FLAT = _measure(
    "flat_groups_of_factorized",
    "Zero advantage by Factorized (%)",
    "groups in which factorized gives only zero advantages / groups",
    _of_signal(flat_share),
)
FLAT_VALID = _measure(
    "flat_valid_groups_of_factorized",
    "Zero advantage by Factorized, all valid (%)",
    "groups of valid completions in which factorized gives only zero advantages / groups",
    _of_signal(flat_valid_share),
)
ZERO = _measure(
    "zero_advantage_groups",
    "Zero advantage (%)",
    "groups whose advantages are all zero / groups",
    _of_credit(search.zero_advantage_share),
)
_OTHERS = (
    _measure(
        "advantage_difference",
        "Groups told apart (%)",
        "groups in which two mappings give advantages more than 0.001 apart / groups",
        _of_signal(_differing_share),
    ),
    _measure(
        "equal_advantage_groups",
        "Equal advantages (%)",
        "groups in which native and factorized give advantages within 0.001 / groups",
        _of_signal(equal_share),
    ),
    _measure(
        "positive_non_improvers",
        "Positive non-improvers (%)",
        "valid non-improvers with positive advantage / valid non-improvers",
        _of_credit(search.positive_non_improver_share),
    ),
    _measure(
        "rounds_with_idle_credit",
        "Rounds with idle credit (%)",
        "groups without improver that give a valid completion positive advantage / groups",
        _of_credit(search.idle_credit_rounds),
    ),
    _measure(
        "groups_before_valid",
        "Before the first valid (%)",
        "groups before the first valid one / groups",
        _of_groups(search.barren_start),
    ),
    *(
        _measure(name, name.replace("_", " "), name)
        for name in ("groups", "completions", "admissions", "admission_precision")
    ),
)
MEASURES: Mapping[str, Measure] = {
    measure.field: measure
    for measure in (
        *ALL,
        *(PROGRAMS, COPIES, COPIED_SCORES, NOT_COPIED, NEW_FORMS, RETUNED, EACH_ONCE),
        *(MEDIAN, USABLE, VALID_OF_USABLE),
        *(FLAT, FLAT_VALID, ZERO, *_OTHERS),
    )
}
"""Every metric that a plan may ask for, by its name there."""


def stream_cells(run: RecordedRun, start: int, stop: int) -> Cells:
    """The measures of the proposal stream over groups start to stop - 1 of a run, counted from 0."""
    batch, origin = run.batch.at(slice(start, stop)), run.completions_of(start, stop)
    return {measure.heading: measure.of(metric(batch), origin) for measure, metric in _OF_BATCH.items()}


def measured(run: RecordedRun, measures: Sequence[Measure] = ALL) -> Cells:
    return {measure.heading: measure.cell(run) for measure in measures}


def seed_cells(run: RecordedRun) -> Cells:
    """Core results of one run, with its strict-frontier yield and the tokens that entered its loss."""
    tokens = sum(step.training_tokens for step in run.steps)
    cell = count_cell(tokens, "sum of training tokens over steps", run.all_steps)
    return {**measured(run, (*CORE, FRONTIER)), "Training tokens": cell}


def differences(first: RecordedRun, second: RecordedRun, measures: Sequence[Measure] = ALL) -> Cells:
    """first - second in every measure."""
    return difference_cells(measured(first, measures), measured(second, measures))


def require_comparable(
    first: RecordedRun, second: RecordedRun, contract: tuple[int, int] | None = None
) -> None:
    """Check that two runs differ only in their conditions.

    Horizons are equal, or in groups those that a ``contract`` fixed before any result.
    Raises RunDirectoryError where problem, model, search, source or seed differ, NoTableError where horizons
    do: such runs are whole, and have tables of their own.
    """
    settings, other_settings = protocol(first.manifest), protocol(second.manifest)
    keys = (*SHARED, "source", "model files")
    different = [key for key in keys if settings.get(key) != other_settings.get(key)]
    if different or first.seed != second.seed:
        what = ", ".join(different or ["seed"])
        raise RunDirectoryError(f"{first.path} and {second.path} differ in {what}: they are not matched")
    lengths = (len(first.groups), len(second.groups))
    if lengths != (contract or lengths[:1] * 2):
        raise NoTableError(
            f"{first.path} has {groups_of([first])} and {second.path} {groups_of([second])}: "
            "runs of unequal horizons are not compared"
        )


def at_one_horizon(runs: Sequence[RecordedRun]) -> tuple[RecordedRun, ...]:
    """Return runs of several layers at one horizon; smoke runs are cut to the shortest.

    Raises NoTableError for formal runs of unequal horizons.
    """
    lengths = {len(run.groups) for run in runs}
    if len(lengths) < 2:
        return tuple(runs)
    if any(run.facts.purpose != "smoke" for run in runs):
        raise NoTableError(f"runs of {groups_of(runs)} are not compared: give them one horizon")
    return tuple(run.prefix(min(lengths)) for run in runs)


def groups_of(runs: Iterable[RecordedRun]) -> str:
    """Format the horizon of runs, from the shortest to the longest where they differ."""
    return in_groups(len(run.groups) for run in runs)


def in_groups(lengths: Iterable[int]) -> str:
    """Format numbers of groups."""
    distinct = sorted(set(lengths))
    if len(distinct) > 1:
        return f"{distinct[0]} to {distinct[-1]} groups"
    return f"{distinct[0]} group{'' if distinct == [1] else 's'}"


@dataclass(frozen=True)
class RunComparison:
    """Pairs of runs, first minus second, one per seed; raises as require_comparable does."""

    first: str
    second: str
    pairs: tuple[tuple[RecordedRun, RecordedRun], ...]

    def __post_init__(self) -> None:
        for first, second in self.pairs:
            require_comparable(first, second)

    @property
    def name(self) -> str:
        return f"{self.first} minus {self.second}"

    def of_seed(self, seed: int) -> str:
        return f"{self.first}-s{seed} minus {self.second}-s{seed}"


def compare_with(runs: Sequence[RecordedRun], condition: str) -> tuple[RunComparison, ...]:
    """Compare every other trained condition of a cohort with this one, by seed; empty without this one."""
    base = {run.seed: run for run in runs if run.condition == condition}
    others = [run for run in runs if base and run.condition not in (condition, FROZEN)]
    return tuple(
        RunComparison(name, condition, tuple((r, base[r.seed]) for r in others if r.condition == name))
        for name in dict.fromkeys(run.condition for run in others)
    )


def compare_with_frozen(runs: Sequence[RecordedRun]) -> tuple[RunComparison, ...]:
    """Compare every trained condition with Frozen; raises NoTableError where there is nothing to compare."""
    comparisons = compare_with(runs, FROZEN)
    if not comparisons:
        raise NoTableError("the cohort has nothing to compare with frozen")
    return comparisons


def paired_rows(comparisons: Sequence[RunComparison], parts_of: PartsOf) -> list[Line]:
    """Build rows of every comparison over its seeds, then of every pair."""
    over: list[Line] = []
    single: list[Line] = []
    for comparison in comparisons:
        seeds = []
        for first, second in comparison.pairs:
            parts, others = by_part(parts_of(first)), by_part(parts_of(second))
            seeds.append({part: difference_cells(parts[part], others[part]) for part in parts})
            single += lines_of(comparison.of_seed(first.seed), seeds[-1])
        over += over_seeds(comparison.name, seeds, mean_cell)
    return over + single
