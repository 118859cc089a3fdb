"""The plan of the shipped evidence: what is asked of which runs, written down before the first of them ran.

``artifact/evidence/plan.toml`` is that file. Every manifest of a run that belongs to it holds its SHA-256.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import EVIDENCE
from search_to_signal.base.settings import Range, check_ranges, load_toml
from search_to_signal.records.anchor import Clock
from search_to_signal.records.files import read_regular

PLAN = EVIDENCE / "plan.toml"

Estimator = Literal["mean_difference", "sign_count", "description"]
Interval = Literal["t", "bootstrap", "none"]
Match = Literal[
    "completions",
    "processor_time",
    "wall_time",
    "least_processor_time",
    "least_wall_time",
    "fewest_programs",
    "fewest_calls",
]

_CLOCKS: dict[str, Clock] = {
    "processor_time": "processor",
    "wall_time": "wall",
    "least_processor_time": "processor",
    "least_wall_time": "wall",
}


class Analysis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds for every question. Seeds are the unit, never groups or completions.

    An interval covers its mean with probability ``level``, by itself. A verdict takes 1 - (1 - level) / m
    instead, m the question's ``comparisons`` (Bonferroni): only an interval of that level that excludes zero
    is called a difference. ``power`` is that of the smallest effects.
    """

    level: Annotated[float, Range(0, 1, above=True, below=True)]
    power: Annotated[float, Range(0, 1, above=True, below=True)]
    correction: Literal["bonferroni"]


class Seeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All seeds in the order in which studies take them, ``rule`` in words; a study takes the first n."""

    rule: str
    first: tuple[int, ...]
    name: str
    seeds: tuple[int, ...]


class PilotMetric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sample deviations over the pilot's seeds by condition, in the unit of the metric (rates: of 1)."""

    metric: str
    deviations: dict[str, float]


class Pilot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What sample sizes were chosen by: ``seeds`` runs per condition on another machine, in no table here.

    ``completions`` are those of a run, or of the runs that are planned by it where its own were shorter.
    """

    seeds: int
    completions: int
    metrics: tuple[PilotMetric, ...]


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One question to the runs of a study.

    ``pairs`` are (first, second), the difference is first - second within each seed. A side is the path of
    its runs below the recorded evidence without their seed: PROFILE/LAYER/CONDITION, in layers with cells
    PROFILE/LAYER/CELL/CONDITION. Where there is one pair it may be of one side: the runs are described.
    ``metric`` is a field of ``RunMetrics``; ``valid_program_uniqueness``, distinct canonical programs per
    valid completion; ``groups_before_valid``, the share of groups before the first valid completion; or one
    of groups of advantages. Of every run: ``advantage_difference``, the share of groups in which two of the
    published mappings give some completion advantages more than 0.001 apart, and ``equal_advantage_groups``,
    that in which Native and Factorized give none. Of trained ones: ``zero_advantage_groups``, the share of
    groups whose advantages are all zero; ``positive_non_improvers``, the share of valid non-improving
    completions with positive advantage; ``rounds_with_idle_credit``, the share of groups that give one of
    them positive advantage and have no improver. Of a probe it is ``valid_rate``. ``horizon`` is in
    completions per run. ``match`` says what is equal on both sides: completions, or the processor or wall
    time of the steps, by the longest prefix of the second side's run that the first side's seconds buy;
    ``least`` and ``fewest``: both runs are cut where the one ends that took less time, proposed fewer
    distinct valid programs or called the evaluator less often. An accelerator's work is in the wall time
    alone.

    ``comparisons`` is how many are made at once. ``smallest_effects``, one per pair in the metric's unit, are
    what a paired t test at level (1 - ``level``) / comparisons sees with the plan's power, by the pilot's
    deviations; empty where the pilot has no such runs. ``published`` is what the paper has of the same, one
    per pair, in the metric's unit; empty where it has nothing.
    """

    key: str
    asks: str
    role: Literal["primary", "secondary"]
    metric: str
    estimator: Estimator
    interval: Interval
    pairs: tuple[tuple[str, ...], ...]
    match: Match = "completions"
    horizon: Annotated[int, Range(1, 1_000_000_000)]
    seeds: Annotated[int, Range(1, 1000)]
    comparisons: Annotated[int, Range(1, 1000)]
    smallest_effects: tuple[float, ...] = ()
    published: tuple[float, ...] = ()
    counts_against: str

    @property
    def clock(self) -> Clock | None:
        """By which clock both sides take as long; None where they have as many completions."""
        return _CLOCKS.get(self.match)

    @property
    def cuts_both(self) -> bool:
        """Whether the run that spent less sets the prefixes of both, whichever side it is on."""
        return self.match.startswith(("least_", "fewest_"))


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Runs that are recorded together, in the plan's order.

    ``profiles`` are files ``artifact/profiles/evidence/PROFILE.toml`` whose runs go to one directory PROFILE
    each; ``layers`` are those of their layers that this study records. ``hours`` is what it takes on the
    plan's machine by the speed that was measured before. ``seeds``: how many of the plan's, the first ones.
    """

    key: str
    title: str
    profiles: tuple[str, ...]
    layers: tuple[str, ...]
    seeds: Annotated[int, Range(1, 1000)]
    hours: Annotated[float, Range(0, 1000)]
    note: str = ""
    questions: tuple[Question, ...] = ()


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The plan; its studies are recorded in order. Raises ConfigError where it contradicts itself.

    ``controls`` are profiles that another plan recorded: questions compare with their runs.
    """

    title: str
    note: str
    analysis: Analysis
    seeds: Seeds
    pilot: Pilot
    studies: tuple[Study, ...]
    controls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        questions = [question for study in self.studies for question in study.questions]
        for part in (self.analysis, *self.studies, *questions):
            check_ranges(part, getattr(part, "key", "analysis"))
        for question in questions:
            if question.published and len(question.published) != len(question.pairs):
                raise ConfigError(
                    f"{question.key}: published needs one number for each pair: give all, or leave it out"
                )
        keys = [study.key for study in self.studies]
        keys += [question.key for question in questions]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise ConfigError(f"the plan has {', '.join(twice)} more than once: give every part its own key")
        if max(study.seeds for study in self.studies) > len(self.seeds.seeds):
            raise ConfigError(
                f"the plan names {len(self.seeds.seeds)} seeds, but a study uses more: add seeds"
            )

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles in the order of the studies, each once."""
        return tuple(dict.fromkeys(name for study in self.studies for name in study.profiles))


def evidence_roots(directory: Path) -> list[Path]:
    """Return the directory, and those directly below it that have a plan of their own, by name."""
    return [directory, *(plan.parent for plan in sorted(directory.glob(f"*/{PLAN.name}")))]


def read_plan(path: Path = PLAN) -> Plan:
    """The plan; raises ConfigError that names the file and what is wrong in it."""
    return load_toml(path, Plan)


def plan_sha256(path: Path = PLAN) -> str:
    """SHA-256 of the plan's file as it stands; raises ConfigError where there is none."""
    try:
        return hashlib.sha256(read_regular(path)).hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot read the plan {path}: restore it") from error
