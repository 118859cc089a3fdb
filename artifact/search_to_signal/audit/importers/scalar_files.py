"""Files of one number per step, as trainers and trackers write them: no group can be audited there.

Met: trainer_state.json of transformers, wandb-summary.json, metrics.jsonl of prime-rl (monitors/file.py,
559b447), verl's file logger (utils/tracking.py), experiment_log.jsonl and generations.log of EasyR1
(verl/utils/logger/logger.py, b44b311), progress.csv; event files of TensorBoard, run files of Weights &
Biases, and databases of trackio 0.43.0.

Event and run files are read without their libraries: records of protobuf, each with a checksum. TensorBoard
(TFRecord): the length in 8 bytes, its checksum, the data, its checksum; a checksum is a CRC-32C, turned and
shifted. Weights & Biases (the log format of LevelDB behind 7 bytes of its own): blocks of 32 KiB, in which a
record begins with a CRC-32, its length, and whether it is whole or the first, a middle or the last part of
one. A file that ends within a record, as of a writer that was stopped, or is damaged, is read up to there.
"""

import math
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from search_to_signal.audit.frameworks import ANY
from search_to_signal.audit.groups import Floats, Integers
from search_to_signal.audit.importers import streams
from search_to_signal.audit.importers.containers import SQLITE, container_of, read_only, table_columns
from search_to_signal.audit.importers.rows import number
from search_to_signal.base.errors import RecordError

WANDB_START = b":W&B"
_WANDB_HEADER, _BLOCK = 7, 32_768
_WHOLE, _BEGIN, _MIDDLE, _LAST = 1, 2, 3, 4
# Larger records hold pictures or graphs: they are passed over, and so is their checksum.
_LARGEST = 1024 * 1024
_FLOAT, _DOUBLE = 1, 2
Row = dict[str, Any]


@dataclass
class Held:
    """What a file holds: ``rows`` of numbers in order, each with its step where the writer gives one,
    ``settings`` of the run, and where it ``ends`` before its end."""

    rows: list[tuple[int | None, Row]] = field(default_factory=list)
    settings: Row = field(default_factory=dict)
    ends: str = ""


class _Broken(Exception):
    """The file cannot be read from here on; says why."""


def read_events(path: Path) -> Held:
    """The scalars of an event file, a row for each, and the arguments that a trainer of transformers wrote.

    Raises RecordError for a file that is none, or of which the first record is damaged.
    """
    held = Held()
    return _read(path, held, _events, lambda data: _add_event(held, data))


def read_wandb(path: Path) -> Held:
    """The history and the configuration of a run file of Weights & Biases. Errors as in ``read_events``."""
    held = Held()
    return _read(path, held, _wandb_records, lambda data: _add_wandb(held, data))


def _read(path: Path, held: Held, records: Any, add: Any) -> Held:
    count = 0
    with streams.regular(path) as file:
        try:
            for data in records(file):
                add(data)
                count += 1
        except (_Broken, struct.error, IndexError, ValueError, OverflowError, OSError) as error:
            why = str(error) if isinstance(error, _Broken) else "it is no record of its format"
            if not count:
                raise RecordError(f"{path}: record 1 cannot be read ({why}); copy the file again") from error
            held.ends = f"record {count + 1} cannot be read ({why}): the {count} before it are"
    return held


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise _Broken("the file ends within it, as of a writer that was stopped")
    return data


def _events(file: BinaryIO) -> Iterator[bytes]:
    while start := file.read(1):
        head = start + _exactly(file, 11)
        if _masked(head[:8]) != struct.unpack("<I", head[8:])[0]:
            raise _Broken("the checksum of its length is wrong")
        size = struct.unpack("<Q", head[:8])[0]
        if size > _LARGEST:
            file.seek(size + 3, 1)
            _exactly(file, 1)
            continue
        data = _exactly(file, size)
        if _masked(data) != struct.unpack("<I", _exactly(file, 4))[0]:
            raise _Broken("its checksum is wrong")
        yield data


@cache
def _table() -> tuple[int, ...]:
    """CRC-32C of every byte (Castagnoli's polynomial, reflected)."""
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        found.append(byte)
    return tuple(found)


