"""Tables of the layers beside the cohort: what they compare, and what they refuse."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.forging import record_elsewhere
from tests.probes import write_synthetic_probe

from search_to_signal.base.errors import ContractError, RunDirectoryError
from search_to_signal.layers.anchor.tables import anchor, anchor_realized
from search_to_signal.layers.api.tables import api
from search_to_signal.layers.audit.tables import replay_pairs
from search_to_signal.layers.breadth.tables import breadth, breadth_gains
from search_to_signal.layers.heldout.tables import heldout
from search_to_signal.layers.probe.tables import probe
from search_to_signal.layers.restart.tables import restart, restart_paired, restart_signs
from search_to_signal.records.anchor import AnchorBudget, AnchorContract, Clock, write_contract
from search_to_signal.records.checksums import sha256_file, write_sums
from search_to_signal.records.manifest import read_manifest
from search_to_signal.report.figures import draw_all
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables.catalogue import build, catalogue, read_evidence
from search_to_signal.report.tables.core import core_seeds, prompts_of
from search_to_signal.report.tables.measures import RunComparison, at_one_horizon, require_comparable

pytestmark = pytest.mark.slow

Make = Callable[..., Path]
SEEDS = (1, 2)


def rows(figures: Path, name: str) -> list[dict[str, str]]:
    with (figures / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def cohort(root: Path, *conditions: str, purpose: str = "formal") -> Results:
    """A cohort of two seeds of 40 groups; a trained run has a final adapter of its own."""
    for seed in SEEDS:
        for condition in conditions:
            adapter = None if condition == "frozen" else f"{condition} {seed}"
            where = root / "cohort" / f"{condition}-s{seed}"
            config = {"purpose": purpose}
            write_synthetic_run(where, condition, seed, config=config, final_adapter_sha256=adapter)
    return Results(root)


def restarted(root: Path, condition: str, seed: int, **changes: Any) -> None:
    """A restart of one run of the cohort."""
    config = {"parent": {"run": f"../../cohort/{condition}-s{seed}"}, **changes.pop("config", {})}
    adapter = changes.pop("adapter", f"{condition} {seed}")
    where = root / "restart" / f"{condition}-s{seed}"
    write_synthetic_run(
        where, condition, seed, layer="restart", config=config, initial_adapter_sha256=adapter, **changes
    )


def test_restarts_are_compared_with_parent_and_frozen(tmp_path: Path) -> None:
    results = cohort(tmp_path, "frozen", "native")
    for seed in SEEDS:
        restarted(tmp_path, "native", seed)
    table = restart_paired(results)
    for other in ("frozen", "native"):
        name = f"restart/native-s2 minus live/{other}-s2"
        live = next(run for run in results.cohort if run.name == f"{other}-s2")
        expected = results.restart[1].best[39] - live.best[39]
        assert table.cell(name, "Final best").value == pytest.approx(expected)
    directions = restart_signs(results)
    rows = [f"restart/native minus live/frozen/{name}" for name in ("better", "equal", "worse")]
    assert sum(int(str(directions.cell(row, "Valid (points)").value)) for row in rows) == 2
    assert restart(results).cell("native", "Training tokens").value == 0


@pytest.mark.parametrize("groups", [20, 60])
def test_formal_restarts_of_another_horizon_are_not_joined(tmp_path: Path, groups: int) -> None:
    results = cohort(tmp_path, "frozen", "native")
    for seed in SEEDS:
        restarted(tmp_path, "native", seed, groups=groups)
    evidence = read_evidence(tmp_path)
    for name in ("restart_paired", "restart_signs"):
        assert f"of {min(groups, 40)} to {max(groups, 40)} groups" in evidence.catalogue.absent[name]
    assert restart(results).cell("native-s1", "Final best").value == results.restart[0].best[-1]
    assert "not compared" in evidence.table("restart").note
    drawn = draw_all(evidence, tmp_path / "figures")
    assert "groups" in drawn.absent["restart"]
    assert {row["layer"] for row in rows(tmp_path / "figures", "outcomes")} == {"live"}


@pytest.mark.parametrize("groups", [20, 60])
def test_smoke_restarts_are_compared_over_the_shared_horizon(tmp_path: Path, groups: int) -> None:
    results = cohort(tmp_path, "frozen", "native", purpose="smoke")
    for seed in SEEDS:
        restarted(tmp_path, "native", seed, groups=groups, config={"purpose": "smoke"})
    evidence, end = read_evidence(tmp_path), min(groups, 40) - 1
    drawn = draw_all(evidence, tmp_path / "figures")
    said = f"restarts of {groups} groups and live runs of 40 groups, compared over the first {end + 1}"
    assert said in evidence.table("restart_paired").note
    captions = {plot.name: plot.caption for plot, _ in drawn.figures}
    assert said in captions["restart"]
    assert said in captions["outcomes"]
    restarts = {run.seed: run.best[end] for run in results.restart}
    live = {(run.condition, run.seed): run.best[end] for run in results.cohort}
    for seed in SEEDS:
        name = f"restart/native-s{seed} minus live/native-s{seed}"
        change = restarts[seed] - live["native", seed]
        assert evidence.table("restart_paired").cell(name, "Final best").value == pytest.approx(change)
        for figure, wanted in (("smoke_restart", {}), ("smoke_outcomes", {"panel": "c"})):
            own = {"condition": "native", "seed": str(seed), "measure": "Final best", **wanted}
            pair = {
                row["layer"]: float(row["value"])
                for row in rows(tmp_path / "figures", figure)
                if all(row.get(key, row.get("what")) == value for key, value in own.items())
            }
            assert pair["restart"] - pair["live"] == pytest.approx(change), figure


def test_runs_of_unequal_horizons_are_no_pair(tmp_path: Path) -> None:
    """Whoever makes a pair of a run and a shorter one is refused, of whatever layers they are."""
    runs = cohort(tmp_path, "frozen", "native").cohort
    with pytest.raises(NoTableError, match=r"40 .*30 groups"):
        RunComparison("native", "frozen", ((runs[2], runs[0].prefix(30)),))
    with pytest.raises(NoTableError, match="groups"):
        at_one_horizon((runs[0], runs[1].prefix(30)))
    require_comparable(runs[2], runs[0].prefix(30), (40, 30))
    for contract in ((40, 40), (30, 30)):
        with pytest.raises(NoTableError, match="groups"):
            require_comparable(runs[2], runs[0].prefix(30), contract)


def test_every_table_and_figure_says_its_horizon(tmp_path: Path) -> None:
    cohort(tmp_path, "frozen", "native")
    for seed in SEEDS:
        restarted(tmp_path, "native", seed)
        write_synthetic_run(tmp_path / "api" / f"frozen-s{seed}", "frozen", seed, size=1, layer="api")
    for condition in ("frozen", "native"):
        where = tmp_path / "breadth" / "cvrp-tiny" / f"{condition}-s1"
        write_synthetic_run(where, condition, 1, groups=20, layer="breadth", config={"problem": "cvrp"})
    evidence = read_evidence(tmp_path)
    groups = {"cohort": 40, "restart": 40, "breadth": 20, "api": 40}
    assert {table.layer for table in evidence.catalogue.tables} >= set(groups)
    for table in evidence.catalogue.tables:
        assert f"{groups.get(table.layer, 40)} groups" in table.note, table.name
    for plot, _ in draw_all(evidence, tmp_path / "figures").figures:
        due = 20 if plot.name == "breadth" else 40
        assert f"{due} groups" in plot.caption, plot.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adapter": "another"}, "did not start from the final adapter of cohort/native-s1"),
        ({"config": {"parent": None}}, "has optimizer steps"),
        ({"config": {"split": "train"}}, "mixes protocols"),
    ],
)
def test_restarts_that_are_none_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    results = cohort(tmp_path, "frozen", "native")
    restarted(tmp_path, "native", 1, **changes)
    restarted(tmp_path, "native", 2)
    with pytest.raises(RunDirectoryError, match=message):
        restart_paired(results)


def test_what_is_no_restart_of_the_cohort_is_not_matched(tmp_path: Path) -> None:
    results = cohort(tmp_path, "frozen", "native")
    for seed in SEEDS:
        restarted(tmp_path, "native", seed, config={"split": "train"})
    with pytest.raises(RunDirectoryError, match=r"differ in split.*not matched"):
        restart_paired(results)
    results = cohort(tmp_path / "1", "frozen", "native")
    restarted(tmp_path / "1", "factorized", 1)
    with pytest.raises(RunDirectoryError, match=r"restart/factorized-s1 has no live parent"):
        restart(results)


def test_breadth_keeps_cells_apart(tmp_path: Path) -> None:
    for cell, problem in (("tsp-llama", "tsp"), ("cvrp-qwen", "cvrp")):
        for condition in ("frozen", "native"):
            where = tmp_path / "breadth" / cell / f"{condition}-s1"
            write_synthetic_run(where, condition, 1, layer="breadth", config={"problem": problem})
    results = Results(tmp_path)
    assert [row.label for row in breadth(results).rows] == [
        "cvrp-qwen/frozen-s1",
        "cvrp-qwen/native-s1",
        "tsp-llama/frozen-s1",
        "tsp-llama/native-s1",
    ]
    gains = breadth_gains(results)
    assert {row.label for row in gains.rows} == {
        f"{cell}/native-s1 minus frozen-s1" for cell in ("cvrp-qwen", "tsp-llama")
    }
    assert all(cell.n == 1 and cell.spread is None for row in gains.rows for cell in row.cells)


def test_a_cell_without_a_trained_run_hides_no_other(tmp_path: Path) -> None:
    for cell, conditions in (("cvrp-qwen", ("frozen",)), ("tsp-llama", ("frozen", "native"))):
        for condition in conditions:
            where = tmp_path / "breadth" / cell / f"{condition}-s1"
            write_synthetic_run(where, condition, 1, layer="breadth")
    gains = breadth_gains(Results(tmp_path))
    assert [row.label for row in gains.rows] == ["tsp-llama/native-s1 minus frozen-s1"]
    cohort(tmp_path, "frozen")
    draw_all(read_evidence(tmp_path), tmp_path / "figures")
    assert {row["cell"] for row in rows(tmp_path / "figures", "breadth")} == {"tsp-llama"}


def anchored(root: Path, groups: int = 60, budget: int = 50, clock: Clock = "processor") -> Results:
    """A cohort with a Frozen run per seed that is longer than its budget.

    Online steps take 1.5 processor seconds, Frozen ones 1.0. By the wall those of the cohort last twice as
    long; the anchor ran by itself.
    """
    results = cohort(root, "frozen", "native")
    for seed in SEEDS:
        where = root / "anchor" / f"frozen-s{seed}"
        write_synthetic_run(where, "frozen", seed, groups=groups + seed, layer="anchor", load=1.0)
    budgets = tuple(
        AnchorBudget(
            seed=seed,
            condition="native",
            online_groups=40,
            online_seconds=60.0,
            frozen_groups=40,
            frozen_seconds=40.0,
            groups=budget,
        )
        for seed in SEEDS
    )
    timings = {
        name: sha256_file(root / "cohort" / name / "timings.jsonl") for name in ("native-s1", "frozen-s1")
    }
    contract = AnchorContract(
        formula="f", clock=clock, margin=0.1, budgets=budgets, run_groups={}, timings_sha256=timings
    )
    write_contract(root / "anchor", contract)
    return results


def test_realized_matches_and_endpoints_of_the_anchor(tmp_path: Path) -> None:
    """Forty online steps of 1.5 s are sixty Frozen steps of 1 s; the budget of fifty is 16.67 % short."""
    results = anchored(tmp_path)
    table = anchor_realized(results)
    assert table.cell("native-s1", "Online seconds").value == 60.0
    assert table.cell("native-s1", "Matched groups").value == 60.0
    assert table.cell("native-s1", "Time gap (%)").value == pytest.approx(-100 / 6)
    assert table.cell("native-s1", "Wall time gap (%)").value == pytest.approx(100 * (50 - 120) / 120)
    final = table.cell("native-s1", "Frozen final when matched").value
    assert final == results.anchor[0].best[59]
    table = anchor(results)
    frozen, online = results.anchor[0], next(run for run in results.cohort if run.name == "native-s1")
    assert table.cell("native-s1", "Frozen groups").value == 50.0
    assert table.cell("native-s1", "Frozen final").value == frozen.best[49]
    difference = table.cell("native-s1", "Final difference").value
    assert difference == pytest.approx(float(online.best[-1] - frozen.best[49]))
    assert table.cell("native", "Final difference").n == 2
    table = anchor_realized(anchored(tmp_path / "2", groups=130, clock="wall"))
    assert table.cell("native-s1", "Online seconds").value == 120.0
    assert table.cell("native-s1", "Matched groups").value == 120.0
    assert "wall seconds" in table.note
    table = anchor_realized(anchored(tmp_path / "3", groups=51))
    assert table.cell("native-s1", "Matched groups").value is None
    assert table.cell("native", "Final difference when matched").value is None


def test_large_time_gaps_are_flagged(tmp_path: Path) -> None:
    near = anchor_realized(anchored(tmp_path / "near"))
    assert [row.cells[3].value for row in near.rows] == [0, 0, 0]
    assert "No gap is beyond 20 %" in near.note
    for budget, gap in ((40, "-33.3 %"), (80, "+33.3 %")):
        far = anchor_realized(anchored(tmp_path / str(budget), groups=100, budget=budget))
        assert far.cell("native", "Gap beyond 20 %").value == 2
        assert far.cell("native-s2", "Gap beyond 20 %").value == 1
        assert f"native-s1 ({gap}), native-s2 ({gap})" in far.note


def test_realized_matches_of_a_frozen_run_from_elsewhere(tmp_path: Path) -> None:
    own = anchor_realized(anchored(tmp_path / "own"))
    assert "scaled" not in own.note
    results = anchored(tmp_path / "other")
    for seed in SEEDS:
        record_elsewhere(tmp_path / "other" / "anchor" / f"frozen-s{seed}", 0.5)
    table = anchor_realized(results)
    for column in ("Frozen seconds at budget", "Matched groups", "Frozen final when matched"):
        assert table.cell("native", column).value == own.cell("native", column).value
    assert "Scales are 2.000 to 2.000" in table.note
    record_elsewhere(tmp_path / "other" / "cohort" / "frozen-s2", 1.0, cpu="a third")
    alone = anchor_realized(Results(tmp_path / "other"))
    assert alone.cell("native-s2", "Matched groups").value is None


def test_the_anchor_refuses_without_its_contract(tmp_path: Path) -> None:
    results = anchored(tmp_path / "short", groups=40)
    with pytest.raises(RunDirectoryError, match="shorter than its budget of 50"):
        anchor(results)
    timings = tmp_path / "short" / "cohort" / "native-s1" / "timings.jsonl"
    kept = timings.read_bytes()
    timings.write_bytes(kept.replace(b"1.5", b"1.6", 1))
    assert timings.read_bytes() != kept
    with pytest.raises(ContractError, match="other timings"):
        anchor(results)
    timings.write_bytes(kept)
    file = tmp_path / "short" / "anchor" / "contract.json"
    file.write_bytes(file.read_bytes().replace(b'"groups":50', b'"groups":30'))
    with pytest.raises(ContractError, match="changed later"):
        anchor(Results(tmp_path / "short"))
    file.unlink()
    with pytest.raises(ContractError, match="no anchor contract"):
        catalogue(Results(tmp_path / "short"))


def test_api_runs_of_single_completions(tmp_path: Path) -> None:
    """Two thousandths of the paper's reference: forty requests per seed, tokens counted per request."""
    for seed in SEEDS:
        where = tmp_path / "api" / f"frozen-s{seed}"
        write_synthetic_run(where, "frozen", seed, groups=40, size=1, layer="api")
    table = api(Results(tmp_path))
    assert table.cell("frozen-s1", "Prompt tokens").value == 40 * 400
    assert table.cell("frozen", "Completion tokens").value == 40 * 200
    assert table.cell("frozen", "Valid (%)").n == 2


