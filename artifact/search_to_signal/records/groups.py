"""Groups as arrays: the form in which reward mappings and normalizers read records.

N groups of equal size G. Mappings see this and nothing else, so that a live run, a replay and a
stranger's file are one and the same to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from search_to_signal.errors import IllFormedGroupError
from search_to_signal.numerics import Bools, Floats
from search_to_signal.records.schema import CREATION, CompletionRecord, Outcome

OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)
VALID_CODE = OUTCOMES.index(Outcome.VALID)
_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES)}


@dataclass(frozen=True)
class GroupBatch:
    """N well-formed groups of G completions, with their pre-generation context (D22).

    outcome          (N, G) int8     index into OUTCOMES
    score            (N, G) float64  higher is better; NaN where the completion is not valid
    bases            (N, B) float64  scores of the prompt's base heuristics, padded with NaN
    frontier         (N,)   float64  best score before the group; NaN for an empty archive
    archive_gap      (N, G) float64  distance to the nearest archived score; NaN where absent
    exposure         (N, G) float64  one-step parent exposure in [0, 1]; NaN where absent
    response         (N, G) int64    equal numbers within a row mean identical response texts
    matches_base_code (N, G) bool    canonical code equals that of a prompt base (D02 alternative)

    The arrays are read-only views of those given.
    """

    outcome: NDArray[np.int8]
    score: Floats
    bases: Floats
    frontier: Floats
    archive_gap: Floats
    exposure: Floats
    response: NDArray[np.int64]
    matches_base_code: Bools

    def __post_init__(self) -> None:
        for field in fields(self):
            # Every mapping is given the same arrays: what one writes the next would read.
            array = getattr(self, field.name).view()
            array.flags.writeable = False
            object.__setattr__(self, field.name, array)
        _check(self)

    @property
    def valid(self) -> Bools:
        """(N, G): the completion ran and has a finite score."""
        valid: Bools = self.outcome == VALID_CODE
        return valid

    @property
    def evaluated(self) -> Bools:
        """(N, G): the completion reached the evaluator, whatever came of it there."""
        return np.array([outcome.evaluated for outcome in OUTCOMES])[self.outcome]

    @property
    def best_base(self) -> Floats:
        """(N,): b_t, the best score among the prompt's bases; NaN without a comparator (D05)."""
        best = np.fmax.reduce(self.bases, axis=1, initial=-np.inf)
        return np.where(np.isneginf(best), np.nan, best)

    @property
    def eligible(self) -> Bools:
        """(N, G): valid, in a group whose prompt gives a comparator (D05)."""
        compared: Bools = ~np.isnan(self.best_base)
        return self.valid & compared[:, None]

    def at(self, groups: Bools | NDArray[np.int64] | slice) -> "GroupBatch":
        """Some of the groups: a mask (N,), positions, or a slice."""
        return GroupBatch(**{field.name: getattr(self, field.name)[groups] for field in fields(self)})


def _check(groups: GroupBatch) -> None:
    """Raise IllFormedGroupError unless shapes agree and every value is in its documented range."""
    shape = groups.outcome.shape
    rows = (groups.score, groups.archive_gap, groups.exposure, groups.response, groups.matches_base_code)
    gap, exposure, context = groups.archive_gap, groups.exposure, (groups.bases, groups.frontier)
    known = (groups.outcome >= 0) & (groups.outcome < len(OUTCOMES))
    faults = {
        "groups are not (N, G) arrays with G >= 1": len(shape) != 2 or shape[1] < 1,
        "arrays disagree in shape": any(row.shape != shape for row in rows)
        or groups.bases.shape[:1] != shape[:1]
        or groups.frontier.shape != shape[:1],
        "an outcome code is unknown": not known.all(),
        "a valid completion lacks a finite score (a non-finite score is a runtime failure, D17), "
        "or a failed one has a score": not np.array_equal(groups.valid, np.isfinite(groups.score)),
        "a base score or frontier is infinite": any(np.isinf(values).any() for values in context),
        "an archive gap is negative": bool((gap < 0.0).any()),
        "an exposure is outside [0, 1]": bool(((exposure < 0.0) | (exposure > 1.0)).any()),
    }
    for fault, present in faults.items():
        if present:
            raise IllFormedGroupError(f"{fault}: repair the record or the code that made this group")


def floats(values: Sequence[object]) -> Floats:
    """An array of rows of numbers, NaN for None."""
    return np.array(values, dtype=np.float64)


def _scores(group: Sequence[CompletionRecord]) -> list[float | None]:
    """Of the valid; a typed failure has none, even where its evaluation returned one."""
    return [r.score if r.outcome is Outcome.VALID else None for r in group]


def padded(rows: Sequence[Sequence[float]]) -> Floats:
    """Rows of several lengths as one array, filled with NaN."""
    width = max((len(row) for row in rows), default=0)
    out = np.full((len(rows), width), np.nan)
    for target, row in zip(out, rows, strict=True):
        target[: len(row)] = row
    return out


def _context(r: CompletionRecord) -> tuple[object, ...]:
    return r.step, r.prompt_sha256, r.operator, r.base_scores, r.frontier


def _response_codes(group: Sequence[CompletionRecord]) -> list[int]:
    first: dict[str, int] = {}
    return [first.setdefault(record.response_sha256, len(first)) for record in group]


def batch_of(groups: Sequence[Sequence[CompletionRecord]]) -> GroupBatch:
    """Stack groups of one size into arrays.

    Raises IllFormedGroupError when there is no group, sizes differ, or a group mixes contexts.
    """
    if len({len(group) for group in groups}) != 1 or not groups[0]:
        raise IllFormedGroupError(
            f"cannot stack groups of sizes {sorted({len(g) for g in groups})}: "
            "pass at least one group, all of the same size G >= 1"
        )
    for group in groups:
        context = _context(group[0])
        if any(_context(record) != context for record in group[1:]):
            raise IllFormedGroupError(
                f"step {group[0].step} mixes completions of several prompts or search states: "
                "a group is the set of completions of one prompt; group the records by step first"
            )
    heads = [group[0] for group in groups]
    bases = [() if h.operator == CREATION else h.base_scores for h in heads]
    return GroupBatch(
        outcome=np.array([[_CODE[r.outcome] for r in g] for g in groups], dtype=np.int8),
        score=floats([_scores(g) for g in groups]),
        bases=padded(bases),
        frontier=floats([h.frontier for h in heads]),
        archive_gap=floats([[r.archive_gap for r in g] for g in groups]),
        exposure=floats([[r.exposure for r in g] for g in groups]),
        response=np.array([_response_codes(g) for g in groups], dtype=np.int64),
        matches_base_code=np.array([[r.matches_base_code for r in g] for g in groups], dtype=np.bool_),
    )
