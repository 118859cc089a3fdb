"""Each estimator on records small enough to count by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import msgspec
import numpy as np
import pytest
from spec.strategies import group, record
from spec.synthetic_runs import write_synthetic_run
from tests.audits import audit

from search_to_signal.base.errors import RecordError
from search_to_signal.base.seeding import stream
from search_to_signal.credit import MAPPINGS
from search_to_signal.credit.normalizers import NORMALIZERS, group_advantages
from search_to_signal.layers.audit.tables import replay_context, replay_pairs
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.schema import CALM_OPERATORS, ArchiveEvent, CompletionRecord, Outcome
from search_to_signal.report.metrics.search import CLASSES, CandidateClass
from search_to_signal.report.results import RecordedRun, Results, load_runs
from search_to_signal.report.tables.cells import Cell, Cells, combined_cell
from search_to_signal.report.tables.core import (
    admissions,
    calls_after,
    collapse_parts,
    collapses,
    coverage,
    few_seeds,
    funnel_cells,
    funnels,
    interval_coverage,
    intervals,
    next_occurrence,
    operator_gains,
    paired,
    paired_signs,
    percentile_interval,
    recurrence_cells,
    stages,
    truncated,
    windows,
)
from search_to_signal.report.tables.credit import (
    claim_matrix,
    controls,
    counts_under,
    credit,
    group_size,
    normalizer_values,
    run_counts,
    signal,
    size_parts,
)

pytestmark = pytest.mark.slow

Make = Callable[..., Path]


def loaded(directory: Path) -> RecordedRun:
    """The one run of a directory."""
    (run,) = load_runs(directory)
    return run


def with_groups(run: RecordedRun, groups: Sequence[Sequence[CompletionRecord]]) -> RecordedRun:
    """The same run with other records, and as many steps."""
    manifest = msgspec.structs.replace(run.manifest, config={**run.config, "groups": len(groups)})
    steps = tuple(msgspec.structs.replace(run.steps[0], step=t, collapsed=False) for t in range(len(groups)))
    return replace(run, manifest=manifest, groups=tuple(map(tuple, groups)), steps=steps)


def values(cells: Cells) -> list[object]:
    """The values of cells, column by column."""
    return [cell.value for cell in cells.values()]


@pytest.fixture
def native(make_run: Make, tmp_path: Path) -> RecordedRun:
    """Four groups, each an improvement, a failure, a copy of the best, and a worse novelty."""
    return loaded(make_run(tmp_path / "native-s1", "native", 1))


@pytest.fixture
def pair(make_run: Make, tmp_path: Path) -> Results:
    """Frozen and native, two seeds; native gains a hundredth of its seed more in every group."""
    for seed in (1, 2):
        make_run(tmp_path / "cohort" / f"frozen-s{seed}", "frozen", seed)
        make_run(tmp_path / "cohort" / f"native-s{seed}", "native", seed, shift=0.01 * seed)
    return Results(tmp_path)


def test_funnels_by_hand(native: RecordedRun) -> None:
    batch = group(
        [Outcome.MISSING_CODE, Outcome.RUNTIME_FAILURE, Outcome.RANDOMNESS, -9.0, -5.0],
        bases=[-6.0],
        frontier=-5.5,
    )
    cells = funnel_cells(batch, None)  # type: ignore[arg-type]
    assert values(cells) == [5, 80.0, 60.0, 40.0, 20.0, 20.0]
    parts = funnels(native, CALM_OPERATORS)
    assert values(parts["replacement"]) == values(parts["all"]) == [16, 100.0, 75.0, 75.0, 25.0, 25.0]
    assert values(parts["injection"]) == [0, None, None, None, None, None]
    assert parts["replacement"]["Completions"].origins[0].lines == tuple(range(1, 17))


def test_admissions_by_hand(native: RecordedRun) -> None:
    cells = admissions.function(native)
    assert values(cells) == [8, 4, 50.0, 50.0]
    assert cells["Beat the frontier"].origins[0].lines == (1, 5, 9, 13)
    kept, twice = native.groups[0][0], native.groups[0][2]
    again = msgspec.structs.replace(twice, score=kept.score)
    run = with_groups(native, [[kept, native.groups[0][1], again, native.groups[0][3]]])
    assert values(admissions.function(run)) == [2, 1, 50.0, 50.0]


def test_credit_by_hand(native: RecordedRun) -> None:
    parts = credit.function(native)
    advantages = native.advantages
    assert advantages is not None
    mass = np.maximum(advantages, 0.0).sum(axis=0)
    candidates, prevalence, share, enrichment, *_, rate = values(parts["strict_frontier_improving"])
    assert (candidates, prevalence, rate) == (4, 25.0, 100.0)
    assert share == pytest.approx(100.0 * mass[0] / mass.sum())
    assert enrichment == pytest.approx(4.0 * mass[0] / mass.sum())
    assert values(parts["invalid"])[2] == 0.0
    # Every group has an improver, so none gives credit without one.
    assert values(signal.function(native)) == [4, 0.0, 0.0, None]


def test_enrichment_is_the_ratio_of_means(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_synthetic_run(tmp_path / "cohort" / f"native-s{seed}", "native", seed, groups=20)
    results = Results(tmp_path)
    table = credit(results)
    for name in CLASSES:
        seeds = [values(credit.function(run)[name.value]) for run in results.cohort]
        mass, prevalence = (np.mean([seed[i] for seed in seeds]) for i in (2, 1))
        row = f"native/{name.value}"
        expected = pytest.approx(mass / prevalence)
        assert table.cell(row, "Enrichment").value == expected
        assert table.cell(row, "Mean of seeds' enrichments").value == pytest.approx(
            np.mean([seed[3] for seed in seeds])
        )
        assert table.cell(row, "Enrichment by seed").text() == ", ".join(f"{seed[3]:.3f}" for seed in seeds)
        assert controls(results).cell("native/recorded", f"Enrichment {name.value}").value == expected
        if name is not CandidateClass.INVALID:
            assert group_size(results).cell("native/G=4", f"Enrichment {name.value}").value == expected
    both = [
        table.cell("native/parent_improving", c).value for c in ("Enrichment", "Mean of seeds' enrichments")
    ]
    assert both[0] != pytest.approx(both[1], rel=1e-3)


def test_a_class_that_a_seed_lacks_still_has_its_enrichment() -> None:
    present, absent = (Cell(v, terms=t) for v, t in ((4.0, (0.4, 0.1)), (None, (0.0, 0.0))))
    assert combined_cell([present, absent]).value == pytest.approx(4.0)
    assert combined_cell([absent, absent]).value is None
    assert combined_cell([present, Cell(None)]).value is None


def test_stages_coverage_and_prefix_by_hand(native: RecordedRun) -> None:
    parts = stages.function(native)
    assert [parts[name]["Best at the end"].value for name in parts] == pytest.approx([-6.9, -6.8, -6.6])
    assert [list(parts[name]["Valid (%)"].origins[0].lines) for name in parts] == [  # type: ignore[arg-type]
        [1, 2, 3, 4],
        [5, 6, 7, 8],
        list(range(9, 17)),
    ]
    responses, prompts, parents, programs, valid, scores = values(coverage.function(native))
    assert (responses, prompts, parents, programs, valid) == (100.0, 100.0, 100.0, 100.0, 100.0)
    # Per group the improvement and the novelty are new scores; copies repeat the group before, or the seed.
    assert scores == pytest.approx(100.0 * 9 / 12)
    head = native.prefix(2)
    assert head.groups == native.groups[:2]
    assert list(head.all_completions.lines or ()) == list(range(1, 9))
    assert head.metrics.final_best == pytest.approx(-6.8)
    with pytest.raises(RecordError, match="only 4"):
        native.prefix(5)


def test_recurrence_by_hand(native: RecordedRun) -> None:
    """Text a returns after two groups, b never; within two groups half of the positive ones recur."""
    texts = [("a", "b"), ("c", "d"), ("a", "e"), ("f", "g")]
    run = with_groups(
        native,
        [
            [
                record(step=t, index=i, response_sha256=text, advantage=1.0 - 2.0 * i)
                for i, text in enumerate(row)
            ]
            for t, row in enumerate(texts)
        ],
    )
    assert next_occurrence(run).tolist() == [[2, np.inf], [np.inf] * 2, [np.inf] * 2, [np.inf] * 2]
    assert values(recurrence_cells(run, within=2)) == [25.0, 50.0, 0.0, 50.0]
    assert values(recurrence_cells(run, within=1))[0] == 0.0
    assert values(recurrence_cells(run, within=4)) == [None] * 4
    run = with_groups(native, [[record(step=t, response_sha256="a", advantage=0.0)] for t in range(3)])
    assert values(recurrence_cells(run, within=1)) == [100.0, None, 100.0, None]


def test_windows_and_their_change_by_hand(native: RecordedRun) -> None:
    assert windows([3, 4, 9], 10, 3) == [(0, 3, 4), (3, 4, 7), (6, 9, 10)]
    assert windows([0], 5, 3) == []
    failed = dict(score=None, outcome=Outcome.RUNTIME_FAILURE, archive_gap=None, exposure=None)
    groups = [
        [record(step=t, index=0), record(step=t, index=1, **(failed if t < 2 else {}))] for t in range(4)
    ]
    run = with_groups(native, groups)
    steps = tuple(msgspec.structs.replace(step, collapsed=step.step == 2) for step in run.steps)
    assert values(collapse_parts(replace(run, steps=steps))["Valid (%)"]) == [
        *(1, 1, 0, 1, 1),
        *(50.0, 100.0, 50.0),
    ]
    assert values(collapse_parts(run)["Valid (%)"]) == [0, 0, 0, 0, 0, None, None, None]
    failed = dict(score=None, outcome=Outcome.RUNTIME_FAILURE, archive_gap=None, exposure=None)
    groups = [[record(step=t, index=0, **(failed if t >= 4 else {"score": -6.0 - t}))] for t in range(6)]
    run = with_groups(native, groups)
    steps = tuple(msgspec.structs.replace(step, collapsed=step.step in (0, 2, 4)) for step in run.steps)
    parts = collapse_parts(replace(run, steps=steps))
    # After the collapse at 4 nothing is valid, so its window has a validity and no mean score.
    assert values(parts["Valid (%)"]) == [1, 3, 1, 2, 2, 100.0, 50.0, -50.0]
    assert values(parts["Valid-only perf."]) == [1, 3, 1, 2, 1, -6.5, -8.5, -2.0]


def test_collapses_over_seeds_count_seeds(make_run: Make, tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / "cohort" / f"native-s{seed}", "native", seed)
    steps = tmp_path / "cohort" / "native-s1" / "steps.jsonl"
    lines = steps.read_text().splitlines(keepends=True)
    steps.write_text(
        "".join([*lines[:2], lines[2].replace('"collapsed":false', '"collapsed":true'), lines[3]])
    )
    write_sums(steps.parent)
    table = collapses(Results(tmp_path))
    row = "native/Valid (%)"
    assert [table.cell(row, name).value for name in ("Seeds", "Collapses", "Windows")] == [1, 1, 1]
    assert table.cell(row, "Change").n == 1
    assert "of n = 2 seeds" in table.note


def outcomes_only(run: RecordedRun, *outcomes: Outcome) -> RecordedRun:
    """The run with these outcomes in every group, each as an isolated worker would have recorded it."""
    ran = {Outcome.MISSING_RATIONALE: "not_run", Outcome.MISSING_FUNCTION: "no_function"}
    lost = dict(score=None, archive_gap=None, exposure=None, archive_event=ArchiveEvent.INVALID)
    return with_groups(
        run,
        [
            [
                msgspec.structs.replace(
                    r, outcome=o, evaluation=ran.get(o, "ok"), **({} if o is Outcome.VALID else lost)
                )
                for r, o in zip(group, outcomes, strict=True)
            ]
            for group in run.groups
        ],
    )


def test_evaluator_calls_by_hand(native: RecordedRun) -> None:
    failed = (Outcome.MISSING_RATIONALE,) * 3
    frozen = outcomes_only(native, Outcome.VALID, *failed)
    assert calls_after(frozen).tolist() == [1, 2, 3, 4]
    budget, kept, best, base, difference = values(truncated(native, frozen))
    assert (budget, kept) == (4.0, 1.0)
    assert best == pytest.approx(-6.9)
    assert base == pytest.approx(-6.6)
    assert difference == pytest.approx(-0.3)
    # The host looks for the function first (D04), so it counts what ran, failed or random; as parsed.
    run = outcomes_only(
        native, Outcome.VALID, Outcome.MISSING_FUNCTION, Outcome.RUNTIME_FAILURE, Outcome.RANDOMNESS
    )
    assert calls_after(run).tolist() == [3, 6, 9, 12]
    assert calls_after(run)[-1] == run.batch.evaluated.sum()
    assert values(funnels(run, CALM_OPERATORS)["all"])[:2] == [16, 75.0]


def test_differences_are_within_seeds(pair: Results) -> None:
    """Native gains 0.04 and 0.08 in four groups: mean 0.06, deviation 0.0283, positive in both seeds."""
    table = paired(pair)
    cell = table.cell("native minus frozen", "Final best")
    assert (cell.value, cell.spread, cell.n) == (pytest.approx(0.06), pytest.approx(0.04 / 2**0.5), 2)
    assert table.cell("native-s2 minus frozen-s2", "Final best").value == pytest.approx(0.08)
    paths = {origin.path for origin in table.cell("native-s2 minus frozen-s2", "Final best").origins}
    assert paths == {"cohort/native-s2/completions.jsonl", "cohort/frozen-s2/completions.jsonl"}
    directions = paired_signs(pair)
    assert directions.cell("native minus frozen/better", "Final best").value == 2
    assert directions.cell("native minus frozen/equal", "Valid (points)").value == 2
    gains = operator_gains(pair)
    assert gains.cell("native minus frozen/replacement", "Valid (points)").value == 0.0
    for table in (paired(pair), paired_signs(pair)):
        assert "n = 2 seeds" in table.note
        assert "p below 0.5." in table.note


def test_ties_are_shown(make_run: Make, tmp_path: Path) -> None:
    for seed, shift in ((1, 0.01), (2, 0.0), (3, -0.01)):
        make_run(tmp_path / "cohort" / f"frozen-s{seed}", "frozen", seed)
        make_run(tmp_path / "cohort" / f"native-s{seed}", "native", seed, shift=shift)
    table = paired_signs(Results(tmp_path))
    rows = [f"native minus frozen/{direction}" for direction in ("better", "equal", "worse")]
    assert [table.cell(row, "Final best").value for row in rows] == [1, 1, 1]
    assert [table.cell(row, "Valid (points)").value for row in rows] == [0, 3, 0]
    for column in table.columns:
        assert sum(int(str(table.cell(row, column).value)) for row in rows) == 3


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_least_p_of_a_sign_flipping_test(n: int) -> None:
    differences = np.arange(1.0, n + 1.0)
    means = [abs((differences * flips).mean()) for flips in product((1, -1), repeat=n)]
    least = sum(mean >= means[0] for mean in means) / len(means)
    assert f"cannot give p below {least:.3g}." in few_seeds([n])


def test_controls_tell_merit_from_composition(tmp_path: Path) -> None:
    run = loaded(write_synthetic_run(tmp_path / "native-s1", "native", 1, groups=200))
    parts = controls.function(run)
    recorded = [values(cells)[3] for cells in credit.function(run).values()]
    assert values(parts["recorded"])[:4] == recorded
    assert values(parts["across"])[:4] == pytest.approx([1.0] * 4, abs=0.1)
    assert values(parts["constant"]) == [None] * 4 + [100.0, 0.0]
    # Inside a group a shuffle keeps which groups are flat, and so how much credit there is.
    assert values(parts["within"])[4:] == pytest.approx(values(parts["recorded"])[4:])


def test_full_group_size_is_the_record(tmp_path: Path) -> None:
    run = loaded(write_synthetic_run(tmp_path / "native-s1", "native", 1, groups=60))
    parts, classes = size_parts(run), credit.function(run)
    assert list(parts) == ["G=2", "G=3", "G=4"]
    assert values(parts["G=4"])[1:3] == values(classes["valid_non_improving"])[2:4]
    assert values(parts["G=2"]) != values(parts["G=4"])
    assert size_parts(run)["G=2"] == parts["G=2"]


def test_the_papers_normalizer_gives_the_recorded_credit(pair: Results) -> None:
    run = pair.cohort[-1]
    again, seen = counts_under(run, NORMALIZERS["group"]), run_counts(run)
    assert again.total_mass == pytest.approx(seen.total_mass)
    np.testing.assert_array_equal(again.positive, seen.positive)
    label = "native/enrichment of frontier improvers"
    expected = credit(pair).cell("native/strict_frontier_improving", "Enrichment").value
    assert normalizer_values(pair).cell(label, "group").value == pytest.approx(expected)
    own = credit(pair).cell("native-s2/strict_frontier_improving", "Enrichment").value
    seed = "native-s2/enrichment of frontier improvers"
    assert normalizer_values(pair).cell(seed, "group").value == pytest.approx(own)
    claim = claim_matrix(pair).cell(f"{label} > 1", "rank")
    assert (claim.value, claim.n) == (2, 2)


def exact_coverage(seeds: int, trials: int) -> float:
    """Coverage of nominal 95 % intervals from all seeds^seeds resamples, of normal samples."""
    picks = np.array(list(product(range(seeds), repeat=seeds)))
    samples = np.random.default_rng(3).normal(size=(trials, seeds))
    low, high = np.quantile([sample[picks].mean(axis=1) for sample in samples], [0.025, 0.975], axis=1)
    return float(((low <= 0.0) & (high >= 0.0)).mean())


def test_intervals_state_their_measured_coverage(make_run: Make, tmp_path: Path) -> None:
    for seed in range(1, 6):
        make_run(tmp_path / "cohort" / f"frozen-s{seed}", "frozen", seed)
        make_run(tmp_path / "cohort" / f"native-s{seed}", "native", seed, shift=0.01 * seed)
    table = intervals(Results(tmp_path))
    share = interval_coverage(5)
    assert share == pytest.approx(exact_coverage(5, 1500), abs=0.035)
    assert share < 0.9
    assert f"{share:.1%}" in table.note
    assert f"{len(table.rows)} intervals" in table.note
    cell = table.cell("native minus frozen/Final best", "Measured coverage (%)")
    assert (cell.value, cell.n) == (100.0 * share, 5)
    assert f"about {len(table.rows) * (1.0 - share):.0f} of them miss" in table.note
    best = {run.name: run.metrics.final_best or 0.0 for run in load_runs(tmp_path / "cohort")}
    apart = [best[f"native-s{seed}"] - best[f"frozen-s{seed}"] for seed in range(1, 6)]
    ends = percentile_interval(apart, stream(0, "bootstrap", "native minus frozen", "final_best"))
    found = [table.cell("native minus frozen/Final best", end).value for end in ("Low", "High")]
    assert found == pytest.approx(ends, abs=1e-12)


def test_replay_tables_are_the_audit(pair: Results) -> None:
    """Sixteen groups of four runs, under all pairs of mappings; the paper's own tallies, with n in groups."""
    table = replay_pairs(pair)
    labels = {f"cohort/{one}, {other}" for one, other in combinations(MAPPINGS, 2)}
    assert {row.label for row in table.rows} == labels
    cell = table.cell("cohort/native, factorized", "Equivalent (%)")
    tally = audit([("tsp", run.batch) for run in pair.cohort], MAPPINGS, {"group": group_advantages})
    expected = int(tally.pairs["all", "group", "native", "factorized"].equivalent[-1])
    assert (cell.value, cell.n) == (100.0 * expected / 16, 16)
    frontier = replay_context(pair).cell("cohort/frontier", "Reordered")
    assert (frontier.value, frontier.n) == (0, 16)
