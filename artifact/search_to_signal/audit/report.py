"""An audit as plain text, JSON, CSV and one HTML page."""

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
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
from search_to_signal.package_data import render
from search_to_signal.progress import one_line
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
    """Numbers of each group; empty where none of them is a number."""
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


@dataclass(frozen=True)
class _Point:
    """Sums over neighbouring steps."""

    groups: int
    kinds: Sequence[int]
    taught: float
    reward: float


def curves(findings: Findings) -> tuple[Curve, ...]:
    """What became of the groups, completions that teach, and the mean reward, over the steps of the log."""
    if len(findings.steps) < 2:
        return ()
    points = [_point(findings, steps) for steps in _together(findings.steps)]
    ends = (_name(findings.steps[0]), _name(findings.steps[-1]))
    shares = [[count / point.groups for count in point.kinds] for point in points]
    return (
        Curve("Groups", "0 %", "100 %", *ends, _stacked(shares), _met(shares)),
        _line("Completions that teach, per step", [point.taught for point in points], ends, from_zero=True),
        _line("Mean reward", [point.reward for point in points], ends, from_zero=False),
    )


def _together(steps: Sequence[StepCounts]) -> list[Sequence[StepCounts]]:
    count = math.ceil(len(steps) / _POINTS)
    return [steps[start : start + count] for start in range(0, len(steps), count)]


def _point(findings: Findings, steps: Sequence[StepCounts]) -> _Point:
    high, low = findings.signal.right_at, findings.signal.wrong_at
    groups = sum(step.groups for step in steps)
    dead = sum(step.flags["dead"] for step in steps)
    flat = sum(step.flags["flat"] - step.flags["flat_credit"] for step in steps)
    right = 0 if high is None else sum(step.ties.right(high) for step in steps)
    wrong = 0 if low is None else sum(step.ties.wrong(low) for step in steps)
    known = [step for step in steps if math.isfinite(step.mean_reward)]
    rows = sum(step.completions for step in known)
    return _Point(
        groups,
        (groups - dead, right, wrong, flat - right - wrong, dead - flat),
        sum(step.taught for step in steps) / len(steps),
        sum(step.mean_reward * step.completions for step in known) / rows if rows else math.nan,
    )


def _met(shares: Sequence[Sequence[float]]) -> tuple[str, ...]:
    return tuple(name for kind, name in enumerate(KINDS) if any(of_point[kind] for of_point in shares))


def _stacked(shares: Sequence[Sequence[float]]) -> list[tuple[str, str]]:
    """Areas from the bottom up, each between the sum of those below and its own."""
    sums = [[0.0, *accumulate(of_point)] for of_point in shares]
    paths = []
    for kind, name in enumerate(KINDS):
        if any(of_point[kind] for of_point in shares):
            upper = [(at, heights[kind + 1]) for at, heights in enumerate(sums)]
            lower = [(at, heights[kind]) for at, heights in enumerate(sums)]
            line = " L".join(_at(at, value, len(sums)) for at, value in (*upper, *reversed(lower)))
            paths.append((f"area {name.split()[-1]}", f"M{line}Z"))
    return paths


def _line(title: str, values: Sequence[float], ends: tuple[str, str], from_zero: bool) -> Curve:
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    low = 0.0 if from_zero else low
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


def _name(step: StepCounts) -> str:
    return f"step {step.step}" if step.step >= 0 else step.source


