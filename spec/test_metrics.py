"""Proposal, search and credit metrics (paper, Controlled Evaluation, Metrics; D18, D19)."""

from collections.abc import Callable
from dataclasses import fields
from functools import reduce

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search_to_signal.base.numerics import Floats
from search_to_signal.credit import MAPPINGS, PUBLISHED
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import ArchiveEvent, Outcome
from search_to_signal.report.metrics import search as credit
from search_to_signal.report.metrics import search as metrics
from search_to_signal.report.metrics.replay import (
    context_tallies,
    differing_groups,
    equal_share,
    flat_share,
    tally,
)
from search_to_signal.report.metrics.search import CandidateClass
from search_to_signal.report.results import Origin
from search_to_signal.report.tables.cells import over_seeds
from search_to_signal.report.tables.credit import class_cells
from spec.strategies import group, groups, ordinary_groups, permuted, record, stacked

FAILED = Outcome.RUNTIME_FAILURE

# Bases -7 and -6.5, frontier -6: invalid, non-improving (a tie), parent-improving, strict-frontier.
FOUR = group([FAILED, -6.5, -6.2, -5.0], bases=[-7.0, -6.5], frontier=-6.0)


def test_proposal_metrics() -> None:
    """R-MET-01: Valid rate 3/4, valid-only mean -5.9, two improvers and one strict frontier in four."""
    assert metrics.valid_rate(FOUR) == 0.75
    assert metrics.valid_only_performance(FOUR) == pytest.approx(-5.9)
    assert metrics.improve_yield(FOUR) == 0.5
    assert metrics.strict_frontier_yield(FOUR) == 0.25


def test_absent_ratios() -> None:
    """R-MET-02: A ratio without denominator is absent, not zero."""
    failed = group([FAILED, FAILED])
    assert metrics.valid_only_performance(failed) is None
    assert metrics.valid_rate(failed) == 0.0
    assert metrics.admission_precision([]) is None
    assert metrics.uniqueness([]) is None
    assert metrics.trajectory_auc(np.array([])) is None
    assert metrics.final_best(np.array([np.nan])) is None
    assert metrics.final_best(np.array([])) is None


@given(batch=groups(compared=False))
def test_initialization_never_improves(batch: GroupBatch) -> None:
    """R-MET-03: Without a comparator nothing counts as an improvement (D05)."""
    assert metrics.improve_yield(batch) == 0.0


def test_best_so_far() -> None:
    """R-MET-04: B_t is the running best of frontier and admissions, seed included; AUC its mean (D19)."""
    best = metrics.best_so_far(np.array([-7.0, -7.0, -6.0]), np.array([np.nan, -6.0, -6.5]))
    assert best.tolist() == [-7.0, -6.0, -6.0]
    assert metrics.final_best(best) == -6.0
    assert metrics.trajectory_auc(best) == pytest.approx(-19.0 / 3.0)


def test_auc_needs_every_group() -> None:
    """R-MET-05: A trajectory that starts without any score has no AUC (D19)."""
    best = metrics.best_so_far(np.array([np.nan, -7.0]), np.array([np.nan, np.nan]))
    assert metrics.trajectory_auc(best) is None
    assert metrics.final_best(best) == -7.0


def test_best_so_far_is_of_the_archive() -> None:
    """R-MET-11: A valid completion that the archive did not admit raises no B_t, however near (D19)."""
    kept, near = ArchiveEvent.ADMITTED, ArchiveEvent.DUPLICATE_SCORE
    group = (
        record(index=0, score=-6.0 + 9e-8, frontier=-6.0, archive_event=near),
        record(index=1, score=-7.0, frontier=-6.0, archive_event=kept),
    )
    assert metrics.group_trajectory([group]).tolist() == [-6.0]
    several = tuple(record(index=n, score=-5.0 - n, frontier=-9.0, archive_event=kept) for n in (1, 0, 2))
    assert metrics.group_trajectory([several]).tolist() == [-5.0]


