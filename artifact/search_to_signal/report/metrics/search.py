"""Proposal-stream and search metrics (paper, Controlled Evaluation, Metrics). Scores: higher is better.

And positive credit by candidate class, relative to its base rate (paper, eq. positive-credit-mass).

A ratio is None where its denominator is zero: absent is not zero.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.numerics import Bools, Floats, Sums
from search_to_signal.credit.base import EQUAL_SCORES
from search_to_signal.records.groups import GroupBatch, batch_of
from search_to_signal.records.schema import GIVEN, ArchiveEvent, CompletionRecord, HeuristicRecord
from search_to_signal.sandbox.programs import differ_in_numbers, without_numbers

Groups = Sequence[Sequence[CompletionRecord]]
"""The groups of a run, or some of them, in order."""


def ratio(part: float, whole: float) -> float | None:
    return None if whole == 0 else part / whole


def improves(groups: GroupBatch) -> Bools:
    """(N, G): eligible and strictly better than the best prompt base (D05)."""
    better: Bools = groups.score > groups.best_base[:, None]
    return better


def beats_frontier(groups: GroupBatch) -> Bools:
    """(N, G): valid and strictly better than the pre-generation frontier (D22); never without a frontier."""
    better: Bools = groups.score > groups.frontier[:, None]
    return better


def valid_rate(groups: GroupBatch) -> float | None:
    """|V| / N over completions: the share with a finite score."""
    return ratio(int(groups.valid.sum()), groups.valid.size)


def valid_only_performance(groups: GroupBatch) -> float | None:
    """Mean score over valid completions."""
    return ratio(float(groups.score[groups.valid].sum()), int(groups.valid.sum()))


def improve_yield(groups: GroupBatch) -> float | None:
    """Eligible completions that beat their best base, per completion (not per eligible one)."""
    return ratio(int(improves(groups).sum()), groups.valid.size)


def strict_frontier_yield(groups: GroupBatch) -> float | None:
    """Completions that beat the pre-generation frontier, per completion."""
    return ratio(int(beats_frontier(groups).sum()), groups.valid.size)


def best_so_far(frontier: Floats, admitted: Floats) -> Floats:
    """B_t after each of T groups (D19): (T,) frontiers before, (T,) best admitted scores or NaN -> (T,)."""
    best: Floats = np.fmax.accumulate(np.fmax(frontier, admitted))
    return best


def group_trajectory(groups: Groups) -> Floats:
    """(T,) best-so-far after each group of a run, in order, the seed heuristic included (D19)."""
    before = np.array([np.nan if group[0].frontier is None else group[0].frontier for group in groups])
    admitted = [[r.score for r in group if _is_admitted(r) and r.score is not None] for group in groups]
    return best_so_far(before, np.array([max(scores, default=np.nan) for scores in admitted]))


def final_best(best: Floats) -> float | None:
    """B_T, or None without a group or without any score."""
    return float(best[-1]) if len(best) and not np.isnan(best[-1]) else None


def trajectory_auc(best: Floats) -> float | None:
    """Plain mean of B_t over groups (D19); None where some B_t does not exist."""
    return float(best.mean()) if len(best) and not np.isnan(best).any() else None


def uniqueness(keys: Sequence[Hashable]) -> float | None:
    """Distinct keys per key: exact recurrence, not semantic diversity."""
    return ratio(len(set(keys)), len(keys))


def program_uniqueness(groups: Groups) -> float | None:
    """Distinct canonical programs per valid completion."""
    valid = _valid(groups)
    return uniqueness([record.program_sha256 for record in valid])


def parent_copies(groups: Groups) -> float | None:
    """Valid completions whose canonical program is a base heuristic of their prompt, per valid completion."""
    valid = _valid(groups)
    return ratio(sum(record.matches_base_code for record in valid), len(valid))


def valid_rate_without_copies(groups: Groups) -> float | None:
    """Valid completions whose canonical program is no base heuristic of their prompt, per completion."""
    new = sum(not record.matches_base_code for record in _valid(groups))
    return ratio(new, sum(map(len, groups)))


def usable_rate(groups: Groups) -> float | None:
    """Completions with rationale, code and the asked function (D04), per completion."""
    return ratio(_count_usable(groups), sum(map(len, groups)))


def valid_of_usable(groups: Groups) -> float | None:
    """Valid completions per usable one; ``usable_rate`` times this is the valid rate."""
    return ratio(len(_valid(groups)), _count_usable(groups))


def median_performance(groups: Groups) -> float | None:
    """Median score of valid completions, which a few very bad programs do not move."""
    scores = [record.score for record in _valid(groups) if record.score is not None]
    return median(scores) if scores else None


def copied_scores(groups: Groups) -> float | None:
    """Valid completions that score as a base of their prompt does, by other code, per valid completion."""
    valid = _valid(groups)
    equal = (_holds(sorted(record.base_scores), record.score) for record in valid)
    return ratio(
        sum(same and not record.matches_base_code for same, record in zip(equal, valid, strict=True)),
        len(valid),
    )


def new_forms(groups: Groups, heuristics: Iterable[HeuristicRecord]) -> int | None:
    """Admitted heuristics whose form and whose score are new to the run; the first archive is known.

    A form is a program without its numbers; it is new where no heuristic of the run had it before, a score
    where no valid completion had it. None where an admitted heuristic is not recorded.
    """
    known = {heuristic.id: heuristic for heuristic in heuristics}
    first = [one for one in known.values() if one.operator is None or one.step == GIVEN]
    forms, scores = {without_numbers(one.code) for one in first}, sorted(one.score for one in first)
    count = 0
    for record in _valid(groups):
        new_score = not _holds(scores, record.score)
        insort(scores, record.score or 0.0)
        if not _is_admitted(record):
            continue
        if record.program_sha256 not in known:
            return None
        form = without_numbers(known[record.program_sha256].code)
        count += new_score and form not in forms
        forms.add(form)
    return count


def _holds(ranked: Sequence[float], score: float | None) -> bool:
    """Whether ascending scores hold one that is equal to this one, as the search has it."""
    if score is None:
        return False
    at = bisect_left(ranked, score)
    return any(abs(near - score) < EQUAL_SCORES for near in ranked[max(at - 1, 0) : at + 1])


def retuned_admissions(groups: Groups, codes: Mapping[str, str]) -> float | None:
    """Admitted heuristics that are a base heuristic of their prompt with other numbers, per admitted one.

    ``codes`` are the programs of the run's heuristics by id; None where one of them is not recorded.
    """
    admitted = [record for group in groups for record in group if _is_admitted(record)]
    pairs = [(record.program_sha256 or "", record.parents) for record in admitted]
    if not {name for program, parents in pairs for name in (program, *parents)} <= codes.keys():
        return None
    retuned = sum(
        any(differ_in_numbers(codes[program], codes[parent]) for parent in parents)
        for program, parents in pairs
    )
    return ratio(retuned, len(admitted))


def new_programs(proposed: Iterable[tuple[int, str | None]], groups: int) -> list[int]:
    """Valid canonical programs of each of so many groups that no earlier one of the run proposed.

    ``proposed`` are group and program of the valid completions.
    """
    first: dict[str | None, int] = {}
    for group, program in proposed:
        first.setdefault(program, group)
    found = Counter(first.values())
    return [found[group] for group in range(groups)]


def distinct_performance(groups: Groups) -> float | None:
    """Mean score of valid programs, each canonical program once."""
    scores = {record.program_sha256: record.score for record in reversed(_valid(groups))}
    return ratio(sum(score for score in scores.values() if score is not None), len(scores))


def barren_start(groups: Groups) -> float | None:
    """Return the share of a run's groups before its first valid completion; 1 where there is none."""
    valid = [any(record.score is not None for record in group) for group in groups]
    return ratio(valid.index(True) if any(valid) else len(valid), len(valid))


