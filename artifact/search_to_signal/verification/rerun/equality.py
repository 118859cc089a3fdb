"""Two runs of one configuration, compared record for record, up to the first difference."""

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
from search_to_signal.provenance.adapters import ADAPTER, TENSORS, StoredTensor, mapped_bytes, stored_tensors
from search_to_signal.records.files import read_regular
from search_to_signal.records.manifest import MANIFEST, Manifest, read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS, read_records
from search_to_signal.verification.findings import Finding
from search_to_signal.verification.recompute.endings import LIMITED

# In the order in which a group is made: the first difference is the cause of the others.
_FILES = (GENERATIONS, COMPLETIONS, HEURISTICS, STEPS)
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_SHOWN_LENGTH = 60
_CONTEXT_LENGTH = 20
_ABSENT = "(absent)"
# Fields of a manifest that are inputs or results of the run, not facts about source, model or machine.
_INPUTS_AND_RESULTS = (
    *("config", "config_sha256", "plan_sha256", "status", "timing", "interruptions"),
    *("initial_adapter_sha256", "final_adapter_sha256"),
)
Line = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """The first difference of two runs: its place, both values, and a remark; ``equal`` groups precede it."""

    where: str
    recorded: str
    actual: str
    equal: int
    remark: str = ""

    @property
    def finding(self) -> Finding:
        """The difference as a finding."""
        remark = f" ({self.remark})" if self.remark else ""
        text = f"recorded {self.recorded} | now {self.actual}{remark}"
        return Finding(f"first difference: {self.where}", text)


def first_difference(recorded: Path, again: Path) -> Difference | None:
    """Return the first difference between a recorded run and a rerun of it; None where they are equal.

    Timings and environments are not compared. An adapter that is not stored is compared by its checksum.
    Raises RunDirectoryError or RecordError for a run that cannot be read.
    """
    files = [(_lines(recorded / name), _lines(again / name)) for name in _FILES]
    steps = sorted({step for pair in files for lines in pair for step in lines})
    for done, step in enumerate(steps):
        for name, (first, second) in zip(_FILES, files, strict=True):
            if first.get(step) != second.get(step):
                place = f"group {step}, {name}"
                return _group_difference(place, first.get(step, []), second.get(step, []), done)
    return _result_difference(recorded, again, len(steps))


def _lines(path: Path) -> dict[int, list[Line]]:
    """The lines of a record file by step."""
    try:
        records = groupby(read_records(path, dict), key=lambda line: int(line["step"]))
        return {step: list(lines) for step, lines in records}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: a line has no step; restore the file") from error


def _group_difference(where: str, recorded: Sequence[Line], again: Sequence[Line], equal: int) -> Difference:
    for first, second in zip(recorded, again, strict=False):
        if first != second:
            completion = f", completion {first['index']}" if "index" in first else ""
            path, *values = next(_unequal_values("", first, second))
            limited = _reached_limit(first) or _reached_limit(second)
            remark = "a time or memory limit ended it: another speed may decide that otherwise"
            place = f"{where}{completion}: {path}"
            return Difference(place, *_excerpts(*values), equal, remark if limited else "")
    return Difference(f"{where}: records", str(len(recorded)), str(len(again)), equal)


def _reached_limit(line: Line) -> bool:
    return str(line.get("evaluation", "")).split(",")[0] in LIMITED


