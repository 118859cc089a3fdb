"""An audit as plain text, JSON, CSV and one HTML page."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.audit import candidate_flags, group_flags
from search_to_signal.audit.advice import advice
from search_to_signal.audit.conclusions import at, caution, conclusions
from search_to_signal.audit.curves import curves
from search_to_signal.audit.findings import STEP_FLAGS, Findings
from search_to_signal.audit.glossary import GLOSSARY
from search_to_signal.audit.group_table import as_cell
from search_to_signal.audit.knobs import COMPONENT
from search_to_signal.package_data import render
from search_to_signal.progress import one_line
from search_to_signal.records.files import write_atomically

PAGE, DOCUMENT = "audit.html", "audit.json"
STEPS, ENTRIES, GROUPS = "steps.csv", "normalizers.csv", "groups.csv"
MEANING = {**group_flags.MEANING, **candidate_flags.MEANING}
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
