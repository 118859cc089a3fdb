"""The audit of a run: its batches are read once, and what is kept does not grow with the rows."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search_to_signal.audit import candidates
from search_to_signal.audit.agreement import (
    Agreement,
    Place,
    Reference,
    agreement,
    logged_digits,
    place_of,
    reference_of,
)
from search_to_signal.audit.alternatives import Alternative, alternative
from search_to_signal.audit.applying import apply
from search_to_signal.audit.atlas import entries, get_entry, source_of, sources
from search_to_signal.audit.credit import ClassCredit, ClassSums, class_sums, credit_table
from search_to_signal.audit.distinctions import ZERO, GroupFacts, group_facts, limits
from search_to_signal.audit.groups import Assumption, Floats, Integers, RewardGroups, summed
from search_to_signal.audit.knobs import Knob, knobs
from search_to_signal.audit.lengths import LengthSums, length_sums
from search_to_signal.audit.measuring import signal, ties
from search_to_signal.audit.options import options_of
from search_to_signal.audit.prompts import PromptSums, add_prompts, hopeless, worst
from search_to_signal.audit.repeats import RepeatSums, repeat_sums, seen_before
from search_to_signal.audit.signals import Signal, Ties
from search_to_signal.audit.steps import spans, whole_steps
from search_to_signal.errors import RecordError

# Places that are kept of each kind.
_SHOWN = 3
DEFAULT = "group"
# What the atlas calls the repository of our own entries.
OURS = "this one"
# The key of the assumption that advantages count only where the first groups have some.
LATE_ADVANTAGES = "late_advantages"
# The key of the assumption that a part of a long log speaks for the whole where normalizers are compared.
IN_PART = "compared_in_part"
# Up to so many groups every entry is compared; later an entry that does not explain sees one in so many.
_ALL_COMPARED, _ONE_IN = 8_192, 32
STEP_FLAGS = ("singleton", "flat", "silenced", "dead", "merged", "reversed", "amplified")


@dataclass(frozen=True)
class StepCounts:
    """One step of one file: groups, completions, and how many groups have each flag of STEP_FLAGS.

    ``taught`` completions have an advantage other than 0; ``ties`` are by the least and greatest reward.
    """

    source: str
    step: int
    groups: int
    completions: int
    mean_reward: float
    taught: int
    ties: Ties
    flags: Mapping[str, int]


@dataclass(frozen=True)
class Extreme:
    """The largest value of something, and where it is."""

    value: float
    place: Place


@dataclass(frozen=True)
class Findings:
    """What an audit found.

    ``groups`` and ``completions`` are counted; ``counts`` and ``examples`` are by the names of
    distinctions.MEANING (groups) and candidates.MEANING (completions). ``sizes`` counts groups by size,
    ``statuses`` completions by how they ended.
    ``logged``: advantages were in the log; else those of ``normalizer`` are audited in their place.
    ``agreements`` compare every entry with the advantages that were audited. ``normalizer`` is the entry of
    the knobs, ``named`` by the caller or chosen. ``weights`` are those of the components, None for one that
    changes. ``lengths`` are by the rule that weighs tokens.
    ``sums_to_zero``: groups whose advantages differ and sum to 0.
    ``signal`` is what the update is made of, ``alternatives`` what other settings of the ``framework`` make
    of the same groups, ``worst`` the prompts that cost most, ``hopeless`` the sums of those that were sampled
    twice or more and tied each time. ``digits``: the log rounds advantages to these.
    """

    groups: int
    completions: int
    steps: Sequence[StepCounts]
    sizes: Mapping[int, int]
    statuses: Mapping[str, int]
    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[Place]]
    logged: bool
    normalizer: str
    named: bool
    agreements: Mapping[str, Agreement]
    knobs: Mapping[str, Knob]
    weights: Mapping[str, float | None]
    repeats: RepeatSums
    lengths: Mapping[str, LengthSums]
    classes: tuple[ClassCredit, ...]
    gain: Extreme | None
    largest: Extreme | None
    sums_to_zero: int
    signal: Signal
    framework: str
    alternatives: Mapping[str, Alternative]
    worst: tuple[PromptSums, ...]
    hopeless: PromptSums | None
    digits: int | None
    assumptions: tuple[Assumption, ...]

    @property
    def explaining(self) -> tuple[str, ...]:
        """Entries that give every logged advantage to rounding; none where none was logged."""
        known = (name for name, one in self.agreements.items() if self.logged and one.explains)
        return tuple(
            sorted(known, key=lambda name: (name != self.normalizer, *standing(name, self.framework)))
        )

    @property
    def nearest(self) -> str | None:
        """The entry that gives most of the logged advantages, of several the one at the least distance."""
        ordered = self.by_nearness()
        return ordered[0] if self.logged and ordered else None

    def by_nearness(self) -> tuple[str, ...]:
        """Entries that take some of the groups, nearest first: by what they refuse, by 1 - cosine, by size.

        Of entries that give the same, those of the log's framework come first, and our own last.
        """
        known = {name: one for name, one in self.agreements.items() if one.groups}
        others = (name for name in known if not known[name].explains)
        return (
            *(name for name in known if known[name].explains and not self.logged),
            *self.explaining,
            *sorted(
                others,
                key=lambda name: (
                    known[name].missing,
                    known[name].apart,
                    abs(math.log(known[name].size or math.inf)),
                    standing(name, self.framework),
                ),
            ),
        )

    def share(self, name: str) -> float:
        """A count over groups, or over completions where it counts those."""
        whole = self.completions if name in candidates.MEANING else self.groups
        return self.counts.get(name, 0) / whole


def standing(name: str, framework: str) -> tuple[bool, bool, bool]:
    """Sort key of entries that agree: those of a framework first, earlier versions later, our own last."""
    of = source_of(get_entry(name))
    newest = max(one.date for one in sources().values() if one.framework == of.framework)
    return of.framework != framework, of.repository == OURS, of.date != newest


@dataclass
class _Tally:
    """What is carried from batch to batch: fields of Findings, and those that it is made from."""

    groups: int = 0
    completions: int = 0
    steps: list[StepCounts] = field(default_factory=list)
    sizes: Counter[int] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Place]] = field(default_factory=dict)
    agreements: dict[str, Agreement] = field(default_factory=dict)
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
    sums_to_zero: int = 0
    signal: Signal = field(default_factory=Signal)
    alternatives: dict[str, Alternative] = field(default_factory=dict)
    prompts: dict[str, PromptSums] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()


def audit(
    groups: RewardGroups | Iterable[RewardGroups],
    normalizer: str | None = None,
    usual: str | None = None,
    each: Callable[[RewardGroups, Floats, GroupFacts], None] | None = None,
) -> Findings:
    """Audit groups, or batches of them in the order of the log.

    ``normalizer`` names the entry of the atlas whose knobs are tried, and whose advantages are audited where
    none are logged. Without it that is an entry that explains the first batch, else ``usual``.
    ``each`` is called with every batch, the advantages (R,) that are audited, and the facts of its groups.
    Raises ConfigError for an unknown normalizer, RecordError where there are no groups.
    """
    stream = whole_steps([groups] if isinstance(groups, RewardGroups) else groups)
    tally, logged, name, digits = _Tally(), False, normalizer or usual or DEFAULT, None
    framework = source_of(get_entry(name)).framework if normalizer or usual else None
    for number, batch in enumerate(stream):
        # Rewards that overflow or are no numbers are data; what they lead to is counted.
        with np.errstate(all="ignore"):
            if number == 0:
                logged = bool(np.isfinite(batch.advantage).any())
                found, digits = _explaining(batch, normalizer or usual) if logged else (None, None)
                name = normalizer or found or name
                framework = framework or source_of(get_entry(name)).framework
            audited, facts = _add(tally, batch, name, logged, digits)
            if not _is_search(batch):
                _try_others(tally, batch, framework or "")
            if each is not None:
                each(batch, audited, facts)
    if not tally.groups:
        raise RecordError("no groups were given: give a log with rollouts in it")
    own = {"framework": framework or "", "digits": digits}
    return _finished(tally, name, logged, normalizer is not None, own)


def _explaining(batch: RewardGroups, usual: str | None) -> tuple[str | None, int | None]:
    """The first entry that gives the logged advantages of a batch, and the digits to which they are rounded.

    The usual one comes before others of its framework, and our own last. Rounding is looked for only where
    nothing explains without.
    """
    facts = group_facts(batch, batch.advantage)
    framework = source_of(get_entry(usual)).framework if usual else ""
    names = sorted(entries(), key=lambda name: (name != usual, *standing(name, framework)))
    computed: dict[str, Floats] = {}
    rounded = logged_digits(batch.advantage)
    for digits in dict.fromkeys((None, rounded)):
        logged = reference_of(batch, batch.advantage, facts, digits)
        for name in names:
            if name not in computed:
                computed[name] = apply(get_entry(name), batch)
            if agreement(logged, computed[name]).explains:
                return name, digits
    return None, None


def _try_others(tally: _Tally, batch: RewardGroups, framework: str) -> None:
    for name in options_of(framework).scales.values():
        before = tally.alternatives.get(name, Alternative())
        tally.alternatives[name] = before + alternative(name, batch)


def _add(
    tally: _Tally, batch: RewardGroups, name: str, logged: bool, digits: int | None
) -> tuple[Floats, GroupFacts]:
    base = apply(get_entry(name), batch)
    audited = batch.advantage if logged else base
    facts = group_facts(batch, audited)
    tally.signal += signal(batch, audited, facts)
    add_prompts(tally.prompts, batch, facts)
    tally.groups += len(batch.step)
    tally.completions += len(batch.reward)
    tally.sizes.update(batch.sizes.tolist())
    tally.statuses.update(_statuses(batch))
    tally.assumptions = summed((*tally.assumptions, *batch.assumptions, *_late(batch, logged)))
    tally.repeats += repeat_sums(batch, audited)
    for component, weight in batch.weights.items():
        same = tally.weights.setdefault(component, weight) == weight
        tally.weights[component] = weight if same else None
    tally.sums_to_zero += _sum_to_zero(batch, audited, facts)
    tally.steps.extend(_steps(batch, audited, facts))
    _count(tally, batch, facts)
    tally.gain = _greatest(tally.gain, batch, facts.gain)
    tally.largest = _greatest(tally.largest, batch, facts.largest)
    for kind, sums in tally.classes.items():
        for label, one in class_sums(batch, audited, by_status=kind).items():
            sums[label] = sums.get(label, ClassSums()) + one
    for rule, lengths in length_sums(batch, audited).items():
        tally.lengths[rule] = tally.lengths.get(rule, LengthSums()) + lengths
    # Candidates of a search that trains nothing have no advantages to compare.
    if not _is_search(batch):
        _compare(tally, reference_of(batch, audited, facts, digits), {name: base})
        for knob, found in knobs(get_entry(name), batch, base).items():
            tally.knobs[knob] = tally.knobs.get(knob, Knob()) + found
    return audited, facts


def _late(batch: RewardGroups, logged: bool) -> tuple[Assumption, ...]:
    """Advantages that are left out, since the first batch decides whose are audited."""
    number = 0 if logged else int(np.isfinite(batch.advantage).sum())
    says = "advantages that are logged after groups without any are left out"
    return (Assumption(LATE_ADVANTAGES, says, {"completions": number}),) if number else ()


def _is_search(batch: RewardGroups) -> bool:
    return bool((batch.sizes == 1).all() and np.isfinite(batch.improvement).any())


def _statuses(batch: RewardGroups) -> dict[str, int]:
    counts = np.bincount(batch.status.code, minlength=len(batch.status.names))
    return {
        name: int(count) for name, count in zip(batch.status.names, counts, strict=True) if name and count
    }


def _compare(tally: _Tally, reference: Reference, known: Mapping[str, Floats]) -> None:
    """Compare entries with a batch: all of them, or those that ``known`` has and that explain all so far."""
    batch = reference.groups
    everything = tally.compared < max(_ALL_COMPARED, tally.advised // _ONE_IN)
    tally.advised += len(batch.step)
    tally.compared += len(batch.step) * everything
    for name, entry in entries().items():
        before = tally.agreements.get(name, Agreement())
        if everything or name in known or before.explains:
            given = known[name] if name in known else apply(entry, batch)
            tally.agreements[name] = before + agreement(reference, given)


def _in_part(tally: _Tally) -> tuple[Assumption, ...]:
    """What a long log's comparisons stand on."""
    says = (
        "of a long log, normalizers that do not explain the advantages are compared with its first groups "
        f"and with one in {_ONE_IN} of the later ones"
    )
    counts = {"groups": tally.advised, "compared": tally.compared}
    return (Assumption(IN_PART, says, counts),) if tally.compared < tally.advised else ()


