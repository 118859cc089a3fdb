"""The metric of every run that a question asks for, each run read once and over the groups that count."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from search_to_signal.analysis.metrics.audit import equal_share, told_apart
from search_to_signal.analysis.metrics.credit import (
    CreditCounts,
    count_credit,
    idle_credit_rounds,
    positive_non_improver_share,
    zero_advantage_share,
)
from search_to_signal.analysis.metrics.search import (
    RunMetrics,
    barren_start,
    distinct_performance,
    parent_copies,
    program_uniqueness,
    ratio,
)
from search_to_signal.analysis.results import RecordedRun, load_runs
from search_to_signal.analysis.tables.evaluations import checkpoint_answers
from search_to_signal.errors import ConfigError
from search_to_signal.normalizer import find_normalizer
from search_to_signal.records.anchor import Clock, loop_seconds, realized_groups, seconds_beside
from search_to_signal.records.layers import PROBE
from search_to_signal.records.manifest import finished_manifest, run_name
from search_to_signal.records.plan import Plan, Question
from search_to_signal.records.probe import INITIAL, PROBE_MANIFEST, read_probe
from search_to_signal.records.reader import COMPLETIONS
from search_to_signal.runtime import mapped

PROGRAMS, DIFFERENCE = "valid_program_uniqueness", "advantage_difference"
COPIES, EACH_ONCE = "valid_parent_copies", "valid_only_performance_of_programs"
START, EQUAL = "groups_before_valid", "equal_advantage_groups"
ZERO, IDLE, IDLE_ROUNDS = "zero_advantage_groups", "positive_non_improvers", "rounds_with_idle_credit"
_OF_GROUPS = {
    PROGRAMS: program_uniqueness,
    COPIES: parent_copies,
    EACH_ONCE: distinct_performance,
    START: barren_start,
}
_OF_CREDIT: dict[str, Callable[[CreditCounts], float | None]] = {
    ZERO: zero_advantage_share,
    IDLE: positive_non_improver_share,
    IDLE_ROUNDS: idle_credit_rounds,
}
METRICS = (*RunMetrics.__dataclass_fields__, *_OF_GROUPS, *_OF_CREDIT, DIFFERENCE, EQUAL)
_COMPARED = ("native", "factorized")
PROBE_METRICS = ("valid_rate",)


@dataclass(frozen=True)
class Reading:
    """A metric over the first ``groups`` groups of a run, whose place is below the recorded evidence.

    A checkpoint of a probe counts as a run whose groups are the bank's prompts; all of them are read.
    """

    place: str
    groups: int
    metric: str

    @property
    def file(self) -> str:
        """The records that it is read from."""
        return f"{self.place}.jsonl" if _is_probed(self.place) else f"{self.place}/{COMPLETIONS}"


@dataclass(frozen=True)
class Pair:
    """The readings of one question and seed, first and second side, or of the only side.

    ``counts`` is false where the plan lets it count for nothing: no prefix has the same time.
    """

    seed: int
    sides: tuple[Reading, ...]
    remark: str = ""
    counts: bool = True


@dataclass(frozen=True)
class _Recorded:
    """A finished run, or a checkpoint that answered the whole bank."""

    place: str
    groups: int
    group_size: int


def _is_probed(place: str) -> bool:
    return PurePosixPath(place).parent.name == PROBE


def _recorded(root: Path, side: str, seed: int) -> _Recorded | None:
    """What is recorded of a side, PROFILE/LAYER/CONDITION, with this seed; None where nothing is."""
    folder, _, condition = side.rpartition("/")
    name = run_name(condition, seed)
    if _is_probed(side):
        return _probed(root, folder, INITIAL if condition == INITIAL else name)
    place = f"{folder}/{name}"
    manifest = finished_manifest(root / place)
    if manifest is None:
        return None
    return _Recorded(place, manifest.facts.groups, manifest.facts.group_size)


def _probed(root: Path, folder: str, name: str) -> _Recorded | None:
    if not (root / folder / PROBE_MANIFEST).is_file():
        return None
    manifest = read_probe(root / folder)
    known = manifest.status == "complete" and name in {one.name for one in manifest.checkpoints}
    return _Recorded(f"{folder}/{name}", manifest.prompts, manifest.completions) if known else None


def pairs_of(root: Path, plan: Plan, question: Question, sides: Sequence[str]) -> list[Pair]:
    """The seeds that are recorded on every side, in the plan's order, with what is read of them."""
    found = []
    for seed in plan.seeds.seeds[: question.seeds]:
        recorded = [_recorded(root, side, seed) for side in sides]
        known = [one for one in recorded if one is not None]
        if len(known) == len(sides):
            found.append(_pair(root, question, seed, known))
    return found


