"""Whether a search paid: evidence that errs as often as it says, and what every log gives it."""

import gzip
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from spec.in_process import run_in_process
from spec.synthetic_runs import write_synthetic_run
from tests.cohorts import Told
from tests.command import Patch
from tests.figures import read_figures
from tests.unit.audit import logs

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.numerics import Floats
from search_to_signal.cli import main
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import mean_score
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.study.search_runs import SearchRun, read_runs
from search_to_signal.study.worth import (
    TUNED,
    answer_evidence,
    compare_answers,
    compare_pairs,
    gains,
    pair_evidence,
    rank_chance,
    tuned_runs,
    worth,
)

REAL = Path(__file__).parent / "real"


def run(scores: Floats | list[float], first: int = 0, name: str = "run", start: float = 0.0) -> SearchRun:
    """A run whose first so many answers are to the first prompt."""
    score, number = np.array(scores, dtype=np.float64), np.arange(len(scores))
    return SearchRun(name, start, score, number, {"calls": np.ones(len(score))}, number < first, number < 0)


def climbing(seed: int, first: int, gain: float) -> SearchRun:
    scores = np.random.default_rng(seed).normal(size=first + 40)
    scores[first:] += gain * np.arange(40)
    return run(scores, first)


def test_evidence_of_pairs_is_one_in_the_mean_of_all_signs() -> None:
    """Exactly, whatever the sizes: so it rises to 40 by chance in at most 1 of 40 searches."""
    sizes = np.array([0.5, 3.0, 0.1, 1.0, 20.0, 0.7])
    signs = itertools.product((1.0, -1.0), repeat=len(sizes))
    assert np.mean([pair_evidence(np.array(sign) * sizes) for sign in signs]) == pytest.approx(1.0)


@pytest.mark.parametrize("better", [True, False])
def test_evidence_of_ranks_is_one_in_the_mean_of_all_orders(better: bool) -> None:
    effort = np.array([4.0, 2.0])
    chances = [
        rank_chance(np.array(order[:2]), effort, np.array(order[2:]), better)
        for order in itertools.permutations((1.0, 2.0, 3.0, 4.0, 5.0))
    ]
    # Orders of the three answers among each other are told apart, too.
    assert sum(math.exp(chance(1.0)) for chance in chances) == pytest.approx(1.0)
    assert sum(
        math.exp(chance(1.0)) * answer_evidence(chance, better) for chance in chances
    ) == pytest.approx(1)


def test_a_run_before_all_answers_has_the_chance_of_its_effort() -> None:
    """The best of 30 answers is before 10 others with a chance of 3/4; of equal scores none is before."""
    chance = rank_chance(np.array([1.0]), np.array([30.0]), np.zeros(10))
    assert math.exp(chance(1.0)) * math.factorial(10) == pytest.approx(0.75)
    tied = [
        answer_evidence(rank_chance(np.zeros(1), np.ones(1), np.zeros(9), way), way) for way in (True, False)
    ]
    assert max(tied) < 1.0


def test_what_cannot_be_decided_says_how_much_would() -> None:
    """One run of a hundred answers: no evidence of ten answers is enough, whatever it found."""
    few = compare_answers("calls", np.array([9.0]), np.array([100.0]), np.zeros(10))
    assert (few.can_decide, few.verdict, few.high) == (False, "cannot be decided", math.inf)
    needed = int(few.more.split()[0])
    at, below = (
        compare_answers("calls", np.ones(1), np.array([100.0]), np.zeros(needed - one)) for one in (0, 1)
    )
    assert at.verdict == "paid"
    assert below.verdict == "cannot be decided"
    six, seven = (compare_pairs("others", "calls", [1.0] * count) for count in (6, 7))
    assert (six.can_decide, six.more) == (False, "1 further pairs of runs, at least")
    assert seven.verdict == "paid"
    assert 0.0 < seven.low <= 1.0 <= seven.high


def test_intervals_move_with_what_is_measured() -> None:
    given = [0.3, 0.1, 0.4, 0.2, 0.5, 0.3, 0.2, 0.4, 0.1, 0.3]
    one, other = (compare_pairs("others", "calls", [sign * gain for gain in given]) for sign in (1.0, -1.0))
    assert (one.verdict, other.verdict) == ("paid", "did not pay")
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    for less, verdict in ((0.99, "paid"), (1.05, "not shown")):
        assert compare_pairs("others", "calls", [gain - one.low * less for gain in given]).verdict == verdict


