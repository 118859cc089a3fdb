"""Every strategy of the specification, and small builders for groups written by hand."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from search_to_signal.records.groups import OUTCOMES, GroupBatch
from search_to_signal.records.schema import CALM_OPERATORS, ArchiveEvent, CompletionRecord, Outcome
from search_to_signal.search.hosts.calm.prompts import REPLACEMENT

Floats = NDArray[np.float64]
FAILURES = tuple(outcome for outcome in OUTCOMES if outcome is not Outcome.VALID)
LARGEST = float(np.finfo(np.float64).max)

# Offsets around a reference score: copies, near copies on both sides of 1e-7, and plain differences.
OFFSETS = (0.0, 3e-9, -3e-9, 5e-8, -5e-8, 9.9e-8, -9.9e-8, 1.1e-7, -1.1e-7, 1e-3, -1e-3, 0.5, -0.5, -3.0)
EXTREMES = (0.0, 1e-300, -1e-300, 5e-324, -5e-324, 1e300, -1e300, LARGEST, -LARGEST, 1e-7, -1e-8)

ordinary_scores = st.floats(-10.0, -1.0).map(lambda score: round(score, 6))
any_scores = st.one_of(
    ordinary_scores, st.sampled_from(EXTREMES), st.floats(allow_nan=False, allow_infinity=False)
)
sizes = st.integers(2, 16)
# Of a candidate, made once: Hypothesis checks every strategy that it meets for the first time.
any_kinds, valid_kinds = st.integers(0, 5), st.integers(0, 3)
sixteenths, texts = st.integers(0, 16), st.integers(0, 40)
failed, offsets = st.sampled_from(FAILURES), st.sampled_from(OFFSETS)


def group(
    scores: Sequence[float | Outcome],
    bases: Sequence[float] = (),
    frontier: float | None = None,
    gap: Sequence[float] | None = None,
    exposure: Sequence[float] | None = None,
    responses: Sequence[int] | None = None,
    copies: Sequence[bool] | None = None,
) -> GroupBatch:
    """One group, N = 1, by hand: a number is a valid candidate's score, an Outcome a typed failure.

    By default every score is new to the archive, every exposure 1/2, and every response different.
    """
    size = len(scores)
    failed = [isinstance(score, Outcome) for score in scores]
    codes = [OUTCOMES.index(s) if isinstance(s, Outcome) else OUTCOMES.index(Outcome.VALID) for s in scores]
    absent = np.where(failed, np.nan, 1.0)
    return GroupBatch(
        outcome=np.array([codes], dtype=np.int8),
        score=np.array([[np.nan if isinstance(s, Outcome) else s for s in scores]], dtype=np.float64),
        bases=np.array([bases], dtype=np.float64).reshape(1, len(bases)),
        frontier=np.array([np.nan if frontier is None else frontier]),
        archive_gap=np.array([gap if gap is not None else [1.0] * size]) * absent,
        exposure=np.array([exposure if exposure is not None else [0.5] * size]) * absent,
        response=np.array([responses if responses is not None else range(size)], dtype=np.int64),
        matches_base_code=np.array([copies if copies is not None else [False] * size], dtype=np.bool_),
    )


def permuted(groups: GroupBatch, order: Sequence[int]) -> GroupBatch:
    """The same groups with their completions in another order."""
    columns = np.asarray(order)
    arrays = {field.name: getattr(groups, field.name) for field in fields(groups)}
    width = {name: a[:, columns] for name, a in arrays.items() if name not in ("bases", "frontier")}
    return GroupBatch(**{**arrays, **width})


def stacked(first: GroupBatch, second: GroupBatch) -> GroupBatch:
    """The rows of both, of one size; bases are padded to the wider of the two."""
    width = max(first.bases.shape[1], second.bases.shape[1])
    arrays = {}
    for field in fields(first):
        parts = [getattr(first, field.name), getattr(second, field.name)]
        if field.name == "bases":
            parts = [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=np.nan) for p in parts]
        arrays[field.name] = np.concatenate(parts)
    return GroupBatch(**arrays)


@st.composite
def groups(
    draw: st.DrawFn,
    scores: st.SearchStrategy[float] = any_scores,
    size: st.SearchStrategy[int] = sizes,
    failures: bool = True,
    compared: bool | None = None,
    frontier: bool | None = None,
) -> GroupBatch:
    """One well-formed group: any mixture of outcomes, with an archive, bases taken from it, and exposures.

    ``scores`` draws the archive and the free candidates; others lie at a small offset from an archived
    score. ``compared`` and ``frontier`` force a comparator or an archive to exist (True) or not (False).
    """
    count = draw(size)
    least = 1 if frontier or compared else 0
    archive = [] if frontier is False else draw(st.lists(scores, min_size=least, max_size=4))
    wanted = 0 if compared is False or not archive else 1 if compared else draw(st.integers(0, 1))
    archived = st.sampled_from(archive) if archive else None
    bases = draw(st.lists(archived, min_size=1, max_size=2)) if wanted and archived is not None else []
    candidates = _candidates(scores, archived, any_kinds if failures else valid_kinds)
    rows = [draw(candidates) for _ in range(count)]
    values = [score for score, _, _ in rows]
    return group(
        values,
        bases,
        max(archive) if archive else None,
        gap=[_distance(score, archive) for score in values],
        exposure=[exposure for _, exposure, _ in rows],
        responses=[response % count for _, _, response in rows],
    )


@st.composite
def _candidates(
    draw: st.DrawFn,
    scores: st.SearchStrategy[float],
    archived: st.SearchStrategy[float] | None,
    kinds: st.SearchStrategy[int],
) -> tuple[float | Outcome, float, int]:
    kind, exposure, response = draw(kinds), draw(sixteenths) / 16.0, draw(texts)
    if kind > 3:
        return draw(failed), exposure, response
    if archived is not None and kind > 1:
        return min(max(draw(archived) + draw(offsets), -LARGEST), LARGEST), exposure, response
    return draw(scores), exposure, response


def _distance(score: float | Outcome, archive: Sequence[float]) -> float:
    if isinstance(score, Outcome) or not archive:
        return np.nan
    with np.errstate(over="ignore"):
        return min(float(min(np.abs(np.float64(score) - old) for old in archive)), LARGEST)


def ordinary_groups(**options: object) -> st.SearchStrategy[GroupBatch]:
    """Groups whose scores look like a problem's: between -10 and -1, six digits, near copies included."""
    return groups(scores=ordinary_scores, **options)  # type: ignore[arg-type]


