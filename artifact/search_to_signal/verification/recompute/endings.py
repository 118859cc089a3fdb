"""How a program ended, as recorded and as executed again, and the rule by which the two are compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.records.schema import Outcome
from search_to_signal.verification.findings import Finding

# A program that is ended by processor time or by another process: honest runs may differ in this alone.
LIMITED = (Isolation.TIMEOUT.value, Isolation.KILLED.value)
NOT_RUN = "not_run"
_DETERMINED = {Isolation.OK.value, Isolation.NONDETERMINISTIC.value}


@dataclass(frozen=True)
class Ending:
    """How a completion ended. ``value`` is its score, its scores, or a hash of them; None where it failed."""

    outcome: Outcome
    isolation: str
    detail: str
    value: Any


def same_bits(first: Any, second: Any) -> bool:
    """Whether two values are equal, floats to the bit."""
    return repr(first) == repr(second)


def compare_endings(where: str, recorded: Ending, actual: Ending) -> Iterator[Finding]:
    """Yield the differences of two endings of one program, none where they agree.

    Findings without comparison are: a recorded time limit or kill where the program now ends by itself, the
    value of a program that is nondeterministic both times, whether it is nondeterministic, and the wording of
    an error of equal class. A program that is recorded as ended by itself has to end by itself now.
    """
    limited = recorded.isolation in LIMITED
    if limited and actual.isolation not in LIMITED and _has_failed(recorded):
        yield Finding(where, f"recorded as {recorded.isolation}, which ends here: {actual.isolation}", False)
        return
    if recorded.outcome is not actual.outcome:
        ended = f"{actual.outcome.value} ({actual.isolation}: {actual.detail})"
        yield Finding(where, f"outcome {recorded.outcome.value} is recorded, its text gives {ended}")
    elif not same_bits(recorded.value, actual.value):
        chance = recorded.isolation == actual.isolation == Isolation.NONDETERMINISTIC.value
        text = "its program decides by chance" if chance else _value_text(recorded.value, actual.value)
        yield Finding(where, text, not chance)
    elif not limited:
        yield from _compare_details(where, recorded, actual)


def _has_failed(ending: Ending) -> bool:
    return ending.outcome is Outcome.RUNTIME_FAILURE and ending.value is None


def _value_text(recorded: Any, actual: Any) -> str:
    gap = f" ({actual - recorded:+.3g})" if isinstance(recorded, float) and isinstance(actual, float) else ""
    return f"score {recorded} is recorded, its program gives {actual}{gap}"


def _compare_details(where: str, recorded: Ending, actual: Ending) -> Iterator[Finding]:
    if recorded.isolation != actual.isolation:
        chance = {recorded.isolation, actual.isolation} == _DETERMINED
        text = f"evaluation {recorded.isolation} is recorded, here it is {actual.isolation}"
        yield Finding(where, text, not chance)
    elif recorded.detail != actual.detail:
        # Library versions word the rest of a message differently.
        alike = actual.isolation != NOT_RUN and _error_class(recorded.detail) == _error_class(actual.detail)
        text = f"detail {recorded.detail!r} is recorded, here it is {actual.detail!r}"
        yield Finding(where, "an error of the same class in other words" if alike else text, not alike)


def _error_class(detail: str) -> str:
    return detail.partition(":")[0]
