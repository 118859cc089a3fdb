"""The audit of a run: its batches are read once, and what is kept does not grow with the rows."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search_to_signal.audit import candidate_flags
from search_to_signal.audit.applied_normalizers import StepBatches, apply, step_batches
from search_to_signal.audit.atlas import entries, get_entry, source_of
from search_to_signal.audit.class_credit import ClassSums, class_sums, credit_table
from search_to_signal.audit.findings import (
    LATE_ADVANTAGES,
    OURS,
    STEP_FLAGS,
    Extreme,
    Findings,
    StepCounts,
    standing,
)
from search_to_signal.audit.framework_options import offered, options_of
from search_to_signal.audit.group_flags import Bools, GroupFlags, group_flags, limits
from search_to_signal.audit.groups import SEARCH, Assumption, Floats, Integers, RewardGroups, summed
from search_to_signal.audit.hopeless_prompts import (
    LoneRepeats,
    PromptSums,
    add_prompts,
    hopeless,
    lone_repeats,
    worst,
)
from search_to_signal.audit.knobs import Knob, knobs
from search_to_signal.audit.lengths import LengthSums, length_sums
from search_to_signal.audit.normalizer_agreement import (
    EntryAgreement,
    LogPlace,
    ReferenceAdvantages,
    agreement,
    flat_gain,
    logged_digits,
    place_of,
    reference_of,
    same_bits,
)
from search_to_signal.audit.regrouping import Regrouping, regrouping
from search_to_signal.audit.repeats import RepeatSums, repeat_sums, seen_before
from search_to_signal.audit.signal import AlternativeExtremes, SignalSums, alternative, signal, ties
from search_to_signal.audit.steps import spans, whole_steps
from search_to_signal.errors import RecordError

# Places that are kept of each kind.
_SHOWN = 3
DEFAULT = "group"
# The key of the assumption that a part of a long log speaks for the whole where normalizers are compared.
IN_PART = "compared_in_part"
# Up to so many groups every entry is compared; later an entry that does not explain sees one in so many.
_ALL_COMPARED, _ONE_IN = 8_192, 32


@dataclass(frozen=True)
class _Course:
    """How a log is audited, as in Findings."""

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
    sums_to_zero: int = 0
    signal: SignalSums = field(default_factory=SignalSums)
    alternatives: dict[str, AlternativeExtremes] = field(default_factory=dict)
    prompts: dict[Hashable, PromptSums] = field(default_factory=dict)
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
    """What the first batch decides: whose advantages are audited, and with which entry."""
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
    add_prompts(tally.prompts, batch, facts)
    tally.groups += len(batch.step)
    tally.completions += len(batch.reward)
    tally.sizes.update(batch.sizes.tolist())
    tally.statuses.update(_statuses(batch))
    tally.assumptions = summed((*tally.assumptions, *batch.assumptions, *_late(batch, course.logged)))
    tally.repeats += repeat_sums(batch, audited)
    for component, weight in batch.weights.items():
        same = tally.weights.setdefault(component, weight) == weight
        tally.weights[component] = weight if same else None
    tally.sums_to_zero += _sum_to_zero(batch, audited, facts)
    tally.steps.extend(_steps(batch, audited, facts))
    _count(tally, batch, facts)
    tally.gain = _greatest(tally.gain, batch, facts.gain)
    tally.largest = _greatest(tally.largest, batch, facts.largest)
    rounded = np.where(facts.flags["flat_rounding"], facts.largest, np.nan)
    tally.rounding = _greatest(tally.rounding, batch, rounded)
    for kind, sums in tally.classes.items():
        for label, of_batch in class_sums(batch, audited, by_status=kind).items():
            sums[label] = sums.get(label, ClassSums()) + of_batch
    for rule, lengths in length_sums(batch, audited).items():
        tally.lengths[rule] = tally.lengths.get(rule, LengthSums()) + lengths
    # Candidates of a search that trains nothing have no advantages to compare.
    if not _is_search(batch):
        _compare(tally, reference_of(batch, audited, facts, course.digits), batches, {name: base})
        for knob, effect in knobs(get_entry(name), batch, base).items():
            tally.knobs[knob] = tally.knobs.get(knob, Knob()) + effect
    return audited, facts


def _late(batch: RewardGroups, logged: bool) -> tuple[Assumption, ...]:
    """Advantages that are left out, since the first batch decides whose are audited."""
    number = 0 if logged else int(batch.has_advantage.sum())
    says = "advantages that are logged after groups without any are left out"
    return (Assumption(LATE_ADVANTAGES, says, {"completions": number}),) if number else ()


def _is_search(batch: RewardGroups) -> bool:
    said = any(assumption.key == SEARCH for assumption in batch.assumptions)
    return bool((batch.sizes == 1).all() and (said or np.isfinite(batch.improvement).any()))


def _statuses(batch: RewardGroups) -> dict[str, int]:
    counts = np.bincount(batch.status.code, minlength=len(batch.status.names))
    return {
        name: int(count) for name, count in zip(batch.status.names, counts, strict=True) if name and count
    }


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


def _in_part(tally: _Tally) -> tuple[Assumption, ...]:
    """What a long log's comparisons stand on."""
    says = (
        "of a long log, normalizers that do not explain the advantages are compared with its first groups "
        f"and with one in {_ONE_IN} of the later ones"
    )
    counts = {"groups": tally.advised, "compared": tally.compared}
    return (Assumption(IN_PART, says, counts),) if tally.compared < tally.advised else ()