def admission_precision(records: Iterable[CompletionRecord]) -> float | None:
    """Among archive admissions, the share that beats the pre-generation frontier."""
    admitted = [r for r in records if _is_admitted(r)]
    beat = (r.score is not None and r.frontier is not None and r.score > r.frontier for r in admitted)
    return ratio(sum(beat), len(admitted))


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of one run. Rates are fractions of 1; scores are in the problem's unit."""

    groups: int
    completions: int
    valid_rate: float | None
    valid_only_performance: float | None
    improve_yield: float | None
    strict_frontier_yield: float | None
    final_best: float | None
    trajectory_auc: float | None
    admissions: int
    admission_precision: float | None
    response_uniqueness: float | None
    prompt_uniqueness: float | None
    parent_uniqueness: float | None


def run_metrics(groups: Groups) -> RunMetrics:
    """Compute every metric of a run from its groups, in order and of one size.

    Prompts and parent contexts are counted once per group, responses once per completion.
    Raises IllFormedGroupError for an empty run or groups of several sizes.
    """
    batch, records = batch_of(groups), [record for group in groups for record in group]
    best = group_trajectory(groups)
    return RunMetrics(
        groups=len(groups),
        completions=len(records),
        valid_rate=valid_rate(batch),
        valid_only_performance=valid_only_performance(batch),
        improve_yield=improve_yield(batch),
        strict_frontier_yield=strict_frontier_yield(batch),
        final_best=final_best(best),
        trajectory_auc=trajectory_auc(best),
        admissions=sum(map(_is_admitted, records)),
        admission_precision=admission_precision(records),
        response_uniqueness=uniqueness([r.response_sha256 for r in records]),
        prompt_uniqueness=uniqueness([group[0].prompt_sha256 for group in groups]),
        parent_uniqueness=uniqueness([tuple(sorted(group[0].parents)) for group in groups]),
    )


def _is_admitted(record: CompletionRecord) -> bool:
    return record.archive_event is ArchiveEvent.ADMITTED


