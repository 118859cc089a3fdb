"""Two runs of one configuration, record for record: the first group, token or weight that differs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from os.path import commonprefix
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from search_to_signal.errors import RecordError
from search_to_signal.numerics import Floats
from search_to_signal.profiles.run_config import CONFIG
from search_to_signal.provenance.adapters import ADAPTER, TENSORS, StoredTensor, stored_tensors
from search_to_signal.records.manifest import MANIFEST, Manifest, read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS, read_records
from search_to_signal.verification.findings import LIMITED

# In the order in which a group comes about: what is different first is the cause of the rest.
_FILES = (GENERATIONS, COMPLETIONS, HEURISTICS, STEPS)
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_LONGEST = 60
_BEFORE = 20
_ABSENT = "(absent)"
# Of a manifest: what was asked for and what came out, not what it was made on.
_NO_FACTS = (
    *("config", "config_sha256", "plan_sha256", "status", "timing", "interruptions"),
    *("initial_adapter_sha256", "final_adapter_sha256"),
)
Line = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """The first thing that differs: where, the two values, and a remark. ``equal`` groups came before it."""

    where: str
    recorded: str
    found: str
    equal: int
    remark: str = ""


def first_difference(recorded: Path, again: Path) -> Difference | None:
    """What differs first between a recorded run and another one of it; None where nothing does.

    Timings and environments are no records. An adapter that is not stored is compared by its checksum.
    Raises RunDirectoryError or RecordError for a run that cannot be read.
    """
    files = [(_lines(recorded / name), _lines(again / name)) for name in _FILES]
    steps = sorted({step for pair in files for lines in pair for step in lines})
    for done, step in enumerate(steps):
        for name, (first, second) in zip(_FILES, files, strict=True):
            if first.get(step) != second.get(step):
                place = f"group {step}, {name}"
                return _group(place, first.get(step, []), second.get(step, []), done)
    return _weights(recorded, again, len(steps))


def _lines(path: Path) -> dict[int, list[Line]]:
    """The lines of a record file by step."""
    try:
        records = groupby(read_records(path, dict), key=lambda line: int(line["step"]))
        return {step: list(lines) for step, lines in records}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: a line has no step; restore the file") from error


def _group(where: str, first: Sequence[Line], second: Sequence[Line], equal: int) -> Difference:
    for one, other in zip(first, second, strict=False):
        if one != other:
            what = f", completion {one['index']}" if "index" in one else ""
            path, recorded, found = next(_unequal("", one, other))
            limited = any(_limited(line) for line in (one, other))
            remark = "a time or memory limit ended it: another speed may decide that otherwise"
            place = f"{where}{what}: {path}"
            return Difference(place, *_shown(recorded, found), equal, remark if limited else "")
    return Difference(f"{where}: records", str(len(first)), str(len(second)), equal)


def _limited(line: Line) -> bool:
    return str(line.get("evaluation", "")).split(",")[0] in LIMITED


def _unequal(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every place in which two JSON values differ, with its name: ``completion_ids[1][7]``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in {**one, **other}:
            below = f"{path}.{name}" if path else str(name)
            yield from _unequal(below, one.get(name, _ABSENT), other.get(name, _ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for index, (a, b) in enumerate(zip(one, other, strict=False)):
            yield from _unequal(f"{path}[{index}]", a, b)
        if len(one) != len(other):
            yield f"{path}: length", len(one), len(other)
    elif one != other:
        yield path, one, other


def _shown(one: Any, other: Any) -> tuple[str, str]:
    """Both values, long ones from shortly before the place where they part."""
    texts = [v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in (one, other)]
    start = max(len(commonprefix(texts)) - _BEFORE, 0) if max(map(len, texts)) > _LONGEST else 0
    first, second = (
        f"{'...' if start else ''}{text[start : start + _LONGEST]}{'...' if text[start + _LONGEST :] else ''}"
        for text in texts
    )
    return first, second


def _weights(recorded: Path, again: Path, groups: int) -> Difference | None:
    first, second = (_stored(run) for run in (recorded, again))
    if first is not None and second is not None:
        for name in sorted({*first, *second}):
            if first.get(name) != second.get(name):
                return _tensor(name, first.get(name), second.get(name), groups)
    for name in _other_records(recorded, again):
        first_bytes, second_bytes = ((run / name).read_bytes() for run in (recorded, again))
        if first_bytes != second_bytes:
            told = _shown(first_bytes.decode(errors="replace"), second_bytes.decode(errors="replace"))
            return Difference(name, *told, groups)
    for field in ("initial_adapter_sha256", "final_adapter_sha256"):
        one, other = (getattr(read_manifest(run), field) for run in (recorded, again))
        if one != other:
            return Difference(f"manifest: {field}", str(one), str(other), groups)
    return None


def _other_records(recorded: Path, again: Path) -> list[str]:
    """What else both runs recorded, as other hosts and learning rules do."""
    known = {*_FILES, TIMINGS, MANIFEST, CONFIG}
    names = ({path.name for path in run.glob("*.json*")} - known for run in (recorded, again))
    return sorted(set.intersection(*names))


def _stored(run: Path) -> dict[str, StoredTensor] | None:
    path = run / ADAPTER / TENSORS
    if not path.is_file():
        return None
    try:
        return stored_tensors(path.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path} is no sound safetensors file ({error}); restore it") from error


def _tensor(name: str, first: StoredTensor | None, second: StoredTensor | None, groups: int) -> Difference:
    where = f"final adapter, {name}"
    if first is None or second is None or first[:2] != second[:2] or first.dtype not in _TYPES:
        one_told, other_told = (f"{t.dtype} {list(t.shape)}" if t else _ABSENT for t in (first, second))
        return Difference(where, one_told, other_told, groups)
    one, other = _values(first), _values(second)
    # Bytes, not values: two zeros of other signs are two weights.
    unequal = np.flatnonzero(one.view(f"u{one.itemsize}") != other.view(f"u{one.itemsize}"))
    at = int(unequal[0])
    remark = f"{len(unequal)} of {len(one)} weights of it differ, by at most {np.abs(one - other).max():.3g}"
    return Difference(f"{where}, weight {at}", repr(float(one[at])), repr(float(other[at])), groups, remark)


def _values(tensor: StoredTensor) -> Floats:
    values: Floats = np.frombuffer(tensor.data, dtype=_TYPES[tensor.dtype])
    return values


def facts_that_differ(recorded: Manifest, again: Manifest) -> dict[str, tuple[str, str]]:
    """What the two runs ran on and from, where it differs, by its dotted name: source, model, environment."""
    first, second = (dict(_facts("", msgspec.to_builtins(manifest))) for manifest in (recorded, again))
    return {
        name: _parted(first.get(name), second.get(name))
        for name in {**first, **second}
        if first.get(name) != second.get(name) and name.split(".")[0] not in _NO_FACTS
    }


def _facts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _facts(f"{name}.{key}" if name else str(key), part)
    else:
        yield name, value


def _parted(one: Any, other: Any) -> tuple[str, str]:
    """Both values; of two lists what only one of them has."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        first, second = ([str(v) for v in a if v not in b] for a, b in ((one, other), (other, one)))
        return f"also {' '.join(first) or 'nothing'}", f"also {' '.join(second) or 'nothing'}"
    return _shown(one, other)
