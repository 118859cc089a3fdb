"""An audit as plain text, JSON, CSV and one HTML page."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from search_to_signal.audit.advice import advice
from search_to_signal.audit.agreement import COMPONENT, apply, step_batches
from search_to_signal.audit.atlas import get_entry, source_of
from search_to_signal.audit.conclusions import at, caution, conclusions
from search_to_signal.audit.findings import STEP_FLAGS, Findings, StepCounts
from search_to_signal.audit.flags import OF_COMPLETIONS, OF_GROUPS, GroupFlags
from search_to_signal.audit.frameworks import options_of
from search_to_signal.audit.groups import Floats, RewardGroups
from search_to_signal.base.package_data import render
from search_to_signal.base.progress import one_line
from search_to_signal.records.files import write_atomically

# Every group of a log as a row: what it is, what is remarkable, its rewards and advantages.

# Groups that are written: a million of them are no table to read.
MOST = 20_000
FLAGS = ("singleton", "unscored", "flat", "silenced", "dead", "merged", "reversed", "repeated", "amplified")
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_COLUMNS = ("number", "group", "prompt", "source", "step", "position", "size", "flags", "rewards", "logged")


def compared(name: str | None) -> tuple[str, ...]:
    """Entries whose advantages are written: the one that a log is compared with, and its alternatives."""
    known = name or "trl-grpo"
    return known, *options_of(source_of(get_entry(known)).framework).scales.values()


class GroupTable:
    """Collects groups as they are audited; ``names`` are the entries whose advantages get a column each.

    Rewards and advantages of a group are in one cell, in order, with a space between. A last row without a
    number says how many groups were left out.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._out = io.StringIO()
        self._rows = csv.writer(self._out, lineterminator="\n")
        self._rows.writerow([*_COLUMNS, *self._names])
        self._seen = self._met = 0

    def add(self, groups: RewardGroups, audited: Floats, facts: GroupFlags) -> None:
        """Write the groups of a batch, up to MOST of the log."""
        self._met += len(groups.step)
        count = min(len(groups.step), MOST - self._seen)
        if count <= 0:
            return
        batches = step_batches(groups)
        steps = groups.step[:count].tolist()
        columns = [
            range(self._seen + 1, self._seen + count + 1),
            [as_cell(name) for name in groups.name[:count]] or [""] * count,
            [as_cell(prompt) for prompt in groups.prompt[:count]] or [""] * count,
            (as_cell(groups.source_of(row)) for row in groups.offsets[:count].tolist()),
            [step if step >= 0 else "" for step in steps],
            groups.position[groups.offsets[:count]].tolist(),
            groups.sizes[:count].tolist(),
            _flags(facts, count),
            # Rewards of a tight group differ in late digits.
            _cells(groups, groups.reward, count, digits=12),
            _cells(groups, groups.advantage, count),
            *(_cells(groups, apply(get_entry(name), batches), count) for name in self._names),
        ]
        self._rows.writerows(zip(*columns, strict=False))
        self._seen += count

    def data(self) -> bytes:
        """The table as CSV."""
        if self._met > self._seen:
            self._rows.writerow(["", f"{self._met - self._seen} more groups are not in this table"])
        return self._out.getvalue().encode("utf-8", "replace")


def as_cell(text: str) -> str:
    """A text of a log for a table that people open in a spreadsheet.

    One that begins like a formula and is no number gets an apostrophe before it. No NUL: csv refuses it.
    """
    clean = text.replace("\0", "?")
    formula = clean.startswith(tuple("=+-@\t\r")) and not _NUMBER.fullmatch(clean)
    return f"'{clean}" if formula else clean


def _flags(facts: GroupFlags, count: int) -> list[str]:
    """The names of the flags of each group; few different sets occur."""
    given = np.array([facts.flags[name][:count] for name in FLAGS])
    codes = (1 << np.arange(len(FLAGS))) @ given
    texts = {
        code: " ".join(name for bit, name in enumerate(FLAGS) if code >> bit & 1)
        for code in set(codes.tolist())
    }
    return [texts[code] for code in codes.tolist()]


def _cells(groups: RewardGroups, values: Floats, count: int, digits: int = 6) -> list[str]:
    sizes, rows = groups.sizes[:count].tolist(), int(groups.offsets[count])
    known = np.logical_or.reduceat(np.isfinite(values[:rows]), groups.offsets[:count]).tolist()
    if not any(known):
        return [""] * count
    # One text of all numbers takes half the time of a text for each.
    number = f"%.{digits}g"
    pattern = {size: " ".join([number] * size) for size in set(sizes)}
    texts = ("\n".join([pattern[size] for size in sizes]) % tuple(values[:rows].tolist())).split("\n")
    return [text if some else "" for text, some in zip(texts, known, strict=True)]


