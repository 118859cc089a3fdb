"""An audit as plain text, JSON, CSV and one HTML page."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from search_to_signal.audit.advice import Advice, advice
from search_to_signal.audit.agreement import COMPONENT
from search_to_signal.audit.conclusions import at, caution, conclusions
from search_to_signal.audit.findings import STEP_FLAGS, Findings, StepCounts
from search_to_signal.audit.flags import COPIED, OF_COMPLETIONS, OF_GROUPS
from search_to_signal.audit.frameworks import options_of
from search_to_signal.audit.group_files import as_cell
from search_to_signal.audit.importers.scalar_files import some
from search_to_signal.audit.loss import Beside, loss_advice
from search_to_signal.audit.scalars import Scalars
from search_to_signal.base.package_data import render
from search_to_signal.base.progress import aligned, one_line
from search_to_signal.records.files import write_atomically

# Figures over steps as SVG that scales with the page; labels and numbers are HTML.

# Points of a curve: more steps than that are drawn together.
_POINTS = 160
_SCALAR_POINTS = 400
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


CURVE_COLUMNS = ("quantity", "name", "steps", "first", "median", "last", "least", "most", "not finite")
NOTHING_FOUND = "Nothing was found in the course of the numbers."


def curve_rows(found: Scalars) -> list[tuple[str, ...]]:
    """A row for each quantity: where it began and ended (medians of a tenth), and its range."""
    rows = []
    for curve in found.curves.values():
        known = curve.finite.value
        broken = len(curve.value) - len(known)
        value = known if len(known) else np.array([math.nan])
        first, last = (replace(curve, value=one).start for one in (value, value[::-1]))
        numbers = map(_cell, map(float, (first, np.median(value), last, value.min(), value.max())))
        rows.append((curve.title, curve.name, str(len(curve.value)), *numbers, str(broken)))
    return rows


def scalar_curves(found: Scalars) -> tuple[Curve, ...]:
    """One figure for each quantity of two and more steps; of many steps every so many-th is drawn."""
    drawn = []
    for curve in found.curves.values():
        every = math.ceil(len(curve.value) / _SCALAR_POINTS)
        if len(curve.value) > 1:
            ends = (f"step {curve.step[0]}", f"step {curve.step[-1]}")
            drawn.append(_line(curve.title, curve.value[::every].tolist(), ends))
    return tuple(drawn)


MEANING = {**OF_GROUPS, **COPIED, **OF_COMPLETIONS}
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


_WEIGHTS = ("longest_weight", "shortest_weight", "raised_weight", "cut_weight", "clipped_weight")


def _share(part: float | None) -> str | None:
    return None if part is None else f"{100 * part:.1f} %"


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
WEIGHTS = Table(
    "What of the advantage reaches the tokens",
    "Shares of advantage times weight under each rule that averages a loss over tokens: of the quarter of "
    "the completions with most and with fewest tokens, of completions with an advantage above 0, of those "
    "that were cut off, and of tokens that the trainer masked by their importance ratio.",
    ("rule", "longest", "shortest", "raised", "cut off", "masked"),
    lambda found: (
        (rule, *(_share(sums.part(getattr(sums, name))) for name in _WEIGHTS))
        for rule, sums in found.lengths.items()
        if sums.weight
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


def text(findings: Findings, also: Beside | None = None) -> str:
    """What to change, the conclusions, what was assumed, and compact tables; ``also`` is a section each."""
    advised = _advised(advice(findings))
    advised += [""] if advised else []
    parts = [one_line(line, _WIDEST) for line in (*advised, *conclusions(findings))]
    parts += _beside(also, findings) if also else []
    for section in also.sections.values() if also else ():
        parts += ["", f"{section.heading}:", *(one_line(line, _WIDEST) for line in section.lines)]
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


def _advised(given: Iterable[Advice]) -> list[str]:
    lines = []
    for number, one in enumerate(given, 1):
        lines += [f"{number}. [{one.severity}] {one.says}", f"Change: {one.change}"]
        lines += [f"By this log: {one.instead}"] if one.instead else []
    return lines


def _beside(also: Beside, findings: Findings | None) -> list[str]:
    """The sections on numbers per step and on the loss, in lines."""
    parts = list[str]()
    if also.scalars is not None:
        parts += ["", f"Numbers per step ({scalars_source(also.scalars)}):"]
        parts += _advised(also.scalars.findings) or [NOTHING_FOUND]
        parts += [f"Note: {note}." for note in also.scalars.notes]
    advised = loss_advice(also.loss, findings) if findings else ()
    if also.lines() or advised:
        parts += ["", "The loss:", *also.lines(), *_advised(advised)]
    parts = [one_line(line, _WIDEST) for line in parts]
    if also.scalars is not None and (rows := curve_rows(also.scalars)):
        parts += ["", _aligned([CURVE_COLUMNS, *rows])]
    return parts


def scalars_source(found: Scalars) -> str:
    """The files that numbers were read from, and their trainer as their names show it."""
    trainer = f"; the trainer is {found.framework} by its names" if found.framework else ""
    return f"{some(Path(source).name for source in found.sources)}{trainer}"


def scalars_text(also: Beside) -> str:
    """The report where there are numbers per step and no rollouts: it says what writes rollouts."""
    return "\n".join([*_beside(also, None)[1:], "", more_to_see(also)])


def more_to_see(also: Beside) -> str:
    """What to switch on to have more audited than numbers per step."""
    framework = also.scalars.framework if also.scalars else ""
    return (
        "There are no rollouts here, so groups, rewards of each completion and advantages are not audited. "
        f"To have them written{f' by {framework}' if framework else ''}: {options_of(framework).rollouts}."
    )


def assumptions(findings: Findings) -> tuple[str, ...]:
    """What the reader of the log took for granted, each with the counts that speak for it."""
    return tuple(
        f"{assumption.says} ({', '.join(_counted(count, name) for name, count in assumption.counts.items())})"
        for assumption in findings.assumptions
    )


def _counted(count: int, name: str) -> str:
    things, *more = name.split(" ", 1)
    return " ".join([str(count), things.removesuffix("s") if count == 1 else things, *more])


def as_json(findings: Findings | None, also: Beside | None = None) -> str:
    """Everything that was found as strict JSON in ASCII, so that a name that is no Unicode text is kept.

    ``scalars`` and ``loss`` are there where something of them is known; without findings nothing else is.
    """
    whole = _strict(
        (_document(findings) if findings else {}) | (_beside_document(also, findings) if also else {})
    )
    try:
        # Indents several times as fast as json does, and refuses half of a surrogate pair.
        return msgspec.json.format(json.dumps(whole), indent=2)
    except msgspec.DecodeError:
        return json.dumps(whole, indent=2)


def _beside_document(also: Beside, findings: Findings | None) -> dict[str, Any]:
    advised = loss_advice(also.loss, findings) if findings else ()
    document: dict[str, Any] = {key: section.document for key, section in also.sections.items()}
    if also.scalars is not None:
        fields: dict[str, Any] = msgspec.to_builtins(replace(also.scalars, curves={}))
        curves = {
            quantity: {**vars(curve), "step": curve.step.tolist(), "value": curve.value.tolist()}
            for quantity, curve in also.scalars.curves.items()
        }
        document["scalars"] = fields | {"curves": curves}
    if also.lines() or advised:
        document["loss"] = {
            **msgspec.to_builtins(also.loss),
            "says": also.lines(),
            "findings": [msgspec.to_builtins(one) for one in advised],
        }
    return document


def _document(findings: Findings) -> dict[str, Any]:
    return {
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
            rule: _with(sums, "share", "per_sequence", "per_token") for rule, sums in findings.lengths.items()
        },
    }


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


def write(
    findings: Findings | None,
    directory: Path,
    title: str,
    groups: bytes | None = None,
    also: Beside | None = None,
) -> None:
    """Write the page, the document and the tables, each whole or not at all; ``groups`` is one of them."""
    files = {"audit.json": as_json(findings, also).encode() + b"\n"}
    if findings is not None:
        files |= {"steps.csv": _csv(STEPS, findings), "normalizers.csv": _csv(NORMALIZERS, findings)}
    files |= {} if groups is None else {"groups.csv": groups}
    files["audit.html"] = page(findings, title, groups is not None, also).encode("utf-8", "replace")
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(directory / name, data)


def page(findings: Findings | None, title: str, groups: bool = False, also: Beside | None = None) -> str:
    """One HTML page that needs no other file, but to open a group.

    ``groups``: their table and their files (``group_files``) are written to the same directory.
    """
    tables_of_all = ("steps.csv", "normalizers.csv") if findings else ()
    doubtful = caution(findings) if findings else ""
    tables = [
        (
            table.heading.format(normalizer=findings.normalizer),
            *(table.note, table.columns, list(map(_cut, table.rows(findings)))),
        )
        for table in (REWARDS, PROMPTS, COUNTS, KNOBS, CLASSES, LENGTHS, WEIGHTS, NORMALIZERS)
        if findings
    ]
    found = also.scalars if also else None
    return render(
        "search_to_signal.audit",
        "audit.html",
        title=one_line(title),
        findings=advice(findings) if findings else (),
        trains=bool(findings and findings.knobs),
        caution=doubtful,
        curves=curves(findings) if findings else (),
        verdicts=[one_line(line) for line in conclusions(findings) if line != doubtful] if findings else [],
        assumptions=[one_line(line) for line in assumptions(findings)] if findings else [],
        scalars=found,
        scalars_source=scalars_source(found) if found else "",
        nothing_found=NOTHING_FOUND,
        scalar_curves=scalar_curves(found) if found else (),
        curve_columns=CURVE_COLUMNS,
        curve_rows=[_cut(row) for row in curve_rows(found)] if found else [],
        loss_lines=[one_line(line) for line in also.lines()] if also else [],
        loss=loss_advice(also.loss, findings) if also and findings else (),
        sections=also.sections.values() if also else (),
        more=more_to_see(also) if also and not findings else "",
        tables=tables,
        groups=groups,
        files=(*tables_of_all, *(("groups.csv",) if groups else ()), "audit.json"),
    )


def _cut(row: Cells) -> Cells:
    return tuple(one_line(cell, _WIDEST) for cell in row)


def _aligned(rows: Sequence[Cells]) -> str:
    return "\n".join(aligned(list(map(_cut, rows))))


def _csv(table: Table, findings: Findings) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([table.columns, *table.rows(findings)])
    return out.getvalue().encode("utf-8", "replace")
