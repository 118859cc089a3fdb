"""What recomputing finds, and the rule by which two endings of a program are held against each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.records.schema import Outcome

# How processor time or another process ended a program: the one thing that may differ between honest runs.
LIMITED = (Isolation.TIMEOUT.value, Isolation.KILLED.value)
NOT_RUN = "not_run"
_STEADY = {Isolation.OK.value, Isolation.NONDETERMINISTIC.value}


@dataclass(frozen=True)
class Finding:
    """One line: where, and what is otherwise than recorded, or, unless ``compared``, why nobody can tell."""

    where: str
    text: str
    compared: bool = True


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


def differences(where: str, recorded: Ending, found: Ending) -> Iterator[Finding]:
    """What is otherwise, nothing when the two agree.

    Not compared are: what a time limit or a kill had ended and now ends by itself, the value of a program
    that decides by chance then and now, whether it does, and the wording of an error of equal class. What is
    recorded as having ended by itself has to do so here.
    """
    limited = recorded.isolation in LIMITED
    if limited and found.isolation not in LIMITED and _failed(recorded):
        yield Finding(where, f"recorded as {recorded.isolation}, which ends here: {found.isolation}", False)
        return
    if recorded.outcome is not found.outcome:
        told = f"{found.outcome.value} ({found.isolation}: {found.detail})"
        yield Finding(where, f"outcome {recorded.outcome.value} is recorded, its text gives {told}")
    elif not same_bits(recorded.value, found.value):
        chance = recorded.isolation == found.isolation == Isolation.NONDETERMINISTIC.value
        text = "its program decides by chance" if chance else _values(recorded.value, found.value)
        yield Finding(where, text, not chance)
    elif not limited:
        yield from _wordings(where, recorded, found)


def _failed(ending: Ending) -> bool:
    return ending.outcome is Outcome.RUNTIME_FAILURE and ending.value is None


def _values(recorded: Any, found: Any) -> str:
    gap = f" ({found - recorded:+.3g})" if isinstance(recorded, float) and isinstance(found, float) else ""
    return f"score {recorded} is recorded, its program gives {found}{gap}"


def _wordings(where: str, recorded: Ending, found: Ending) -> Iterator[Finding]:
    if recorded.isolation != found.isolation:
        chance = {recorded.isolation, found.isolation} == _STEADY
        text = f"evaluation {recorded.isolation} is recorded, here it is {found.isolation}"
        yield Finding(where, text, not chance)
    elif recorded.detail != found.detail:
        # The rest of a message is the words of some version of some library.
        alike = found.isolation != NOT_RUN and _class(recorded.detail) == _class(found.detail)
        text = f"detail {recorded.detail!r} is recorded, here it is {found.detail!r}"
        yield Finding(where, "an error of the same class in other words" if alike else text, not alike)


def _class(detail: str) -> str:
    return detail.partition(":")[0]
