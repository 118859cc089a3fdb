"""A run that begins with the archive another one ended with: drawn, stopped, checked and forged (D45)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cohorts import Told
from tests.unit.conftest import made_manifest
from tests.unit.run.test_live_loop import LIMITS, Grammar, configuration, host_of

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.problems import get_problem
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.manifest import Manifest, write_manifest
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, read_groups, read_records
from search_to_signal.records.schema import GIVEN, HeuristicRecord, given, population_sha256
from search_to_signal.run.config import ParentRun, RunConfig
from search_to_signal.run.directory import run_files
from search_to_signal.run.loop import Live, run_live, starting_position
from search_to_signal.run.replayed import AsRecorded, final_population, replayed
from search_to_signal.run.resuming import replayed_state
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.search.host import begin
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.verify.records import record_problems

pytestmark = pytest.mark.slow

# No collapse, so that the archive has grown by the end.
PARENT = configuration("frozen", search=SearchSettings(population_size=6))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and one that began with its last archive beside it."""
    out = tmp_path_factory.mktemp("given")
    with EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as pool:
        for name in ("parent", "child"):
            (out / name).mkdir()
            go(out / name, PARENT if name == "parent" else begun_with(out / "parent"), pool)
    return out


def begun_with(parent: Path, **changes: Any) -> RunConfig:
    """A run of the same seed that begins with a run's last archive and the initial model."""
    archive = population_sha256(final_population(parent, PARENT.search))
    start = ParentRun(
        run="../parent",
        adapter_sha256=None,
        completions_sha256=sha256_file(parent / COMPLETIONS),
        archive_sha256=archive,
    )
    parent_of = msgspec.structs.replace(start, **changes)
    return msgspec.structs.replace(PARENT, layer="restart", parent=parent_of)


def go(directory: Path, config: RunConfig, pool: EvaluationPool) -> None:
    """Play a configuration in its directory, which says what was played."""
    write_manifest(directory, made_manifest(msgspec.to_builtins(config)))
    with run_files(directory) as files:
        live = Live(config, get_problem("tsp"), host_of(config), Grammar(), pool, None, files)  # type: ignore[arg-type]
        run_live(live, starting_position(live), Told())


def heuristics(run: Path) -> list[HeuristicRecord]:
    """The heuristic store of a run."""
    return list(read_records(run / HEURISTICS, HeuristicRecord))


def test_it_begins_where_the_other_ended(base: Path) -> None:
    """The first group sees the last archive, not the seed alone; members keep all but their place."""
    *_, played = replayed(base / "parent", AsRecorded(PARENT.search))
    last = {m.id for m in played.request.archive} | {h.id for h in heuristics(base / "parent")[-4:]}
    population = given(heuristics(base / "child"))
    assert len(population) > 1
    assert {member.id for member in population} <= last
    first = next(iter(read_groups(base / "child")))[0]
    assert first.archive_size == 1 + len(population)
    assert first.frontier == max(member.score for member in (heuristics(base / "child")[0], *population))
    known = {(h.id, h.idea, h.code, h.score, h.operator) for h in heuristics(base / "parent")}
    assert {(h.id, h.idea, h.code, h.score, h.operator) for h in population} <= known


def test_its_records_are_consistent_and_lead_on(base: Path, manifest: Callable[..., Manifest]) -> None:
    """verify takes them, and a stopped run finds its state in them again."""
    config = begun_with(base / "parent")
    assert record_problems(base / "child", manifest(msgspec.to_builtins(config))) == []
    state = replayed_state(base / "child", host_of(config), config, config.groups)
    *_, played = replayed(base / "child", AsRecorded(config.search))
    assert state.archive[0].id in {member.id for member in played.request.archive} | {
        heuristic.id for heuristic in heuristics(base / "child")
    }


def test_a_forged_beginning_is_found(base: Path, manifest: Callable[..., Manifest]) -> None:
    """A population that no configuration names, another one, and one too many are named."""
    config = begun_with(base / "parent")
    plain = msgspec.to_builtins(PARENT)
    assert any("says nothing" in line for line in record_problems(base / "child", manifest(plain)))
    other = msgspec.structs.replace(
        config, parent=begun_with(base / "parent", archive_sha256="0" * 64).parent
    )
    found = record_problems(base / "child", manifest(msgspec.to_builtins(other)))
    assert any("another population" in line for line in found)


def test_a_parent_that_changed_since_is_refused(base: Path, tmp_path: Path) -> None:
    """The archive that the configuration was made of has to be there when the run begins."""
    config = begun_with(base / "parent", archive_sha256="0" * 64)
    (base / "other").mkdir()
    with (
        EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as pool,
        pytest.raises(RunDirectoryError, match="does not end with the archive"),
    ):
        go(base / "other", config, pool)


def test_a_host_that_takes_no_population_says_so() -> None:
    """It cannot begin with more than a seed; without a population nothing is asked of it."""

    class Plain:
        def start(self, seed: object) -> str:
            return "begun"

    member = HeuristicRecord(id="a", step=GIVEN, index=0, operator=None, idea="", code="", score=0.0)
    assert begin(Plain(), None) == "begun"  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="start_with"):
        begin(Plain(), None, (member,))  # type: ignore[arg-type]
