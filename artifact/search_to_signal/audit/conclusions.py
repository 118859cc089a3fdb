"""What an audit found, in sentences: each with its count, its share and a place to look at."""

from collections.abc import Iterator, Mapping

from search_to_signal.audit.agreement import SCALE, LogPlace, Regrouping
from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.findings import LATE_ADVANTAGES, Findings, standing
from search_to_signal.audit.groups import ASSUMED_REWARD, SEARCH, UNKNOWN
from search_to_signal.audit.importers.scalar_files import some

# Advantages of equal rewards that are worth a line though they are rounding.
_ROUNDING_SHOWN = 1e-3


def conclusions(findings: Findings) -> tuple[str, ...]:
    """Sentences, the origin of the advantages first."""
    search = findings.counts["compared"] or findings.assumed(SEARCH)
    if set(findings.sizes) == {1} and search:
        return (_size(findings), *_searched(findings))
    return (
        _size(findings),
        _origin(findings),
        *_groups(findings),
        *_distinctions(findings),
        *_repeats(findings),
        *_knobs(findings),
        *_classes(findings),
        *_lengths(findings),
        *(_searched(findings) if findings.counts["compared"] else ()),
    )


def caution(findings: Findings) -> str:
    """What makes everything else doubtful: logged advantages that no normalizer explains; else empty."""
    return _origin(findings) if findings.logged and not findings.explaining else ""


def _size(findings: Findings) -> str:
    steps = len({step.source if step.step == UNKNOWN else step.step for step in findings.steps})
    sizes = ", ".join(f"{count} of {size}" for size, count in list(findings.sizes.items())[:6])
    counts = ((findings.groups, "group"), (findings.completions, "completion"), (steps, "step"))
    groups, completions, in_steps = (f"{count} {what}{'s' * (count != 1)}" for count, what in counts)
    return f"{groups} with {completions} in {in_steps} (groups: {sizes})."


def _origin(findings: Findings) -> str:
    if not findings.logged:
        how = "named" if findings.named else "the usual one of this format; --normalizer names another"
        late = sum(
            assumption.counts["completions"]
            for assumption in findings.assumptions
            if assumption.key == LATE_ADVANTAGES
        )
        lacks = f"The first groups hold no advantages ({late} completions later on do)"
        lacks = lacks if late else "The log holds no advantages"
        text = f"{lacks}: the audit uses the advantages that {findings.normalizer} ({how}) gives."
        given = findings.agreements.get(findings.normalizer)
        without = 0 if given is None else findings.completions - given.rows
        lacking = bool(findings.counts["unscored"])
        reason = ", as to every group that lacks a reward" if lacking else ": see --normalizer"
        return f"{text} It gives none to {without} completions{reason}." if without else text
    if findings.largest is not None and not findings.largest.value:
        return "All logged advantages are 0, whatever normalizer made them."
    if findings.explaining:
        # Our own entries repeat a framework's in float64: they are named where nothing else explains.
        theirs = [name for name in findings.explaining if not standing(name, "")[1]]
        names = theirs or findings.explaining
        exact = [name for name in names if findings.agreements[name].exact]
        to = "float32 rounding" if findings.digits is None else f"the {findings.digits} digits logged"
        how = f"bit for bit by {some(exact)}" if exact else f"to {to} by {some(names)}"
        return f"The logged advantages are explained {how}."
    if not any(agreement.rows for agreement in findings.agreements.values()):
        return f"All {findings.signal.nan} logged advantages are NaN or infinite."
    text = f"No normalizer of the atlas explains the logged advantages. {_nearest(findings)}"
    if findings.regrouping is not None:
        return f"{text} But {regrouped_sentence(findings.regrouping)}."
    if findings.assumed(ASSUMED_REWARD):
        text += " The reward itself is assumed here: name its parts by --component NAME=WEIGHT."
    return text


def regrouped_sentence(other: Regrouping) -> str:
    """Say under which other groups the logged advantages are explained."""
    size = f"{other.size} " if other.size else ""
    return (
        f"with groups of {size}{other.how} {other.normalizer} gives every logged advantage: the trainer "
        "compared other rows than this log puts into one group"
    )