def _count(tally: _Tally, batch: RewardGroups, facts: GroupFacts) -> None:
    for name, flags in facts.flags.items():
        _keep(tally, batch, name, np.flatnonzero(flags), None)
    flagged = candidates.candidate_flags(batch)
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


def _steps(batch: RewardGroups, audited: Floats, facts: GroupFacts) -> list[StepCounts]:
    found, taught = [], np.abs(audited) > ZERO
    _, most = limits(batch, batch.reward)
    for first, end in spans(batch):
        rewards = batch.reward[batch.offsets[first] : batch.offsets[end]]
        finite = rewards[np.isfinite(rewards)]
        found.append(
            StepCounts(
                source=batch.source,
                step=int(batch.step[first]),
                groups=end - first,
                completions=len(rewards),
                mean_reward=float(finite.mean()) if len(finite) else float("nan"),
                taught=int(np.count_nonzero(taught[batch.offsets[first] : batch.offsets[end]])),
                ties=ties(most[first:end], facts.flags["flat"][first:end]),
                flags={name: int(facts.flags[name][first:end].sum()) for name in STEP_FLAGS},
            )
        )
    return found


def _sum_to_zero(batch: RewardGroups, audited: Floats, facts: GroupFacts) -> int:
    total = np.abs(np.add.reduceat(audited, batch.offsets[:-1]))
    return int(((total <= 1e-5 * batch.sizes * facts.largest) & (facts.advantage_range > 0)).sum())


def _greatest(before: Extreme | None, batch: RewardGroups, values: Floats) -> Extreme | None:
    if not np.isfinite(values).any():
        return before
    at = int(np.nanargmax(np.where(np.isfinite(values), values, np.nan)))
    found = Extreme(float(values[at]), place_of(batch, at))
    return found if before is None or found.value > before.value else before


def _finished(tally: _Tally, name: str, logged: bool, named: bool, own: Mapping[str, Any]) -> Findings:
    labels = tally.classes[False]
    # Without a class column, the way in which completions ended stands in.
    classes = labels if set(labels) != {""} else tally.classes[True]
    credited = set(classes) != {""} and any(one.mass for one in classes.values())
    final: dict[str, Any] = {
        "sizes": dict(sorted(tally.sizes.items())),
        "statuses": dict(sorted(tally.statuses.items())),
        "classes": credit_table(classes) if credited else (),
        "assumptions": (*tally.assumptions, *_in_part(tally)),
        "worst": worst(tally.prompts),
        "hopeless": hopeless(tally.prompts),
    }
    passing = ("seen", "advised", "compared", "prompts")
    carried = {key: value for key, value in vars(tally).items() if key not in passing}
    return Findings(logged=logged, normalizer=name, named=named, **carried | final | dict(own))
