"""What each evidence layer will run, planned from a profile and a finished cohort without any model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.command import Patch
from tests.profiles import plain_profile

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.layers.api.layer import references
from search_to_signal.layers.reproduction import chosen_layers
from search_to_signal.layers.restart import layer as restart
from search_to_signal.layers.restart.layer import archive_restarts, restarts
from search_to_signal.layers.settings import (
    AnchorSettings,
    ApiReference,
    AuditCell,
    BreadthCell,
    ProbeSettings,
    RestartSettings,
)
from search_to_signal.models.opening import model_files
from search_to_signal.models.settings import ApiSettings
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.layers import COHORT, FINAL_ARCHIVE, INITIAL_ARCHIVE, RESTART
from search_to_signal.records.manifest import Source
from search_to_signal.records.provenance import source
from search_to_signal.records.schema import population_sha256
from search_to_signal.run.config import RunConfig
from search_to_signal.run.planned_runs import finished_cohort
from search_to_signal.run.profile import Profile

CELL = BreadthCell(
    problem="cvrp",
    split="embedded",
    model="models/tiny",
    conditions=("frozen", "native"),
    seeds=(1,),
    groups=3,
)
RECORDED = AuditCell(problem="obp", split="embedded", model="models/tiny", seeds=(1, 2), groups=3)


def profile(**changes: Any) -> Profile:
    """Two seeds under three conditions, and whatever else is asked for."""
    conditions = ("frozen", "native", "factorized")
    return plain_profile(**{"model": "qwen2-2.1m", "conditions": conditions, "seeds": (42, 7), **changes})


@pytest.fixture
def results(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A results directory whose cohort is there; adapters are named after their runs."""
    for config in profile().runs():
        adapter = f"final of {config.name}" if config.trained else None
        make_run(tmp_path / COHORT / config.name, config.condition, config.seed, final_adapter_sha256=adapter)
    return tmp_path


def test_every_trained_run_is_restarted_from_its_own_final_adapter(results: Path) -> None:
    """A restart differs from its live run in layer and parent alone, and the parent is the right one."""
    planned = restarts(profile(), RestartSettings(), results / COHORT)
    assert [run.name for run in planned] == ["native-s42", "factorized-s42", "native-s7", "factorized-s7"]
    live = {config.name: config for config in profile().runs()}
    for run in planned:
        assert run.parent is not None
        assert run.parent.adapter_sha256 == f"final of {run.name}"
        parent = results / RESTART / run.name / run.parent.run
        assert parent.resolve() == (results / COHORT / run.name).resolve()
        assert run.parent.completions_sha256 == sha256_file(results / COHORT / run.name / "completions.jsonl")
        assert msgspec.structs.replace(run, layer="cohort", parent=None) == live[run.name]
        assert not run.trained


def test_restarts_can_be_chosen_and_shortened(results: Path) -> None:
    """Conditions and horizon of the layer are knobs of its own."""
    settings = RestartSettings(conditions=("native",), groups=2)
    planned = restarts(profile(), settings, results / COHORT)
    assert [(run.name, run.groups) for run in planned] == [("native-s42", 2), ("native-s7", 2)]


def test_checkpoint_and_archive_are_crossed_where_asked(results: Path, monkeypatch: Patch) -> None:
    """Of the conditions named, once the initial model and once the final adapter, with the run's archive."""
    monkeypatch.setattr(restart, "final_population", lambda run, search: (run.name,))
    found = archive_restarts(profile(), RestartSettings(archive_conditions=("native",)), results / COHORT)
    assert set(found) == {INITIAL_ARCHIVE, FINAL_ARCHIVE}
    for where, runs in found.items():
        assert [run.name for run in runs] == ["native-s42", "native-s7"]
        for run in runs:
            place = results / RESTART / where / run.name
            assert run.parent is not None
            assert (place / run.parent.run).resolve() == (results / COHORT / run.name).resolve()
            adapter = None if where == INITIAL_ARCHIVE else f"final of {run.name}"
            assert run.parent.adapter_sha256 == adapter
            assert run.parent.archive_sha256 == population_sha256((run.name,))  # type: ignore[arg-type]
            assert not run.trained
    labels = [
        run.label
        for runs in (*found.values(), restarts(profile(), RestartSettings(), results / COHORT))
        for run in runs
    ]
    assert len(set(labels)) == len(labels)
    assert archive_restarts(profile(), RestartSettings(), results / COHORT) == {}


