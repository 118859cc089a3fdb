"""Plan and outcome: numbers by hand, verdicts at the corrected level, and nothing said of half a study."""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import mean, stdev

import pytest
from msgspec.structs import replace
from scipy.stats import t as student
from spec.synthetic_runs import write_synthetic_run
from tests.drawing import drawn
from tests.forging import record_elsewhere
from tests.plans import plan_text
from tests.probes import write_synthetic_probe

from search_to_signal.base.errors import ConfigError
from search_to_signal.credit import MAPPINGS
from search_to_signal.credit.normalizers import find_normalizer
from search_to_signal.records.plan import PLAN, plan_sha256, read_plan
from search_to_signal.report.metrics.replay import tally
from search_to_signal.report.results import RecordedRun, load_runs
from search_to_signal.study.conclusions import add_exploratory_questions, conclude
from search_to_signal.study.formatting import (
    build_outcome_table,
    build_study_grid,
    format_outcome,
    headline_rows,
    metric_heading,
)
from search_to_signal.study.page import build_plan_summary, write_plan_report
from search_to_signal.study.plan_checks import NOTHING, find_deviations, read_recorded_runs
from search_to_signal.study.verdicts import OutcomeVerdict, QuestionOutcome, compute_outcomes


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of frozen and native, one more of frozen alone, and longer frozen runs."""
    root = tmp_path_factory.mktemp("recorded")
    for seed in (1, 2, 3):
        write_synthetic_run(root / f"main/cohort/native-s{seed}", "native", seed)
        write_synthetic_run(root / f"main/anchor/frozen-s{seed}", "frozen", seed, groups=80, layer="anchor")
    for seed in (1, 2, 3, 4):
        write_synthetic_run(root / f"main/cohort/frozen-s{seed}", "frozen", seed)
    return root


def asked(root: Path, tmp_path: Path, **question: object) -> QuestionOutcome:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(question))
    (found,) = compute_outcomes(root, read_plan(path))
    return found


def _differences(root: Path, field: str) -> list[float]:
    runs = {run.name: run.metrics for run in load_runs(root / "main" / "cohort" / "native-s1")}
    for name in ("native-s2", "native-s3", "frozen-s1", "frozen-s2", "frozen-s3"):
        runs |= {run.name: run.metrics for run in load_runs(root / "main" / "cohort" / name)}
    return [getattr(runs[f"native-s{s}"], field) - getattr(runs[f"frozen-s{s}"], field) for s in (1, 2, 3)]


def test_paired_t_by_hand(root: Path, tmp_path: Path) -> None:
    found = asked(root, tmp_path, comparisons=4)
    values = _differences(root, "valid_rate")
    assert list(found.values.values()) == pytest.approx(values)
    for ends, level in ((found.interval, 0.95), (found.corrected, 1 - 0.05 / 4)):
        half = student.ppf((1 + level) / 2, 2) * stdev(values) / 3**0.5
        assert ends == pytest.approx((mean(values) - half, mean(values) + half))
    assert found.corrected is not None
    above = found.corrected[0] > 0
    assert found.verdict is (OutcomeVerdict.ABOVE if above else OutcomeVerdict.OPEN)


def test_a_study_at_a_glance(root: Path, tmp_path: Path) -> None:
    found = asked(root, tmp_path)
    sides = [
        [
            run.metrics.valid_rate
            for seed in (1, 2, 3)
            for run in load_runs(root / f"main/cohort/{side}-s{seed}")
        ]
        for side in ("native", "frozen")
    ]
    assert found.levels == pytest.approx([mean(side) for side in sides])
    grid = build_study_grid([found])
    assert grid is not None
    ((name, (cell,)),) = grid.rows
    assert (name, grid.metrics) == ("native minus frozen", ("Valid (points)",))
    assert cell is not None
    native, frozen = (100 * mean(side) for side in sides)
    assert cell[0].startswith(f"{native - frozen:+.2f} [")
    assert cell[1:] == (f"{native:.2f} against {frozen:.2f}", f"n = 3: {found.verdict.value}")
    assert build_study_grid([asked(root, tmp_path, estimator="sign_count", interval="none")]) is None
    assert found.mean is not None
    head, base, row = headline_rows([found])
    assert (head, base) == (["Comparison", "Valid (%)"], ["frozen", f"{100 * found.levels[1]:.2f}"])
    assert row[0] == "native minus frozen"
    assert row[1].startswith(f"{100 * found.mean:+.2f} [")
    assert row[1].endswith(f"] {found.verdict.value}")
    assert headline_rows([asked(root, tmp_path, seeds=4)])[2][1].endswith("]")
    assert headline_rows([asked(root, tmp_path, role="secondary")]) == []


def test_signs_sides_and_missing_seeds_by_hand(root: Path, tmp_path: Path) -> None:
    """Three of three seeds decide nothing at 5 %: a two-sided sign test gives 1/4."""
    found = asked(root, tmp_path, estimator="sign_count", interval="none")
    assert (found.above, found.below) == (3, 0)
    assert found.verdict is OutcomeVerdict.OPEN
    assert "above in 3 of 3 seeds, below in 0, n = 3: undecided" in format_outcome(found)
    found = asked(
        root, tmp_path, estimator="description", interval="none", pairs='[["main/cohort/native"]]', horizon=80
    )
    assert found.verdict is OutcomeVerdict.DESCRIBED
    assert {side.groups for pair in found.pairs for side in pair.sides} == {20}
    found = asked(root, tmp_path, seeds=4)
    assert found.verdict is OutcomeVerdict.PARTIAL
    assert "n = 3 of 4 planned: partial: no verdict" in format_outcome(found)
    nothing = asked(root, tmp_path, pairs='[["main/cohort/factorized", "main/cohort/frozen"]]')
    assert (nothing.verdict, nothing.mean) == (OutcomeVerdict.MISSING, None)


def test_equal_time_takes_or_cuts_groups(root: Path, tmp_path: Path) -> None:
    """A trained step costs 1.5 frozen ones: 40 groups of native are 60 of the longer frozen run."""
    pairs = '[["main/cohort/native", "main/anchor/frozen"]]'
    found = asked(root, tmp_path, match="processor_time", pairs=pairs, metric="final_best")
    assert {side.groups for pair in found.pairs for side in pair.sides[1:]} == {60}
    assert [pair.remark for pair in found.pairs] == [""] * 3
    sides = ["main/cohort/native", "main/cohort/frozen"]
    for first, second, groups in ((*sides, [26, 40]), (*sides[::-1], [40, 26])):
        found = asked(
            root,
            tmp_path,
            match="least_processor_time",
            pairs=f'[["{first}", "{second}"]]',
            metric="final_best",
        )
        assert [[side.groups for side in pair.sides] for pair in found.pairs] == [groups] * 3
        assert metric_heading(found) == "Final best, equal processor time"
    found = asked(root, tmp_path, match="fewest_programs", metric="final_best", horizon=1)
    assert not found.values


def test_runs_whose_times_do_not_compare_are_left_out_of_equal_time(root: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    record_elsewhere(copy / "main/cohort/frozen-s2", 0.5)
    pairs = '[["main/cohort/native", "main/cohort/frozen"]]'
    found = asked(copy, tmp_path, match="least_wall_time", pairs=pairs, metric="final_best")
    assert list(found.values) == [1, 3]
    assert found.verdict is OutcomeVerdict.PARTIAL
    assert found.pairs[1].remark.endswith("took the times, which do not compare")
    copy = Path(shutil.copytree(root, tmp_path / "1" / "copy"))
    record_elsewhere(copy / "main/anchor/frozen-s2", 0.5, cpu=None)
    found = asked(copy, tmp_path / "1", **BY_TIME)
    assert list(found.values) == [1, 3]
    assert found.pairs[1].remark == "main/anchor/frozen-s2 ends before the time does"
    copy = Path(shutil.copytree(root, tmp_path / "2" / "copy"))
    for seed in (1, 2, 3):
        record_elsewhere(copy / f"main/anchor/frozen-s{seed}", 0.5)
    found = asked(copy, tmp_path / "2", **BY_TIME)
    plan = read_plan(tmp_path / "2" / "plan.toml")
    said = find_deviations(plan, "", read_recorded_runs(copy), [found])["main"]
    assert said == [f"main.q, 3 seeds: {found.pairs[0].remark}"]


def test_final_bests_are_asked_again_of_equal_effort(root: Path, tmp_path: Path) -> None:
    def added() -> list[str]:
        plan = add_exploratory_questions(read_plan(tmp_path / "plan.toml"))
        return [
            question.match for study in plan.studies for question in study.questions if question.cuts_both
        ]

    asked(root, tmp_path, metric="final_best")
    assert added() == ["fewest_calls", "fewest_programs", "least_processor_time", "least_wall_time"]
    for other in ({}, {"metric": "final_best", "role": "secondary"}, {**BY_TIME, "metric": "final_best"}):
        asked(root, tmp_path, **other)
        assert added() == []


@pytest.mark.parametrize("match", ["fewest_programs", "fewest_calls"])
def test_equal_counts_cut_both_where_the_one_with_fewer_ends(root: Path, tmp_path: Path, match: str) -> None:
    count = distinct if match == "fewest_programs" else evaluator_calls
    found = asked(
        root,
        tmp_path,
        match=match,
        pairs='[["main/cohort/native", "main/cohort/frozen"]]',
        metric="final_best",
    )
    assert len(found.pairs) == 3
    for pair in found.pairs:
        runs = [load_runs(root / side.place)[0] for side in pair.sides]
        least = min(count(run, 40) for run in runs)
        for run, side in zip(runs, pair.sides, strict=True):
            assert count(run, side.groups) <= least
            assert side.groups == 40 or count(run, side.groups + 1) > least


def distinct(run: RecordedRun, groups: int) -> int:
    """How many valid programs a run proposed in its first groups."""
    return len(
        {one.program_sha256 for group in run.groups[:groups] for one in group if one.score is not None}
    )


def evaluator_calls(run: RecordedRun, groups: int) -> int:
    """How many completions of a run's first groups had the function that the evaluator calls."""
    return sum(one.outcome.evaluated for group in run.groups[:groups] for one in group)