GLOSSARY: Mapping[str, str] = {
    "group": "The completions sampled for one prompt, which are compared with each other.",
    "advantage": "What the trainer makes of a reward by comparing it with its group; it weighs the gradient.",
    "dead group": "A group that teaches nothing: its rewards tie, its advantages are equal or NaN, or it is "
    "left out of the loss.",
    "all right, all wrong": "A group that ties at the highest, or lowest, reward at which any does, above or "
    "below what groups get whose rewards differ.",
    "teach": "A completion teaches where it enters the loss with an advantage other than 0.",
    "tight group, gain": "Advantage range over reward range. Where rewards hardly differ, dividing by their "
    "deviation makes a rounding error as large as a lesson.",
    "normalizer": "The formula from rewards of a group to advantages; s2s normalizers lists those of the "
    "frameworks.",
    "explains": "The normalizer gives every logged advantage, to float32 rounding or to the digits logged.",
    "1 - cosine": "Angle between two sets of advantages: 0 is the same direction, 1 unrelated, 2 opposite.",
    "share of variance": "Covariance of a weighted reward with the advantage over the advantage's variance.",
    "severity": "high: concerns half of the generation or update, or more; medium: 15 %; low: less.",
}


PAGE, DOCUMENT = "audit.html", "audit.json"
STEPS, ENTRIES, GROUPS = "steps.csv", "normalizers.csv", "groups.csv"
MEANING = {**OF_GROUPS, **OF_COMPLETIONS}
ENTRY_COLUMNS = (
    "normalizer",
    "explains",
    "1 - cosine",
    "size",
    "groups",
    "ordered otherwise",
    "signs change",
)
CLASS_COLUMNS = ("class", "completions", "P_D", "P_A", "E_A", "precision", "positive rate")
KNOB_COLUMNS = ("knob", "weight", "groups", "groups that change")
REWARD_COLUMNS = ("reward", "weight", "share of variance", "groups where it differs", "groups against it")
PROMPT_COLUMNS = ("prompt", "groups", "dead", "completions wasted", "mean reward", "first")
LENGTH_COLUMNS = ("rule", "of completions", "of the weight", "per sequence", "per token")
# Beneath the headings of the page, for a reader who meets the words for the first time.
CLASSES = (
    "P_D: share of the completions. P_A: share of the positive advantage. E_A = P_A / P_D: over 1, the class "
    "is credited more than it occurs. Precision: share of the positively credited completions that are of "
    "this class. Positive rate: share of the class that is positively credited."
)
KNOBS = "Of the groups with an advantage, those in which one moves by more than 1 % without the knob."
LENGTHS = (
    "The quarter of the completions of a step with most tokens: its share, and its share of advantage times "
    "weight under each rule that averages a loss over tokens; then the weight of one such completion, and of "
    "one of its tokens, relative to the mean over all."
)
REWARDS = (
    "Share of the variance of the advantages, within groups; below 0 a reward works against the others. "
    "Against it: groups in which what it rates higher gets less advantage."
)
PROMPTS = "By completions spent in dead groups; of the first 20,000 prompts of the log."
UNDER = (
    "1 - cosine and size are those of all advantages as one vector, beside the audited ones. Groups: those "
    "that the normalizer takes; among them, those that it orders otherwise, and with a sign that changes."
)
# What is derived from the sums of a signal.
_DERIVED = ("waste", "dead_share", "shares", "half_flat_share", "least_flat_share_doubled")
# Characters of a printed line or cell.
_WIDEST = 400

Cells = tuple[str, ...]


def text(findings: Findings) -> str:
    """What to change, the conclusions, what was assumed, and compact tables."""
    parts = [one_line(line, _WIDEST) for line in (*_advised(findings), *conclusions(findings))]
    parts += (
        ["", *(one_line(f"Assumed: {line}", _WIDEST) for line in assumptions(findings))]
        if findings.assumptions
        else []
    )
    counted = [(name, count, where) for name, count, _, where in count_rows(findings) if count != "0"]
    parts += ["", _aligned([("found", "count", "first"), *counted])] if counted else []
    if classes := class_rows(findings):
        parts += ["", _aligned([CLASS_COLUMNS, *classes])]
    if len(rows := knob_rows(findings)) > 1:
        parts += ["", _aligned([KNOB_COLUMNS, *rows])]
    if entries := entry_rows(findings):
        parts += ["", "The same rollouts under other normalizers, nearest first:"]
        parts += [_aligned([ENTRY_COLUMNS, *entries[:12]])]
    return "\n".join(parts)


