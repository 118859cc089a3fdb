"""What an audit found, in sentences: each with its count, its share and a place to look at."""

from collections.abc import Iterator, Sequence

from search_to_signal.audit.agreement import LogPlace
from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.found import LATE_ADVANTAGES, Findings, standing
from search_to_signal.audit.groups import ASSUMED_REWARD
from search_to_signal.audit.knobs import SCALE

_NAMED = 3


def verdicts(found: Findings) -> tuple[str, ...]:
    """Sentences, the origin of the advantages first."""
    if set(found.sizes) == {1} and found.counts["compared"]:
        return (_size(found), *_searched(found))
    return (
        _size(found),
        _origin(found),
        *_groups(found),
        *_distinctions(found),
        *_repeats(found),
        *_knobs(found),
        *_classes(found),
        *_lengths(found),
        *_searched(found),
    )


def caution(found: Findings) -> str:
    """What makes everything else doubtful: logged advantages that no normalizer explains; else empty."""
    return _origin(found) if found.logged and not found.explaining else ""


def _size(found: Findings) -> str:
    steps = len({(step.source, step.step) for step in found.steps})
    sizes = ", ".join(f"{count} of {size}" for size, count in list(found.sizes.items())[:6])
    counts = ((found.groups, "group"), (found.completions, "completion"), (steps, "step"))
    groups, completions, in_steps = (f"{count} {what}{'s' * (count != 1)}" for count, what in counts)
    return f"{groups} with {completions} in {in_steps} (groups: {sizes})."


def _origin(found: Findings) -> str:
    if not found.logged:
        how = "named" if found.named else "the usual one of this format; --normalizer names another"
        late = sum(one.counts["completions"] for one in found.assumptions if one.key == LATE_ADVANTAGES)
        lacks = f"The first groups hold no advantages ({late} completions later on do)"
        lacks = lacks if late else "The log holds no advantages"
        text = f"{lacks}: those of {found.normalizer} ({how}) are audited in their place."
        given = found.agreements.get(found.normalizer)
        without = 0 if given is None else found.completions - given.rows
        return f"{text} It gives none to {without} completions: see --normalizer." if without else text
    if found.explaining:
        # Our own entries repeat a framework's in float64: they are named where nothing else explains.
        theirs = [name for name in found.explaining if not standing(name, "")[1]]
        names = theirs or found.explaining
        exact = [name for name in names if found.agreements[name].exact]
        to = "float32 rounding" if found.digits is None else f"the {found.digits} digits logged"
        how = f"bit for bit by {_some(exact)}" if exact else f"to {to} by {_some(names)}"
        return f"The logged advantages are explained {how}."
    text = f"No normalizer of the atlas explains the logged advantages. {_nearest(found)}"
    if any(one.key == ASSUMED_REWARD for one in found.assumptions):
        text += " The reward itself is assumed here: name its parts by --component NAME=WEIGHT."
    return text


def _nearest(found: Findings) -> str:
    if found.nearest is None:
        return "None takes these groups."
    near = found.agreements[found.nearest]
    text = f"The nearest, {found.nearest}, gives {near.near} of {near.rows}"
    if near.first is None:
        return f"{text} and refuses the others."
    return (
        f"{text}; the first that differs is {near.first.logged:.6g} in the log and "
        f"{near.first.computed:.6g} computed ({at(near.first.place)})."
    )


def _groups(found: Findings) -> Iterator[str]:
    if found.counts["dead"]:
        yield (
            f"{_count(found, 'dead')} are dead: {found.counts['flat']} with equal rewards, "
            f"{found.counts['silenced']} whose rewards differ and advantages do not{_see(found, 'dead')}."
        )
    if found.counts["flat_credit"]:
        yield (
            f"{_count(found, 'flat_credit')} have equal rewards and still get an advantage other than 0, "
            f"from outside the group or by rounding over a small epsilon{_see(found, 'flat_credit')}."
        )
    if len(found.sizes) > 1:
        yield f"Groups are uneven: {', '.join(map(str, found.sizes))} completions.{_uneven(found)}"
    if found.counts["singleton"]:
        given = found.counts["lone_credit"]
        tail = (
            f"{given} of them get an advantage other than 0, with nothing to compare with"
            if given
            else "no advantage"
        )
        yield f"{_count(found, 'singleton')} are singletons: {tail}{_see(found, 'singleton')}."
    if found.counts["scattered"]:
        yield (
            f"{_count(found, 'scattered')} stand in several places of the log and were gathered: two "
            f"samplings of one name would look like one{_see(found, 'scattered')}."
        )
    if found.logged and found.counts["unadvised"]:
        yield f"{_count(found, 'unadvised')} lack a logged advantage{_see(found, 'unadvised')}."
    if found.counts["unscored"]:
        yield f"{_count(found, 'unscored')} hold a reward that is no number{_see(found, 'unscored')}."
    alive = found.groups - found.counts["dead"] - found.counts["singleton"]
    if alive and found.sums_to_zero == alive:
        yield (
            "In every group whose advantages differ they sum to 0: a logged mean advantage or first loss "
            "of 0 is no sign of a dead group."
        )


