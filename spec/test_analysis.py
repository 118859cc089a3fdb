"""Which runs may make a table, and what an aggregate over them may be (paper, Evidence Scope; Exclusions)."""

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.credit import MAPPINGS
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.manifest import read_manifest, write_manifest
from search_to_signal.report.metrics.search import count_credit, credit_table
from search_to_signal.report.results import NoTableError, Results, load_runs
from search_to_signal.report.tables.catalogue import BUILDERS, build, catalogue
from search_to_signal.report.tables.cells import Cell, mean_cell
from search_to_signal.report.tables.core import (
    LEAST_SEEDS,
    funnel_masks,
    percentile_interval,
    stage_bounds,
    windows,
)
from search_to_signal.report.tables.credit import controlled_rewards, subsampled
from spec.strategies import groups, reward_rows
from spec.synthetic_runs import write_synthetic_run

CONDITIONS, SEEDS = ("frozen", "native", "factorized"), (1, 2, 3)
GRID = list(product(CONDITIONS, SEEDS))


def copied(run: Path, to: Path) -> None:
    """A run of the shelf somewhere else; its files are hard links, since nothing changes them."""
    shutil.copytree(run, to, copy_function=os.link)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of every condition and seed; an example links those that it wants."""
    root = tmp_path_factory.mktemp("shelf")
    for condition, seed in GRID:
        write_synthetic_run(root / f"{condition}-s{seed}", condition, seed, groups=6)
    return root


@pytest.fixture(scope="module")
def linked(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[tuple[str, int]]], Path]:
    """A results directory whose cohort has some runs of the shelf."""

    def make(chosen: list[tuple[str, int]], layer: str = "cohort") -> Path:
        root = tmp_path_factory.mktemp("results")
        (root / layer).mkdir()
        for condition, seed in chosen:
            name = f"{condition}-s{seed}"
            copied(shelf / name, root / layer / name)
        return root

    return make


@pytest.fixture(scope="module")
def altered(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A whole cohort in which one run has another manifest."""

    def make(place: tuple[str, int], config: dict[str, object], **changes: object) -> Path:
        root = tmp_path_factory.mktemp("altered")
        for condition, seed in GRID:
            name = f"{condition}-s{seed}"
            if (condition, seed) != place:
                copied(shelf / name, root / name)
                continue
            (root / name).mkdir()
            for file in ("completions.jsonl", "steps.jsonl", "timings.jsonl"):
                (root / name / file).write_bytes((shelf / name / file).read_bytes())
            plain = read_manifest(shelf / name)
            changes["config"] = {**plain.config, **config}
            write_manifest(root / name, msgspec.structs.replace(plain, **changes))
            write_sums(root / name)
        return root

    return make


@given(chosen=st.lists(st.sampled_from(GRID), min_size=1, unique=True))
def test_a_missing_run_is_refused(linked: Callable[..., Path], chosen: list[tuple[str, int]]) -> None:
    """R-ANA-01: A cohort is conditions x seeds; each missing run is named, and no table is made."""
    root = linked(chosen)
    whole = set(product({condition for condition, _ in chosen}, {seed for _, seed in chosen}))
    missing = [f"{condition}-s{seed}" for condition, seed in whole - set(chosen)]
    if not missing:
        assert {(run.condition, run.seed) for run in Results(root).cohort} == whole
        return
    with pytest.raises(RunDirectoryError) as refusal:
        catalogue(Results(root))
    assert all(name in str(refusal.value) for name in missing)


@given(
    place=st.sampled_from(GRID),
    config=st.sampled_from(
        [{"purpose": "smoke"}, {"groups": 7}, {"layer": "restart"}, {"split": "train"}, {"search": {"a": 1}}]
    ),
)
def test_one_protocol(
    altered: Callable[..., Path], place: tuple[str, int], config: dict[str, object]
) -> None:
    """R-ANA-02: A run that was made otherwise than the rest is refused by name, with what differs."""
    with pytest.raises(RunDirectoryError, match=f"{place[0]}-s{place[1]}.*{next(iter(config))}"):
        load_runs(altered(place, config))