def test_a_search_that_climbs_paid_and_one_that_does_not_is_not_called_so() -> None:
    up, flat = ([climbing(seed, 60, gain) for seed in range(9)] for gain in (0.2, 0.0))
    frozen = [climbing(seed, 60, 0.0) for seed in range(20, 29)]
    assert worth(up, frozen).verdict == "paid"
    assert worth(up).verdict == "paid"
    assert worth(flat, frozen).verdict == "not shown"
    assert worth(frozen, up).verdict == "did not pay"
    # Better than independent answers is not enough where other runs are as good.
    assert worth(up, [climbing(seed, 60, 0.2) for seed in range(40, 49)]).verdict == "not shown"
    assert worth([run([-1.0, -2.0]), run([-3.0])]).verdict == "did not pay"


def test_runs_are_cut_at_equal_effort_by_whole_steps_and_paired_by_seed() -> None:
    score, step = np.array([1.0, 2.0, 3.0, 9.0]), np.array([0, 0, 1, 1])
    long = SearchRun("a-s7", 0.0, score, step, {"calls": np.ones(4)}, step < 0, step < 0)
    assert [long.best("calls", budget) for budget in (1, 2, 3, 4)] == [0.0, 2.0, 2.0, 9.0]
    others = [run([5.0] * 4, name="b-s1"), run([8.0] * 3, name="b-s7")]
    assert gains([long], others, "calls") == [2.0 - 8.0]
    assert gains([run([1.0], name="a")], [run([0.5], name="b")], "calls") == [0.5]
    # Times of two machines do not compare.
    timed = [replace(one, cost={"seconds": one.cost["calls"]}) for one in (long, others[1])]
    assert gains(timed[:1], timed[1:], "seconds") == [2.0 - 8.0]
    assert gains(timed[:1], [replace(timed[1], recorder=("another", "", ""))], "seconds") == []


def test_answers_to_other_starts_are_not_compared() -> None:
    runs = [run([1.0] * 9, 4), run([1.0] * 9, 4, start=0.5)]
    assert worth(runs).comparisons == ()
    assert "several starts" in "\n".join(worth(runs).section().lines)
    with pytest.raises(ConfigError, match="the logs have calls"):
        worth(runs, unit="tokens")


@pytest.mark.parametrize(
    "name",
    [
        "openevolve-0.4.1/evolution_trace.jsonl",
        "openevolve-0.4.1/checkpoint_4",
        "shinka-0.0.7",
        "llm4ad-1.11",
    ],
)
def test_logs_that_released_writers_made(name: str, tmp_path: Path) -> None:
    """By tests/proofs/search_logs.py; that of LLM4AD says no parents, so the start is an answer there."""
    place = REAL / name
    if name.startswith("shinka"):
        (tmp_path / "programs.sqlite").write_bytes(
            gzip.decompress((place / "programs.sqlite.gz").read_bytes())
        )
        place = tmp_path
    (one,) = read_runs([place])
    assert one.score.tolist()[-4:] == [0.6, -math.inf, 0.8, 0.7]
    if name.startswith("llm4ad"):
        assert one.score[0] == 0.5
        return
    assert (one.start, len(one.score)) == (0.5, 4)
    assert one.first.tolist() == [True, True, False, True]
    assert one.retuned.tolist() == [False, False, False, True]
    assert one.total("answers" if name.endswith("4") else "calls") == 4
    assert main(["worth", str(place)]) == 0


def test_logs_of_other_searches(tmp_path: Path) -> None:
    """Start, independent answers, failures and effort of each format."""
    rows = [
        {
            "iteration": at,
            "timestamp": 10.0 * at,
            "parent_id": parent,
            "child_id": f"c{at}",
            "parent_code": code,
        }
        | {
            "parent_metrics": {"combined_score": before},
            "child_metrics": metrics,
            "child_code": f"x = {at}.5\n",
        }
        for at, parent, code, before, metrics in (
            (1, "seed", "x = 0.5\n", 0.25, {"error": 0.0, "timeout": True}),
            (2, "seed", "x = 0.5\n", 0.25, {"combined_score": 0.75}),
            (3, "c2", "x = 2.5\n", 0.75, {"combined_score": 0.5}),
        )
    ]
    for name in ("one", "two"):
        logs.jsonl(tmp_path / "traces" / name / "evolution_trace.jsonl", rows)
    trace, other = read_runs([tmp_path / "traces"])
    assert (trace.name, other.name, trace.start) == ("one", "two", 0.25)
    assert trace.score.tolist() == [-math.inf, 0.75, 0.5]
    assert trace.first.tolist() == [True, True, False]
    assert trace.retuned.tolist() == [True, True, True]
    assert {unit: cost.tolist() for unit, cost in trace.cost.items()} == {
        "calls": [1.0, 1.0, 1.0],
        "seconds": [0.0, 10.0, 10.0],
    }
    (checkpoint,) = read_runs([logs.openevolve_checkpoint(tmp_path)])
    assert (checkpoint.start, checkpoint.best()) == (0.25, 0.75)
    # c's parent is gone, d's and e's is b.
    assert checkpoint.first.tolist() == [True, False, False, False]
    assert {unit: cost.sum() for unit, cost in checkpoint.cost.items()} == {"answers": 4.0, "seconds": 4.0}
    (shinka,) = read_runs([logs.shinka(tmp_path)])
    assert (shinka.start, shinka.score.tolist()) == (0.25, [0.75, -math.inf, -math.inf])
    assert (shinka.first.tolist(), shinka.cost["calls"].tolist()) == ([True, False, False], [1.0, 1.0, 0.0])
    (samples,) = read_runs([logs.llm4ad(tmp_path / "llm4ad")])
    assert samples.first.all()
    assert math.isnan(samples.start)
    assert samples.score.tolist() == [-0.5, -math.inf, -0.25, -0.25]