def test_groups_of_one() -> None:
    """R-MET-12: A run of single completions has metrics; its first one, without an archive, beats nothing."""
    kept = ArchiveEvent.ADMITTED
    first = record(step=0, index=0, score=-6.0, frontier=None, base_scores=(), archive_event=kept)
    second = record(step=1, index=0, score=-5.0, frontier=-6.0, base_scores=(-6.0,), archive_event=kept)
    result = metrics.run_metrics([(first,), (second,)])
    assert (result.final_best, result.trajectory_auc) == (-5.0, -5.5)
    assert (result.admissions, result.admission_precision, result.strict_frontier_yield) == (2, 0.5, 0.5)
    assert result.prompt_uniqueness == result.parent_uniqueness == 0.5


def test_barren_start() -> None:
    """R-MET-13: The first valid completion ends the barren start, whatever else its group holds."""
    failed, valid = record(score=None, outcome=FAILED), record(score=-6.0)
    assert metrics.barren_start([(failed, failed), (failed, valid), (valid, valid), (failed, failed)]) == 0.25
    assert metrics.barren_start([(failed, failed), (failed, failed)]) == 1.0


def test_admission_precision() -> None:
    """R-MET-06: Of three admissions one beats the frontier before the group; a mere duplicate is none."""
    kept = ArchiveEvent.ADMITTED
    records = [
        record(index=0, score=-5.0, frontier=-6.0, archive_event=kept),
        record(index=1, score=-6.0, frontier=-6.0, archive_event=kept),
        record(index=2, score=-7.0, frontier=-6.0, archive_event=kept),
        record(index=3, score=-5.0, frontier=-6.0, archive_event=ArchiveEvent.DUPLICATE_SCORE),
    ]
    assert metrics.admission_precision(records) == pytest.approx(1.0 / 3.0)


def test_run_metrics() -> None:
    """R-MET-07: A run's metrics come from its records: prompts once per group, responses per completion."""
    kept = ArchiveEvent.ADMITTED
    first = (
        record(step=0, index=0, score=-6.0, frontier=-7.0, base_scores=(-7.0,), archive_event=kept),
        record(step=0, index=1, score=-6.0, frontier=-7.0, base_scores=(-7.0,)),
    )
    second = (
        record(step=1, index=0, score=None, outcome=FAILED, frontier=-6.0, base_scores=(-6.0,)),
        record(step=1, index=1, score=-8.0, frontier=-6.0, base_scores=(-6.0,), response_sha256="b"),
    )
    result = metrics.run_metrics([first, second])
    assert (result.groups, result.completions, result.admissions) == (2, 4, 1)
    assert result.valid_rate == 0.75
    assert result.improve_yield == result.strict_frontier_yield == 0.5
    assert (result.final_best, result.trajectory_auc) == (-6.0, -6.0)
    assert (result.response_uniqueness, result.prompt_uniqueness) == (0.5, 0.5)
    assert result.admission_precision == 1.0


@pytest.mark.parametrize(("part", "equal"), [(0.0, True), (0.999, True), (1.001, False)])
def test_equal_is_within_a_thousandth(part: float, equal: bool) -> None:
    """R-MET-08: Mappings are told apart where one advantage is more than 1e-3 apart, not elsewhere (D21)."""
    rewards = {name: mapping(FOUR).reward for name, mapping in PUBLISHED.items()}
    both = [rewards["native"], rewards["factorized"]]
    widest = np.ptp(np.stack(list(rewards.values())), axis=0).max()

    def scaled_to(gap: float) -> Callable[[Floats], Floats]:
        return lambda values: values * (1e-3 * part / gap)

    of_two, of_all = scaled_to(np.ptp(np.stack(both), axis=0).max()), scaled_to(widest)
    assert equal_share(FOUR, of_two) == float(equal)
    assert differing_groups(FOUR, of_all).tolist() == [not equal]
    pair = tally("tsp", FOUR, MAPPINGS, {"scaled": of_two}).pairs["tsp", "scaled", "native", "factorized"]
    assert pair.equivalent.tolist() == [part == 0.0, part == 0.0, equal]