def test_cells_of_the_audit_enter_the_replay_alone(tmp_path: Path) -> None:
    results = cohort(tmp_path, "frozen", "native")
    write_synthetic_run(tmp_path / "breadth" / "cvrp-m" / "frozen-s1", "frozen", 1, layer="breadth")
    without = (core_seeds(results), breadth(results))
    where = tmp_path / "audit" / "obp-m" / "frozen-s1"
    write_synthetic_run(where, "frozen", 1, layer="audit", config={"problem": "obp"})
    again = Results(tmp_path)
    assert (core_seeds(again), breadth(again)) == without
    cells = {row.label.split("/")[0] for row in replay_pairs(again).rows}
    assert cells == {"cohort", "cvrp-m", "obp-m"}
    assert replay_pairs(again).cell("obp-m/native, factorized", "Groups").value == 40
    write_synthetic_run(tmp_path / "audit" / "cvrp-m" / "frozen-s1", "frozen", 1, layer="audit")
    with pytest.raises(RunDirectoryError, match="cvrp-m is in breadth and in audit"):
        replay_pairs(Results(tmp_path))


def test_layers_that_are_not_there_say_so(tmp_path: Path) -> None:
    results = cohort(tmp_path, "frozen")
    for table in (restart, breadth, anchor, api, heldout):
        with pytest.raises(NoTableError, match="has not run"):
            table(results)