def test_other_logs(tmp_path: Path) -> None:
    """The neutral form is read by its prompts; a trainer's rewards for other prompts say nothing."""
    rows = [{"group": at, "reward": at / 4, "prompt": "a" if at < 2 else f"a{at}"} for at in range(4)]
    (neutral,) = read_runs([logs.jsonl(tmp_path / "log.jsonl", rows)])
    assert (neutral.score.tolist(), neutral.first.tolist()) == (
        [0.0, 0.25, 0.5, 0.75],
        [True, True, False, False],
    )
    with pytest.raises(RecordError, match="of verl, no search"):
        read_runs([logs.verl_v0(tmp_path)])


def test_own_results_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for condition, seed in itertools.product(("frozen", "native"), (1, 2)):
        write_synthetic_run(tmp_path / condition / f"{condition}-s{seed}", condition, seed, groups=20)
    for file in tmp_path.glob("*/*/completions.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        logs.jsonl(file, [row | {"parents": rows[0]["parents"]} for row in rows])
    frozen, native = (read_runs([tmp_path / name]) for name in ("frozen", "native"))
    assert [one.name for one in native] == ["native-s1", "native-s2"]
    # All prompts show the start, and after its first group a trained run is no longer independent.
    assert all(one.first.all() for one in frozen)
    assert all(one.first.tolist() == (one.step == one.step[0]).tolist() for one in native)
    assert {*frozen[0].cost} >= {"calls", "answers", "tokens"}
    assert main(["worth", str(tmp_path / "native"), "--against", str(tmp_path / "frozen"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["worth"]
    assert (found["verdict"], found["unit"], found["runs"]) == ("cannot be decided", "calls", 2)
    (pairs,) = (
        one for one in found["comparisons"] if (one["beside"], one["unit"]) == ("the other runs", "calls")
    )
    assert pairs["estimate"] == pytest.approx(np.mean(gains(native, frozen, "calls")))
    out = tmp_path / "page"
    assert main(["worth", str(tmp_path / "native"), "--by", "answers", "--out", str(out)]) == 0
    assert "at equal answers" in capsys.readouterr().out
    assert "Did it pay?" in (out / "audit.html").read_text(encoding="utf-8")
    native_alone = ["worth", str(tmp_path / "native")]
    for wrong in (["--tune", "0"], ["--against", str(tmp_path / "native")], ["--against", str(tmp_path)]):
        assert main([*native_alone, *wrong]) == ConfigError.exit_code
    assert main(["worth", str(tmp_path / "missing")]) == RecordError.exit_code


def test_the_page_quotes_the_proof() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "worth.md"
    assert f"    {read_figures()['worth']['printed']}\n" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_random_numbers_in_the_start(monkeypatch: Patch) -> None:
    """Tries are other programs of the start's form, which the evaluator scores near it."""
    monkeypatch.setattr(
        "search_to_signal.study.worth.EvaluationPool",
        lambda problem, split, settings: EvaluationPool(problem, "embedded", settings),
    )
    none = np.zeros(0, dtype=np.bool_)
    score, step = np.zeros(0), np.zeros(0, dtype=np.int64)
    tsp = get_problem("tsp")
    start = mean_score(run_in_process(tsp, tsp.seed.code, "embedded"))
    begun = SearchRun("run", start, score, step, {}, none, none, "tsp", tsp.seed.code)
    one, two = tuned_runs(begun, 2, 1, Told())
    assert one.score.tolist() != two.score.tolist()
    assert np.abs(np.concatenate([one.score, two.score]) - start).max() < 1.5
    compared = worth([run([-6.0, -5.5], start=start)], tuned=[one]).comparisons
    assert [found.beside for found in compared] == [TUNED]
    for other in (run([1.0]), replace(begun, seed="x = 1\n")):
        with pytest.raises(ConfigError, match="--tune"):
            tuned_runs(other, 1, 1, Told())
