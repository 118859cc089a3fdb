"""Reading settings: TOML in, typed and frozen out, in their ranges, with one canonical form to hash."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

import msgspec

from search_to_signal.base.errors import UNREADABLE, ConfigError, reason

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """The range of a setting, given with its type: ``Annotated[float, Range(0, 10)]``.

    ``above`` leaves out ``low`` itself, ``below`` leaves out ``high``. NaN is in no range.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value is in the range."""
        over = value > self.low if self.above else value >= self.low
        return over and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        low = f"above {self.low}" if self.above else f"from {self.low}"
        return f"{low} to {'below ' if self.below else ''}{self.high}"


def check_ranges(settings: Any, place: str = "") -> None:
    """Refuse a number out of its type's range; raises ConfigError that names ``place`` and field.

    Of a tuple every number is meant. None, where the type has it, is what it means there.
    """
    for name, allowed in _ranges(settings.__class__).items():
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not allowed.holds(number):
                where = f"{place}.{name}" if place else name
                raise ConfigError(f"{where} is {number}: give a number {allowed}")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a profile, called ``TABLE`` in messages; ConfigError for a number out of its range."""

    TABLE: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_ranges(self, self.TABLE)


@cache
def _ranges(kind: type) -> dict[str, Range]:
    hints = get_type_hints(kind, include_extras=True)
    marks = ((name, mark) for name, hint in hints.items() for mark in getattr(hint, "__metadata__", ()))
    return {name: mark for name, mark in marks if isinstance(mark, Range)}


def settings_of(given: Mapping[str, Any], kind: type[T], table: str) -> T:
    """A table of settings that a profile passes on; raises ConfigError that names the key that is wrong."""
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{table}: {error}; correct it, or remove it") from error


def load_toml(path: Path, kind: type[T]) -> T:
    """Decode a TOML file strictly; raises ConfigError that names the file and the offending key."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {path}: check the path") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}; {_remedy(str(error))}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"cannot read {path}: {error}{_line_of(path, str(error))}") from error
    except (OSError, *UNREADABLE) as error:
        raise ConfigError(f"cannot read {path}: {reason(error)}") from error


def _line_of(path: Path, problem: str) -> str:
    place = re.search(r"at line (\d+)", problem)
    lines = path.read_text(encoding="utf-8").split("\n")
    return "" if place is None else f": {lines[int(place[1]) - 1].strip()}"


def _remedy(problem: str) -> str:
    if "missing required field" in problem:
        return "add that key"
    return "correct its name, or remove it" if "unknown field" in problem else "correct that value"


def canonical_json(value: Any) -> bytes:
    """The one JSON form of a value: keys sorted, no blanks; equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def canonical_sha256(value: Any) -> str:
    """SHA-256 of the canonical JSON form."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
