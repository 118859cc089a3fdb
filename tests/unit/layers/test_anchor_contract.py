"""The resource anchor: budgets from timings alone, fixed before anybody can know a result."""

import math
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.profiles import plain_profile

from search_to_signal.base.errors import ContractError, RecordError
from search_to_signal.layers.anchor import layer as anchor
from search_to_signal.layers.anchor.layer import anchors, derive, fix_contract
from search_to_signal.layers.settings import AnchorSettings
from search_to_signal.records.anchor import (
    CONTRACT,
    CONTRACT_SUM,
    budget,
    prefix,
    read_contract,
    realized_groups,
    write_contract,
)
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.layers import ANCHOR, COHORT
from search_to_signal.records.manifest import REPORT
from search_to_signal.records.schema import StepTiming

SETTINGS = AnchorSettings(conditions=("native",), margin=0.25)
PROFILE = plain_profile(seeds=(42, 7), anchor=SETTINGS)
# Processor seconds per step of four; native costs 1.6 times as much as frozen, or less.
SECONDS = {"frozen-s42": 1.0, "native-s42": 1.6, "frozen-s7": 2.0, "native-s7": 1.0}


def write_timings(run: Path, seconds: float | None, wall: float = 9.0) -> None:
    """A run directory with its timings, in processor seconds and another wall time, and nothing else."""
    run.mkdir(parents=True, exist_ok=True)
    split = {"total": wall, "update": 0.1}
    lines = [StepTiming(step=step, seconds=split, processor_seconds=seconds) for step in range(4)]
    (run / "timings.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results directory whose runs hold timings only: whatever opens a score would fail."""
    for name, seconds in SECONDS.items():
        write_timings(tmp_path / COHORT / name, seconds)
    monkeypatch.setattr(anchor, "finished_cohort", lambda profile, results, plan: results / COHORT)
    return tmp_path


def test_budgets_follow_from_timings_alone(results: Path) -> None:
    """Time buys groups at the Frozen run's speed, at least the online horizon; no score is on disk."""
    contract = derive(results / COHORT, PROFILE.seeds, SETTINGS)
    assert [(b.seed, b.condition, b.online_groups, b.groups) for b in contract.budgets] == [
        (42, "native", 4, 6),
        (7, "native", 4, 4),
    ]
    assert contract.budgets[0].online_seconds == pytest.approx(6.4)
    assert contract.run_groups == {"42": 8, "7": 5}
    assert sorted(contract.timings_sha256) == sorted(SECONDS)
    files = {path.name for path in results.rglob("*") if path.is_file()}
    assert files == {"timings.jsonl"}


def test_budgets_do_not_follow_the_load_of_the_machine(results: Path) -> None:
    """Steps that waited buy no groups unless wall time is asked for, which the formula says (D30)."""
    before = derive(results / COHORT, PROFILE.seeds, SETTINGS)
    write_timings(results / COHORT / "frozen-s42", SECONDS["frozen-s42"], wall=3.0)
    after = derive(results / COHORT, PROFILE.seeds, SETTINGS)
    assert after.budgets == before.budgets
    assert (after.clock, "processor seconds" in after.formula) == ("processor", True)
    wall = derive(results / COHORT, PROFILE.seeds, msgspec.structs.replace(SETTINGS, clock="wall"))
    assert [b.groups for b in wall.budgets] == [12, 4]
    assert (wall.clock, "wall seconds" in wall.formula) == ("wall", True)


def test_timings_without_processor_seconds_give_no_processor_budget(results: Path) -> None:
    """From an earlier version, or a kernel that does not tell: named, with the setting that reads them."""
    write_timings(results / COHORT / "native-s7", None)
    with pytest.raises(ContractError, match=r'native-s7/timings\.jsonl.*anchor\.clock = "wall"'):
        fix_contract(PROFILE, SETTINGS, results)
    assert not (results / ANCHOR).exists()
    assert fix_contract(PROFILE, msgspec.structs.replace(SETTINGS, clock="wall"), results).clock == "wall"


def test_a_contract_without_a_clock_is_one_of_wall_seconds(results: Path) -> None:
    """Contracts of earlier versions are read as what they were."""
    file = results / ANCHOR / CONTRACT
    write_contract(results / ANCHOR, derive(results / COHORT, PROFILE.seeds, SETTINGS))
    old = file.read_bytes().replace(b'"clock":"processor",', b"")
    assert b"clock" not in old
    file.write_bytes(old)
    (results / ANCHOR / CONTRACT_SUM).write_text(f"{sha256_file(file)}  {CONTRACT}\n")
    assert read_contract(results / ANCHOR).clock == "wall"


@pytest.mark.parametrize(
    ("online", "frozen", "groups"),
    [
        ([1.0] * 5, [1.0] * 5, 5),
        ([1.0] * 5, [0.3] * 10, 16),
        ([1.0] * 5, [1.1] * 5, 5),
        ([3.0], [2.0] * 2, 1),
    ],
)
def test_a_budget_buys_whole_groups(online: list[float], frozen: list[float], groups: int) -> None:
    """Equal speed buys the same horizon; the rest of a group that the time does not finish is not bought."""
    assert budget(1, "native", online, frozen).groups == groups


def test_one_frozen_run_per_seed_covers_the_largest_budget(results: Path) -> None:
    """Runs are of layer anchor, frozen, and otherwise the cohort's frozen runs."""
    contract = derive(results / COHORT, PROFILE.seeds, SETTINGS)
    for run, groups in zip(anchors(PROFILE, contract), (8, 5), strict=True):
        assert run == PROFILE.run("frozen", run.seed, layer="anchor", groups=groups)
        assert run.groups >= (1 + SETTINGS.margin) * max(
            b.groups for b in contract.budgets if b.seed == run.seed
        )


def test_a_contract_is_canonical_and_hashed(results: Path) -> None:
    """It reads back equal, twice the same bytes, and plain sha256sum checks it."""
    contract = fix_contract(PROFILE, SETTINGS, results)
    first = (results / ANCHOR / CONTRACT).read_bytes()
    assert read_contract(results / ANCHOR) == contract
    assert fix_contract(PROFILE, SETTINGS, results) == contract
    assert (results / ANCHOR / CONTRACT).read_bytes() == first
    check = ["sha256sum", "-c", "--strict", "--quiet", CONTRACT_SUM]
    assert subprocess.run(check, cwd=results / ANCHOR, check=False).returncode == 0


def test_no_endpoint_without_a_contract(tmp_path: Path) -> None:
    """Whoever wants to compare endpoints first is sent to derive the budgets."""
    with pytest.raises(ContractError, match=r"no anchor contract.*--layer anchor"):
        read_contract(tmp_path)


def test_an_altered_contract_is_refused(results: Path) -> None:
    """One more group in a budget is found by the sum."""
    fix_contract(PROFILE, SETTINGS, results)
    file = results / ANCHOR / CONTRACT
    file.write_bytes(file.read_bytes().replace(b'"groups":6', b'"groups":7'))
    with pytest.raises(ContractError, match="altered"):
        read_contract(results / ANCHOR)
    with pytest.raises(ContractError, match="altered"):
        fix_contract(PROFILE, SETTINGS, results)


def test_a_contract_after_the_results_is_refused(results: Path) -> None:
    """Once there is a report, budgets can no longer be fixed in advance; nothing is written."""
    (results / REPORT).mkdir()
    with pytest.raises(ContractError):
        fix_contract(PROFILE, SETTINGS, results)
    assert not (results / ANCHOR).exists()


def test_a_report_after_the_contract_is_no_obstacle(results: Path) -> None:
    contract = fix_contract(PROFILE, SETTINGS, results)
    (results / REPORT).mkdir()
    assert fix_contract(PROFILE, SETTINGS, results) == contract


@pytest.mark.parametrize("change", ["timings", "margin"])
def test_a_contract_of_something_else_is_refused(results: Path, change: str) -> None:
    """Neither other timings nor other settings may lie under a contract that was fixed before."""
    fix_contract(PROFILE, SETTINGS, results)
    if change == "timings":
        write_timings(results / COHORT / "native-s7", 9.0)
    margin = 0.5 if change == "margin" else SETTINGS.margin
    with pytest.raises(ContractError):
        fix_contract(PROFILE, msgspec.structs.replace(SETTINGS, margin=margin), results)


def test_a_sum_is_written_last(results: Path) -> None:
    """A contract whose sum is missing was never finished, and is refused."""
    write_contract(results / ANCHOR, derive(results / COHORT, PROFILE.seeds, SETTINGS))
    (results / ANCHOR / CONTRACT_SUM).unlink()
    with pytest.raises(ContractError):
        read_contract(results / ANCHOR)


def test_a_prefix_is_exact_or_an_error() -> None:
    """The first groups in order, and never fewer than asked for."""
    assert list(prefix("abcd", 3)) == ["a", "b", "c"]
    assert list(prefix("abcd", 4)) == list("abcd")
    with pytest.raises(RecordError, match="5 groups.*only 4"):
        list(prefix("abcd", 5))


@pytest.mark.parametrize("time", [0.0, 0.9, 1.0, 2.5, 6.0, 100.0])
def test_a_realized_match_is_the_longest_prefix_in_time(time: float) -> None:
    """One step more would be over the time, and the match itself is not."""
    seconds = [1.0, 2.0, 3.0]
    count = realized_groups(seconds, time)
    assert math.fsum(seconds[:count]) <= time
    assert count == len(seconds) or math.fsum(seconds[: count + 1]) > time