@given(place=st.sampled_from(GRID))
def test_unfinished_runs(altered: Callable[..., Path], place: tuple[str, int]) -> None:
    """R-ANA-03: An unfinished run stops every table and is named."""
    with pytest.raises(RunDirectoryError, match=f"{place[0]}-s{place[1]} is unfinished"):
        load_runs(altered(place, {}, status="running"))


@pytest.mark.parametrize("layer", ["restart", "api", "anchor", "breadth/tsp-tiny"])
def test_layers_are_not_pooled(shelf: Path, tmp_path: Path, layer: str) -> None:
    """R-ANA-04: A run of one evidence layer that lies in another's directory is refused by name."""
    (tmp_path / layer).mkdir(parents=True)
    copied(shelf / "native-s1", tmp_path / layer / "native-s1")
    with pytest.raises(RunDirectoryError, match=r"native-s1 \(cohort\).*never pooled"):
        getattr(Results(tmp_path), layer.split("/")[0])


def test_smoke_runs_make_no_formal_table(tmp_path: Path) -> None:
    """R-ANA-05: Tables of smoke runs bear another name, and smoke runs beside formal ones make none."""
    smoke = {"purpose": "smoke"}
    for condition in ("frozen", "native"):
        where = tmp_path / "cohort" / f"{condition}-s1"
        write_synthetic_run(where, condition, 1, groups=6, config=smoke)
    found = catalogue(Results(tmp_path))
    assert found.tables
    assert all(table.name.startswith("smoke_") for table in found.tables)
    write_synthetic_run(tmp_path / "restart" / "native-s1", "native", 1, groups=6, layer="restart")
    with pytest.raises(RunDirectoryError, match="both smoke runs and formal ones"):
        build(Results(tmp_path), "core_results")


def test_every_cell_carries_its_n_and_its_records(linked: Callable[..., Path]) -> None:
    """R-ANA-06: Every cell of every table has its number of units, a formula, and records that exist."""
    root = linked(GRID)
    found = catalogue(Results(root))
    assert len(found.tables) > 15
    lines = {path: len(path.read_bytes().splitlines()) for path in root.glob("cohort/*/*.jsonl")}
    for table in found.tables:
        assert len({row.label for row in table.rows}) == len(table.rows)
        for row in table.rows:
            assert len(row.cells) == len(table.columns)
            for cell in row.cells:
                assert cell.formula
                units = 6 * len(GRID) if table.layer == "audit" else len(SEEDS)
                assert cell.n in (1, units), (table.name, row.label)
                assert cell.origins
                for origin in cell.origins:
                    numbers = origin.lines if origin.lines is not None else (1,)
                    assert all(1 <= number <= lines[root / origin.path] for number in numbers)


@given(values=st.lists(st.floats(-100, 100), min_size=1, max_size=8), order=st.randoms(use_true_random=False))
def test_the_seed_is_the_unit(values: list[float], order: object) -> None:
    """R-ANA-07: A mean over seeds is plain and carries their number, in whatever order they come."""
    cells = [Cell(value, formula="f") for value in values]
    mean = mean_cell(cells)
    assert mean.n == len(values)
    assert mean.value == pytest.approx(math.fsum(values) / len(values), abs=1e-9)
    assert (mean.spread is None) == (len(values) == 1)
    if mean.spread is not None:
        assert mean.spread == pytest.approx(float(np.std(values, ddof=1)), abs=1e-9)
    shuffled = list(cells)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert mean_cell(shuffled).value == pytest.approx(mean.value, abs=1e-9)


@given(values=st.lists(st.floats(-10, 10), min_size=1, max_size=12))
def test_intervals_need_seeds(values: list[float]) -> None:
    """R-ANA-08: No interval is printed below five seeds; above, it lies within the seeds' range."""
    rng = np.random.default_rng(1)
    if len(values) < LEAST_SEEDS:
        with pytest.raises(NoTableError, match="too few"):
            percentile_interval(values, rng)
        return
    low, high = percentile_interval(values, rng)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_three_seeds_have_no_intervals(linked: Callable[..., Path]) -> None:
    """R-ANA-09: A cohort of three seeds has its seed rows and no table of intervals, which says why."""
    found = catalogue(Results(linked(GRID)))
    assert "intervals" not in {table.name for table in found.tables}
    assert "too few" in found.absent["intervals"]
    assert "core_seeds" in {table.name for table in found.tables}