def reward_rows(
    elements: st.SearchStrategy[float] | None = None, least: int = 2
) -> st.SearchStrategy[Floats]:
    """One group of rewards, (1, G) with G from ``least`` to 16."""
    values = elements if elements is not None else st.floats(-5.0, 5.0).map(lambda value: round(value, 4))
    return st.lists(values, min_size=least, max_size=16).map(lambda row: np.array([row], dtype=np.float64))


# Multiples of 2^-10: sums and shifts of these are exact in float64.
dyadics = st.integers(-4096, 4096).map(lambda number: number / 1024.0)


def record(**changes: object) -> CompletionRecord:
    """A valid completion record by hand, with some fields changed."""
    plain: dict[str, object] = {
        "step": 0,
        "index": 0,
        "problem": "tsp",
        "operator": REPLACEMENT,
        "prompt_sha256": "p",
        "parents": ("a",),
        "base_scores": (-7.0,),
        "frontier": -6.5,
        "archive_size": 1,
        "outcome": Outcome.VALID,
        "detail": "",
        "score": -6.0,
        "evaluation": "e",
        "response_sha256": "r",
        "program_sha256": None,
        "matches_base_code": False,
        "archive_gap": 0.5,
        "exposure": 0.5,
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "truncated": False,
        "archive_event": ArchiveEvent.DUPLICATE_SCORE,
        "components": None,
        "reward": None,
        "advantage": None,
    }
    return CompletionRecord(**{**plain, **changes})  # type: ignore[arg-type]


@st.composite
def completion_groups(draw: st.DrawFn, size: int | None = None) -> tuple[CompletionRecord, ...]:
    """The records of one group: one prompt, any mixture of outcomes, context present or absent."""
    count = size or draw(st.integers(1, 6))
    bases = tuple(draw(st.lists(ordinary_scores, max_size=2)))
    frontier = draw(st.none() | ordinary_scores)
    operator = draw(st.sampled_from(list(CALM_OPERATORS)))
    return tuple(
        draw(_completions(index, {"base_scores": bases, "frontier": frontier, "operator": operator}))
        for index in range(count)
    )


@st.composite
def _completions(draw: st.DrawFn, index: int, context: dict[str, object]) -> CompletionRecord:
    outcome = draw(st.sampled_from(OUTCOMES))
    valid = outcome is Outcome.VALID
    return record(
        **context,
        index=index,
        outcome=outcome,
        score=draw(st.floats(allow_nan=False, allow_infinity=False)) if valid else None,
        archive_gap=draw(st.floats(0.0, 10.0)) if valid else None,
        exposure=draw(st.floats(0.0, 1.0)) if valid else None,
        response_sha256=draw(st.sampled_from("abcd")),
        matches_base_code=draw(st.booleans()),
        detail=draw(st.text(max_size=5)),
    )
