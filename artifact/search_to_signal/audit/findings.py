"""What an audit found, as data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_to_signal.audit import candidate_flags
from search_to_signal.audit.atlas import get_entry, source_of, sources
from search_to_signal.audit.class_credit import ClassCreditRow
from search_to_signal.audit.groups import Assumption
from search_to_signal.audit.hopeless_prompts import LoneRepeats, PromptSums
from search_to_signal.audit.knobs import Knob
from search_to_signal.audit.lengths import LengthSums
from search_to_signal.audit.normalizer_agreement import EntryAgreement, LogPlace
from search_to_signal.audit.regrouping import Regrouping
from search_to_signal.audit.repeats import RepeatSums
from search_to_signal.audit.signal import AlternativeExtremes, SignalSums, Ties

# What the atlas calls the repository of this package's own entries.
OURS = "this one"
# The key of the assumption that advantages count only where the first groups have some.
LATE_ADVANTAGES = "late_advantages"
# 1 - cosine up to which two directions are told apart by their sizes rather than by the digits of a log.
_ALIKE = 1e-3
STEP_FLAGS = (
    *("singleton", "flat", "flat_credit", "silenced", "nan_advantage", "left_out", "dead"),
    *("merged", "reversed", "amplified"),
)


@dataclass(frozen=True)
class StepCounts:
    """One step of one file: groups, completions, and how many groups have each flag of STEP_FLAGS.

    ``taught`` completions have an advantage (``GroupFlags``), ``missing`` lack a reward or a part of it;
    ``ties`` are by the least and greatest reward.
    """

    source: str
    step: int
    groups: int
    completions: int
    mean_reward: float
    taught: int
    ties: Ties
    missing: int
    flags: Mapping[str, int]


@dataclass(frozen=True)
class Extreme:
    """The largest value of something, and where it is."""

    value: float
    place: LogPlace


@dataclass(frozen=True)
class Findings:
    """What an audit found.

    ``groups`` and ``completions`` are counted; ``counts`` and ``examples`` are by the names of
    group_flags.MEANING (groups) and candidate_flags.MEANING (completions). ``sizes`` counts groups by size,
    ``statuses`` completions by how they ended.
    ``logged``: advantages were in the log; else those of ``normalizer`` are audited in their place.
    ``agreements`` compare every entry with the advantages that were audited. ``normalizer`` is the entry of
    the knobs, ``named`` by the caller or chosen. ``weights`` are those of the components, None for one that
    changes. ``lengths`` are by the rule that weighs tokens.
    ``gain`` and ``largest`` are the greatest gain and advantage, ``rounding`` the largest advantage of equal
    rewards that is rounding. ``regrouping`` explains advantages that the groups of the log do not, ``lone``
    are groups of one that share a prompt.
    ``prompts``: prompts are logged. ``sums_to_zero``: groups whose advantages differ and sum to 0.
    ``signal`` is what the update is made of, ``alternatives`` what other settings of the ``framework`` make
    of the same groups, ``worst`` the prompts that cost most, ``hopeless`` the sums of those that were sampled
    twice or more and tied each time. ``digits`` and ``reward_digits``: the
    log rounds advantages and rewards to these.
    """

    groups: int
    completions: int
    steps: Sequence[StepCounts]
    sizes: Mapping[int, int]
    statuses: Mapping[str, int]
    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[LogPlace]]
    logged: bool
    normalizer: str
    named: bool
    agreements: Mapping[str, EntryAgreement]
    knobs: Mapping[str, Knob]
    weights: Mapping[str, float | None]
    repeats: RepeatSums
    lengths: Mapping[str, LengthSums]
    classes: tuple[ClassCreditRow, ...]
    gain: Extreme | None
    largest: Extreme | None
    rounding: Extreme | None
    regrouping: Regrouping | None
    lone: LoneRepeats
    prompts: bool
    sums_to_zero: int
    signal: SignalSums
    framework: str
    alternatives: Mapping[str, AlternativeExtremes]
    worst: tuple[PromptSums, ...]
    hopeless: PromptSums | None
    digits: int | None
    reward_digits: int | None
    assumptions: tuple[Assumption, ...]

    @property
    def explaining(self) -> tuple[str, ...]:
        """Entries that give every logged advantage to rounding; none where none was logged."""
        known = (name for name, agreement in self.agreements.items() if self.logged and agreement.explains)
        return tuple(
            sorted(known, key=lambda name: (name != self.normalizer, *standing(name, self.framework)))
        )

    @property
    def nearest(self) -> str | None:
        """The first of ``by_nearness``; None where nothing was logged."""
        ordered = self.by_nearness()
        return ordered[0] if self.logged and ordered else None

    def by_nearness(self) -> tuple[str, ...]:
        """Entries that take some of the groups, nearest first.

        Those that refuse least come first, then those that give most of the advantages if they give half of
        them or more, then by direction (1 - cosine), and of directions that are alike by size. Of entries
        that give the same, those of the log's framework come first, and this package's own last.
        """
        known = {name: agreement for name, agreement in self.agreements.items() if agreement.groups}
        others = (name for name in known if not known[name].explains)
        return (
            *(name for name in known if known[name].explains and not self.logged),
            *self.explaining,
            *sorted(
                others,
                key=lambda name: (
                    known[name].missing,
                    -known[name].near if 2 * known[name].near >= known[name].rows else 0,
                    _direction(known[name].apart),
                    abs(math.log(known[name].size or math.inf)),
                    standing(name, self.framework),
                ),
            ),
        )

    @property
    def logged_twice(self) -> int:
        """Completions that look as if their row was logged twice; 0 where they look sampled twice.

        A sampler gives every group one size. A row that stands twice makes its group larger than others; a
        log that stands twice as a whole has each row again.
        """
        doubled = self.counts["doubled"]
        return doubled if len(self.sizes) > 1 or 2 * doubled >= self.completions else 0

    def share(self, name: str) -> float:
        """A count over groups, or over completions where it counts those."""
        whole = self.completions if name in candidate_flags.MEANING else self.groups
        return self.counts.get(name, 0) / whole


def _direction(apart: float) -> float:
    """1 - cosine, where that of the same direction is 0 and those of directions alike are one number."""
    return apart if not 0 < apart < _ALIKE else _ALIKE


def standing(name: str, framework: str) -> tuple[bool, bool, bool]:
    """Sort key of entries that agree: a framework's first, earlier versions later, this package's last."""
    of = source_of(get_entry(name))
    newest = max(source.date for source in sources().values() if source.framework == of.framework)
    return of.framework != framework, of.repository == OURS, of.date != newest