BY_TIME = {"match": "processor_time", "pairs": '[["main/cohort/native", "main/anchor/frozen"]]'}


@pytest.mark.parametrize("moved", [{"cpu": "another"}, {"cpu": None, "source": "faster"}])
def test_times_taken_elsewhere_are_scaled_by_the_groups_that_both_did(
    root: Path, tmp_path: Path, moved: dict[str, str | None]
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    record_elsewhere(copy / "main/anchor/frozen-s2", 0.5, **moved)
    found = asked(copy, tmp_path, **BY_TIME)
    assert [pair.sides[1].groups for pair in found.pairs] == [60, 60, 60]
    assert found.values == asked(root, tmp_path, **BY_TIME).values
    remarks = [pair.remark for pair in found.pairs]
    assert "took the times, which do not compare: the longer frozen run's are scaled" in remarks[1]
    assert ("another" in remarks[1]) == (moved["cpu"] == "another")
    assert remarks[::2] == ["", ""]
    assert not any(pair.remark for pair in asked(copy, tmp_path, pairs=BY_TIME["pairs"]).pairs)


def test_times_without_a_measure_count_for_nothing(root: Path, tmp_path: Path) -> None:
    for number, breaks in enumerate((shutil.rmtree, partial(record_elsewhere, pace=1.0), _other_search)):
        copy = Path(shutil.copytree(root, tmp_path / str(number)))
        record_elsewhere(copy / "main/anchor/frozen-s2", 0.5)
        breaks(copy / "main/cohort/frozen-s2")
        found = asked(copy, tmp_path, **BY_TIME)
        assert list(found.values) == [1, 3]
        assert found.verdict is OutcomeVerdict.PARTIAL
        assert found.pairs[1].remark.endswith("took the times, which do not compare")


def _other_search(run: Path) -> None:
    steps = (run / "steps.jsonl").read_bytes()
    (run / "steps.jsonl").write_bytes(steps.replace(b'"step":3,', b'"step":4,', 1))


def test_the_page_says_plan_and_outcome(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text({}, {"key": "main.r", "seeds": 4, "role": "secondary"}, seeds=4))
    summary = build_plan_summary(root, read_plan(path), plan_sha256(path))
    with drawn():
        page = write_plan_report(summary, tmp_path / "out").read_text()
    assert (tmp_path / "out" / "figures" / "outcomes.png").stat().st_size > 5000
    assert summary.partial
    for words in (
        "PARTIAL.",
        "Main, against frozen, n = 3 of 4 seeds: no verdict yet. So far Valid (points) +",
        "Is it so?",
        "Corrected for 1 comparison. What would count against it: an interval below zero",
        "n = 3 of 4 planned: partial: no verdict",
        "main.r: 3 of 4 seeds: no verdict",
        "10 runs were not recorded under this plan",
        'src="figures/outcomes.png"',
    ):
        assert words in page
    assert (tmp_path / "out" / "figures" / "outcomes.csv").read_text().count("\n") == 4
    table = build_outcome_table(summary.outcomes, summary.plan)
    assert table.cell("main.q/native minus frozen", "Planned").value == 3
    assert all((root / o.path).is_file() for row in table.rows for cell in row.cells for o in cell.origins)


def test_comparisons_of_a_question_have_names_of_their_own(tmp_path: Path) -> None:
    plan = read_plan(PLAN)
    found = compute_outcomes(tmp_path, plan)
    names = Counter((one.question.key, one.name) for one in found)
    assert [name for name, number in names.items() if number > 1] == []
    sizes = [one.name for one in found if one.question.key == "size.validity"]
    assert "group-size-2: factorized minus frozen" in sizes
    assert "main: factorized minus frozen" in sizes
    assert {one.name for one in found if one.question.key == "main.validity"} >= {"native minus frozen"}


def test_a_study_before_its_turn_is_a_deviation(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    later = 'key = "later"\ntitle = "Later"\nprofiles = ["main"]\nlayers = ["anchor"]\nseeds = 3\nhours = 1\n'
    path.write_text(plan_text({"seeds": 4}, seeds=4) + f"\n[[studies]]\n{later}")
    plan = read_plan(path)
    runs, found = read_recorded_runs(root), compute_outcomes(root, plan)
    told = find_deviations(plan, plan_sha256(path), runs, found)
    assert "later was recorded before all of main, which come first in the plan" in told[""]
    without = {place: manifest for place, manifest in runs.items() if "/anchor/" not in place}
    told = find_deviations(plan, plan_sha256(path), without, found)
    assert told["later"] == [NOTHING]
    assert not any("sets first" in line for line in told[""])


def test_what_differs_within_seeds_is_told(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text({"seeds": 4}, seeds=4))
    plan, runs = read_plan(path), read_recorded_runs(root)

    def told(*changed: str) -> list[str]:
        others = dict(runs)
        for place in changed:
            manifest = others[place]
            environment = replace(manifest.environment, cpu="another")
            source = replace(manifest.source, sha256="f" * 64)
            others[place] = replace(manifest, environment=environment, source=source)
        lines = find_deviations(plan, plan_sha256(path), others, [])[""]
        return [line.partition("; ")[2] for line in lines if line.startswith("several ")]

    native, frozen = "main/cohort/native-s2", "main/cohort/frozen-s2"
    seeds = len({name.rpartition("-s")[2] for name in runs if name.startswith("main/cohort/")})
    assert told(native) == [f"within 1 of {seeds} seeds of main/cohort the two sides differ in it"] * 2
    assert told(native, frozen) == ["", ""]
    assert told() == []


def test_a_probe_is_read_by_checkpoint(tmp_path: Path) -> None:
    answers = {
        "initial": [(-1.0, None), (None, None)],
        "native-s1": [(-1.0, -1.0), (-1.0, None)],
        "native-s2": [(-1.0, None), (None, -1.0)],
    }
    write_synthetic_probe(tmp_path / "main" / "probe", [(), ()], answers)
    pairs = '[["main/probe/native", "main/probe/initial"]]'
    found = asked(tmp_path, tmp_path, pairs=pairs, horizon=4, seeds=2)
    assert dict(found.values) == {1: 0.5, 2: 0.25}
    assert [side.file for side in found.pairs[0].sides] == [
        "main/probe/native-s1.jsonl",
        "main/probe/initial.jsonl",
    ]
    assert found.verdict is not OutcomeVerdict.PARTIAL
    assert asked(tmp_path, tmp_path, pairs=pairs, horizon=4, seeds=3).verdict is OutcomeVerdict.PARTIAL
    with pytest.raises(ConfigError, match="final_best"):
        asked(tmp_path, tmp_path, pairs=pairs, horizon=4, seeds=2, metric="final_best")


def test_groups_told_apart_and_metrics_unknown(root: Path, tmp_path: Path) -> None:
    question = {"estimator": "description", "interval": "none", "pairs": '[["main/cohort/frozen"]]'}
    found = asked(root, tmp_path, metric="advantage_difference", seeds=1, **question)
    (run,) = load_runs(root / "main" / "cohort" / "frozen-s1")
    tallied = tally("tsp", run.batch, MAPPINGS, {"group": find_normalizer("group")})
    shares = [1.0 - pair.equivalent[-1] / pair.groups for pair in tallied.pairs.values()]
    assert found.mean is not None
    assert max(shares) <= found.mean <= sum(shares)
    assert "Groups told apart (%)" in format_outcome(found)
    with pytest.raises(ConfigError, match="'speed': choose one of .*valid_rate"):
        asked(root, tmp_path, metric="speed")


@pytest.fixture
def uneven(root: Path, tmp_path: Path) -> Path:
    """A cohort that has three seeds of frozen and native, two of factorized, one of tail-weighted."""
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    for condition, seeds in (("factorized", (1, 2)), ("tail_weighted", (1,))):
        for seed in seeds:
            write_synthetic_run(copy / f"main/cohort/{condition}-s{seed}", condition, seed)
    return copy


def concluded(root: Path, path: Path, seeds: int) -> str:
    """The conclusion of three conditions against frozen, where a plan asks for so many seeds."""
    sides = ("native", "factorized", "tail_weighted")
    pairs = ", ".join(f'["main/cohort/{side}", "main/cohort/frozen"]' for side in sides)
    path.write_text(plan_text({"pairs": f"[{pairs}]", "seeds": seeds}, seeds=seeds))
    return conclude(compute_outcomes(root, read_plan(path)))


def test_verdicts_are_concluded_apart_from_what_lacks_seeds(uneven: Path, tmp_path: Path) -> None:
    sentence = concluded(uneven, tmp_path / "plan.toml", 3)
    assert "; native against frozen, n = 3: " in sentence
    assert " in 1 of 1 (" in sentence
    assert sentence.endswith("; awaited: factorized (2 of 3 seeds), tail_weighted (1 of 3 seeds).")
    # Conditions that have one, two and three of four seeds are one sentence of ``1 to 3``.
    assert "n = 1 to 3 of 4 seeds: no verdict yet" in concluded(uneven, tmp_path / "plan.toml", 4)
