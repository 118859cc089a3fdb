"""Findings of a check, and the differ: values that records have, beside those that they have to have."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isclose
from os.path import commonprefix
from typing import Any

import msgspec

from search_to_signal.base.errors import S2SError, reason
from search_to_signal.base.progress import one_line

ABSENT = "(absent)"
_SHOWN_LENGTH = 60
_CONTEXT_LENGTH = 20
# Exposures are sums of a few products, whose last bits depend on the processor.
_CLOSE = {"exposure": 1e-12}


@dataclass(frozen=True)
class Finding:
    """A problem, or with ``compared`` False the reason why something could not be compared.

    ``where`` names a run, a file or a place in one; it is empty where ``text`` names it.
    """

    where: str
    text: str
    compared: bool = True

    @property
    def line(self) -> str:
        """The finding as one line to print."""
        return f"{self.where}: {self.text}" if self.where else self.text

    def within(self, place: str) -> "Finding":
        """The finding with ``place`` in front of its own."""
        return replace(self, where=f"{place}: {self.where}" if self.where else place)


@dataclass(frozen=True)
class VerificationResult:
    """Every finding of a verification in order, and the counts of what it checked."""

    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=Counter)

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems as lines; empty where everything that was compared agrees."""
        return tuple(finding.line for finding in self.findings if finding.compared)

    @property
    def not_compared(self) -> dict[str, tuple[str, ...]]:
        """The places that could not be compared, by the reason."""
        places: dict[str, list[str]] = {}
        for finding in self.findings:
            if not finding.compared:
                places.setdefault(finding.text, []).append(finding.where)
        return {text: tuple(names) for text, names in places.items()}


def distinct_lines(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without those whose line an earlier one has."""
    by_line: dict[str, Finding] = {}
    for finding in findings:
        by_line.setdefault(finding.line, finding)
    return tuple(by_line.values())


def findings_of(where: str, problems: Iterable[str], unreadable: str) -> Iterator[Finding]:
    """Problems of ``where`` as findings; an error of reading ends them and becomes the last one.

    Such an error names its file itself. ``unreadable`` names what contains values that no check can use.
    """
    try:
        for problem in problems:
            yield Finding(where, problem)
    except S2SError as error:
        yield Finding("", str(error))
    except OSError as error:
        yield Finding("", f"cannot read {error.filename}: {reason(error)}; restore it")
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        yield Finding("", f"{unreadable} cannot be read ({type(error).__name__}: {error})")


@dataclass(frozen=True)
class Difference:
    """A field of a record that is not as it has to be.

    ``line`` is that of the file, None for a record that is missing. ``record`` says which one it is.
    """

    file: str
    line: int | None
    record: str
    field: str
    recorded: Any
    expected: Any

    @property
    def where(self) -> str:
        """File, line, and the record in words."""
        return f"{self.file}{'' if self.line is None else f':{self.line}'} ({self.record})"

    @property
    def text(self) -> str:
        """The field with both values."""
        recorded, expected = (one_line(text) for text in excerpts(self.recorded, self.expected))
        return f"{self.field} is {recorded}, expected {expected}"

    @property
    def finding(self) -> Finding:
        """The difference as a finding."""
        return Finding(self.where, self.text)


def same_bits(first: Any, second: Any) -> bool:
    """Whether two values are equal, floats to the bit."""
    return first is second or repr(first) == repr(second)


def record_differences(
    file: str,
    line: int,
    record: str,
    recorded: msgspec.Struct,
    expected: msgspec.Struct,
    undecided: Collection[str],
) -> Iterator[Difference]:
    """Yield the fields in which two records of a kind differ, but for those that are ``undecided``."""
    for name in recorded.__struct_fields__:
        first, second = getattr(recorded, name), getattr(expected, name)
        if first is second or name in undecided or repr(first) == repr(second):
            continue
        if name in _CLOSE and None not in (first, second) and isclose(first, second, abs_tol=_CLOSE[name]):
            continue
        yield Difference(file, line, record, name, first, second)


def unequal_values(path: str, first: Any, second: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of every difference of two JSON values (``completion_ids[1][7]``), with both values."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in {**first, **second}:
            below = f"{path}.{name}" if path else str(name)
            yield from unequal_values(below, first.get(name, ABSENT), second.get(name, ABSENT))
    elif isinstance(first, list) and isinstance(second, list):
        for index, (a, b) in enumerate(zip(first, second, strict=False)):
            yield from unequal_values(f"{path}[{index}]", a, b)
        if len(first) != len(second):
            yield f"{path}: length", len(first), len(second)
    elif first != second:
        yield path, first, second


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what nested mappings hold, by dotted names."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(f"{name}.{key}" if name else str(key), part)
    else:
        yield name, value


def excerpts(first: Any, second: Any) -> tuple[str, str]:
    """Both values as text; of long ones an excerpt that begins shortly before the first difference."""
    texts = [_text(value) for value in (first, second)]
    is_long = max(map(len, texts)) > _SHOWN_LENGTH
    start = max(len(commonprefix(texts)) - _CONTEXT_LENGTH, 0) if is_long else 0
    end = start + _SHOWN_LENGTH
    excerpt, other_excerpt = (
        f"{'...' if start else ''}{text[start:end]}{'...' if text[end:] else ''}" for text in texts
    )
    return excerpt, other_excerpt


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(getattr(value, "value", value))
    return ABSENT if value is msgspec.UNSET else msgspec.json.encode(value).decode()
