"""What to change in the trainer, in order of what it costs, each with what the log says of the change."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.audit.agreement import BY_PROMPT
from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.conclusions import at, logged_twice_sentence, regrouped_sentence
from search_to_signal.audit.credit import CUT, REACHING
from search_to_signal.audit.findings import Findings
from search_to_signal.audit.frameworks import options_of
from search_to_signal.audit.groups import ASSUMED_REWARD, EMPTY_ADVANTAGES, UNTRAINED

# Findings that are given, and the share that one has to cost.
_MOST, _LEAST = 5, 0.02
_SEVERE = {"high": 0.5, "medium": 0.15}
# Of the squared advantages: from here on one reward decides, and below this one does not take part.
_DECIDES, _IDLE = 0.8, 0.01
# From here on it is no chance that no group differs.
_BY_CHANCE = 0.01
# That one reward decides may be meant: it never counts as high.
_DECIDED = 0.3


@dataclass(frozen=True)
class Advice:
    """One finding: ``cost`` is the share of the generation or of the update that it concerns, 0 to 1.

    ``says`` has the number, ``change`` what to set in the trainer, ``instead`` what the log shows of that
    change, computed from its own rewards.
    """

    severity: str
    cost: float
    says: str
    change: str
    instead: str


def advice(findings: Findings) -> tuple[Advice, ...]:
    """At most five findings, NaN first, then the dearest; none of a search that trains nothing."""
    if not findings.knobs:
        return ()
    made = (
        *_untrained(findings),
        *_waste(findings),
        *_left_out(findings),
        *_broken(findings),
        *_tight(findings),
        *_rewards(findings),
        *_lengths(findings),
        *_copies(findings),
        *_exploited(findings),
    )
    dear = sorted((advised for advised in made if advised.cost >= _LEAST), key=lambda advised: -advised.cost)
    # Nothing else matters while the loss is NaN.
    return (*_no_numbers(findings), *dear)[:_MOST]


def severity(cost: float) -> str:
    """high from half on, medium from 15 %, else low."""
    return next((name for name, least in _SEVERE.items() if cost >= least), "low")


def _advice(cost: float, says: str, change: str, instead: str = "") -> Advice:
    return Advice(severity(cost), cost, says, f"{change}.", instead)


def _no_numbers(findings: Findings) -> Iterator[Advice]:
    if findings.assumed(EMPTY_ADVANTAGES) and not findings.logged:
        yield Advice(
            "high",
            1.0,
            "The column of advantages is there and empty: the trainer computed none, or every one is NaN.",
            "Print a few advantages where they are computed. If they are NaN, so are loss and weights.",
            "",
        )
    if not findings.signal.nan:
        return
    hit = [step for step in findings.steps if step.flags["nan_advantage"]]
    first = findings.examples["nan_advantage"][0]
    singles = sum(step.flags["singleton"] for step in hit)
    if all(step.missing for step in hit):
        cause = "In each of these steps a completion lacks a reward, or a part of it"
        change = "Let every reward function return a finite number for every completion"
    elif singles >= sum(step.flags["nan_advantage"] for step in hit):
        cause = "These steps have groups of one, and the deviation of one number is NaN"
        change = f"Set {options_of(findings.framework).size} to 2 or more, or leave out groups of one"
    else:
        cause = "Their rewards are finite, so what comes after them is not"
        change = "Look at the divisor of the advantage, then at log-probabilities and the KL term"
    yield Advice(
        "high",
        sum(step.groups for step in hit) / findings.groups,
        f"{findings.signal.nan} of {findings.completions} advantages are NaN or infinite: so is the loss of "
        f"{len(hit)} of {len(findings.steps)} steps. {cause}.",
        f"{change}. Go on from a checkpoint before the first such step ({at(first)}).",
        "",
    )


def _waste(findings: Findings) -> Iterator[Advice]:
    signal, options = findings.signal, options_of(findings.framework)
    levels = signal.levels.counts or {}
    if findings.assumed(UNTRAINED) or (signal.nan and signal.flat == signal.credited):
        return
    if len(levels) == 1 and not signal.mixed and signal.completions > 1:
        value = next(iter(levels))
        given = f"all {signal.completions} completions" if not signal.unscored else "every scored completion"
        yield _advice(
            signal.waste,
            f"{capital(given)} have the one reward {value:g}: nothing can be learned from it.",
            "Score a few logged completions by hand: a parser or format that never fits gives one reward "
            f"everywhere. If the reward is right, take {'easier' if value <= 0 else 'harder'} prompts",
        )
    elif not signal.compared:
        yield from _lone(findings)
    elif _never_within(findings):
        yield _advice(
            signal.waste,
            f"All {signal.flat} groups tie: rewards differ between prompts and never within one.",
            "Raise the sampling temperature"
            if findings.repeats.repeats == signal.completions - signal.groups
            else "Check that the reward reads the completion, not only its prompt or the expected answer; if "
            "so, take prompts that the model sometimes solves",
            _sampling(findings),
        )
    elif signal.waste >= _LEAST and (signal.dead or signal.unscored):
        small = _too_small(findings)
        easier = "Take prompts that the model sometimes solves"
        if signal.all_right != signal.all_wrong:
            hard = signal.all_right > signal.all_wrong
            easier = "Take harder prompts" if hard else "Take easier prompts, or give partial credit"
        change = f"{_copied(findings)}{small or f'{easier}; {options.filter}'}"
        yield _advice(signal.waste, f"{_wasted(findings)}.", change, _sampling(findings))


def _never_within(findings: Findings) -> bool:
    """Whether every group ties, and more often than completions that differ would by chance."""
    signal = findings.signal
    if signal.mixed or signal.flat < signal.compared or signal.credited:
        return False
    chance = signal.levels.flat_share(min(signal.sizes - {1}))
    return chance is None or chance**signal.compared < _BY_CHANCE


def _wasted(findings: Findings) -> str:
    """How much of the generation teaches nothing, and what became of its groups."""
    signal, counts = findings.signal, findings.counts
    right, wrong = signal.all_right, signal.all_wrong
    tied = signal.flat - signal.credited
    other = {
        "differ without effect": counts["silenced"],
        "have NaN advantages": counts["nan_advantage"],
        "are left out of the loss": counts["left_out"],
    }
    rest = " or ".join(name for name, count in other.items() if count)
    parts = [f"{right} all right", f"{wrong} all wrong", f"{tied - right - wrong} tie in between"]
    parts += [f"{signal.dead - tied} {rest}"] if signal.dead > tied else []
    unscored = f"; {signal.unscored} completions have no reward" if signal.unscored else ""
    credited = f"; {signal.credited} more tie and get an advantage all the same" if signal.credited else ""
    return (
        f"{percent(signal.waste)} of generation buys no gradient: {signal.taught} of {signal.completions} "
        f"completions teach. {signal.dead} of {signal.groups} groups are dead: {', '.join(parts)}"
        f"{credited}{unscored}"
    )


def _lone(findings: Findings) -> Iterator[Advice]:
    """Every group is one completion: what the log shows of the cause."""
    waste = max(findings.signal.waste, findings.counts["lone_credit"] / findings.groups)
    lone = findings.lone
    if findings.assumed("sequences_alone"):
        return
    size = options_of(findings.framework).size
    says, change = "so there is nothing to compare it with", f"Set {size} to 2 or more"
    if findings.assumed("validation"):
        says = "because this is a validation dump: nothing of it was trained"
        change = "Audit what was trained: verl writes it to trainer.rollout_data_dir"
    elif lone.groups:
        says = f"though {lone.groups} of them share {lone.prompts} prompts: each has a group id of its own"
        if findings.regrouping is not None and findings.regrouping.how == BY_PROMPT:
            says += f", and {regrouped_sentence(findings.regrouping)}"
        change = "Give the completions of a prompt one group id (verl: one uid before the batch is repeated)"
    elif not findings.prompts:
        other = "If several were sampled for a prompt, another column names the group"
        change = f"{other}; else set {size} to 2 or more"
    credit = findings.counts["lone_credit"]
    tail = f" {credit} get an advantage without comparison." if credit else ""
    yield _advice(waste, f"Every group has one completion, {says}.{tail}", change)


def _copied(findings: Findings) -> str:
    """What comes first where most dead groups are copies, which larger groups do not mend."""
    copied, dead = findings.counts.get("copied", 0), findings.counts["dead"]
    if 2 * copied <= dead:
        return ""
    return (
        f"Let copies score less than what is new: in {copied} of {dead} dead groups all completions are one "
        "program or text, and larger groups would hold more of them. For the rest: "
    )


def _too_small(findings: Findings) -> str:
    """Why a larger group would help, if ties are as frequent as the rewards make them by chance."""
    signal = findings.signal
    size = next(iter(signal.sizes)) if len(signal.sizes) == 1 else 0
    chance = signal.levels.flat_share(size) if size > 1 else None
    if chance is None or chance < 0.8 * signal.flat / signal.compared or signal.flat < signal.compared / 5:
        return ""
    name = options_of(findings.framework).size
    tried = ((2, signal.levels.flat_share(2 * size)), (4, signal.levels.flat_share(4 * size)))
    shares = ", ".join(f"{percent(share or 0.0)} of groups of {factor * size}" for factor, share in tried)
    return (
        f"Raise {name} from {size}: ties are as frequent as chance makes them, and if prompts are alike, "
        f"{shares} would tie. That takes 2 or 4 times the generation per prompt, or 2 or 4 times fewer "
        "prompts per step"
    )


def _sampling(findings: Findings) -> str:
    signal, size = findings.signal, options_of(findings.framework).size
    alive = signal.groups - signal.dead - findings.counts["singleton"]
    parts = []
    if alive:
        parts.append(
            "filling each batch with groups that differ takes "
            f"{signal.groups / alive:.2g} times the generation"
        )
    lost = findings.hopeless
    if lost is not None:
        left = signal.completions - lost.wasted
        idle = f"without them {percent(1 - signal.taught / left)} of generation" if left else "all"
        parts.append(
            f"{lost.prompt} prompts were sampled again and tied each time: {idle} would still buy nothing"
        )
    if signal.flat and signal.half_flat_share is not None:
        halved = f"of the groups of two and more {percent(signal.flat / signal.compared)} tie; "
        halved += f"with half the {size} {percent(signal.half_flat_share)} would"
        doubled = signal.least_flat_share_doubled
        parts.append(halved + (f", with twice at least {percent(doubled)}" if doubled is not None else ""))
    return f"{capital('; '.join(parts))}." if parts else ""


def _left_out(findings: Findings) -> Iterator[Advice]:
    signal = findings.signal
    if not signal.left_out:
        return
    share, credit = signal.left_out / signal.completions, signal.left_credit / (signal.credit or 1.0)
    text = (
        f"{signal.taught} of {signal.completions} completions teach: {signal.left_out} ({percent(share)}) "
        "are masked or removed from the loss in groups whose rewards differ."
    )
    if credit > 0.99:
        text += " They had all the positive advantage: the update only pushes probabilities down."
    elif credit >= _LEAST:
        text += f" With them {percent(credit)} of the positive advantage is lost."
    cap = options_of(findings.framework).cap
    yield _advice(max(share, credit), text, f"Raise {cap}, or keep such completions in the loss")


def _untrained(findings: Findings) -> Iterator[Advice]:
    if findings.assumed(UNTRAINED):
        run = Path(findings.steps[0].source).parent
        yield _advice(
            findings.counts["unscored"] / findings.groups,
            "This run is not trained: it has scores and no rewards.",
            "To audit rewards, give a trained run. To see what each mapping would make of these groups: "
            f"`s2s replay {run} --out replay`",
        )


def _broken(findings: Findings) -> Iterator[Advice]:
    counts, whole = findings.counts, findings.groups
    untrained, other, regrouped = findings.assumed(UNTRAINED), findings.regrouping, ""
    if other is not None:
        regrouped = f"Name these groups in the log: {regrouped_sentence(other)}"
    says = {
        "unscored": (
            "hold a reward that is missing or infinite",
            "" if untrained else "Let the reward function return a number",
        ),
        "flat_differing": (
            "have equal rewards and different advantages: the trained reward had a part that this log lacks",
            regrouped or _unlogged(findings),
        ),
        "flat_credit": (
            "have equal rewards and still get an advantage, from outside the group",
            "" if counts["flat_differing"] else _baseline(findings),
        ),
        "reversed": ("give a higher reward a lower advantage", regrouped or _unordered(findings)),
    }
    for name, (text, change) in says.items():
        if counts[name] and change:
            share = counts[name] / whole
            yield _advice(share, f"{counts[name]} of {whole} groups ({percent(share)}) {text}.", change)
    if counts["lone_credit"] and findings.signal.compared:
        share = counts["lone_credit"] / whole
        text = (
            f"{counts['lone_credit']} of {whole} groups have one completion, which gets an advantage "
            "although there is nothing to compare it with."
        )
        yield _advice(share, text, "Leave out groups with one completion left, or sample them again")


def _unlogged(findings: Findings) -> str:
    """What may lie between the rewards of a log and advantages that differ where they do not."""
    digits = findings.reward_digits
    rounded = "" if digits is None else f" (it is logged to {digits} digits)"
    return (
        f"Log the reward that is trained, with all its digits{rounded} and with what is added to it, such as "
        "a KL or length penalty. No other grouping of the rows by prompt or place explains the advantages"
    )


def _baseline(findings: Findings) -> str:
    names = [name for name in findings.explaining if get_entry(name).scope != "group"]
    if names:
        return f"Nothing, if you want {names[0]}, whose baseline is the batch; else choose one by group"
    return "Check that every group has the same size, and which rows the trainer takes as one group"


def _unordered(findings: Findings) -> str:
    assumed = findings.assumed(ASSUMED_REWARD)
    if assumed and not findings.explaining:
        return "Name the parts of the reward with --component NAME=WEIGHT: this log does not have them"
    if findings.explaining and get_entry(findings.explaining[0]).components:
        name = findings.explaining[0]
        return f"{name} scales each part of the reward by itself: choose another if the sum has to decide"
    return "Check weights and signs of the rewards, and which column is the reward"


def _tight(findings: Findings) -> Iterator[Advice]:
    signal, options = findings.signal, options_of(findings.framework)
    if not findings.counts["amplified"] or findings.gain is None:
        return
    cost = findings.counts["amplified"] / findings.groups
    says = (
        f"{findings.counts['amplified']} of {findings.groups} groups are tight: their rewards hardly differ, "
        "and the normalizer spreads them 100 times as far or more. The largest gain is "
        f"{number_text(signal.gain)} advantage per reward."
    )
    known = {
        option: made
        for option, entry in options.scales.items()
        if (made := findings.alternatives.get(entry)) is not None
        and made.groups
        and made.gain < signal.gain / 2
    }
    change = f"Set {' or '.join(known)}, or round" if known else "Round"
    to = ", ".join(f"to {number_text(made.gain)} under {option}" for option, made in known.items())
    instead = f"The largest gain falls from {number_text(signal.gain)} {to}." if known else ""
    yield _advice(cost, says, f"{change} rewards to the differences that matter", instead)


def _rewards(findings: Findings) -> Iterator[Advice]:
    shares, parts = findings.signal.shares, findings.signal.parts
    if len(shares) < 2:
        return
    alive = max(findings.groups - findings.counts["dead"], 1)
    first = max(shares, key=lambda name: shares[name])
    flat = [name for name, part in parts.items() if not part.varied]
    against = {name: part.against for name, part in parts.items() if part.against}
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    share_texts = ", ".join(f"{name} {percent(share)}" for name, share in ordered)
    text = [f"Of the advantage's variance: {share_texts}."]
    cost = 0.0
    if shares[first] >= _DECIDES:
        idle = [name for name, share in shares.items() if abs(share) < _IDLE and name not in flat]
        text.append(f"{first} decides" + (f"; {', '.join(idle)} hardly count." if idle else "."))
        cost = _DECIDED * min(shares[first], 1.0)
    for name, count in sorted(against.items(), key=lambda item: -item[1])[:2]:
        # The completions for which a weighted reward adds more.
        takes = (findings.weights.get(name) or 0.0) < 0
        rated = f"{name} takes less from" if takes else f"{name} rates higher"
        text.append(f"In {count} of {parts[name].varied} groups, what {rated} gets less advantage.")
        cost = max(cost, count / alive * abs(shares[name]))
    if flat:
        text.append(f"{', '.join(flat)} never differ{'s' * (len(flat) == 1)} within a group.")
        cost = max(cost, 0.05)
    if cost:
        weights = options_of(findings.framework).weights
        change = f"Adjust {weights} for {', '.join(shares)}, if this is not the order of importance"
        knob, without = findings.knobs.get(f"component {first}"), ""
        if knob is not None and knob.groups:
            moved = f"{knob.changed} of {knob.groups} groups"
            without = f"Without {first} the advantages of {moved} move by more than 1 %."
        yield _advice(min(cost, 1.0), " ".join(text), change, without)


def _lengths(findings: Findings) -> Iterator[Advice]:
    options = options_of(findings.framework)
    cut = sum(count for name, count in findings.statuses.items() if name.lower().startswith(CUT))
    tie = findings.signal.length.correlation
    text, cost = [], 0.0
    if cut:
        share = cut / findings.completions
        text.append(f"{cut} of {findings.completions} completions ({percent(share)}) were cut off.")
        cost = share
    if tie is not None and tie**2 >= _LEAST:
        which = "Longer" if tie > 0 else "Shorter"
        text.append(
            f"{which} completions of a group get more advantage: correlation {tie:+.2f}, which explains "
            f"{percent(tie**2)} of its variance."
        )
        cost = max(cost, tie**2)
    if text:
        change = (
            f"Raise {options.cap}"
            if cut
            else "Reward the quality that length is a sign of, or bound the length"
        )
        yield _advice(cost, " ".join(text), change, length_sentence(findings))


def length_sentence(findings: Findings) -> str:
    """How the longest quarter weighs under the rules of aggregation; empty where lengths are not logged."""
    known = {rule: sums for rule, sums in findings.lengths.items() if sums.longest and sums.share is not None}
    if not known:
        return ""
    first = next(iter(known.values()))
    share_texts = ", ".join(f"{percent(sums.share or 0.0)} under {rule}" for rule, sums in known.items())
    longest = percent(first.longest / first.completions)
    return f"The longest {longest} carry {share_texts} of advantage times weight."


def _copies(findings: Findings) -> Iterator[Advice]:
    sums = findings.repeats
    if not sums.repeats or not sums.completions:
        return
    share = sums.repeats / sums.completions
    says = (
        f"{sums.repeats} of {sums.completions} completions ({percent(share)}) repeat another of their group."
    )
    change = "Raise the sampling temperature, or top_p"
    if findings.logged_twice:
        says = f"{says} {logged_twice_sentence(findings)}"
        twice = "Leave out the rows that were logged twice. Where they were sampled twice: "
        change = f"{twice}{change[0].lower()}{change[1:]}"
    taken = "" if sums.share is None else f"They take {percent(sums.share)} of the positive advantage."
    yield _advice(share, says, change, taken)


def _exploited(findings: Findings) -> Iterator[Advice]:
    """Signs that answers get at their judge; few rows are enough, since training makes them many."""
    for name, sign in findings.signs.items():
        share, instead = sign.rows / findings.completions, ""
        if name == REACHING:
            says = "reach for what judges them and get advantage for it"
            change = (
                "Read them: can a program get at its score by frames, clocks, NaN or its arguments? If so, "
            )
            share = max(share, sign.after)
            instead = f"They take {percent(sign.after)} of the positive advantage."
        else:
            best = f"{number_text(sign.before)} was the best, and never as far above the median"
            says = f"have {number_text(sign.after)} or more; before, {best}"
            change = "Read the first and score it by itself. If it is no real gain, "
        says = f"{sign.rows} of {findings.completions} completions {says} (first: {at(sign.place)})."
        change += "run each in a process that holds no score, and go on from a checkpoint before the first"
        yield _advice(max(share, _LEAST), says, change, instead)


def percent(share: float) -> str:
    """A share as a person reads it."""
    return f"{100 * share:.0f} %" if share >= 0.0995 or not share else f"{100 * share:.2g} %"


def number_text(value: float) -> str:
    """A number to three digits."""
    return f"{value:.0f}" if 1000 <= value < 1e6 else f"{value:.3g}" if math.isfinite(value) else str(value)


def capital(text: str) -> str:
    """A text that begins a sentence, unless it begins with the name of an option."""
    first = text.split()[0]
    return text if "_" in first or first.startswith("-") else f"{text[0].upper()}{text[1:]}"