def test_flat_groups() -> None:
    """R-MET-09: A group is flat for a mapping where every advantage is zero, not where one is."""
    even = group([-6.5, -6.5, -6.5, -6.5], bases=[-6.0], frontier=-6.0)
    centred = group([-5.0, -6.0, -6.0, -7.0], bases=[-6.0], frontier=-6.0)
    assert group_advantages(MAPPINGS["factorized"](centred).reward)[0, 1] == 0.0
    assert flat_share(stacked(even, centred), group_advantages) == 0.5


def test_constant_context() -> None:
    """R-MET-10: An indicator is constant where all valid completions have it or none has, failures apart."""
    streams = [
        [-5.0, -5.5, -5.7, FAILED],
        [-6.0, -7.0, -8.0, FAILED],
        [-5.0, -7.0, -8.0, FAILED],
        [-5.0, -5.5, -8.0, FAILED],
        [FAILED, FAILED, FAILED, FAILED],
    ]
    batch = reduce(stacked, (group(scores, bases=[-6.0], frontier=-6.0) for scores in streams))
    counted = context_tallies(batch)["comparator"]
    assert (counted.groups, counted.constant, counted.reordered) == (5, 3, 0)


def test_classes() -> None:
    """R-CRD-01: The four classes of the hand example, each candidate in one of them (D18)."""
    assert np.argmax(credit.class_membership(FOUR)[:, 0], axis=0).tolist() == [0, 1, 2, 3]


@given(batch=groups())
def test_classes_are_exclusive(batch: GroupBatch) -> None:
    """R-CRD-02: Every candidate is in exactly one class; nesting adds frontier improvers to parents (D18)."""
    exclusive, nested = credit.class_membership(batch), credit.class_membership(batch, nested=True)
    assert (exclusive.sum(axis=0) == 1).all()
    np.testing.assert_array_equal(nested[2], metrics.improves(batch))


def test_credit_table() -> None:
    """R-CRD-03: P_D, P_A, E_A and the positive rate of advantages (-1.5, -0.5, 0.5, 1.5) by hand."""
    table = credit.credit_table(credit.count_credit(FOUR, np.array([[-1.5, -0.5, 0.5, 1.5]])))
    assert [row.prevalence for row in table] == [0.25] * 4
    assert [row.mass_share for row in table] == [0.0, 0.0, 0.25, 0.75]
    assert [row.enrichment for row in table] == [0.0, 0.0, 1.0, 3.0]
    assert [row.positive_rate for row in table] == [0.0, 0.0, 1.0, 1.0]
    assert [row.candidate_class for row in table] == list(CandidateClass)


def test_absent_credit() -> None:
    """R-CRD-04: Without positive mass P_A and E_A are absent; so is the rate of an empty class."""
    table = credit.credit_table(credit.count_credit(group([FAILED, FAILED]), np.zeros((1, 2))))
    assert [row.mass_share for row in table] == [None] * 4
    assert [row.enrichment for row in table] == [None] * 4
    assert [row.positive_rate for row in table] == [0.0, None, None, None]


@given(batch=ordinary_groups(), name=st.sampled_from(sorted(MAPPINGS)))
def test_shares_sum_to_one(batch: GroupBatch, name: str) -> None:
    """R-CRD-05: With exclusive classes prevalences and mass shares each add up to one (D18)."""
    counts = credit.count_credit(batch, group_advantages(MAPPINGS[name](batch).reward))
    table = credit.credit_table(counts)
    assert sum(row.prevalence or 0.0 for row in table) == pytest.approx(1.0)
    if counts.total_mass > 0.0:
        assert sum(row.mass_share or 0.0 for row in table) == pytest.approx(1.0)


