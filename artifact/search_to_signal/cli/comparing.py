"""Command that holds two results directories, or two runs, against each other."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from search_to_signal.cli.base import Add
from search_to_signal.progress import one_line

if TYPE_CHECKING:
    from search_to_signal.analysis.comparison import Comparison, Metric

_LONGEST = 30
_SHOWN_RUNS = 3


def _compare(arguments: argparse.Namespace) -> int:
    from search_to_signal.analysis.comparison import compare

    found = compare(arguments.first, arguments.second)
    for line in _lines(found):
        print(one_line(line))
    counts = f"{len(found.settings)} settings and {len(found.records)} record files differ"
    print(f"s2s: {'EQUAL' if found.equal else 'DIFFERENT'}: {found.runs} runs in both, {counts}")
    return 0 if found.equal else 1


def _lines(found: "Comparison") -> Iterator[str]:
    for side, names in (("first", found.only_first), ("second", found.only_second)):
        yield from (f"only in the {side}: {name}" for name in names)
    for setting in found.settings:
        values = " | ".join(map(_cut, (setting.first, setting.second)))
        yield f"setting {setting.name}: {values} ({_some(setting.runs)})"
    changed = [metric for metric in found.metrics if metric.first != metric.second]
    for metric in changed:
        numbers = " | ".join(map(_number, (metric.first, metric.second)))
        yield f"metric {metric.run} {metric.name}: {numbers}{_change(metric)}"
    yield f"{len(found.metrics) - len(changed)} of {len(found.metrics)} metrics are equal"
    for record in found.records:
        fields = ", ".join(record.fields) or "one of the files ends, or the line is unreadable"
        yield f"first different record: {record.file}:{record.line}: {fields}"


def _change(metric: "Metric") -> str:
    if metric.first is None or metric.second is None:
        return ""
    return f" ({metric.second - metric.first:+.4f})"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _some(runs: tuple[str, ...]) -> str:
    rest = len(runs) - _SHOWN_RUNS
    return ", ".join(runs[:_SHOWN_RUNS]) + (f" and {rest} more runs" if rest > 0 else "")


def register(add: Add) -> None:
    """Add compare."""
    text = (
        "settings, metrics and first differing records of two results directories, or of two runs; "
        "ends with 0 where settings and records are equal, with 1 where they differ"
    )
    command = add("compare", _compare, text, "s2s compare results/embedded /mnt/other/results/embedded")
    command.add_argument("first", type=Path)
    command.add_argument("second", type=Path)
