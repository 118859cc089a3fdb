"""One row of the neutral form, from whatever the columns of a file are called."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from search_to_signal.audit.groups import UNKNOWN
from search_to_signal.audit.importers.rows import number, score
from search_to_signal.errors import ConfigError, RecordError

SCHEMA = Path(__file__).with_name("rollouts.schema.json")
_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Made = TypeVar("Made")
_WORDS = {"true": 1.0, "false": 0.0}


class Rollout(msgspec.Struct, frozen=True, gc=False):
    """One rollout. Rows of one ``step`` and ``group`` are one group, in any order; a higher ``reward`` is
    better, null means none.

    ``advantage`` may be NaN, as a trainer computed it. ``masked``: the trainer left the rollout out of the
    loss. ``tokens`` counts the response tokens that are trained. ``components`` are named parts of the reward
    before their ``weights``. Equal ``response`` texts, or ids, mean equal responses. ``label`` is a class
    of your choice, ``status`` how the rollout ended, ``prompt`` a text or messages to recognize it by.
    """

    group: int | str
    reward: float | None
    step: int = UNKNOWN
    advantage: float | None = None
    masked: bool = False
    tokens: int = UNKNOWN
    response: str | None = None
    label: str | None = None
    status: str | None = None
    prompt: Any = None
    components: dict[str, float | None] | None = None
    weights: dict[str, float | None] | None = None


COLUMNS = tuple(Rollout.__struct_fields__)
# What a caller may say that a column is called.
NAMED = COLUMNS[: COLUMNS.index("components")]


@dataclass(frozen=True)
class Columns:
    """What the columns of a file are called: ``names`` by those of Rollout, and ``label``, the class.

    ``parts`` are columns that are parts of the reward, with their weights; the reward is their sum where the
    file has none. ``a.b`` is column b within a. Raises ConfigError for a name that Rollout has not.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.names) - set(NAMED))
        if unknown:
            raise ConfigError(f"no column is called {', '.join(unknown)}: map one of {', '.join(NAMED)}")

    def of(self, name: str) -> str:
        """The column of the file that is the given one of Rollout; of the class the outermost one."""
        own = self.names.get(name, name)
        return (self.label or own).split(".")[0] if name == "label" else own

    def decoders(self, known: Sequence[str]) -> "tuple[msgspec.json.Decoder[Any], ...]":
        """Lines of JSON to rows with fields of Rollout, ``label`` of any type: the fastest decoder first.

        That takes rows that have the columns ``known`` and no other, and leaves out the fields they lack; the
        second takes any. None where columns are within others, or one is named twice: such rows go through
        ``rollout``.
        """
        own = [self.of(name) for name in COLUMNS]
        if any("." in name for name in self.names.values()) or len(set(own)) < len(own) or self.parts:
            return ()
        fields = {self.of(column.name): self._field(column) for column in msgspec.structs.fields(Rollout)}
        every = msgspec.defstruct("Read", [*fields.values()], frozen=True, gc=False)
        needed = {self.of("group"), self.of("reward")}
        # msgspec takes no name that JSON escapes.
        if not needed <= set(known) or not all(map(str.isidentifier, known)):
            return (msgspec.json.Decoder(every),)
        skipped = {
            name: (f"other_{name}", msgspec.Raw, msgspec.field(name=name, default=None)) for name in known
        }
        given = [(skipped | fields)[name] for name in known]
        alone = msgspec.defstruct(
            "Known", given, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True
        )
        return msgspec.json.Decoder(alone), msgspec.json.Decoder(every)

    def _field(self, column: msgspec.structs.FieldInfo) -> tuple[str, Any, Any]:
        kind = Any if column.name == "label" else _Whole if column.type is int else column.type
        default = {} if column.required else {"default": column.default}
        return column.name, kind, msgspec.field(name=self.of(column.name), **default)

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Columns of the file that are read, of those within others the outermost."""
        names = [*map(self.of, COLUMNS), *self.parts]
        return frozenset((*names, *(name.split(".")[0] for name in names)))

    def unlisted(self, record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """A row for each entry where the reward is a list, of a whole batch or of one group; else the record.

        Columns with as many entries are split with it, and others belong to each row. Raises ValueError where
        a column that has one value in a row is a list of another length.
        """
        parts = [record.get(name) for name in (self.of("reward"), *self.parts)]
        count = next((len(part) for part in parts if isinstance(part, list)), None)
        if count is None:
            return [record]
        lists = {name: value for name, value in record.items() if isinstance(value, list)}
        split = {name: value for name, value in lists.items() if len(value) == count and not _is_chat(value)}
        single = map(self.of, ("group", "reward", "step", "advantage", "masked", "tokens"))
        if odd := [name for name in single if name in lists and name not in split]:
            raise ValueError(f"lists of different lengths: {', '.join(odd)} has not {count} entries")
        rows = (dict(record) | {name: value[at] for name, value in split.items()} for at in range(count))
        return [one for row in rows for one in self.unlisted(row)]

    def key(self, record: Mapping[str, Any]) -> tuple[int, int | str]:
        """Step and group of a record; raises ValueError for one that has none."""
        return self._read(record, "step", _whole), self._read(record, "group", _group)

    def rollout(self, record: Mapping[str, Any]) -> Rollout:
        """A record as a row, ``label`` left as it is; raises ValueError for one that breaks the schema."""
        step, group = self.key(record)
        components, weights = self._parts(record)
        return Rollout(
            group=group,
            reward=self._reward(record, components),
            step=step,
            advantage=self._read(record, "advantage", _number),
            masked=self._read(record, "masked", _number) not in (None, 0.0),
            tokens=self._read(record, "tokens", _whole),
            response=self._read(record, "response", _text),
            label=record.get(self.of("label")),
            status=self._read(record, "status", _text),
            prompt=column_value(record, self.of("prompt")),
            components=components,
            weights=weights,
        )

    def _read(self, record: Mapping[str, Any], name: str, made: Callable[[Any], Made]) -> Made:
        """A column by its name in Rollout; raises ValueError, naming the column."""
        try:
            return made(column_value(record, self.of(name)))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{self.of(name)}: {error}") from error

    def _reward(self, record: Mapping[str, Any], components: Mapping[str, float | None]) -> float | None:
        name = self.of("reward")
        if name in record or "." in name:
            return self._read(record, "reward", _score)
        if not self.parts:
            raise ValueError(f"no {name}, which is null where there is none")
        given = [self.parts[name] * value for name, value in components.items() if value is not None]
        return sum(given) if given else None

    def _parts(self, record: Mapping[str, Any]) -> tuple[dict[str, float | None], dict[str, float | None]]:
        if self.parts:
            return {name: _score(column_value(record, name)) for name in self.parts}, dict(self.parts)
        parts, weights = (_numbers(record.get(name), name) for name in ("components", "weights"))
        return parts, {name: weights.get(name, 1.0) for name in parts}


def _is_chat(value: list[Any]) -> bool:
    """Whether a list is the messages of one prompt or response."""
    return bool(value) and all(isinstance(entry, Mapping) and "role" in entry for entry in value)


def column_value(record: Mapping[str, Any], name: str) -> Any:
    """The value of a column, ``a.b`` being column b within a unless the file has one of that very name."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _number(value: Any) -> float | None:
    """A number as it is, NaN too, also one written as a text; truth as 1 and 0; None for an empty text."""
    if isinstance(value, str):
        value = _WORDS.get(value.lower(), value)
    return None if value in (None, "") else score(value)


def _score(value: Any) -> float | None:
    """A number, or None where it is NaN."""
    known = _number(value)
    return None if known is None or math.isnan(known) else known


def _whole(value: Any) -> int:
    if value is None:
        return UNKNOWN
    known = float(value) if isinstance(value, str) and not value.lstrip("-").isdecimal() else value
    if isinstance(known, str):
        known = int(known)
    if isinstance(known, float) and known.is_integer():
        known = int(known)
    if not isinstance(known, int) or isinstance(known, bool) or abs(known) >= 2**63:
        raise ValueError(f"{value!r} is no whole number")
    return known


def _group(value: Any) -> int | str:
    if value is None or value != value:
        raise ValueError("no group: name it, or leave the row out")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) else json.dumps(value, default=str, sort_keys=True)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


def _numbers(value: Any, name: str) -> dict[str, float | None]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} are no numbers by name")
    return {str(key): None if entry is None else number(entry) for key, entry in value.items()}


def refused(path: Path, position: int, error: Exception) -> RecordError:
    """The error for a row that is no rollout."""
    return RecordError(f"{path}:{position}: not a rollout ({error}); see {SCHEMA.name}")