def _count(tally: _Tally, batch: RewardGroups, facts: GroupFlags) -> None:
    for name, flags in facts.flags.items():
        _keep(tally, batch, name, np.flatnonzero(flags), None)
    flagged = candidate_flags.candidate_flags(batch)
    none = np.zeros(len(batch.reward), dtype=np.bool_)
    flagged["seen_before"] = seen_before(batch, tally.seen) if _is_search(batch) else none
    for name, flags in flagged.items():
        rows = np.flatnonzero(flags)
        _keep(tally, batch, name, batch.group[rows], rows)


def _keep(tally: _Tally, batch: RewardGroups, name: str, groups: Integers, rows: Integers | None) -> None:
    tally.counts[name] += len(groups)
    kept = tally.examples.setdefault(name, [])
    for number in range(min(len(groups), _SHOWN - len(kept))):
        row = None if rows is None else int(rows[number])
        kept.append(place_of(batch, int(groups[number]), row))


def _steps(batch: RewardGroups, audited: Floats, facts: GroupFlags) -> list[StepCounts]:
    steps = []
    _, most = limits(batch, batch.reward)
    bounds = spans(batch)
    starts = np.array([first for first, _ in bounds])
    taught = _totals(facts.taught, batch.offsets[starts])
    given = (np.isfinite(values) for values in (batch.reward, *batch.components.values()))
    missing = _totals(~np.logical_and.reduce(list(given)), batch.offsets[starts])
    flags = {name: _totals(facts.flags[name], starts) for name in STEP_FLAGS}
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
                missing=int(missing[number]),
                flags={name: counts[number] for name, counts in flags.items()},
            )
        )
    return steps


def _totals(flags: Bools, starts: Integers) -> list[int]:
    """How many are true from each start to the next."""
    counts: list[int] = np.add.reduceat(flags.astype(np.int64), starts).tolist()
    return counts


def _sum_to_zero(batch: RewardGroups, audited: Floats, facts: GroupFlags) -> int:
    total = np.abs(np.add.reduceat(audited, batch.offsets[:-1]))
    return int(((total <= 1e-5 * batch.sizes * facts.largest) & (facts.advantage_range > 0)).sum())


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
    final: dict[str, Any] = {
        "sizes": dict(sorted(tally.sizes.items())),
        "statuses": dict(sorted(tally.statuses.items())),
        "classes": credit_table(classes) if credited else (),
        "assumptions": (*tally.assumptions, *_in_part(tally)),
        "worst": worst(tally.prompts),
        "hopeless": hopeless(tally.prompts),
        "prompts": tally.texts,
    }
    passing = ("seen", "advised", "compared", "prompts", "texts")
    carried = {key: value for key, value in vars(tally).items() if key not in passing}
    own = {key: value for key, value in vars(course).items() if key != "gain"}
    own |= {"framework": course.framework or _framework(tally, course)}
    return Findings(named=named, **own, **carried | final)


def _framework(tally: _Tally, course: _Course) -> str:
    """The framework whose entries explain the log; empty where those of several with other options do."""
    known = {
        source_of(get_entry(name))
        for name, entry_agreement in tally.agreements.items()
        if entry_agreement.explains
    }
    frameworks = sorted({source.framework for source in known if source.repository != OURS})
    same = len({options_of(framework).filter for framework in frameworks}) == 1
    return frameworks[0] if course.logged and same else ""