def test_a_parent_without_final_adapter_stops_the_layer(
    results: Path, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    """Nothing is restarted from an adapter that no manifest vouches for."""
    for config in profile(seeds=(42,)).runs():
        make_run(tmp_path / "other" / config.name, config.condition, 42, final_adapter_sha256=None)
    with pytest.raises(RunDirectoryError):
        restarts(profile(seeds=(42,)), RestartSettings(), tmp_path / "other")


def test_another_parent_is_another_restart(results: Path) -> None:
    """A restart of a changed adapter has another configuration, so a kept one can never pass for it."""
    first, *_ = restarts(profile(), RestartSettings(), results / COHORT)
    assert first.parent is not None
    moved = msgspec.structs.replace(first.parent, adapter_sha256="other")
    assert msgspec.structs.replace(first, parent=moved).sha256 != first.sha256


@pytest.mark.slow
def test_layers_that_stand_on_the_cohort_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"has no complete frozen-s42.*native-s7.*--layer cohort"):
        finished_cohort(profile(), tmp_path)


@pytest.mark.parametrize(
    ("flaw", "found"),
    [
        ({}, None),
        ({"status": "running"}, "native-s7"),
        ({"source": Source(sha256="other", commit=None, clean=None)}, "native-s7"),
        ({"config_sha256": "other"}, "native-s7"),
    ],
)
@pytest.mark.slow
def test_a_finished_cohort_is_complete_and_of_this_source(
    make_run: Callable[..., Path], tmp_path: Path, flaw: dict[str, Any], found: str | None
) -> None:
    """One run that is unfinished, of another source or of another configuration is named."""
    for config in profile().runs():
        facts = {"config": msgspec.to_builtins(config), "source": source()}
        changed = flaw if config.name == found else {}
        make_run(tmp_path / COHORT / config.name, config.condition, config.seed, **{**facts, **changed})
    if found is None:
        assert finished_cohort(profile(), tmp_path) == tmp_path / COHORT
        return
    with pytest.raises(RunDirectoryError, match=f"has no complete {found} "):
        finished_cohort(profile(), tmp_path)


def test_cells_have_their_own_task_model_and_directory() -> None:
    """A cell changes task, model and size, keeps every other setting, and shares no directory."""
    cells = (CELL, msgspec.structs.replace(CELL, problem="tsp"))
    found = profile(breadth=cells).cell_runs("breadth")
    assert {name: [run.name for run in runs] for name, runs in found.items()} == {
        "cvrp-tiny": ["frozen-s1", "native-s1"],
        "tsp-tiny": ["frozen-s1", "native-s1"],
    }
    run, plain = found["cvrp-tiny"][1], profile().run("native", 1)
    own = {"layer": "breadth", "problem": "cvrp", "split": "embedded", "model": "models/tiny", "groups": 3}
    assert run == msgspec.structs.replace(plain, **own)
    assert run.label == "breadth/cvrp-tiny/native-s1"


def test_audit_cells_are_frozen_and_of_a_layer_of_their_own() -> None:
    """One Frozen run per seed in a directory that no live layer has; every other setting is the profile's."""
    found = profile(audit=(RECORDED,)).cell_runs("audit")
    assert {name: [run.name for run in runs] for name, runs in found.items()} == {
        "obp-tiny": ["frozen-s1", "frozen-s2"]
    }
    run, plain = found["obp-tiny"][0], profile().run("frozen", 1)
    own = {"layer": "audit", "problem": "obp", "split": "embedded", "model": "models/tiny", "groups": 3}
    assert run == msgspec.structs.replace(plain, **own)
    assert run.label == "audit/obp-tiny/frozen-s1"


def test_an_api_reference_asks_for_one_completion_at_a_time() -> None:
    """As many groups of one as the cohort has completions, frozen, through an endpoint of the run's own."""
    planned = references(profile(), ApiReference())
    assert [(run.name, run.layer, run.groups) for run in planned] == [
        ("frozen-s42", "api", 16),
        ("frozen-s7", "api", 16),
    ]
    for run in planned:
        assert (run.generation.group_size, run.generation.backend) == (1, "api")
        assert (run.model, run.generation.api.base_url) == ("qwen2-2.1m", "loopback")