def cut_prompts(run: Path, cuts: dict[int, int]) -> None:
    """Let some groups of a run have lost tokens of their prompts."""
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    for step, cut in cuts.items():
        steps[step]["prompt_tokens_cut"] = cut
    (run / "steps.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    write_sums(run)


def test_cut_prompts_are_counted_by_condition_and_run(tmp_path: Path) -> None:
    cohort(tmp_path, "frozen", "native")
    cut_prompts(tmp_path / "cohort" / "native-s1", {3: 10, 8: 250})
    cut_prompts(tmp_path / "cohort" / "native-s2", {5: 1})
    table = prompts_of("cohort")(Results(tmp_path))
    shown = {row.label: [cell.value for cell in row.cells] for row in table.rows}
    assert shown["frozen"] == [80, 0, 0, 400]
    assert shown["native"] == [80, 3, 261, 650]
    assert shown["native-s2"] == [40, 1, 1, 401]
    assert [table.cell(row, "Cut prompts").n for row in ("native", "native-s1")] == [2, 1]
    lines = {origin.path: origin.lines for origin in table.cell("native", "Cut prompts").origins}
    assert lines == {"cohort/native-s1/steps.jsonl": (4, 9), "cohort/native-s2/steps.jsonl": (6,)}
    cohort(tmp_path / "1", "frozen")
    for condition in ("frozen", "native"):
        where = tmp_path / "1" / "breadth" / "tsp-tiny" / f"{condition}-s1"
        write_synthetic_run(where, condition, 1, layer="breadth")
    assert "over its limit" in catalogue(Results(tmp_path / "1")).absent["breadth_prompts"]
    cut_prompts(where, {0: 7})
    (table,) = [t for t in catalogue(Results(tmp_path / "1")).tables if t.name == "breadth_prompts"]
    assert [row.label for row in table.rows] == ["tsp-tiny/frozen-s1", "tsp-tiny/native-s1"]
    assert table.cell("tsp-tiny/native-s1", "Tokens cut").value == 7


HOLDS = "holds: 1 of 2 gains are not the checkpoint's alone"
Write = Callable[[Sequence[tuple[float, float]]], Results]


@pytest.fixture
def results(make_run: Callable[..., Path], tmp_path: Path) -> Write:
    """Results whose seeds gain so much, live and restarted, per group over the frozen run of their seed."""

    def write(gains: Sequence[tuple[float, float]]) -> Results:
        for seed, (live, again) in enumerate(gains):
            cohort = {"layer": "cohort"}
            make_run(tmp_path / "cohort" / f"frozen-s{seed}", "frozen", seed, config=cohort)
            one = make_run(tmp_path / "cohort" / f"native-s{seed}", "native", seed, shift=live, config=cohort)
            adapter = read_manifest(one).final_adapter_sha256
            parent = {"run": f"../../cohort/{one.name}", "adapter_sha256": adapter}
            config = {"layer": "restart", "parent": {**parent, "completions_sha256": ""}}
            again_at = tmp_path / "restart" / one.name
            reshape(make_run(again_at, "frozen", seed, shift=again, config=config), adapter)
        return Results(tmp_path)

    return write


def reshape(directory: Path, adapter: str | None) -> None:
    """Make a frozen run the restart of a native one."""
    path = directory / "manifest.json"
    text = path.read_text().replace('"condition": "frozen"', '"condition": "native"')
    text = text.replace('"initial_adapter_sha256": null', f'"initial_adapter_sha256": "{adapter}"')
    path.write_text(text)
    write_sums(directory)


@pytest.mark.parametrize(
    ("gains", "counts", "statement"),
    [
        (
            [(0.1, -0.05), (0.1, 0.1), (-0.05, 0.1)],
            (2, 1),
            "holds: 1 of 2 gains are not the checkpoint's alone",
        ),
        ([(0.1, 0.1), (0.1, 0.05)], (2, 0), "no counterexample in 2: every restart is above frozen, too"),
        ([(0.0, 0.1), (-0.05, 0.1)], (0, 0), "not tested: no live run ended above frozen"),
    ],
)
def test_the_statement_is_judged_by_seeds(
    results: Write, gains: list[tuple[float, float]], counts: tuple[int, int], statement: str
) -> None:
    table = build(results(gains), "endpoints")
    row = {column: table.cell("native", column) for column in table.columns}
    assert (row["Live above frozen"].value, row["Of these the restart is not"].value) == counts
    assert row["Statement"].value == statement
    assert row["Seeds"].value == len(gains)
    expected = 4 * sum(live for live, _ in gains) / len(gains)
    assert row["Live minus frozen"].value == pytest.approx(expected)


def test_without_restarts_there_is_no_table(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """The cohort alone cannot tell a population from a checkpoint."""
    make_run(tmp_path / "cohort" / "frozen-s0", "frozen", 0, config={"layer": "cohort"})
    with pytest.raises(NoTableError, match="restart has not run"):
        build(Results(tmp_path), "endpoints")


ANSWERS = {"initial": [(-7.0, None), (None, None)], "native-s1": [(-5.0, -6.0), (-1.0, None)]}


@pytest.fixture
def probed(tmp_path: Path) -> Path:
    """A complete probe of two checkpoints; the first prompt has bases, the second none."""
    write_synthetic_probe(tmp_path / "probe", [(-6.0, -8.0), ()], ANSWERS)
    return tmp_path


def test_probe_by_hand(probed: Path) -> None:
    """Native: three of four valid, one above both bases; without bases an answer never improves."""
    table = probe(Results(probed))
    shown = {row.label: [cell.value for cell in row.cells] for row in table.rows}
    assert shown["initial"] == [4, 1, 25.0, -7.0, 0.0, 0.0]
    assert shown["native-s1"] == pytest.approx([4, 3, 75.0, -4.0, 100 / 3, 50.0])
    assert table.cell("native-s1", "Valid").origins[0].path == "probe/native-s1.jsonl"


def test_altered_and_unfinished_answers_are_refused(probed: Path) -> None:
    for name in ("native-s1.jsonl", "bank.jsonl"):
        file = probed / "probe" / name
        kept = file.read_bytes()
        file.write_bytes(kept.replace(b"-6.0", b"-5.9"))
        with pytest.raises(RunDirectoryError, match=name):
            probe(Results(probed))
        file.write_bytes(kept)
    file = probed / "probe" / "probe.json"
    file.write_bytes(file.read_bytes().replace(b'"complete"', b'"running"'))
    with pytest.raises(RunDirectoryError, match="unfinished"):
        probe(Results(probed))