def _unequal_values(path: str, first: Any, second: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of every difference of two JSON values (``completion_ids[1][7]``), with both values."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in {**first, **second}:
            below = f"{path}.{name}" if path else str(name)
            yield from _unequal_values(below, first.get(name, _ABSENT), second.get(name, _ABSENT))
    elif isinstance(first, list) and isinstance(second, list):
        for index, (a, b) in enumerate(zip(first, second, strict=False)):
            yield from _unequal_values(f"{path}[{index}]", a, b)
        if len(first) != len(second):
            yield f"{path}: length", len(first), len(second)
    elif first != second:
        yield path, first, second


def _excerpts(first: Any, second: Any) -> tuple[str, str]:
    """Both values as text; of long ones an excerpt that begins shortly before the first difference."""
    texts = [v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in (first, second)]
    is_long = max(map(len, texts)) > _SHOWN_LENGTH
    start = max(len(commonprefix(texts)) - _CONTEXT_LENGTH, 0) if is_long else 0
    end = start + _SHOWN_LENGTH
    excerpt, other_excerpt = (
        f"{'...' if start else ''}{text[start:end]}{'...' if text[end:] else ''}" for text in texts
    )
    return excerpt, other_excerpt


def _result_difference(recorded: Path, again: Path, groups: int) -> Difference | None:
    """The first difference of final adapters, other record files, and adapter checksums."""
    first, second = (_adapter_tensors(run) for run in (recorded, again))
    if first is not None and second is not None:
        for name in sorted({*first, *second}):
            if first.get(name) != second.get(name):
                return _tensor_difference(name, first.get(name), second.get(name), groups)
    for name in _other_records(recorded, again):
        first_bytes, second_bytes = (read_regular(run / name) for run in (recorded, again))
        if first_bytes != second_bytes:
            texts = (content.decode(errors="replace") for content in (first_bytes, second_bytes))
            return Difference(name, *_excerpts(*texts), groups)
    for field in ("initial_adapter_sha256", "final_adapter_sha256"):
        sha256, again_sha256 = (getattr(read_manifest(run), field) for run in (recorded, again))
        if sha256 != again_sha256:
            return Difference(f"manifest: {field}", str(sha256), str(again_sha256), groups)
    return None


def _other_records(recorded: Path, again: Path) -> list[str]:
    """Further record files of both runs, which other hosts and learning rules write."""
    known = {*_FILES, TIMINGS, MANIFEST, CONFIG}
    names = ({path.name for path in run.glob("*.json*")} - known for run in (recorded, again))
    return sorted(set.intersection(*names))


def _adapter_tensors(run: Path) -> dict[str, StoredTensor] | None:
    path = run / ADAPTER / TENSORS
    if not path.is_file():
        return None
    try:
        return stored_tensors(mapped_bytes(path))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path} is no sound safetensors file ({error}); restore it") from error


def _tensor_difference(
    name: str, first: StoredTensor | None, second: StoredTensor | None, groups: int
) -> Difference:
    where = f"final adapter, {name}"
    if first is None or second is None or first[:2] != second[:2] or first.dtype not in _TYPES:
        recorded, again = (f"{t.dtype} {list(t.shape)}" if t else _ABSENT for t in (first, second))
        return Difference(where, recorded, again, groups)
    weights, others = _values(first), _values(second)
    # Compared as bytes, since positive and negative zero are different weights.
    unequal = np.flatnonzero(weights.view(f"u{weights.itemsize}") != others.view(f"u{weights.itemsize}"))
    at = int(unequal[0])
    largest = np.abs(weights - others).max()
    remark = f"{len(unequal)} of {len(weights)} weights of it differ, by at most {largest:.3g}"
    texts = repr(float(weights[at])), repr(float(others[at]))
    return Difference(f"{where}, weight {at}", *texts, groups, remark)


def _values(tensor: StoredTensor) -> Floats:
    values: Floats = np.frombuffer(tensor.data, dtype=_TYPES[tensor.dtype])
    return values


def facts_that_differ(recorded: Manifest, again: Manifest) -> dict[str, tuple[str, str]]:
    """Return the facts about source, model and environment that differ, as both values by dotted name."""
    first, second = (dict(_facts("", msgspec.to_builtins(manifest))) for manifest in (recorded, again))
    return {
        name: _difference_texts(first.get(name), second.get(name))
        for name in {**first, **second}
        if first.get(name) != second.get(name) and name.split(".")[0] not in _INPUTS_AND_RESULTS
    }


def _facts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _facts(f"{name}.{key}" if name else str(key), part)
    else:
        yield name, value


def _difference_texts(first: Any, second: Any) -> tuple[str, str]:
    """Both values as text; of two lists the items that only one of them has."""
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        only_first, only_second = (
            [str(v) for v in a if v not in b] for a, b in ((first, second), (second, first))
        )
        return f"also {' '.join(only_first) or 'nothing'}", f"also {' '.join(only_second) or 'nothing'}"
    return _excerpts(first, second)
