"""A whole profile: its evidence layers in order, each in a directory of its own, then audit and report."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from search_to_signal.analysis.report import report
from search_to_signal.claims.beside import ledger_beside
from search_to_signal.errors import ConfigError, RunDirectoryError, reason
from search_to_signal.experiments.anchor import fix_contract, run_anchors
from search_to_signal.experiments.api_reference import run_references
from search_to_signal.experiments.audit_cells import run_audit_cells
from search_to_signal.experiments.breadth import run_breadth
from search_to_signal.experiments.cohort import finished_cohort, run_all
from search_to_signal.experiments.configuration import Profile
from search_to_signal.experiments.execution import Execution
from search_to_signal.experiments.heldout import heldout
from search_to_signal.experiments.implementation import implementation
from search_to_signal.experiments.layer_settings import (
    AuditCell,
    BreadthCell,
    HeldoutSettings,
    UpdateSettings,
)
from search_to_signal.experiments.normalizer_replay import replay
from search_to_signal.experiments.probe import run_probe
from search_to_signal.experiments.restart import run_restarts
from search_to_signal.experiments.tours import record_tours
from search_to_signal.generators.opening import require_model
from search_to_signal.normalizer import NORMALIZERS
from search_to_signal.problems import get_problem
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import SUMS
from search_to_signal.provenance.seal import seal
from search_to_signal.records.files import storage_errors
from search_to_signal.records.manifest import (
    AUDIT,
    BREADTH,
    COHORT,
    REPORT,
    UPDATES,
    read_manifest,
    run_directories,
    runs_below,
)
from search_to_signal.rewards import MAPPINGS


@dataclass(frozen=True)
class Layer:
    """An evidence layer: whether a profile asks for it, and how it runs into a results directory."""

    name: str
    wanted: Callable[[Profile], bool]
    run: Callable[[Profile, Path, Execution, Progress], None]


def _run_cohort(profile: Profile, results: Path, how: Execution, progress: Progress) -> None:
    run_all({results / COHORT: profile.runs()}, how, progress)
    if profile.anchor is not None:
        # Now, while nobody has computed what the runs achieved.
        fix_contract(profile, profile.anchor, results)


def _run_updates(profile: Profile, results: Path, how: Execution, progress: Progress) -> None:
    from search_to_signal.experiments.matched_updates import matched_updates  # loads torch

    cohort = finished_cohort(profile, results)
    if unfinished := _unfinished(results / BREADTH):
        raise RunDirectoryError(
            f"{unfinished} not finished: run breadth to its end first, it is stepped on too"
        )
    recorded = [*run_directories(cohort), *runs_below(results / BREADTH)]
    matched_updates(recorded, results / UPDATES, profile.updates or UpdateSettings(), progress)


def _run_heldout(profile: Profile, results: Path, how: Execution, progress: Progress) -> None:
    finished_cohort(profile, results)
    heldout(results, profile.heldout or HeldoutSettings(), progress)


LAYERS = (
    Layer("cohort", lambda profile: True, _run_cohort),
    Layer("restart", lambda profile: profile.restart is not None, run_restarts),
    Layer("breadth", lambda profile: bool(profile.breadth), run_breadth),
    Layer("audit", lambda profile: bool(profile.audit), run_audit_cells),
    Layer("anchor", lambda profile: profile.anchor is not None, run_anchors),
    Layer("probe", lambda profile: profile.probe is not None, run_probe),
    Layer("api", lambda profile: profile.api is not None, run_references),
    Layer("updates", lambda profile: profile.updates is not None, _run_updates),
    Layer("heldout", lambda profile: profile.heldout is not None, _run_heldout),
)


def chosen_layers(profile: Profile, names: Sequence[str]) -> list[Layer]:
    """The layers to run, all that the profile asks for when none is named; raises ConfigError otherwise."""
    asked = [layer for layer in LAYERS if layer.wanted(profile)]
    known = [layer.name for layer in asked]
    for name in names:
        if name not in known:
            raise ConfigError(f"the profile asks for no layer {name!r}: it has {', '.join(known)}")
    return [layer for layer in asked if not names or layer.name in names]


def require_place(results: Path) -> None:
    """Raise RunDirectoryError where a results directory cannot be made or written; leaves nothing behind."""
    if results.exists() and not results.is_dir():
        raise RunDirectoryError(f"{results} is no directory: give another --out, or move it away")
    missing = [path for path in (results, *results.parents) if not path.exists()]
    try:
        results.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=results).close()
    except OSError as error:
        raise RunDirectoryError(f"cannot write to {results} ({reason(error)}): give another --out") from error
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def require_parts(profile: Profile, results: Path) -> None:
    """Raise, before the first run starts, where a later one could not.

    ModelFileError for a model that is not here as its list says, DataHashError for instances other than the
    recorded ones, RunDirectoryError for a results directory that is none. The layers hash the weights.
    """
    require_place(results)
    parts: list[Profile | BreadthCell | AuditCell] = [profile, *profile.breadth, *profile.audit]
    for model in sorted({part.model for part in parts}):
        require_model(profile.generation, model)
    for problem, split in sorted({(part.problem, part.split) for part in parts}):
        get_problem(problem).instances(split)


def reproduce(
    profile: Profile, results: Path, how: Execution, progress: Progress, names: Sequence[str] = ()
) -> Path | None:
    """Run layers of a profile, then audit and report them; returns the report's page.

    None when the cohort, or any other run that was begun, is not finished. What is complete is verified and
    kept; every layer raises RunDirectoryError when what it stands on is missing, and where the disk takes no
    more.
    """
    chosen = chosen_layers(profile, names)
    require_parts(profile, results)
    progress.say(f"running {', '.join(layer.name for layer in chosen)} into {results}")
    with storage_errors(results):
        for layer in chosen:
            start = time.perf_counter()
            layer.run(profile, results, how, progress)
            progress.say(f"layer {layer.name}: {time.perf_counter() - start:.1f} s")
        page = _evaluated(profile, results, progress)
        seal(results, f"search-to-signal, {profile.problem} with {profile.model}")
    return page


def _unfinished(directory: Path) -> str:
    """The runs below a directory that were begun and not finished, for people; empty when there is none."""
    runs = [run for run in runs_below(directory) if read_manifest(run).status != "complete"]
    return ", ".join(str(run.relative_to(directory)) for run in runs)


def _evaluated(profile: Profile, results: Path, progress: Progress) -> Path | None:
    cohort = results / COHORT
    if not (cohort / SUMS).is_file():
        progress.say("no report: the cohort has not run")
        return None
    if unfinished := _unfinished(results):
        progress.say(f"no report: {unfinished} not finished, go on with --resume")
        return None
    progress.say("touring one instance with the seed and with the best heuristic, for a picture")
    record_tours(results)
    progress.say("replaying the recorded groups under every mapping and normalizer")
    recorded = [*run_directories(cohort), *runs_below(results / BREADTH), *runs_below(results / AUDIT)]
    replay(recorded, results / AUDIT, list(MAPPINGS), list(NORMALIZERS))
    return report(results, results / REPORT, lambda written: ledger_beside(written, implementation()))
