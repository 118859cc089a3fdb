"""What a comparison of two hosts found."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import S2SError
from search_to_signal.base.progress import one_line

TOLERANCE = 1e-9
"""Relative; above it two scores are two scores."""


class Agreement(Enum):
    """What is counted."""

    EQUAL = "equal"
    DIFFERS = "differ"
    NOT_COMPARED = "not compared"


class Verdict(Enum):
    """How far two answers agree."""

    EXACT = "bit for bit"
    CLOSE = "within tolerance"
    DIFFERS = "differs"
    UNKNOWN = "not compared"

    @property
    def agreement(self) -> Agreement:
        """Equal, to the bit or within tolerance; or not; or not compared."""
        if self in (Verdict.EXACT, Verdict.CLOSE):
            return Agreement.EQUAL
        return Agreement.DIFFERS if self is Verdict.DIFFERS else Agreement.NOT_COMPARED


@dataclass(frozen=True)
class HostFinding:
    """One compared thing; ``detail`` says by how much, or why not; ``draws`` of the host are behind it."""

    subject: str
    verdict: Verdict
    detail: str = ""
    draws: int = 0


def numbers(subject: str, ours: Sequence[float] | None, theirs: Sequence[float] | None) -> HostFinding:
    """Compare two rows of numbers; a failure is None. Rows of other length compare by their last entry."""
    if ours is None or theirs is None:
        same = ours is None and theirs is None
        return HostFinding(
            subject, Verdict.EXACT if same else Verdict.DIFFERS, f"ours {ours}, theirs {theirs}"
        )
    if len(ours) != len(theirs):
        ours, theirs = ours[-1:], theirs[-1:]
    return arrays(subject, np.array(ours, dtype=np.float64), np.array(theirs, dtype=np.float64))


def arrays(subject: str, ours: NDArray[Any], theirs: NDArray[Any]) -> HostFinding:
    """Compare two arrays of one shape as float64."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    if ours.tobytes() == theirs.tobytes():
        return HostFinding(subject, Verdict.EXACT)
    with np.errstate(invalid="ignore"):
        gap = float(np.max(np.abs(ours - theirs) / np.maximum(np.abs(ours), 1.0)))
    verdict = Verdict.CLOSE if gap <= TOLERANCE else Verdict.DIFFERS
    return HostFinding(subject, verdict, f"largest relative gap {gap:.3g}")


def things(subject: str, ours: object, theirs: object) -> HostFinding:
    """Compare two things that are equal or not."""
    if ours == theirs:
        return HostFinding(subject, Verdict.EXACT)
    return HostFinding(subject, Verdict.DIFFERS, f"ours {ours}, theirs {theirs}")


def attempted(
    subject: str, compare: Callable[..., HostFinding | Iterable[HostFinding]], *arguments: Any
) -> Iterator[HostFinding]:
    """The findings of a comparison; where it raises, one more that says why it was not made."""
    try:
        result = compare(*arguments)
        yield from [result] if isinstance(result, HostFinding) else result
    except (Exception, SystemExit) as error:
        yield HostFinding(subject, Verdict.UNKNOWN, reason(error))


_SPEAKING = (S2SError, AttributeError, ImportError, NameError, TypeError, OSError)
"""Their messages name things; others may quote what the host was working on, a prompt for instance."""


def reason(error: BaseException) -> str:
    """An error in one line: type, place, and the message where it cannot hold a prompt."""
    if isinstance(error, S2SError):
        return _line(str(error))
    frames = extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    message = f": {error}" if isinstance(error, _SPEAKING) else ""
    return _line(f"{type(error).__name__}{place}{message}")


def _line(text: str) -> str:
    return one_line(text, 200)
