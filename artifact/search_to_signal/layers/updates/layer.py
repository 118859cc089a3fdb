"""Evidence layer "matched update": whether a difference in credit reaches the parameters.

Initial adapter, response tokens, masks, reference log-probabilities, optimizer steps and training tokens
are held fixed, and only the mapping and the normalizer vary. Source: paper, Signal-Propagation Analysis.
"""

import gc
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec

from search_to_signal.base.errors import ConfigError, RecordError, RunDirectoryError, require
from search_to_signal.base.progress import Progress, Task
from search_to_signal.base.settings import canonical_json
from search_to_signal.layers.settings import UpdateSettings
from search_to_signal.layers.updates.tables import matched_page
from search_to_signal.models.files import checked_files, model_directory
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.files import RecordWriter, read_regular
from search_to_signal.records.layers import BREADTH
from search_to_signal.records.layers import UPDATES as LAYER
from search_to_signal.records.manifest import read_manifest, run_directories, runs_below
from search_to_signal.records.provenance import source
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, run_name_below
from search_to_signal.run.planned_runs import LOADING, Reproduction, unfinished
from search_to_signal.run.profile import Profile

PAGE = "matched.md"


def tasks(profile: Profile) -> list[Task]:
    settings = profile.updates or UpdateSettings()
    credits = len(settings.mappings) * len(settings.normalizers)
    optimizers = settings.groups + 1 + (settings.groups > 1)
    runs = (*profile.runs(), *chain(*profile.cell_runs(BREADTH).values()))
    names = dict.fromkeys(f"updates/{run.cell}" for run in runs)
    return [Task(name, credits * optimizers, 0.5 * settings.groups, LOADING) for name in names]


def run(reproduction: Reproduction) -> None:
    """Compute matched updates on cohort and breadth; raises RunDirectoryError where one is not finished."""
    cohort, breadth = reproduction.finished_cohort(), reproduction.results / BREADTH
    if names := unfinished(breadth):
        raise RunDirectoryError(
            f"{names} not finished: finish the layer breadth first, since updates also use its groups"
        )
    recorded = [*run_directories(cohort), *runs_below(breadth)]
    settings = reproduction.profile.updates or UpdateSettings()
    matched_updates(recorded, reproduction.results / LAYER, settings, reproduction.progress)


def matched_updates(runs: Sequence[Path], out: Path, settings: UpdateSettings, progress: Progress) -> Path:
    """Compare updates on one recorded run per problem and model; returns the page, next to two record files.

    The run is the frozen one of the smallest seed where there is one, since the initial adapter samples like
    its model; its window is the middle of the run. Results depend on run, settings and source alone: existing
    ones with equal inputs are kept. Raises ConfigError for a run that is too short and where there is none,
    LearnerError where an update cannot start, RecordError for unreadable records and those of another model.
    """
    require("torch", "peft")
    chosen = choose_runs(runs)
    setup = _setup(chosen, settings)
    if (out / SETUP).is_file() and read_regular(out / SETUP) == setup:
        progress.say(f"matched updates in {out}: kept")
        return out / PAGE
    # It loads torch, which takes seconds: whatever is wrong with the records is told before.
    from search_to_signal.layers.updates.pairs import compare_cell, read_cell

    out.mkdir(parents=True, exist_ok=True)
    for name in (SETUP, UPDATES, PAIRS):
        (out / name).unlink(missing_ok=True)
    with RecordWriter(out / UPDATES) as updates, RecordWriter(out / PAIRS) as pairs:
        for directory in chosen:
            compare_cell(read_cell(directory, settings), settings, updates, pairs, progress)
            # Hooks hold a model in 4 bits in a circle; the next one would have to fit beside it.
            gc.collect()
    (out / PAGE).write_text(matched_page(out), encoding="utf-8")
    (out / SETUP).write_bytes(setup)
    return out / PAGE


def choose_runs(runs: Sequence[Path]) -> list[Path]:
    """Return one complete run per problem and model; raises ConfigError when there is none."""
    best: dict[tuple[str, str], tuple[tuple[bool, int, str], Path]] = {}
    for directory in runs:
        manifest = read_manifest(directory)
        if manifest.status != "complete":
            continue
        facts = manifest.facts
        order = (facts.condition != FROZEN, facts.seed, facts.condition)
        cell = (facts.problem, facts.model)
        best[cell] = min(best.get(cell, (order, directory)), (order, directory))
    if not best:
        raise ConfigError("there is no complete run to take groups from: give run directories")
    return [directory for _, (_, directory) in sorted(best.items())]


def _setup(runs: Sequence[Path], settings: UpdateSettings) -> bytes:
    inputs = [
        {
            "run": run_name_below(run),
            "files": {name: sha256_file(run / name) for name in (COMPLETIONS, GENERATIONS)},
            "model": _model_files(run),
        }
        for run in runs
    ]
    facts = {"runs": inputs, "settings": settings, "source_sha256": source().sha256}
    return msgspec.json.format(canonical_json(facts), indent=2) + b"\n"


def _model_files(run: Path) -> dict[str, str]:
    manifest = read_manifest(run)
    files = checked_files(model_directory(manifest.facts.model))
    if files != manifest.model_files:
        raise RecordError(
            f"{run} names the model {manifest.facts.model}, whose files here do not have the recorded "
            "checksums: restore the run, or the model"
        )
    return files
