"""Where the same run on two stacks parts: the record files of two results directories, field by field.

    python -m tests.proofs.stacks results/locked results/other

Both hold what `s2s run --profile smoke --layer cohort --layer breadth --out DIRECTORY` wrote, each with the
libraries of its environment. Printed are the libraries, and for every run the record files of the same bytes;
of the others, how many lines are the same, and the largest relative difference of each field that differs.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.provenance import stack

RECORDS = ("generations.jsonl", "completions.jsonl", "heuristics.jsonl", "steps.jsonl")


def main() -> None:
    """Print a table of every run that both directories hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    arguments = parser.parse_args()
    runs = {run.relative_to(arguments.first) for run in runs_below(arguments.first)}
    both = sorted(runs & {run.relative_to(arguments.second) for run in runs_below(arguments.second)})
    for place in (arguments.first, arguments.second):
        environment = read_manifest(place / both[0]).environment
        print(f"{place.name}: Python {environment.python}, {stack(environment.packages)}")
    print("\n| Run | Problem | The same bytes | Not the same |\n| :-- | :-- | :-- | :-- |")
    for run in both:
        first, second = arguments.first / run, arguments.second / run
        told = {name: compared((first / name).read_bytes(), (second / name).read_bytes()) for name in RECORDS}
        same = ", ".join(name for name in RECORDS if not told[name])
        apart = "; ".join(f"{name}: {told[name]}" for name in RECORDS if told[name])
        print(f"| {run} | {read_manifest(arguments.first / run).facts.problem} | {same} | {apart} |")


def compared(first: bytes, second: bytes) -> str:
    """How far apart two record files are; empty for the same bytes."""
    if first == second:
        return ""
    rows = list(zip_longest(*(map(json.loads, data.splitlines()) for data in (first, second)), fillvalue={}))
    apart: dict[str, float] = {}
    for pair in rows:
        for name, distance in _differing("", *pair):
            apart[name] = max(apart.get(name, 0.0), distance)
    same = sum(left == right for left, right in rows)
    fields = ", ".join(name if far == inf else f"{name} by {far:.0e}" for name, far in sorted(apart.items()))
    return f"{same} of {len(rows)} lines; {fields}"


def _differing(name: str, first: Any, second: Any) -> Iterator[tuple[str, float]]:
    """Fields with other values, and how far apart they are in relation to the larger; inf for no numbers."""
    if first == second:
        return
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted({*first, *second}):
            yield from _differing(f"{name}.{key}".lstrip("."), first.get(key), second.get(key))
    elif isinstance(first, float) and isinstance(second, float):
        yield name, abs(first - second) / max(abs(first), abs(second))
    else:
        yield name, inf


if __name__ == "__main__":
    main()