def _masked(data: bytes) -> int:
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _wandb_records(file: BinaryIO) -> Iterator[bytes]:
    if not file.read(_WANDB_HEADER).startswith(WANDB_START):
        raise _Broken("it does not begin as a run file does")
    parts: list[bytes] = []
    while True:
        left = _BLOCK - file.tell() % _BLOCK
        if left < _WANDB_HEADER:
            file.read(left)
        start = file.read(1)
        if not start:
            return
        checksum, size, kind = struct.unpack("<IHB", start + _exactly(file, _WANDB_HEADER - 1))
        data = _exactly(file, size)
        if zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            raise _Broken("its checksum is wrong")
        parts = [data] if kind in (_WHOLE, _BEGIN) else [*parts, data]
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of the fields of a message: a whole field, or the bytes of anything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, at = _varint(data, at)
        if (not size and kind != 2) or at + size > len(data):
            raise ValueError("a field is cut, or of an unknown kind")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a field is too long")


def _add_event(held: Held, data: bytes) -> None:
    """Event: step = 2, summary = 5. Summary: value = 1. Value: tag = 1, simple_value = 2, tensor = 8."""
    step, row = 0, Row()
    for key, value in _fields(data):
        if key == 2:
            step = value - 2**64 if value >= 2**63 else value
        elif key == 5:
            for _, one in _fields(value):
                parts = dict(_fields(one))
                tag = parts.get(1, b"").decode("utf-8", "replace")
                if tag == "args/text_summary":
                    # The arguments that transformers writes as text: string_val = 8.
                    held.settings = streams.json_object(dict(_fields(parts.get(8, b""))).get(8))
                elif 2 in parts:
                    row[tag] = struct.unpack("<f", parts[2])[0]
                elif (scalar := _scalar(parts.get(8, b""))) is not None:
                    row[tag] = scalar
    if row:
        held.rows.append((step, row))


def _scalar(tensor: bytes) -> float | None:
    """One field of a TensorProto: dtype = 1, tensor_content = 4, float_val = 5, double_val = 6."""
    parts = dict(_fields(tensor))
    kind = {_FLOAT: ("<f", 5), _DOUBLE: ("<d", 6)}.get(parts.get(1, 0))
    if kind is None:
        return None
    given = parts.get(4) or parts.get(kind[1], b"")
    return float(struct.unpack(kind[0], given)[0]) if len(given) == struct.calcsize(kind[0]) else None


def _add_wandb(held: Held, data: bytes) -> None:
    """Record: history = 2, config = 5, run = 17. RunRecord: config = 4."""
    for key, value in _fields(data):
        if key == 2:
            held.rows.append((None, _items(value)))
        elif key == 5:
            held.settings |= _items(value)
        elif key == 17:
            held.settings |= _items(dict(_fields(value)).get(4, b""))


def _items(data: bytes) -> Row:
    """Items (field 1) of a history or configuration: key = 1, nested_key = 2, value_json = 16."""
    row = Row()
    for key, item in _fields(data):
        if key != 1:
            continue
        keys, text = list[str](), b"null"
        for part, value in _fields(item):
            if part in (1, 2):
                keys.append(value.decode("utf-8", "replace"))
            elif part == 16:
                text = value
        with suppress(ValueError, RecursionError):
            row["/".join(keys)] = streams.parse_json(text)
    return row


_EVENTS, _STATE = "events.out.tfevents", "trainer_state.json"
_SUMMARY, _WANDB = "wandb-summary.json", ".wandb"
# Files that are known by their name.
_NAMES = {
    _EVENTS: "TensorBoard's numbers per step",
    "generations.log": "a few validation answers of EasyR1 as text",
    _WANDB: "the run file of Weights & Biases",
}
_TRACKIO = {"metrics.run_name", "metrics.step", "metrics.metrics"}
# Names of steps, those first that count updates.
_STEPS = ("global_step", "step", "iteration", "iter", "update", "timesteps", "_step", "epoch")
_GROUPS = re.compile(
    r"(group|prompt|problem|question|task|sample|traj|trajectory|completion|response|rollout)?"
    r"_?(id|ids|idx|index|uid|name)?"
)
_WORDS = re.compile(r"time|date|mode|split|run|phase|stage|type|event|max_steps", re.IGNORECASE)
_FIRST = re.compile(r"grad_?norm|loss")
_READ, _NAMED = 100_000, 3
# Levels of directories that are looked through, and tables of a directory that may be numbers per step.
_DEPTH, _TABLES, _LARGEST_TABLE = 5, 20, 256 * 1024 * 1024
_CONFIGS = ("args.json", "config.yaml")
_YAML = re.compile(r"( *)([\w.\-]+):(?: +(.*))?$")