@given(first=ordinary_groups(size=st.just(4)), second=ordinary_groups(size=st.just(4)))
def test_counts_add(first: GroupBatch, second: GroupBatch) -> None:
    """R-CRD-06: The counts of two batches add up to the counts of both, so that a replay can stream."""
    native = MAPPINGS["native"]
    both, parts = stacked(first, second), [first, second]
    total = credit.count_credit(both, group_advantages(native(both).reward))
    added = [credit.count_credit(part, group_advantages(native(part).reward)) for part in parts]
    for field in fields(total):
        found = getattr(added[0] + added[1], field.name)
        np.testing.assert_allclose(found, getattr(total, field.name), rtol=0.0, atol=1e-9, err_msg=field.name)


@given(
    batches=st.lists(ordinary_groups(size=st.just(4)), min_size=1, max_size=3),
    name=st.sampled_from(sorted(MAPPINGS)),
)
def test_enrichment_times_prevalence(batches: list[GroupBatch], name: str) -> None:
    """R-CRD-10: Over seeds enrichment times mean prevalence adds up to 100 % over classes (D29)."""
    seeds = [credit.count_credit(batch, group_advantages(MAPPINGS[name](batch).reward)) for batch in batches]
    assume(all(counts.total_mass > 0.0 for counts in seeds))
    parts = [
        {
            entry.candidate_class.value: class_cells(one, entry, Origin("r"))
            for entry in credit.credit_table(one)
        }
        for one in seeds
    ]
    rows = [cells for _, cells in over_seeds(name, parts)]
    shares = [(row["Enrichment"].value, row["Prevalence (%)"].value) for row in rows]
    assert [enrichment is None for enrichment, _ in shares] == [not prevalence for _, prevalence in shares]
    total = sum(enrichment * prevalence for enrichment, prevalence in shares if prevalence)
    assert total == pytest.approx(100.0)


def test_group_shares() -> None:
    """R-CRD-07: Zero-advantage share, and credit in groups without improvers, over a hand-made stream."""
    idle = group([-6.5, -6.5, -7.0, FAILED], bases=[-6.0], frontier=-6.0)
    counts = [
        credit.count_credit(idle, np.array([[0.5, 0.5, -1.0, 0.0]])),
        credit.count_credit(idle, np.zeros((1, 4))),
        credit.count_credit(FOUR, np.array([[-1.5, -0.5, 0.5, 1.5]])),
        credit.count_credit(group([FAILED] * 4, bases=[-6.0]), np.array([[1.0, -1.0, 0.0, 0.0]])),
    ]
    total = counts[0] + counts[1] + counts[2] + counts[3]
    assert credit.zero_advantage_share(total) == 0.25
    assert credit.idle_credit_share(total) == pytest.approx(2.0 / 3.0)
    assert credit.idle_credit_rounds(total) == 0.25


def test_no_peer() -> None:
    """R-CRD-09: A group of one is counted as having no peer, besides having no advantage (D16)."""
    counts = credit.count_credit(group([-6.0], bases=[-6.0]), np.zeros((1, 1)))
    assert (counts.no_peer_groups, counts.zero_groups, counts.groups) == (1, 1, 1)
    assert credit.count_credit(FOUR, np.zeros((1, 4))).no_peer_groups == 0


@given(batch=ordinary_groups(), data=st.data())
def test_credit_ignores_order(batch: GroupBatch, data: st.DataObject) -> None:
    """R-CRD-08: The credit table does not depend on the order of the completions."""
    order = data.draw(st.permutations(range(batch.outcome.shape[1])))
    advantages = group_advantages(MAPPINGS["native"](batch).reward)
    first = credit.credit_table(credit.count_credit(batch, advantages))
    second = credit.credit_table(credit.count_credit(permuted(batch, order), advantages[:, np.array(order)]))
    assert [row.candidates for row in first] == [row.candidates for row in second]
    assert [row.positive_rate for row in first] == [row.positive_rate for row in second]