def _nearest(findings: Findings) -> str:
    if findings.nearest is None:
        return "None takes these groups."
    near = findings.agreements[findings.nearest]
    text = f"The nearest, {findings.nearest}, gives {near.near} of {near.rows}"
    if near.first is None:
        return f"{text} and refuses the others."
    given = (near.first.logged, near.first.computed)
    # As many digits as show the difference, six or more.
    shown = (tuple(f"{value:.{digits}g}" for value in given) for digits in range(6, 18))
    logged, computed = next((pair for pair in shown if pair[0] != pair[1]), tuple(map(repr, given)))
    return (
        f"{text}; the first that differs is {logged} in the log and {computed} computed "
        f"({at(near.first.place)})."
    )


def _groups(findings: Findings) -> Iterator[str]:
    if findings.counts["dead"]:
        whys = {
            "with equal rewards": findings.signal.flat - findings.signal.credited,
            "whose rewards differ and advantages do not": findings.counts["silenced"],
            "with a NaN advantage": findings.counts["nan_advantage"],
            "left out of the loss": findings.counts["left_out"],
        }
        reasons = ", ".join(f"{count} {why}" for why, count in whys.items() if count)
        yield f"{_count(findings, 'dead')} are dead: {reasons}{_see(findings, 'dead')}."
    credited = "have equal rewards and still get an advantage that is more than rounding"
    yield from _counted(findings, {"flat_credit": credited})
    if findings.rounding is not None and findings.rounding.value > _ROUNDING_SHOWN:
        yield (
            f"{_count(findings, 'flat_rounding')} have equal rewards and an advantage of up to "
            f"{findings.rounding.value:.3g}, which is rounding over a small epsilon "
            f"({at(findings.rounding.place)})."
        )
    if len(findings.sizes) > 1:
        known = findings.explaining or (findings.normalizer,)
        names = [name for name in known if get_entry(name).uneven == "whole batch"]
        whole = f" {some(names)} then takes the whole step as one group." if names else ""
        yield f"Groups are uneven: {', '.join(map(str, findings.sizes))} completions.{whole}"
    if findings.counts["singleton"]:
        given = findings.counts["lone_credit"]
        tail = (
            f"{given} of them get an advantage other than 0, with nothing to compare with"
            if given
            else "no advantage"
        )
        yield f"{_count(findings, 'singleton')} are singletons: {tail}{_see(findings, 'singleton')}."
    says = {
        "scattered": "are spread over several places of the log, and were put together: two samplings under "
        "one name look like one group",
        **({"unadvised": "lack a logged advantage"} if findings.logged else {}),
        "unscored": "hold a reward that is no number",
    }
    yield from _counted(findings, says)
    alive = findings.groups - findings.counts["dead"] - findings.counts["singleton"]
    if alive and findings.sums_to_zero == alive:
        yield (
            "In every group whose advantages differ they sum to 0: a logged mean advantage or first loss "
            "of 0 is no sign of a dead group."
        )


def _distinctions(findings: Findings) -> Iterator[str]:
    says = {
        "merged": "give two different rewards one advantage",
        "reversed": "give a higher reward a lower advantage",
        "amplified": "are tight: a difference of rewards comes out at least 100 times as large",
    }
    yield from _counted(findings, says)
    if findings.counts["amplified"] and findings.gain:
        gain = findings.gain
        yield f"The largest gain is {gain.value:.4g} advantage per reward ({at(gain.place)})."
    if findings.largest and findings.largest.value > 10:
        yield f"The largest advantage is {findings.largest.value:.6g} ({at(findings.largest.place)})."


def _repeats(findings: Findings) -> Iterator[str]:
    sums = findings.repeats
    if findings.counts["repeated"]:
        taken = "" if sums.share is None else f" and take {100 * sums.share:.1f} % of the positive advantage"
        yield (
            f"{_count(findings, 'repeated')} hold a response more than once: {sums.repeats} of "
            f"{sums.completions} completions repeat an earlier one of their group{taken}"
            f"{_see(findings, 'repeated')}."
        )
    if findings.logged_twice:
        yield logged_twice_sentence(findings)
    yield from _counted(findings, {"disagreeing": "give equal responses different rewards"})