def test_layers_that_have_not_run_give_no_table(linked: Callable[..., Path]) -> None:
    """R-ANA-10: A layer that has not run gives no table, and the catalogue says that it has not run."""
    found = catalogue(Results(linked(GRID)))
    for name in ("restart", "breadth", "anchor", "probe", "api", "heldout"):
        assert "has not run" in found.absent[name]
    assert {table.layer for table in found.tables} == {"cohort", "audit"}
    assert {table.name for table in found.tables} | set(found.absent) == set(BUILDERS)
    with pytest.raises(ConfigError, match="core_results"):
        build(Results(linked(GRID)), "core")


@given(batch=groups())
def test_funnels_narrow(batch: GroupBatch) -> None:
    """R-ANA-11: Parsed contains executable contains valid contains improving and frontier (D04, D05)."""
    parsed, executable, valid, better, frontier = funnel_masks(batch)
    assert not (executable & ~parsed).any()
    assert not (valid & ~executable).any()
    assert not ((better | frontier) & ~valid).any()


@given(rewards=reward_rows(), seed=st.integers(0, 100))
def test_controls_keep_what_they_should(rewards: np.ndarray, seed: int) -> None:
    """R-ANA-12: Shuffles keep the rewards, of a group or of the run; constant rewards give no credit."""
    stacked = np.concatenate([rewards, rewards + 1.0])
    for shuffled in controlled_rewards(stacked, "within", seed):
        np.testing.assert_array_equal(np.sort(shuffled, axis=1), np.sort(stacked, axis=1))
    for shuffled in controlled_rewards(stacked, "across", seed):
        np.testing.assert_array_equal(np.sort(shuffled, axis=None), np.sort(stacked, axis=None))
    (constant,) = controlled_rewards(stacked, "constant", seed)
    assert not group_advantages(constant).any()


@given(batch=groups(size=st.integers(3, 8)), name=st.sampled_from(sorted(MAPPINGS)), seed=st.integers(0, 100))
def test_subsamples_are_groups(batch: GroupBatch, name: str, seed: int) -> None:
    """R-ANA-13: A subsample has completions of its group alone, in order, and every mapping can read it."""
    batch = replace(batch, response=np.arange(batch.response.size).reshape(batch.response.shape))
    small = subsampled(batch, 2, np.random.default_rng(seed))
    first, second = small.response[0]
    assert first < second
    np.testing.assert_array_equal(small.score[0], batch.score[0, [first, second]])
    np.testing.assert_array_equal(small.bases, batch.bases)
    counts = count_credit(small, group_advantages(MAPPINGS[name](small).reward))
    assert sum(entry.candidates for entry in credit_table(counts)) == 2


@given(length=st.integers(1, 600))
def test_stages_cover_a_run_once(length: int) -> None:
    """R-ANA-14: Early, middle and late follow each other without gap; 500 groups split as in the paper."""
    bounds = list(stage_bounds(length).values())
    assert bounds[0][0] == 0
    assert bounds[-1][1] == length
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert list(stage_bounds(500).values()) == [(0, 100), (100, 250), (250, 500)]


@given(length=st.integers(1, 80), width=st.integers(1, 12), at=st.sets(st.integers(0, 79), max_size=8))
def test_windows_hold_one_population_a_side(length: int, width: int, at: set[int]) -> None:
    """R-ANA-15: A collapse window stays within its width, within the run, and short of other collapses."""
    collapses = sorted(step for step in at if step < length)
    found = windows(collapses, length, width)
    assert [middle for _, middle, _ in found] == [step for step in collapses if step > 0]
    for start, middle, stop in found:
        assert 0 <= start < middle < stop <= length
        assert middle - start <= width
        assert stop - middle <= width
        assert not any(start < other < stop for other in collapses if other != middle)