def _count_usable(groups: Iterable[Iterable[CompletionRecord]]) -> int:
    return sum(record.outcome.evaluated for group in groups for record in group)


def _valid(groups: Iterable[Iterable[CompletionRecord]]) -> list[CompletionRecord]:
    return [record for group in groups for record in group if record.score is not None]


class CandidateClass(str, Enum):
    """The candidate classes z of the paper, exclusive by default (D18)."""

    INVALID = "invalid"
    NON_IMPROVING = "valid_non_improving"
    PARENT_IMPROVING = "parent_improving"
    STRICT_FRONTIER = "strict_frontier_improving"


CLASSES: tuple[CandidateClass, ...] = tuple(CandidateClass)
_NON_IMPROVING = CLASSES.index(CandidateClass.NON_IMPROVING)


def class_membership(groups: GroupBatch, nested: bool = False) -> Bools:
    """(4, N, G) in the order of CLASSES; each candidate is in exactly one class.

    With ``nested`` (the D18 alternative) a strict-frontier improver that beats its best base is also
    parent-improving.
    """
    frontier, parent = beats_frontier(groups), improves(groups)
    return np.stack(
        [
            ~groups.valid,
            groups.valid & ~parent & ~frontier,
            parent if nested else parent & ~frontier,
            frontier,
        ]
    )


@dataclass(frozen=True)
class CreditCounts(Sums):
    """Sums over groups, from which the credit table follows.

    Arrays are (4,) in the order of CLASSES. ``mass`` sums [A]_+. ``no_peer_groups`` have G = 1, and
    are among the ``zero_groups`` (D16).
    """

    candidates: NDArray[np.int64]
    positive: NDArray[np.int64]
    mass: Floats
    completions: int
    total_mass: float
    groups: int
    zero_groups: int
    no_peer_groups: int
    non_improving_groups: int
    credited_groups: int
    credited_valid_groups: int


def count_credit(groups: GroupBatch, advantages: Floats, nested: bool = False) -> CreditCounts:
    """Count candidates, positive advantages and their mass by class; advantages: (N, G)."""
    member, mass = class_membership(groups, nested), np.maximum(advantages, 0.0)
    positive = advantages > 0.0
    idle = ~(member[2] | member[3]).any(axis=1)
    return CreditCounts(
        candidates=member.sum(axis=(1, 2)),
        positive=(member & positive).sum(axis=(1, 2)),
        mass=np.where(member, mass, 0.0).sum(axis=(1, 2)),
        completions=positive.size,
        total_mass=float(mass.sum()),
        groups=len(positive),
        zero_groups=int((advantages == 0.0).all(axis=1).sum()),
        no_peer_groups=len(positive) if positive.shape[1] == 1 else 0,
        non_improving_groups=int(idle.sum()),
        credited_groups=int((idle & positive.any(axis=1)).sum()),
        credited_valid_groups=int((idle & (positive & member[_NON_IMPROVING]).any(axis=1)).sum()),
    )


@dataclass(frozen=True)
class ClassCredit:
    """One row of the credit table; a ratio is None where its denominator is zero."""

    candidate_class: CandidateClass
    candidates: int
    prevalence: float | None
    mass_share: float | None
    enrichment: float | None
    positive_rate: float | None


def credit_table(counts: CreditCounts) -> tuple[ClassCredit, ...]:
    """P_D, P_A, E_A = P_A / P_D and the within-class share of positive advantage, per class."""
    entries = []
    for name, number, positive, mass in zip(
        CLASSES, map(int, counts.candidates), map(int, counts.positive), map(float, counts.mass), strict=True
    ):
        prevalence, share = ratio(number, counts.completions), ratio(mass, counts.total_mass)
        enrichment = None if share is None or not prevalence else share / prevalence
        entries.append(ClassCredit(name, number, prevalence, share, enrichment, ratio(positive, number)))
    return tuple(entries)


def zero_advantage_share(counts: CreditCounts) -> float | None:
    """Return the share of groups with only zero advantages, whose step has no learning signal."""
    return ratio(counts.zero_groups, counts.groups)


def positive_non_improver_share(counts: CreditCounts) -> float | None:
    """Of the valid completions that improve nothing, the share with a positive advantage.

    The paper's "Within the non-improver class, x % receive positive advantage".
    """
    return ratio(int(counts.positive[_NON_IMPROVING]), int(counts.candidates[_NON_IMPROVING]))


def idle_credit_share(counts: CreditCounts) -> float | None:
    """Return, among groups without an improver, the share that still gives positive credit."""
    return ratio(counts.credited_groups, counts.non_improving_groups)


def idle_credit_rounds(counts: CreditCounts) -> float | None:
    """Share of all groups that have no improver and give a valid non-improver positive credit.

    The paper's "in x % of rounds". Not of the non-improving groups alone: of those, at least 81.5 % of all
    groups at an improve yield of 4.63 %, the 7.00 % without any advantage leave over 91 %, not 78.07 %.
    """
    return ratio(counts.credited_valid_groups, counts.groups)