class NoRolloutsError(RecordError):
    """A file or directory holds numbers per step and no rollouts."""


@dataclass(frozen=True)
class ScalarRun:
    """Numbers per step, as one writer left them.

    ``values`` has by name steps (n,), rising, and values (n,), NaN and infinite ones as logged; a step that
    was logged twice counts as it was last. ``settings`` is the configuration by path (``actor/clip_ratio``),
    ``notes`` say what was not read.
    """

    source: str
    values: Mapping[str, tuple[Integers, Floats]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """Numbers in all."""
        return sum(len(steps) for steps, _ in self.values.values())


class Scalars(NamedTuple):
    """What a file of numbers has: their names, and in how many steps some are NaN or infinite."""

    says: str
    broken: tuple[str, ...] = ()


def scalars_of(path: Path) -> Scalars | None:
    """What a file of one number per step holds; None for any other."""
    if known := by_name(path):
        return known
    if _is_trackio(path):
        return Scalars("trackio's numbers per step")
    rows: list[dict[str, Any]] = []
    with suppress(RecordError):
        for row in islice(_rows(path), _READ):
            rows.append(flat := dict(_flat(row)))
            others = [name for name, value in flat.items() if value is not None and _number(value) is None]
            numbers = any(_number(value) is not None for value in flat.values())
            if not numbers or any(map(_GROUPS.fullmatch, flat)) or not all(map(_WORDS.search, others)):
                return None
    names = dict.fromkeys(name for row in rows for name in row if _last(name) not in _STEPS)
    places = [repr((row[name], *row)) for row in rows for name in row if _last(name) in _STEPS]
    # A step comes twice with the same names in few rows at most.
    if not names or 2 * len(set(places)) <= len(rows):
        return None
    return Scalars(f"one number per step ({some(list(names))})", tuple(_broken(rows, list(names))))


def by_name(path: Path) -> Scalars | None:
    """What a file holds whose name says that it has no rollouts."""
    return next((Scalars(says) for name, says in _NAMES.items() if name in path.name), None)


def refusal(place: Path, found: Mapping[Path, Scalars]) -> NoRolloutsError:
    """The error for a file or directory that holds nothing but scalars: one line with what to switch on."""
    own = [one.says if path == place else f"{path.name}: {one.says}" for path, one in found.items()]
    broken = dict.fromkeys(text for scalars in found.values() for text in scalars.broken)
    seen = f"; {', '.join([*broken][:_NAMED])}" if broken else ""
    held = some(own, "; ")
    return NoRolloutsError(
        f"{place} holds {held} and no rollouts, so there are no groups to audit{seen}; rollouts "
        f"are written with {ANY.rollouts}: give what is written then"
    )


def some(things: Iterable[object], between: str = ", ") -> str:
    """The first of some things, and how many more there are."""
    names = list(map(str, things))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{between.join(names[:_NAMED])}{more}"


def scalar_runs(place: Path, without: Iterable[Path] = ()) -> list[ScalarRun]:
    """What the numbers per step at a path are, one run of each writer; none where there are none.

    Of several runs of one writer the one with most numbers is read, and a note names the others; of the
    states in checkpoints that is the last. ``without`` are files of rollouts. Raises RecordError where
    ``place`` is a file that cannot be read; below a directory such a file is a note.
    """
    if place.is_file():
        return [_run_of([place])] if _kind(place) or scalars_of(place) else []
    files = [file for file in _walked(place) if file not in set(without)]
    settings = {key: value for file in files if file.name in _CONFIGS for key, value in _config(file)}
    sources: dict[str, dict[Path, list[Path]]] = {}
    for file in files:
        kind = _kind(file)
        if not kind and file.name not in _CONFIGS and scalars_of(file):
            kind = file.name
        # Event files of one directory are one run; a run of Weights & Biases has its summary beside it.
        run = file.parent if kind in (_EVENTS, _WANDB) else file
        if kind == _SUMMARY and any(_WANDB in other.suffix for other in files):
            continue
        if kind:
            sources.setdefault(kind, {}).setdefault(run, []).append(file)
    runs = []
    for found in sources.values():
        made, notes = list[ScalarRun](), list[str]()
        for ones in found.values():
            try:
                made.append(_run_of(ones))
            except RecordError as error:
                notes.append(str(error))
        best = max(made, key=lambda run: run.points, default=ScalarRun(str(place), {}))
        if len(made) > 1 and _STATE not in best.source:
            others = some(run.source for run in made if run is not best)
            notes.append(f"of {len(made)} runs the one with most numbers is read, left out: {others}")
        if best.values or notes:
            given = best.settings or settings
            runs.append(ScalarRun(best.source, best.values, given, (*best.notes, *notes)))
    return runs


def writers_below(place: Path) -> dict[Path, Scalars]:
    """Files below a directory that are numbers per step by their name or their tables."""
    found = (file for file in _walked(place) if _kind(file))
    return {file: scalars_of(file) or Scalars("numbers per step") for file in found}


def _walked(place: Path) -> list[Path]:
    """Files below a directory that may hold numbers per step, or the configuration beside them."""
    found = []
    for directory, below, names in os.walk(place):
        here = Path(directory)
        depth = len(here.relative_to(place).parts)
        # wandb/latest-run is a link, and its files are those of another directory.
        below[:] = (
            sorted(name for name in below if name == ".hydra" or name[0] != ".") if depth < _DEPTH else []
        )
        files = [here / name for name in sorted(names)]
        tables = [file for file in files if file.suffix in (".jsonl", ".csv", ".tsv", ".json")]
        known = [file for file in files if _kind(file) or file.name in _CONFIGS]
        small = [file for file in tables if file not in known and file.stat().st_size < _LARGEST_TABLE]
        found += known + (small if len(tables) <= _TABLES else [])
    return found


def _kind(file: Path) -> str:
    """The writer of a file, by its name or its tables; empty for others."""
    if file.name in (_STATE, _SUMMARY):
        return file.name
    if _EVENTS in file.name:
        return _EVENTS
    return _WANDB if file.suffix == _WANDB else "trackio" if _is_trackio(file) else ""


def _is_trackio(file: Path) -> bool:
    if file.suffix not in (".db", ".sqlite"):
        return False
    with suppress(RecordError):
        return container_of(file) == SQLITE and set(table_columns(file)) >= _TRACKIO
    return False


def _run_of(files: Sequence[Path]) -> ScalarRun:
    """The run in a file, or in the event files of one directory."""
    rows, notes = list[tuple[Any, Mapping[str, Any]]](), list[str]()
    settings: Row = {}
    for file in files:
        if _EVENTS in file.name or file.suffix == _WANDB:
            held = (read_events if _EVENTS in file.name else read_wandb)(file)
            rows += held.rows
            settings |= held.settings
            notes += [f"{file.name}: {held.ends}"] if held.ends else []
        elif _kind(file) == "trackio":
            more, settings, notes = _trackio(file)
            rows += more
        else:
            rows += [(None, row) for row in islice(_rows(file), _READ)]
        if file.name == _SUMMARY:
            notes.append("a summary has the last value of each number: the curves are in run-*.wandb")
    return ScalarRun(str(files[0]), _columns(rows), dict(_flat(settings)), tuple(notes))


def _trackio(file: Path) -> tuple[list[tuple[int, Row]], Row, list[str]]:
    """Rows of the longest run in a database, its configuration, and which others there are."""
    columns = table_columns(file)
    with read_only(file) as base:
        runs = Counter(row["run_name"] for row in base.execute("SELECT run_name FROM metrics"))
        name = runs.most_common(1)[0][0] if runs else ""
        query = "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY step, id"
        rows = [(row["step"], streams.json_object(row["metrics"])) for row in base.execute(query, (name,))]
        query = "SELECT config FROM configs WHERE run_name = ?"
        known = base.execute(query, (name,)).fetchall() if "configs.config" in columns else []
    others = [other for other in runs if other != name]
    left = f"{file.name}: of {len(runs)} runs {name} has most steps and is read, left out: {some(others)}"
    return rows, streams.json_object(known[0]["config"] if known else None), [left] if others else []


def _columns(rows: Iterable[tuple[Any, Mapping[str, Any]]]) -> dict[str, tuple[Integers, Floats]]:
    """Rows as columns by name; a row without a step has its place."""
    columns: dict[str, dict[int, float]] = {}
    for place, (step, row) in enumerate(rows, 1):
        flat = {name.removeprefix("data/"): value for name, value in _flat(row)}
        if step is None:
            steps = [name for name in flat if _last(name) in _STEPS and _number(flat[name]) is not None]
            key = min(steps, key=lambda name: (_STEPS.index(_last(name)), len(name)), default=None)
            given = _number(flat.pop(key)) if key else None
            step = int(given) if given is not None and given.is_integer() else place
        for name, value in flat.items():
            if (known := _number(value)) is not None:
                columns.setdefault(name, {})[step] = known
    return {
        name: (np.array(sorted(values), dtype=np.int64), np.array([values[step] for step in sorted(values)]))
        for name, values in columns.items()
    }


def _config(file: Path) -> Iterator[tuple[str, Any]]:
    """Settings of a configuration in JSON, or of the plain ``key: value`` of YAML; lists are passed over."""
    with suppress(RecordError, UnicodeDecodeError):
        text = streams.start_of(file, 1024 * 1024)
        if file.suffix == ".json":
            yield from _flat(streams.json_object(text))
            return
        above: list[tuple[int, str]] = []
        for line in text.decode().splitlines():
            if match := _YAML.match(line.split(" #")[0].rstrip()):
                indent, key, value = len(match[1]), match[2], match[3]
                above = [*(one for one in above if one[0] < indent), (indent, key)]
                if value:
                    # Weights & Biases puts every value under "value".
                    yield "/".join(name for _, name in above if name != "value"), _plain(value)


def _plain(value: str) -> Any:
    with suppress(ValueError):
        return streams.parse_json(value.encode())
    return value.strip("'\"")


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix in streams.SUFFIXES:
        yield from (row for _, row in streams.read_csv(path))
        return
    text = streams.start_of(path, 4096).lstrip()
    if text.startswith(b"{") and text.split(b"\n", 1)[0].strip() != b"{":
        # A state of transformers on one line is a line of its own.
        yield from (row for _, one in streams.read_lines(path) for row in one.get("log_history", [one]))
    elif text.startswith((b"{", b"[")):
        with suppress(ValueError, RecursionError):
            document = streams.parse_json(streams.start_of(path, streams.LARGEST_DOCUMENT))
            held = document.get("log_history", [document]) if isinstance(document, dict) else document
            yield from (row if isinstance(row, dict) else {"": row} for row in held)


def _flat(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and texts of a row with their names, which join those of the mappings around them."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            # Histograms and tables of a tracker are named, and held elsewhere.
            yield from () if "_type" in value else _flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def _broken(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    """Numbers that are NaN or infinite in some steps, the norm of the gradient and losses first."""
    given, nan, infinite = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        for name in names:
            value = _number(row.get(name))
            if value is not None:
                given[name] += 1
                nan[name] += math.isnan(value)
                infinite[name] += math.isinf(value)
    for name in sorted(names, key=lambda name: not _FIRST.search(name)):
        for what, counts in (("NaN", nan), ("infinite", infinite)):
            if counts[name]:
                yield f"{name} is {what} in {counts[name]} of {given[name]} steps"


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        # Trackers write NaN and infinities as texts.
        with suppress(ValueError):
            return float(value)
    return number(value) if isinstance(value, int | float) else None


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]