def beyond(root: Path, plan: Plan, question: Question, side: str) -> list[Pair]:
    """Of every run that went on after the question's horizon: all its groups, and those within it."""
    found = []
    for seed in plan.seeds.seeds[: question.seeds]:
        run = _recorded(root, side, seed)
        if run is not None and (due := question.horizon // run.group_size) < run.groups:
            lengths = (Reading(run.place, groups, question.metric) for groups in (run.groups, due))
            found.append(Pair(seed, tuple(lengths)))
    return found


def _pair(root: Path, question: Question, seed: int, runs: Sequence[_Recorded]) -> Pair:
    due = [question.horizon // run.group_size for run in runs]
    groups = [min(count, run.groups) for count, run in zip(due, runs, strict=True)]
    remarks = [f"{run.place} has fewer groups" for run, a, b in zip(runs, due, groups, strict=True) if b < a]
    counts = True
    clock = question.clock
    if clock is not None and len(runs) > 1:
        remarks = remarks[:1] if groups[0] < due[0] else []
        bought, remark = _bought(root, [run.place for run in runs], groups[0], clock)
        counts, groups[1] = bought > 0, bought
        remarks += [remark] if remark else []
    sides = (Reading(run.place, count, question.metric) for run, count in zip(runs, groups, strict=True))
    return Pair(seed, tuple(sides), "; ".join(remarks), counts)


def _bought(root: Path, places: Sequence[str], groups: int, clock: Clock) -> tuple[int, str]:
    """The longest prefix of the second run within the first one's seconds (D61), 0 for none; a remark."""
    first, second = (root / place for place in places[:2])
    found = seconds_beside(first, second, clock)
    if found.seconds is None:
        return 0, found.remark
    count = realized_groups(found.seconds, sum(loop_seconds(first, clock)[:groups]))
    if count == len(found.seconds):
        return 0, f"{places[1]} ends before the time does"
    return count, found.remark


def values_of(root: Path, readings: Iterable[Reading]) -> dict[Reading, float | None]:
    """Every reading's value, None where the metric does not exist.

    Raises ConfigError for a metric that nobody knows, and as ``load_runs`` and ``checkpoint_answers`` do.
    """
    asked: dict[str, set[tuple[int, str]]] = {}
    for reading in readings:
        known = PROBE_METRICS if _is_probed(reading.place) else METRICS
        if reading.metric not in known:
            told = ", ".join(known)
            raise ConfigError(f"the plan asks {reading.place} for {reading.metric!r}: choose one of {told}")
        asked.setdefault(reading.place, set()).add((reading.groups, reading.metric))
    shares = [(root, place, sorted(wanted)) for place, wanted in sorted(asked.items())]
    return {reading: value for found in mapped(_read, shares, 16) for reading, value in found.items()}


Share = tuple[Path, str, Sequence[tuple[int, str]]]


def _read(share: Share) -> dict[Reading, float | None]:
    root, place, wanted = share
    if _is_probed(place):
        valid = _valid_answers(root / place)
        return {Reading(place, prompts, metric): valid for prompts, metric in wanted}
    (run,) = load_runs(root / place)
    parts = {groups: run.prefix(groups) for groups, _ in wanted}
    return {Reading(place, groups, metric): _metric(parts[groups], metric) for groups, metric in wanted}


def _valid_answers(place: Path) -> float | None:
    manifest = read_probe(place.parent)
    checkpoint = next(one for one in manifest.checkpoints if one.name == place.name)
    answers = checkpoint_answers(place.parent, manifest, checkpoint)
    return ratio(sum(answer.score is not None for answer in answers), len(answers))


def _metric(run: RecordedRun, metric: str) -> float | None:
    if metric in _OF_GROUPS:
        return _OF_GROUPS[metric](run.groups)
    if metric == DIFFERENCE:
        apart = told_apart(run.batch, find_normalizer(run.facts.normalizer))
        return ratio(int(apart.sum()), len(apart))
    if metric == EQUAL:
        return equal_share(run.batch, find_normalizer(run.facts.normalizer), _COMPARED)
    if metric in _OF_CREDIT:
        seen = run.advantages
        return None if seen is None else _OF_CREDIT[metric](count_credit(run.batch, seen))
    value: float | None = getattr(run.metrics, metric)
    return value