# Figures over steps as SVG that scales with the page; labels and numbers are HTML.

# Points of a curve: more steps than that are drawn together.
_POINTS = 160
_WIDTH, _HEIGHT = 1000, 100
KINDS = ("differ", "all right", "all wrong", "tie in between", "no effect")


@dataclass(frozen=True)
class Curve:
    """A figure: what it shows, its least and greatest value, first and last step, paths by class, and
    the names of those, bottom first, that need a legend."""

    title: str
    low: str
    high: str
    first: str
    last: str
    paths: Sequence[tuple[str, str]]
    legend: Sequence[str] = ()


def curves(findings: Findings) -> tuple[Curve, ...]:
    """What became of the groups, completions that teach, and the mean reward, over the steps of the log."""
    steps = findings.steps
    if len(steps) < 2:
        return ()
    size = math.ceil(len(steps) / _POINTS)
    points = [steps[start : start + size] for start in range(0, len(steps), size)]
    first, last = (f"step {step.step}" if step.step >= 0 else step.source for step in (steps[0], steps[-1]))
    shares = [_shares(findings, point) for point in points]
    met = tuple(name for kind, name in enumerate(KINDS) if any(point[kind] for point in shares))
    taught = [sum(step.taught for step in point) / len(point) for point in points]
    return (
        Curve("Groups", "0 %", "100 %", first, last, _stacked(shares), met),
        _line("Completions that teach, per step", taught, (first, last), low=0.0),
        _line("Mean reward", list(map(_mean_reward, points)), (first, last)),
    )


def _shares(findings: Findings, steps: Sequence[StepCounts]) -> list[float]:
    """Shares of the groups of neighbouring steps, by KINDS."""
    high, low = findings.signal.right_at, findings.signal.wrong_at
    groups = sum(step.groups for step in steps)
    dead = sum(step.flags["dead"] for step in steps)
    flat = sum(step.flags["flat"] - step.flags["flat_credit"] for step in steps)
    right = 0 if high is None else sum(step.ties.right(high) for step in steps)
    wrong = 0 if low is None else sum(step.ties.wrong(low) for step in steps)
    counts = (groups - dead, right, wrong, flat - right - wrong, dead - flat)
    return [count / groups for count in counts]


def _mean_reward(steps: Sequence[StepCounts]) -> float:
    known = [step for step in steps if math.isfinite(step.mean_reward)]
    rows = sum(step.completions for step in known)
    return sum(step.mean_reward * step.completions for step in known) / rows if rows else math.nan


def _stacked(shares: Sequence[Sequence[float]]) -> list[tuple[str, str]]:
    """Areas from the bottom up, each between the sum of those below and its own."""
    sums = [[0.0, *accumulate(point)] for point in shares]
    paths = []
    for kind, name in enumerate(KINDS):
        if any(point[kind] for point in shares):
            upper = [(at, heights[kind + 1]) for at, heights in enumerate(sums)]
            lower = [(at, heights[kind]) for at, heights in enumerate(sums)]
            line = " L".join(_at(at, value, len(sums)) for at, value in (*upper, *reversed(lower)))
            paths.append((f"area {name.split()[-1]}", f"M{line}Z"))
    return paths


def _line(title: str, values: Sequence[float], ends: tuple[str, str], low: float | None = None) -> Curve:
    finite = [value for value in values if math.isfinite(value)]
    high = max(finite, default=0.0)
    low = min(finite, default=0.0) if low is None else low
    extent = high - low or 1.0
    pieces, pen = [], "M"
    for place, value in enumerate(values):
        # A step without a number is a gap.
        if math.isfinite(value):
            pieces.append(f"{pen}{_at(place, (value - low) / extent, len(values))}")
        pen = " L" if math.isfinite(value) else " M"
    return Curve(title, f"{low:.4g}", f"{high:.4g}", *ends, [("line", "".join(pieces))])


def _at(at: int, value: float, count: int) -> str:
    return f"{_WIDTH * at / max(count - 1, 1):.1f},{_HEIGHT * (1 - value):.2f}"