def _advised(findings: Findings) -> list[str]:
    lines = []
    for number, advised in enumerate(advice(findings), 1):
        lines += [f"{number}. [{advised.severity}] {advised.says}", f"Change: {advised.change}"]
        lines += [f"By this log: {advised.instead}"] if advised.instead else []
    return [*lines, ""] if lines else []


def assumptions(findings: Findings) -> tuple[str, ...]:
    """What the reader of the log took for granted, each with the counts that speak for it."""
    return tuple(
        f"{assumption.says} ({', '.join(_counted(count, name) for name, count in assumption.counts.items())})"
        for assumption in findings.assumptions
    )


def _counted(count: int, name: str) -> str:
    things, *more = name.split(" ", 1)
    return " ".join([str(count), things.removesuffix("s") if count == 1 else things, *more])


def count_rows(findings: Findings) -> list[Cells]:
    """Name, count, meaning and first place of everything that is counted."""
    return [
        (
            name,
            str(findings.counts.get(name, 0)),
            meaning,
            ", ".join(map(at, findings.examples.get(name, ())[:1])),
        )
        for name, meaning in MEANING.items()
    ]


def class_rows(findings: Findings) -> list[Cells]:
    """The credit table as text."""
    return [
        (
            row.label,
            str(row.completions),
            *map(
                _number,
                (row.prevalence, row.mass_share, row.enrichment, row.precision, row.positive_rate),
            ),
        )
        for row in findings.classes
    ]


def entry_rows(findings: Findings) -> list[Cells]:
    """Every entry that takes some of the groups, nearest first."""
    known = findings.agreements
    return [
        (
            name,
            "yes" if findings.logged and known[name].explains else "same" if known[name].explains else "no",
            "-" if known[name].cosine is None else f"{known[name].apart:.3g}",
            _number(known[name].size),
            str(known[name].groups),
            str(known[name].turned),
            str(known[name].flipped),
        )
        for name in findings.by_nearness()
    ]


def knob_rows(findings: Findings) -> list[Cells]:
    """Every knob that was tried, with the groups whose advantages move by more than 1 % without it."""
    return [
        (
            name,
            _number(findings.weights.get(name.removeprefix(COMPONENT))),
            str(knob.groups),
            str(knob.changed),
        )
        for name, knob in findings.knobs.items()
    ]


def reward_rows(findings: Findings) -> list[Cells]:
    """What each component of the reward carries of the advantages."""
    shares, parts = findings.signal.shares, findings.signal.parts
    return [
        (
            name,
            _number(findings.weights.get(name)),
            f"{100 * share:.1f} %",
            str(parts[name].varied),
            str(parts[name].against),
        )
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
    ]


def prompt_rows(findings: Findings) -> list[Cells]:
    """The prompts on which most completions were spent for nothing."""
    return [
        (
            sums.prompt,
            str(sums.groups),
            str(sums.dead),
            str(sums.wasted),
            _number(sums.reward / sums.groups),
            at(sums.place),
        )
        for sums in findings.worst
    ]


def length_rows(findings: Findings) -> list[Cells]:
    """What each rule of aggregation gives to the longest quarter of the completions."""
    return [
        (
            rule,
            f"{sums.longest / sums.completions:.4g}",
            *map(_number, (sums.share, sums.per_sequence, sums.per_token)),
        )
        for rule, sums in findings.lengths.items()
        if sums.longest
    ]


def step_rows(findings: Findings) -> list[Cells]:
    """One row per step and file."""
    return [
        (
            as_cell(step.source),
            str(step.step),
            str(step.groups),
            str(step.completions),
            _number(step.mean_reward),
            *(str(step.flags[name]) for name in STEP_FLAGS),
        )
        for step in findings.steps
    ]


STEP_COLUMNS = ("source", "step", "groups", "completions", "mean_reward", *STEP_FLAGS)