def test_an_endpoint_elsewhere_has_its_own_model_and_no_files_here() -> None:
    """The provider's name is the run's model, and no weights of ours stand for it."""
    endpoint = ApiSettings(base_url="https://example.org/v1", key_variable="KEY")
    settings = ApiReference(seeds=(1,), completions=5, model="gpt-4o-mini", endpoint=endpoint)
    (run,) = references(profile(), settings)
    assert (run.seed, run.groups, run.model, run.generation.api) == (1, 5, "gpt-4o-mini", endpoint)
    assert model_files(run.generation, run.model) == {}
    assert model_files(references(profile(), ApiReference())[0].generation, "qwen2-2.1m") != {}


def test_only_layers_of_the_profile_can_be_chosen() -> None:
    """All that have a table run in order; one without is refused with the names of those that have."""
    layers = {"restart": RestartSettings(), "anchor": AnchorSettings(), "probe": ProbeSettings(prompts=2)}
    full = profile(breadth=(CELL,), audit=(RECORDED,), api=ApiReference(), **layers)
    names = [layer.key for layer in chosen_layers(full, [])]
    assert names == ["cohort", "restart", "breadth", "audit", "anchor", "probe", "api"]
    assert [layer.key for layer in chosen_layers(full, ["probe", "restart"])] == ["restart", "probe"]
    assert [layer.key for layer in chosen_layers(profile(), [])] == ["cohort"]
    with pytest.raises(ConfigError, match=r"'probe'.*cohort, restart"):
        chosen_layers(profile(restart=RestartSettings()), ["probe"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"breadth": (CELL, CELL)}, "breadth and audit"),
        ({"breadth": (msgspec.structs.replace(CELL, split="exam"),)}, r"breadth\[0\]\.split"),
        ({"breadth": (CELL, msgspec.structs.replace(CELL, seeds=(), problem="tsp"))}, r"breadth\[1\]\.seeds"),
        ({"audit": (RECORDED, RECORDED)}, "breadth and audit"),
        (
            {"breadth": (CELL,), "audit": (msgspec.structs.replace(RECORDED, problem="cvrp"),)},
            "breadth and audit",
        ),
        ({"audit": (msgspec.structs.replace(RECORDED, split="exam"),)}, r"audit\[0\]\.split"),
        ({"audit": (msgspec.structs.replace(RECORDED, seeds=()),)}, r"audit\[0\]\.seeds"),
        ({"restart": RestartSettings(conditions=("tail_weighted",))}, r"restart.*tail_weighted"),
        ({"restart": RestartSettings(conditions=("frozen",))}, r"restart.*frozen"),
        ({"anchor": AnchorSettings(conditions=("tail_weighted",))}, r"anchor.*tail_weighted"),
        ({"anchor": AnchorSettings(), "conditions": ("native", "factorized")}, "frozen"),
        ({"probe": ProbeSettings(), "conditions": ("native", "factorized")}, "frozen"),
        ({"probe": ProbeSettings(prompts=9), "groups": 4}, r"probe\.prompts is 9"),
    ],
)
def test_layers_that_could_not_run_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile(**changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RestartSettings(groups=0), "restart.groups"),
        (lambda: ProbeSettings(prompts=0), "probe.prompts"),
        (lambda: ProbeSettings(completions=0), "probe.completions"),
        (lambda: ApiReference(completions=0), "api.completions"),
        (lambda: ApiReference(seeds=(1, 1)), "api.seeds"),
        (lambda: ApiReference(model="gpt-4o-mini"), "both model and endpoint"),
        (lambda: ApiReference(endpoint=ApiSettings()), "both model and endpoint"),
        (lambda: AnchorSettings(conditions=()), "anchor.conditions"),
        (lambda: AnchorSettings(margin=-0.1), "anchor.margin"),
    ],
)
def test_values_that_could_never_work_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_progress_tells_runs_of_different_layers_apart(results: Path) -> None:
    """No two runs of a profile share a label, whatever their names."""
    full = profile(breadth=(CELL,))
    runs: list[RunConfig] = [*full.runs(), *restarts(full, RestartSettings(), results / COHORT)]
    runs += [run for cell in full.cell_runs("breadth").values() for run in cell]
    assert len({run.label for run in runs}) == len(runs)
