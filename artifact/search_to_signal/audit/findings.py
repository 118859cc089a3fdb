"""The audit of a run, and what it found as data.

Batches are read once, and what is kept does not grow with the rows.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search_to_signal.audit.agreement import (
    EntryAgreement,
    Knob,
    LogPlace,
    ReferenceAdvantages,
    Regrouping,
    StepBatches,
    agreement,
    apply,
    flat_gain,
    knobs,
    logged_digits,
    place_of,
    reference_of,
    regrouping,
    same_bits,
    step_batches,
)
from search_to_signal.audit.atlas import entries, get_entry, source_of, sources
from search_to_signal.audit.credit import (
    ClassCreditRow,
    ClassSums,
    LengthSums,
    LoneRepeats,
    PromptSums,
    Sign,
    Watch,
    add_prompts,
    class_sums,
    credit_table,
    hopeless,
    length_sums,
    lone_repeats,
    worst,
)
from search_to_signal.audit.flags import (
    COPIED,
    OF_COMPLETIONS,
    Bools,
    GroupFlags,
    RepeatSums,
    candidate_flags,
    copied_flags,
    group_flags,
    limits,
    repeat_sums,
    seen_before,
)
from search_to_signal.audit.frameworks import offered, options_of
from search_to_signal.audit.groups import (
    LETTERS,
    SEARCH,
    Assumption,
    Floats,
    Integers,
    RewardGroups,
    spans,
    summed,
    whole_steps,
)
from search_to_signal.audit.signal import AlternativeExtremes, SignalSums, Ties, alternative, signal, ties
from search_to_signal.base.errors import RecordError

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
    flags.OF_GROUPS and flags.OF_COMPLETIONS. ``sizes`` counts groups by size,
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
    log rounds advantages and rewards to these. ``signs`` say that a reward is exploited.
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
    signs: Mapping[str, Sign]
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
                    known[name].apart if not 0 < known[name].apart < _ALIKE else _ALIKE,
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

    def assumed(self, key: str) -> bool:
        """Whether the reader of the log took that for granted."""
        return any(assumption.key == key for assumption in self.assumptions)

    def share(self, name: str) -> float:
        """A count over groups, or over completions where it counts those."""
        whole = self.completions if name in OF_COMPLETIONS else self.groups
        return self.counts.get(name, 0) / whole


def standing(name: str, framework: str) -> tuple[bool, bool, bool]:
    """Sort key of entries that agree: a framework's first, earlier versions later, this package's last."""
    of = source_of(get_entry(name))
    newest = max(source.date for source in sources().values() if source.framework == of.framework)
    return of.framework != framework, of.repository == OURS, of.date != newest


# Places that are kept of each kind.
_SHOWN = 3
DEFAULT = "group"
# The key of the assumption that a part of a long log speaks for the whole where normalizers are compared.
IN_PART = "compared_in_part"
# Up to so many groups every entry is compared; later an entry that does not explain sees one in so many.
_ALL_COMPARED, _ONE_IN = 8_000, 32


@dataclass(frozen=True)
class _Course:
    """How a log is audited, as the first batch decides it; fields as in Findings."""

    normalizer: str
    logged: bool
    framework: str
    digits: int | None
    reward_digits: int | None
    regrouping: Regrouping | None
    # ``flat_gain`` of the entry that made the advantages, as far as it is known.
    gain: float


@dataclass
class _Tally:
    """What is carried from batch to batch: fields of Findings, and those that it is made from."""

    groups: int = 0
    completions: int = 0
    steps: list[StepCounts] = field(default_factory=list)
    sizes: Counter[int] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[LogPlace]] = field(default_factory=dict)
    agreements: dict[str, EntryAgreement] = field(default_factory=dict)
    # Groups with advantages, and those of them with which every entry was compared.
    advised: int = 0
    compared: int = 0
    knobs: dict[str, Knob] = field(default_factory=dict)
    weights: dict[str, float | None] = field(default_factory=dict)
    repeats: RepeatSums = field(default_factory=RepeatSums)
    # Texts of searched candidates: a search has thousands of them, where a log of training has millions.
    seen: set[int] = field(default_factory=set)
    lengths: dict[str, LengthSums] = field(default_factory=dict)
    classes: dict[bool, dict[str, ClassSums]] = field(default_factory=lambda: {True: {}, False: {}})
    gain: Extreme | None = None
    largest: Extreme | None = None
    rounding: Extreme | None = None
    lone: LoneRepeats = field(default_factory=LoneRepeats)
    texts: bool = False
    # Completions whose characters stand for tokens.
    letters: int = 0
    sums_to_zero: int = 0
    signal: SignalSums = field(default_factory=SignalSums)
    alternatives: dict[str, AlternativeExtremes] = field(default_factory=dict)
    prompts: dict[Hashable, PromptSums] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    assumptions: tuple[Assumption, ...] = ()


def audit(
    groups: RewardGroups | Iterable[RewardGroups],
    normalizer: str | None = None,
    usual: str | None = None,
    each: Callable[[RewardGroups, Floats, GroupFlags], None] | None = None,
) -> Findings:
    """Audit groups, or batches of them in the order of the log.

    ``normalizer`` names the entry of the atlas whose knobs are tried, and whose advantages are audited where
    none are logged. Without it that is an entry that explains the first batch, else ``usual``.
    ``each`` is called with every batch, the advantages (R,) that are audited, and the facts of its groups.
    Raises ConfigError for an unknown normalizer, RecordError where there are no groups.
    """
    stream = whole_steps([groups] if isinstance(groups, RewardGroups) else groups)
    tally, course = _Tally(), None
    get_entry(normalizer or usual or DEFAULT)
    for batch in stream:
        # Rewards that overflow or are no numbers are data; what they lead to is counted.
        with np.errstate(all="ignore"):
            course = course or _course(batch, normalizer, usual)
            audited, facts = _add(tally, batch, course)
            if each is not None:
                each(batch, audited, facts)
    if course is None:
        raise RecordError("no groups were given: give a log with rollouts in it")
    return _finished(tally, course, normalizer is not None)


def _course(batch: RewardGroups, normalizer: str | None, usual: str | None) -> _Course:
    logged, assumed = bool(batch.has_advantage.any()), normalizer or usual
    explaining, digits = _explaining(batch, assumed) if logged else (None, None)
    name = normalizer or explaining or usual or DEFAULT
    framework = source_of(get_entry(assumed)).framework if assumed else ""
    other = None
    if np.isfinite(batch.advantage).any() and explaining is None:
        other = regrouping(batch, lambda groups: _explaining(groups, assumed)[0])
    made = explaining if logged else name
    gain = flat_gain(get_entry(made)) if made else 0.0
    return _Course(name, logged, framework, digits, logged_digits(batch.reward), other, gain)


def _explaining(batch: RewardGroups, usual: str | None) -> tuple[str | None, int | None]:
    """The first entry that gives the logged advantages of a batch, and the digits to which they are rounded.

    The usual one comes before others of its framework, and this package's own last. Rounding is looked for
    only where nothing explains without.
    """
    facts = group_flags(batch, batch.advantage)
    framework = source_of(get_entry(usual)).framework if usual else ""
    names = sorted(entries(), key=lambda name: (name != usual, *standing(name, framework)))
    batches = step_batches(batch)
    computed: dict[str, Floats] = {}
    rounded = logged_digits(batch.advantage)
    for digits in dict.fromkeys((None, rounded)):
        logged = reference_of(batch, batch.advantage, facts, digits)
        for name in names:
            if name not in computed:
                computed[name] = apply(get_entry(name), batches)
            if agreement(logged, computed[name], flat_gain(get_entry(name))).explains:
                return name, digits
    return None, None


def _add(tally: _Tally, batch: RewardGroups, course: _Course) -> tuple[Floats, GroupFlags]:
    name = course.normalizer
    batches = step_batches(batch)
    base = apply(get_entry(name), batches)
    audited = batch.advantage if course.logged else base
    facts = group_flags(batch, audited, course.gain)
    tally.lone += lone_repeats(batch)
    tally.texts |= bool(batch.prompt_id.any())
    tally.signal += signal(batch, audited, facts)
    tally.watch.add(batch, audited)
    add_prompts(tally.prompts, batch, facts)
    tally.groups += len(batch.step)
    tally.completions += len(batch.reward)
    tally.sizes.update(batch.sizes.tolist())
    ended = zip(batch.status.names, np.bincount(batch.status.code).tolist(), strict=False)
    tally.statuses.update({name: count for name, count in ended if name and count})
    tally.assumptions = summed((*tally.assumptions, *batch.assumptions))
    if not course.logged and (late := int(batch.has_advantage.sum())):
        # The first batch decides whose advantages are audited.
        says = "advantages that are logged after groups without any are left out"
        note = Assumption(LATE_ADVANTAGES, says, {"completions": late})
        tally.assumptions = summed((*tally.assumptions, note))
    tally.repeats += repeat_sums(batch, audited)
    for component, weight in batch.weights.items():
        same = tally.weights.setdefault(component, weight) == weight
        tally.weights[component] = weight if same else None
    total = np.abs(np.add.reduceat(audited, batch.offsets[:-1]))
    zero = (total <= 1e-5 * batch.sizes * facts.largest) & (facts.advantage_range > 0)
    tally.sums_to_zero += int(zero.sum())
    tally.steps.extend(_steps(batch, audited, facts))
    _count(tally, batch, facts)
    tally.gain = _greatest(tally.gain, batch, facts.gain)
    tally.largest = _greatest(tally.largest, batch, facts.largest)
    rounded = np.where(facts.flags["flat_rounding"], facts.largest, np.nan)
    tally.rounding = _greatest(tally.rounding, batch, rounded)
    for kind, sums in tally.classes.items():
        for label, of_batch in class_sums(batch, audited, by_status=kind).items():
            sums[label] = sums.get(label, ClassSums()) + of_batch
    tally.letters += int((batch.tokens < 0).any() and LETTERS in batch.metrics) * len(batch.reward)
    for rule, lengths in length_sums(batch, audited).items():
        tally.lengths[rule] = tally.lengths.get(rule, LengthSums()) + lengths
    # Candidates of a search that trains nothing have no advantages to compare.
    if not _is_search(batch):
        _compare(tally, reference_of(batch, audited, facts, course.digits), batches, {name: base})
        for knob, effect in knobs(get_entry(name), batch, base).items():
            tally.knobs[knob] = tally.knobs.get(knob, Knob()) + effect
    return audited, facts


def _is_search(batch: RewardGroups) -> bool:
    said = any(assumption.key == SEARCH for assumption in batch.assumptions)
    return bool((batch.sizes == 1).all() and (said or np.isfinite(batch.improvement).any()))


def _compare(
    tally: _Tally, reference: ReferenceAdvantages, batches: StepBatches, known: Mapping[str, Floats]
) -> None:
    """Compare entries with a batch: all of them, or those that ``known`` has and that explain all so far.

    Of those that a trainer offers, it is counted as well what they make of its groups.
    """
    batch = reference.groups
    everything = tally.compared < max(_ALL_COMPARED, tally.advised // _ONE_IN)
    tally.advised += len(batch.step)
    tally.compared += len(batch.step) * everything
    # Many entries give the same to the last bit.
    done: list[tuple[Floats, float, EntryAgreement]] = []
    for name, entry in entries().items():
        before = tally.agreements.get(name, EntryAgreement())
        if everything or name in known or before.explains:
            given = known[name] if name in known else apply(entry, batches)
            gain = flat_gain(entry)
            same = (made for earlier, by, made in done if by == gain and same_bits(earlier, given))
            compared = next(same, None)
            if compared is None:
                done.append((given, gain, compared := agreement(reference, given, gain)))
            tally.agreements[name] = before + compared
            if name in offered():
                so_far = tally.alternatives.get(name, AlternativeExtremes())
                tally.alternatives[name] = so_far + alternative(batch, given)


def _count(tally: _Tally, batch: RewardGroups, facts: GroupFlags) -> None:
    flagged = candidate_flags(batch)
    none = np.zeros(len(batch.reward), dtype=np.bool_)
    flagged["seen_before"] = seen_before(batch, tally.seen) if _is_search(batch) else none
    copied = facts.flags["dead"] & copied_flags(batch)
    named = {name: copied for name in COPIED if copied.any()}
    for name, flags in {**facts.flags, **named, **flagged}.items():
        found = np.flatnonzero(flags)
        tally.counts[name] += len(found)
        kept = tally.examples.setdefault(name, [])
        for at in found[: _SHOWN - len(kept)].tolist():
            group, row = (int(batch.group[at]), at) if name in flagged else (at, None)
            kept.append(place_of(batch, group, row))


def _steps(batch: RewardGroups, audited: Floats, facts: GroupFlags) -> list[StepCounts]:
    steps = []
    _, most = limits(batch, batch.reward)
    bounds = spans(batch)
    starts = np.array([first for first, _ in bounds])

    def totals(flags: Bools, starts: Integers) -> list[int]:
        counts: list[int] = np.add.reduceat(flags.astype(np.int64), starts).tolist()
        return counts

    taught = totals(facts.taught, batch.offsets[starts])
    given = [np.isfinite(values) for values in (batch.reward, *batch.components.values())]
    missing = totals(~np.logical_and.reduce(given), batch.offsets[starts])
    flags = {name: totals(facts.flags[name], starts) for name in STEP_FLAGS}
    for number, (first, end) in enumerate(bounds):
        rewards = batch.reward[batch.offsets[first] : batch.offsets[end]]
        finite = rewards[np.isfinite(rewards)]
        steps.append(
            StepCounts(
                source=batch.source,
                step=int(batch.step[first]),
                groups=end - first,
                completions=len(rewards),
                mean_reward=float(finite.mean()) if len(finite) else float("nan"),
                taught=taught[number],
                ties=ties(most[first:end], facts.tied[first:end]),
                missing=missing[number],
                flags={name: counts[number] for name, counts in flags.items()},
            )
        )
    return steps


def _greatest(before: Extreme | None, batch: RewardGroups, values: Floats) -> Extreme | None:
    if not np.isfinite(values).any():
        return before
    at = int(np.nanargmax(np.where(np.isfinite(values), values, np.nan)))
    extreme = Extreme(float(values[at]), place_of(batch, at))
    return extreme if before is None or extreme.value > before.value else before


def _finished(tally: _Tally, course: _Course, named: bool) -> Findings:
    labels = tally.classes[False]
    # Without a class column, the way in which completions ended stands in.
    classes = labels if set(labels) != {""} else tally.classes[True]
    credited = set(classes) != {""} and any(sums.mass for sums in classes.values())
    says = (
        "of a long log, normalizers that do not explain the advantages are compared with its first groups "
        f"and with one in {_ONE_IN} of the later ones"
    )
    part = Assumption(IN_PART, says, {"groups": tally.advised, "compared": tally.compared})
    says = "lengths are in characters, which stand for tokens: this log counts no tokens"
    letters = Assumption(LETTERS, says, {"completions": tally.letters})
    notes = ((part, tally.compared < tally.advised), (letters, bool(tally.letters and tally.lengths)))
    final: dict[str, Any] = {
        "sizes": dict(sorted(tally.sizes.items())),
        "statuses": dict(sorted(tally.statuses.items())),
        "classes": credit_table(classes) if credited else (),
        "assumptions": (*tally.assumptions, *(note for note, holds in notes if holds)),
        "worst": worst(tally.prompts),
        "hopeless": hopeless(tally.prompts),
        "prompts": tally.texts,
        "signs": tally.watch.signs,
    }
    passing = ("seen", "advised", "compared", "prompts", "texts", "letters", "watch")
    carried = {key: value for key, value in vars(tally).items() if key not in passing}
    own = {key: value for key, value in vars(course).items() if key != "gain"}
    own |= {"framework": course.framework or _framework(tally, course)}
    return Findings(named=named, **own, **carried | final)


def _framework(tally: _Tally, course: _Course) -> str:
    known = {
        source_of(get_entry(name))
        for name, entry_agreement in tally.agreements.items()
        if entry_agreement.explains
    }
    frameworks = sorted({source.framework for source in known if source.repository != OURS})
    same = len({options_of(framework).filter for framework in frameworks}) == 1
    return frameworks[0] if course.logged and same else ""
