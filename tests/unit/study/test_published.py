"""The main study beside the paper: its numbers by hand, agreement by verdict, nothing said without one."""

from dataclasses import replace
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.drawing import drawn
from tests.plans import plan_text

from search_to_signal.records.plan import plan_sha256, read_plan
from search_to_signal.study.formatting import BesideCell, build_beside_the_paper
from search_to_signal.study.page import build_plan_summary, write_plan_report
from search_to_signal.study.verdicts import OutcomeVerdict, QuestionOutcome, compute_outcomes

CONDITIONS = ("frozen", "native", "search_exposure")
PAIRS = (
    '[["main/cohort/native", "main/cohort/frozen"], ["main/cohort/search_exposure", "main/cohort/frozen"]]'
)
# Of the paper's seeds 42, 3407 and 1926000, as printed: native's valid completions and best minus frozen's.
VALID = ((94.60 - 60.85) + (95.15 - 60.30) + (92.00 - 61.40)) / 3
BEST = ((6.2240 - 6.1771) + (6.2303 - 6.2163) + (6.2445 - 6.2336)) / 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    for condition in CONDITIONS:
        for seed in (1, 2, 3):
            write_synthetic_run(root / f"main/cohort/{condition}-s{seed}", condition, seed)
    return root


def plan_file(tmp_path: Path, **changes: object) -> Path:
    """A plan that asks for validity and best."""
    path = tmp_path / "plan.toml"
    questions = [{"pairs": PAIRS}, {"pairs": PAIRS, "key": "main.e", "metric": "final_best"}]
    path.write_text(plan_text(*({**question, **changes} for question in questions)))
    return path


def outcomes(root: Path, tmp_path: Path, **changes: object) -> list[QuestionOutcome]:
    return list(compute_outcomes(root, read_plan(plan_file(tmp_path, **changes))))


def cells(found: list[QuestionOutcome], verdict: OutcomeVerdict) -> list[BesideCell | None]:
    """The cells of native and of search exposure, if all outcomes had that verdict."""
    beside = build_beside_the_paper([replace(outcome, verdict=verdict) for outcome in found])
    assert beside is not None
    assert beside.grid.metrics == ("Valid (points)", "Final best")
    assert [name for name, _ in beside.grid.rows] == ["native minus frozen", "search_exposure minus frozen"]
    return [cell for _, row in beside.grid.rows for cell in row]


def test_the_papers_numbers_by_hand(root: Path, tmp_path: Path) -> None:
    found = outcomes(root, tmp_path)
    valid, best, *others = cells(found, OutcomeVerdict.ABOVE)
    assert valid is not None
    assert best is not None
    assert valid.paper == f"paper {VALID:+.2f}, above in 3 of 3"
    assert best.paper == f"paper {BEST:+.4f}, above in 3 of 3"
    assert found[0].mean is not None
    assert valid.ours.startswith(f"{100 * found[0].mean:+.2f} [")
    assert [cell.standing for cell in others if cell is not None] == ["not comparable"] * 2


@pytest.mark.parametrize(
    ("verdict", "standing"),
    [
        (OutcomeVerdict.ABOVE, "agrees, its sign in 3 of 3"),
        (OutcomeVerdict.BELOW, "disagrees, its sign in 3 of 3"),
        (OutcomeVerdict.OPEN, "undecided"),
        (OutcomeVerdict.PARTIAL, "no verdict"),
        (OutcomeVerdict.CLOSED, "no verdict"),
    ],
)
def test_only_a_verdict_agrees(root: Path, tmp_path: Path, verdict: OutcomeVerdict, standing: str) -> None:
    """Above agrees with a paper that is above, below does not; seeds without a verdict say neither."""
    valid, *_ = cells(outcomes(root, tmp_path), verdict)
    assert valid is not None
    assert valid.standing == standing
    assert valid.verdict == f"n = 3: {verdict.value}"


def test_other_questions_and_seeds_that_differ_agree_with_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signs, secondary questions, and sides of two cohorts are no comparison of the paper's cohort."""
    across = '[["main/cohort/native", "other/cohort/frozen"]]'
    for changes in (
        {"estimator": "sign_count", "interval": "none"},
        {"role": "secondary"},
        {"pairs": across},
    ):
        assert build_beside_the_paper(outcomes(root, tmp_path, **changes)) is None
    # Where the paper's own seeds have both signs, no verdict of ours has its direction.
    monkeypatch.setattr(
        "search_to_signal.study.formatting._published_differences", lambda _: [0.1, -0.1, 0.2]
    )
    valid, *_ = cells(outcomes(root, tmp_path), OutcomeVerdict.ABOVE)
    assert valid is not None
    assert valid.standing == "undecided: the paper's seeds differ"


@pytest.mark.slow
def test_the_page_begins_with_it(root: Path, tmp_path: Path) -> None:
    """Sentence, the paper's numbers, what would change our mind, verdicts; no embedded model beside it."""
    path = plan_file(tmp_path)
    summary = build_plan_summary(root, read_plan(path), plan_sha256(path))
    with drawn():
        page = write_plan_report(summary, tmp_path / "out", embedded=False).read_text()
        ours = write_plan_report(summary, tmp_path / "ours", embedded=True).read_text()
        other = write_plan_report(
            replace(summary, problem="obp"), tmp_path / "other", embedded=False
        ).read_text()
    order = [
        page.index(words)
        for words in (
            'id="lead"',
            '<nav aria-label="Contents"',
            'id="beside"',
            f"paper {VALID:+.2f}, above in 3 of 3",
            "What would change our mind: Valid (points): an interval below zero; Final best: ",
            '<dl class="verdicts">',
        )
    ]
    assert order == sorted(order)
    assert "Final best" in page[order[0] : order[1]]
    assert f"paper {VALID:+.2f}, above in 3 of 3" in (tmp_path / "out" / "evidence.md").read_text()
    assert summary.problem == "tsp"
    assert 'id="beside"' not in ours
    assert 'id="beside"' not in other
