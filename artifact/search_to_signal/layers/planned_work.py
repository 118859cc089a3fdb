"""The tasks that the layers of a profile will report to progress, known before the first layer starts."""

from collections.abc import Callable, Iterable, Sequence

from search_to_signal.base.progress import Task
from search_to_signal.layers.api import references
from search_to_signal.layers.cells import planned
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import heldout_splits
from search_to_signal.records.conditions import FROZEN, run_name
from search_to_signal.records.layers import (
    ANCHOR,
    API,
    AUDIT,
    BREADTH,
    COHORT,
    FINAL_ARCHIVE,
    HELDOUT,
    INITIAL_ARCHIVE,
    PROBE,
    RESTART,
    UPDATES,
)
from search_to_signal.records.probe import INITIAL
from search_to_signal.run.config import ApiReference, ProbeSettings, RunConfig, UpdateSettings
from search_to_signal.run.profile import Profile

# Costs of a step, relative to one group of a Frozen run, for the estimate of the remaining time.
_TRAINED, _SERVED, _UPDATE, _HELDOUT, _PROGRAM = 2.0, 0.7, 0.5, 5.0, 0.2
# An estimate of an anchor's groups, in units of the cohort's; its contract is derived later.
_ANCHOR_GROUPS = 2
# The cost of loading libraries and model.
_SETUP = 10.0
_PROGRAMS_PER_COMPLETION = 0.5


def _runs(configs: Iterable[RunConfig]) -> list[Task]:
    return [Task(run.label, run.groups, _TRAINED if run.trained else 1.0, _SETUP, True) for run in configs]


def _cells(profile: Profile, layer: str) -> list[RunConfig]:
    return [run for runs in planned(profile, layer).values() for run in runs]


def _restarts(profile: Profile) -> list[Task]:
    settings = profile.restart
    chosen = (settings and settings.conditions) or profile.conditions
    groups = (settings and settings.groups) or profile.groups
    archives = (settings and settings.archive_conditions) or ()
    starts = {"": chosen, f"{INITIAL_ARCHIVE}/": archives, f"{FINAL_ARCHIVE}/": archives}
    return [
        Task(f"restart/{where}{run.name}", groups, setup=_SETUP, is_run=True)
        for where, conditions in starts.items()
        for run in profile.runs()
        if run.trained and run.condition in conditions
    ]


def _anchors(profile: Profile) -> list[Task]:
    groups = _ANCHOR_GROUPS * profile.groups
    return [
        Task(f"anchor/{run_name(FROZEN, seed)}", groups, setup=_SETUP, is_run=True) for seed in profile.seeds
    ]


def _probes(profile: Profile) -> list[Task]:
    settings = profile.probe or ProbeSettings()
    names = [INITIAL, *(run.name for run in profile.runs() if run.trained)]
    return [Task(f"probe/{name}", settings.prompts, setup=_SETUP) for name in names]


def _references(profile: Profile) -> list[Task]:
    runs = _runs(references(profile, profile.api or ApiReference()))
    return [task._replace(cost=_SERVED) for task in runs]


def _updates(profile: Profile) -> list[Task]:
    settings = profile.updates or UpdateSettings()
    credits = len(settings.mappings) * len(settings.normalizers)
    optimizers = settings.groups + 1 + (settings.groups > 1)
    names = dict.fromkeys(run.cell for run in (*profile.runs(), *_cells(profile, BREADTH)))
    return [
        Task(f"updates/{name}", credits * optimizers, _UPDATE * settings.groups, _SETUP) for name in names
    ]


def _heldout(profile: Profile) -> list[Task]:
    runs = profile.runs()
    splits = heldout_splits(get_problem(profile.problem))
    programs = len(runs) * profile.completions * _PROGRAMS_PER_COMPLETION
    scores = [Task(f"heldout/{split}", len(runs), _HELDOUT) for split in splits]
    return [*scores, Task("heldout/behaviours", int(programs), _PROGRAM)]


_PLANS: dict[str, Callable[[Profile], list[Task]]] = {
    COHORT: lambda profile: _runs(profile.runs()),
    RESTART: _restarts,
    BREADTH: lambda profile: _runs(_cells(profile, BREADTH)),
    AUDIT: lambda profile: _runs(_cells(profile, AUDIT)),
    ANCHOR: _anchors,
    PROBE: _probes,
    API: _references,
    UPDATES: _updates,
    HELDOUT: _heldout,
}


def planned_work(profile: Profile, layers: Sequence[str]) -> list[Task]:
    """Return the tasks of these layers in order; third-party layers report theirs when they start."""
    return [task for layer in layers if layer in _PLANS for task in _PLANS[layer](profile)]