def logged_twice_sentence(findings: Findings) -> str:
    """Say how many rows stand twice in the log, and where the first of them are."""
    count, places = findings.logged_twice, findings.examples["doubled"]
    more = f" and {count - len(places)} more" if count > len(places) else ""
    stand = "row stands" if count == 1 else "rows stand"
    return f"{count} {stand} twice, equal in all that is read: {', '.join(map(at, places))}{more}."


def _classes(findings: Findings) -> Iterator[str]:
    """The class that is credited most beyond what it occurs."""
    known = [row for row in findings.classes if row.enrichment is not None]
    if len(known) > 1:
        most = max(known, key=lambda row: (row.enrichment or 0.0, row.label))
        yield (
            f"Of the classes, {most.label} gains most: {100 * (most.prevalence or 0.0):.1f} % of the "
            f"completions and {100 * (most.mass_share or 0.0):.1f} % of the positive advantage."
        )


def _lengths(findings: Findings) -> Iterator[str]:
    shares = {rule: sums.share for rule, sums in findings.lengths.items() if sums.longest and sums.share}
    if shares:
        sums = findings.lengths[next(iter(shares))]
        share_texts = ", ".join(
            f"{100 * share:.1f} % under {rule}" for rule, share in shares.items() if share
        )
        yield (
            f"The longest {100 * sums.longest / sums.completions:.1f} % of completions carry, of all "
            f"advantage times weight, {share_texts}."
        )


def _knobs(findings: Findings) -> Iterator[str]:
    for name, knob in findings.knobs.items():
        if knob.groups and not knob.changed:
            what = "Multiplying all rewards by 10" if name == SCALE else f"Leaving out {name}"
            under = f"under {findings.normalizer} ({knob.groups} groups)"
            yield f"{what} changes no advantage by more than 1 % {under}."
    if len(findings.weights) > 1 and set(findings.knobs) == {SCALE}:
        yield (
            "The reward is not the weighted sum of its components, so the audit could not try leaving "
            "one out."
        )


def _searched(findings: Findings) -> Iterator[str]:
    if findings.counts["compared"]:
        better = _of(findings, "improved", "compared")
        yield f"{better} are better than what they are compared with{_see(findings, 'improved')}."
    else:
        yield (
            f"No candidate of {findings.completions} has both a score and an earlier one to compare it with."
        )
    if findings.counts["admitted"]:
        yield (
            f"{_of(findings, 'admitted_no_better', 'admitted')} that were kept are no better, and "
            f"{findings.counts['improved_not_admitted']} that are better were not kept."
        )
    if findings.counts["seen_before"]:
        yield (
            f"{findings.counts['seen_before']} of {findings.completions} candidates have a text that the "
            f"log has earlier{_see(findings, 'seen_before')}."
        )
    if findings.statuses:
        yield f"They ended as {', '.join(f'{name} ({count})' for name, count in findings.statuses.items())}."
    for name, text in (
        ("failed_and_improved", "count as an improvement"),
        ("failed_and_scored", "have a score above 0"),
        ("failed_and_admitted", "were kept"),
    ):
        if findings.counts[name]:
            yield f"{_of(findings, name, 'failed')} that failed or timed out {text}{_see(findings, name)}."


def at(place: LogPlace) -> str:
    """A place as a person opens it."""
    step = f", step {place.step}" if place.step >= 0 else ""
    return f"{place.source}:{place.position}{step}"


def _see(findings: Findings, name: str) -> str:
    places = findings.examples.get(name, ())
    return f" (first: {at(places[0])})" if places else ""


def _counted(findings: Findings, says: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each kind of groups that occurs."""
    for name, text in says.items():
        if findings.counts[name]:
            yield f"{_count(findings, name)} {text}{_see(findings, name)}."


def _count(findings: Findings, name: str) -> str:
    count = findings.counts[name]
    return f"{count} of {findings.groups} groups ({100 * count / findings.groups:.1f} %)"


def _of(findings: Findings, name: str, whole: str) -> str:
    return f"{findings.counts[name]} of {findings.counts[whole]} candidates"