def _uneven(found: Findings) -> str:
    names = [
        name for name in (found.explaining or (found.normalizer,)) if get_entry(name).uneven == "whole batch"
    ]
    return f" {_some(names)} then takes the whole step as one group." if names else ""


def _distinctions(found: Findings) -> Iterator[str]:
    says = {
        "merged": "give two different rewards one advantage",
        "reversed": "give a higher reward a lower advantage",
        "amplified": "are tight: a difference of rewards comes out at least 100 times as large",
    }
    for name, text in says.items():
        if found.counts[name]:
            yield f"{_count(found, name)} {text}{_see(found, name)}."
    if found.counts["amplified"] and found.gain:
        yield f"The largest gain is {found.gain.value:.4g} advantage per reward ({at(found.gain.place)})."
    if found.largest and found.largest.value > 10:
        yield f"The largest advantage is {found.largest.value:.6g} ({at(found.largest.place)})."


def _repeats(found: Findings) -> Iterator[str]:
    sums = found.repeats
    if found.counts["repeated"]:
        taken = "" if sums.share is None else f" and take {100 * sums.share:.1f} % of the positive advantage"
        yield (
            f"{_count(found, 'repeated')} hold a response more than once: {sums.repeats} of "
            f"{sums.completions} completions repeat an earlier one of their group{taken}"
            f"{_see(found, 'repeated')}."
        )
    if found.counts["disagreeing"]:
        seen = _see(found, "disagreeing")
        yield f"{_count(found, 'disagreeing')} give equal responses different rewards{seen}."


def _classes(found: Findings) -> Iterator[str]:
    """The class that is credited most beyond what it occurs."""
    known = [one for one in found.classes if one.enrichment is not None]
    if len(known) > 1:
        most = max(known, key=lambda one: (one.enrichment or 0.0, one.label))
        yield (
            f"Of the classes, {most.label} gains most: {100 * (most.prevalence or 0.0):.1f} % of the "
            f"completions and {100 * (most.mass_share or 0.0):.1f} % of the positive advantage."
        )


def _lengths(found: Findings) -> Iterator[str]:
    shares = {rule: sums.share for rule, sums in found.lengths.items() if sums.longest and sums.share}
    if shares:
        sums = found.lengths[next(iter(shares))]
        told = ", ".join(f"{100 * share:.1f} % under {rule}" for rule, share in shares.items() if share)
        yield (
            f"The longest {100 * sums.longest / sums.completions:.1f} % of completions carry, of all "
            f"advantage times weight, {told}."
        )


def _knobs(found: Findings) -> Iterator[str]:
    for name, knob in found.knobs.items():
        if knob.groups and not knob.changed:
            what = "Multiplying all rewards by 10" if name == SCALE else f"Leaving out {name}"
            under = f"under {found.normalizer} ({knob.groups} groups)"
            yield f"{what} changes no advantage by more than 1 % {under}."
    if len(found.weights) > 1 and set(found.knobs) == {SCALE}:
        yield "The reward is not the weighted sum of its components, so none of them was left out for a try."


def _searched(found: Findings) -> Iterator[str]:
    if not found.counts["compared"]:
        return
    better = _of(found, "improved", "compared")
    yield f"{better} are better than what they are compared with{_see(found, 'improved')}."
    if found.counts["admitted"]:
        yield (
            f"{_of(found, 'admitted_no_better', 'admitted')} that were kept are no better, and "
            f"{found.counts['improved_not_admitted']} that are better were not kept."
        )
    if found.counts["seen_before"]:
        yield (
            f"{found.counts['seen_before']} of {found.completions} candidates have a text that stood in the "
            f"log before{_see(found, 'seen_before')}."
        )
    if found.statuses:
        yield f"They ended as {', '.join(f'{name} ({count})' for name, count in found.statuses.items())}."
    for name, text in (
        ("failed_and_improved", "count as an improvement"),
        ("failed_and_scored", "have a score above 0"),
    ):
        if found.counts[name]:
            yield f"{_of(found, name, 'failed')} that failed or timed out {text}{_see(found, name)}."


def at(place: LogPlace) -> str:
    """A place as a person opens it."""
    step = f", step {place.step}" if place.step >= 0 else ""
    return f"{place.source}:{place.position}{step}"


def _see(found: Findings, name: str) -> str:
    places = found.examples.get(name, ())
    return f" (first: {at(places[0])})" if places else ""


def _count(found: Findings, name: str) -> str:
    count = found.counts[name]
    return f"{count} of {found.groups} groups ({100 * count / found.groups:.1f} %)"


def _of(found: Findings, name: str, whole: str) -> str:
    return f"{found.counts[name]} of {found.counts[whole]} candidates"


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{rest}"