def document(findings: Findings) -> dict[str, Any]:
    """Everything that was found, for ``as_json``."""
    return {
        "findings": [msgspec.to_builtins(advised) for advised in advice(findings)],
        "verdicts": conclusions(findings),
        "explaining": findings.explaining,
        "nearest": findings.nearest,
        **msgspec.to_builtins(findings, str_keys=True),
        "signal": {
            **msgspec.to_builtins(findings.signal),
            "sizes": sorted(findings.signal.sizes),
            **{name: getattr(findings.signal, name) for name in _DERIVED},
        },
        "agreements": {
            name: {
                **msgspec.to_builtins(agreement),
                "explains": agreement.explains,
                "cosine": agreement.cosine,
                "apart": agreement.apart,
                "size": agreement.size,
            }
            for name, agreement in findings.agreements.items()
        },
        "lengths": {
            rule: {
                **msgspec.to_builtins(sums),
                "share": sums.share,
                "per_sequence": sums.per_sequence,
                "per_token": sums.per_token,
            }
            for rule, sums in findings.lengths.items()
        },
    }


def as_json(findings: Findings) -> str:
    """The document as strict JSON in ASCII, so that a name that is no text of Unicode is kept."""
    whole = _strict(document(findings))
    try:
        # Indents several times as fast as json does, and refuses half of a surrogate pair.
        return msgspec.json.format(json.dumps(whole), indent=2)
    except msgspec.DecodeError:
        return json.dumps(whole, indent=2)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(findings: Findings, directory: Path, title: str, groups: bytes | None = None) -> None:
    """Write the page, the document and the tables, each whole or not at all; ``groups`` is one of them."""
    files = {
        DOCUMENT: as_json(findings).encode() + b"\n",
        STEPS: _csv(STEP_COLUMNS, step_rows(findings)),
        ENTRIES: _csv(ENTRY_COLUMNS, entry_rows(findings)),
        **({} if groups is None else {GROUPS: groups}),
        PAGE: page(findings, title, groups is not None).encode("utf-8", "replace"),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(directory / name, data)


def page(findings: Findings, title: str, groups: bool = False) -> str:
    """One HTML page that needs no other file; ``groups``: their table is written to the same directory."""
    counted = [row for row in count_rows(findings) if row[1] != "0"]
    tables = (
        ("Which reward decides", REWARDS, REWARD_COLUMNS, reward_rows(findings)),
        ("Prompts that cost most", PROMPTS, PROMPT_COLUMNS, prompt_rows(findings)),
        ("What was found", "", ("found", "count", "meaning", "first"), counted),
        (f"What a knob changes under {findings.normalizer}", KNOBS, KNOB_COLUMNS, knob_rows(findings)),
        ("Who receives positive advantage", CLASSES, CLASS_COLUMNS, class_rows(findings)),
        ("What aggregation adds", LENGTHS, LENGTH_COLUMNS, length_rows(findings)),
        ("The same rollouts under every normalizer", UNDER, ENTRY_COLUMNS, entry_rows(findings)),
    )
    return render(
        "search_to_signal.audit",
        "audit.html",
        title=one_line(title),
        findings=advice(findings),
        trains=bool(findings.knobs),
        caution=caution(findings),
        curves=curves(findings),
        verdicts=[one_line(line) for line in conclusions(findings) if line != caution(findings)],
        assumptions=[one_line(line) for line in assumptions(findings)],
        tables=[(*about, [_cut(row) for row in rows]) for *about, rows in tables],
        files=(STEPS, ENTRIES, *((GROUPS,) if groups else ()), DOCUMENT),
        words=GLOSSARY,
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _cut(row: Cells) -> Cells:
    return tuple(one_line(cell, _WIDEST) for cell in row)


def _aligned(rows: Sequence[Cells]) -> str:
    rows = list(map(_cut, rows))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _csv(header: Cells, rows: Sequence[Cells]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue().encode("utf-8", "replace")