MEANING = {**OF_GROUPS, **OF_COMPLETIONS}
# What is derived from the sums of a signal.
_DERIVED = ("waste", "dead_share", "shares", "half_flat_share", "least_flat_share_doubled")
# Characters of a printed line or cell.
_WIDEST = 400

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table of an audit: its ``columns``, and the ``values`` of its rows.

    The ``note`` beneath its ``heading`` on the page is for a reader who meets the words for the first time.
    """

    heading: str
    note: str
    columns: Cells
    values: Callable[[Findings], Iterable[Sequence[str | float | None]]]

    def rows(self, findings: Findings) -> list[Cells]:
        """Texts and whole numbers as they are, other numbers to four digits, - for none."""
        return [tuple(map(_cell, row)) for row in self.values(findings)]


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _weight(findings: Findings, name: str) -> float | None:
    weight = findings.weights.get(name)
    return None if weight is None else float(weight)


REWARDS = Table(
    "Which reward decides",
    "Share of the variance of the advantages, within groups; below 0 a reward works against the others. "
    "Against it: groups in which what it rates higher gets less advantage.",
    ("reward", "weight", "share of variance", "groups where it differs", "groups against it"),
    lambda found: (
        (name, _weight(found, name), f"{100 * share:.1f} %", part.varied, part.against)
        for name, share in sorted(found.signal.shares.items(), key=lambda item: -item[1])
        for part in [found.signal.parts[name]]
    ),
)
PROMPTS = Table(
    "Prompts that cost most",
    "By completions spent in dead groups; of the first 20,000 prompts of the log.",
    ("prompt", "groups", "dead", "completions wasted", "mean reward", "first"),
    lambda found: (
        (sums.prompt, sums.groups, sums.dead, sums.wasted, sums.reward / sums.groups, at(sums.place))
        for sums in found.worst
    ),
)
COUNTS = Table(
    "What was found",
    "",
    ("found", "count", "meaning", "first"),
    lambda found: (
        (name, found.counts[name], meaning, ", ".join(map(at, found.examples.get(name, ())[:1])))
        for name, meaning in MEANING.items()
        if found.counts.get(name)
    ),
)
KNOBS = Table(
    "What a knob changes under {normalizer}",
    "Groups in which an advantage moves by more than 1 % without the knob, of the groups with an advantage.",
    ("knob", "weight", "groups", "groups that change"),
    lambda found: (
        (name, _weight(found, name.removeprefix(COMPONENT)), knob.groups, knob.changed)
        for name, knob in found.knobs.items()
    ),
)
CLASSES = Table(
    "Who receives positive advantage",
    "P_D: share of the completions. P_A: share of the positive advantage. E_A = P_A / P_D: over 1, the class "
    "is credited more than it occurs. Precision: share of the positively credited completions that are of "
    "this class. Positive rate: share of the class that is positively credited.",
    ("class", "completions", "P_D", "P_A", "E_A", "precision", "positive rate"),
    lambda found: map(astuple, found.classes),
)
LENGTHS = Table(
    "What aggregation adds",
    "The quarter of the completions of a step with most tokens: its share, and its share of advantage times "
    "weight under each rule that averages a loss over tokens; then the weight of one such completion, and of "
    "one of its tokens, relative to the mean over all.",
    ("rule", "of completions", "of the weight", "per sequence", "per token"),
    lambda found: (
        (rule, sums.longest / sums.completions, sums.share, sums.per_sequence, sums.per_token)
        for rule, sums in found.lengths.items()
        if sums.longest
    ),
)
NORMALIZERS = Table(
    "The same rollouts under every normalizer",
    "1 - cosine and size compare all advantages, as one vector, with the audited ones. Groups: how many the "
    "normalizer takes; in how many of them the order changes, and in how many a sign.",
    ("normalizer", "explains", "1 - cosine", "size", "groups", "ordered otherwise", "signs change"),
    lambda found: (
        (
            name,
            "no" if not one.explains else "yes" if found.logged else "same",
            "-" if one.cosine is None else f"{one.apart:.3g}",
            *(one.size, one.groups, one.turned, one.flipped),
        )
        for name in found.by_nearness()
        for one in [found.agreements[name]]
    ),
)
STEPS = Table(
    "",
    "",
    ("source", "step", "groups", "completions", "mean_reward", *STEP_FLAGS),
    lambda found: (
        (
            *(as_cell(step.source), step.step, step.groups, step.completions, step.mean_reward),
            *(step.flags[name] for name in STEP_FLAGS),
        )
        for step in found.steps
    ),
)


def text(findings: Findings) -> str:
    """What to change, the conclusions, what was assumed, and compact tables."""
    advised: list[str] = []
    for number, one in enumerate(advice(findings), 1):
        advised += [f"{number}. [{one.severity}] {one.says}", f"Change: {one.change}"]
        advised += [f"By this log: {one.instead}"] if one.instead else []
    advised += [""] if advised else []
    parts = [one_line(line, _WIDEST) for line in (*advised, *conclusions(findings))]
    if findings.assumptions:
        parts += ["", *(one_line(f"Assumed: {line}", _WIDEST) for line in assumptions(findings))]
    if counted := COUNTS.rows(findings):
        parts += ["", _aligned([("found", "count", "first"), *((row[0], row[1], row[3]) for row in counted)])]
    for table, least in ((CLASSES, 1), (KNOBS, 2)):
        if len(rows := table.rows(findings)) >= least:
            parts += ["", _aligned([table.columns, *rows])]
    if entries := NORMALIZERS.rows(findings):
        parts += ["", "The same rollouts under other normalizers, nearest first:"]
        parts += [_aligned([NORMALIZERS.columns, *entries[:12]])]
    return "\n".join(parts)


def assumptions(findings: Findings) -> tuple[str, ...]:
    """What the reader of the log took for granted, each with the counts that speak for it."""
    return tuple(
        f"{assumption.says} ({', '.join(_counted(count, name) for name, count in assumption.counts.items())})"
        for assumption in findings.assumptions
    )


def _counted(count: int, name: str) -> str:
    things, *more = name.split(" ", 1)
    return " ".join([str(count), things.removesuffix("s") if count == 1 else things, *more])


def as_json(findings: Findings, more: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Everything that was found as strict JSON in ASCII, so that a name that is no Unicode text is kept."""
    whole = _strict(
        {
            **more,
            "findings": [msgspec.to_builtins(advised) for advised in advice(findings)],
            "verdicts": conclusions(findings),
            "explaining": findings.explaining,
            "nearest": findings.nearest,
            **msgspec.to_builtins(findings, str_keys=True),
            "signal": _with(findings.signal, *_DERIVED) | {"sizes": sorted(findings.signal.sizes)},
            "agreements": {
                name: _with(one, "explains", "cosine", "apart", "size")
                for name, one in findings.agreements.items()
            },
            "lengths": {
                rule: _with(sums, "share", "per_sequence", "per_token")
                for rule, sums in findings.lengths.items()
            },
        }
    )
    try:
        # Indents several times as fast as json does, and refuses half of a surrogate pair.
        return msgspec.json.format(json.dumps(whole), indent=2)
    except msgspec.DecodeError:
        return json.dumps(whole, indent=2)


