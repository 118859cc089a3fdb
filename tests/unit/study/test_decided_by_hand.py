"""Verdicts of differences that are chosen by hand: signs, ties, both directions, and no difference at all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.plans import plan_text

from search_to_signal.base.seeding import stream
from search_to_signal.records.plan import read_plan
from search_to_signal.report.tables.core import percentile_interval
from search_to_signal.study import verdicts
from search_to_signal.study.verdicts import MetricReading, OutcomeVerdict, QuestionOutcome, compute_outcomes

SIGNS = {"estimator": "sign_count", "interval": "none"}
SEEDS = tuple(range(1, 11))
Decide = Callable[..., QuestionOutcome]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seeds of two conditions, of which only the names count here."""
    root = tmp_path_factory.mktemp("recorded")
    for seed in SEEDS:
        for condition in ("frozen", "native"):
            write_synthetic_run(root / f"main/cohort/{condition}-s{seed}", condition, seed, groups=2)
    return root


@pytest.fixture
def decide(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Decide:
    """The outcome of one question where native is above frozen by these numbers, seed by seed."""

    def outcome(differences: Sequence[float], **question: object) -> QuestionOutcome:
        def given(_: Path, readings: Iterable[MetricReading]) -> Mapping[MetricReading, float]:
            above = {f"main/cohort/native-s{n}": by for n, by in zip(SEEDS, differences, strict=False)}
            return {reading: above.get(reading.place, 0.0) for reading in readings}

        monkeypatch.setattr(verdicts, "compute_values", given)
        seeds = len(differences)
        text = plan_text({"seeds": seeds, **question}, seeds=seeds)
        path = tmp_path / "plan.toml"
        path.write_text(text.replace("seeds = [1, 2, 3, 4]", f"seeds = {list(SEEDS)}"))
        (found,) = compute_outcomes(root, read_plan(path))
        return found

    return outcome


@pytest.mark.parametrize(
    ("differences", "comparisons", "verdict"),
    [
        ([1.0] * 6, 1, OutcomeVerdict.ABOVE),
        ([-1.0] * 6, 1, OutcomeVerdict.BELOW),
        ([1.0] * 5, 1, OutcomeVerdict.OPEN),
        ([1.0] * 6, 2, OutcomeVerdict.OPEN),
        ([1.0] * 8 + [-9.0, 0.0], 1, OutcomeVerdict.ABOVE),
        ([-1.0] * 8 + [9.0, 0.0], 1, OutcomeVerdict.BELOW),
        ([1.0] * 7 + [-1.0, -1.0, 0.0], 1, OutcomeVerdict.OPEN),
        ([1.0] * 5 + [0.0] * 5, 1, OutcomeVerdict.OPEN),
        ([0.0] * 10, 1, OutcomeVerdict.OPEN),
    ],
)
def test_signs_decide_without_ties(
    decide: Decide, differences: list[float], comparisons: int, verdict: OutcomeVerdict
) -> None:
    """Six of six decide at 5 % (1/32), not at 2.5 %; eight of nine do (10/256); a tie counts for no side."""
    found = decide(differences, comparisons=comparisons, **SIGNS)
    assert found.verdict is verdict
    assert found.above == sum(value > 0 for value in differences)
    assert found.below == sum(value < 0 for value in differences)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.3, 0.4, 0.5], OutcomeVerdict.ABOVE),
        ([-0.3, -0.4, -0.5], OutcomeVerdict.BELOW),
        ([-0.3, 0.4, 0.5], OutcomeVerdict.OPEN),
        ([0.3, -0.4, -0.5], OutcomeVerdict.OPEN),
        ([0.0, 0.0, 0.0], OutcomeVerdict.OPEN),
    ],
)
def test_an_interval_decides_when_it_leaves_out_zero(
    decide: Decide, differences: list[float], verdict: OutcomeVerdict
) -> None:
    assert decide(differences).verdict is verdict


@pytest.mark.parametrize(
    "question",
    [
        {"pairs": '[["main/cohort/native"]]'},
        {"pairs": '[["main/cohort/native"]]', **SIGNS},
        {"estimator": "description", "interval": "none"},
    ],
)
def test_what_is_no_difference_or_asks_for_no_verdict_has_none(
    decide: Decide, question: dict[str, object]
) -> None:
    """A level of one side is above zero without meaning anything by it."""
    found = decide([0.3, 0.4, 0.5, 0.3, 0.4, 0.5], **question)
    assert found.verdict is OutcomeVerdict.DESCRIBED
    assert found.recorded_effect is None


def test_intervals_take_two_seeds_or_five(decide: Decide) -> None:
    one, two = decide([0.3]), decide([0.3, 0.4])
    assert (one.interval, one.deviation, one.recorded_effect) == (None, None, None)
    assert one.verdict is OutcomeVerdict.OPEN
    assert two.interval == pytest.approx((0.35 - 12.706205 * 0.05, 0.35 + 12.706205 * 0.05))
    assert two.deviation == pytest.approx(0.1 * 0.5**0.5)
    assert two.recorded_effect is not None
    values = [0.1, 0.2, 0.4, 0.8, 1.6]
    found = decide(values, interval="bootstrap", comparisons=2)
    for ends, level in ((found.interval, 0.95), (found.corrected, 0.975)):
        assert ends == percentile_interval(values, stream(0, "bootstrap", "plan", "main.q"), level)
    assert found.verdict is OutcomeVerdict.ABOVE
    few = decide(values[:4], interval="bootstrap")
    assert (few.interval, few.corrected, few.verdict) == (None, None, OutcomeVerdict.OPEN)