def _with(sums: object, *derived: str) -> dict[str, Any]:
    """The fields of sums, and what is derived from them."""
    fields: dict[str, Any] = msgspec.to_builtins(sums)
    return fields | {name: getattr(sums, name) for name in derived}


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(findings: Findings, directory: Path, title: str, groups: bytes | None = None) -> None:
    """Write the page, the document and the tables, each whole or not at all; ``groups`` is one of them."""
    files = {
        "audit.json": as_json(findings).encode() + b"\n",
        "steps.csv": _csv(STEPS, findings),
        "normalizers.csv": _csv(NORMALIZERS, findings),
        **({} if groups is None else {"groups.csv": groups}),
        "audit.html": page(findings, title, groups is not None).encode("utf-8", "replace"),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(directory / name, data)


def page(findings: Findings, title: str, groups: bool = False) -> str:
    """One HTML page that needs no other file; ``groups``: their table is written to the same directory."""
    doubtful = caution(findings)
    tables = [
        (
            table.heading.format(normalizer=findings.normalizer),
            *(table.note, table.columns, list(map(_cut, table.rows(findings)))),
        )
        for table in (REWARDS, PROMPTS, COUNTS, KNOBS, CLASSES, LENGTHS, NORMALIZERS)
    ]
    return render(
        "search_to_signal.audit",
        "audit.html",
        title=one_line(title),
        findings=advice(findings),
        trains=bool(findings.knobs),
        caution=doubtful,
        curves=curves(findings),
        verdicts=[one_line(line) for line in conclusions(findings) if line != doubtful],
        assumptions=[one_line(line) for line in assumptions(findings)],
        tables=tables,
        files=("steps.csv", "normalizers.csv", *(("groups.csv",) if groups else ()), "audit.json"),
    )


def _cut(row: Cells) -> Cells:
    return tuple(one_line(cell, _WIDEST) for cell in row)


def _aligned(rows: Sequence[Cells]) -> str:
    rows = list(map(_cut, rows))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _csv(table: Table, findings: Findings) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([table.columns, *table.rows(findings)])
    return out.getvalue().encode("utf-8", "replace")
