"""Reproduction of a profile: its evidence layers in order, each in its directory, then audit and report."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from search_to_signal.analysis.report import report
from search_to_signal.claims.report import write_ledger
from search_to_signal.errors import ConfigError, RunDirectoryError, reason
from search_to_signal.generators.endpoint_key import endpoint_key
from search_to_signal.generators.opening import model_files, require_model
from search_to_signal.generators.settings import ENGINES, ApiSettings, model_name
from search_to_signal.package_data import MODELS
from search_to_signal.problems import get_problem
from search_to_signal.profiles.layer_settings import BreadthCell
from search_to_signal.profiles.profile import Profile
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import SUMS
from search_to_signal.provenance.seal import seal
from search_to_signal.records.awaited import find_awaited_runs
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.files import refuse_special_files, storage_errors
from search_to_signal.records.layers import API, AUDIT, BREADTH, COHORT, HELDOUT, LAYERS, UPDATES, Layer
from search_to_signal.records.manifest import REPORT
from search_to_signal.scheduling.card_check import Part, card_warnings, require_card, trains
from search_to_signal.scheduling.execution import Execution
from search_to_signal.scheduling.planned_runs import Reproduction, unfinished
from search_to_signal.studies import layers
from search_to_signal.studies.example_tours import record_tours
from search_to_signal.studies.implementation import implementation
from search_to_signal.studies.layers.normalizer_replay import audit_results
from search_to_signal.studies.preflight import (
    check_conditions,
    check_instances,
    check_layers,
    unordered_normalizers,
)

EMBEDDED_RATE = 8e-4
"""The learning rate that shipped profiles give embedded models; the default, 5e-5, is the paper's at 7B."""
_TOO_SLOW = EMBEDDED_RATE / 4


def chosen_layers(profile: Profile, names: Sequence[str]) -> list[Layer]:
    """Return the named layers, or all layers of the profile; raises ConfigError for one that it lacks."""
    reproduction = [layer for layer in LAYERS if profile.asks_for(layer.key)]
    known = [layer.key for layer in reproduction]
    for name in names:
        if name not in known:
            raise ConfigError(f"the profile asks for no layer {name!r}: it has {', '.join(known)}")
    return [layer for layer in reproduction if not names or layer.key in names]


def run_layer(layer: Layer, reproduction: Reproduction) -> None:
    """Run a layer by the module of its key; raises RunDirectoryError where it needs a missing layer."""
    import_module(f"{layers.__name__}.{layer.key}").run(reproduction)


def require_place(results: Path, resume: bool) -> None:
    """Raise RunDirectoryError where a results directory cannot be made or written; no file remains.

    Nor where a link in it leads what is written elsewhere. With ``resume`` what is in it goes on, and the
    error says how: in another place nothing would.
    """
    if results.exists() and not results.is_dir():
        raise RunDirectoryError(f"{results} is no directory: give another --out, or move it away")
    refuse_special_files(results)
    missing = [path for path in (results, *results.parents) if not path.exists()]
    try:
        results.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=results).close()
    except OSError as error:
        begun = resume and results.is_dir() and any(results.iterdir())
        remedy = "make it writable, or copy it and go on in the copy" if begun else "give another --out"
        raise RunDirectoryError(f"cannot write to {results} ({reason(error)}): {remedy}") from error
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def require_parts(profile: Profile, results: Path, resume: bool, keys: Sequence[str]) -> None:
    """Check, before the first run starts, that runs of these layers can start, or go on.

    Each layer hashes its weights when it begins; those of layers after the first are hashed here for an
    engine. Raises as ``require_start``, and ModelFileError for changed weights.
    """
    require_start(profile, results, resume, keys)
    if profile.generation.backend in ENGINES:
        # Days may lie before the runs of a second model. Its bytes are compared now, behind what is quick.
        first = _models(parts_with_models(profile, keys[:1]))
        for model in sorted(_models(parts_with_models(profile, keys)) - first):
            model_files(profile.generation, model)


def require_start(profile: Profile, results: Path, resume: bool, keys: Sequence[str]) -> None:
    """Check what takes no time of what runs of these layers need; nothing is left in ``results``.

    Raises ConfigError for a card that is missing or too small, and for an engine or an endpoint that cannot
    start; ModelFileError for an incomplete model, DataHashError for instances that differ from the recorded
    ones, RunDirectoryError for an unusable results directory, MappingError for a mapping or normalizer that
    fails on synthetic groups, and for a problem of somebody's own without fixed instances.
    """
    require_place(results, resume)
    check_conditions(profile)
    computing = parts_with_models(profile, keys)
    for model in sorted(_models(computing)):
        if require_model(profile.generation, model):
            check_layers(model, any(trains(part) for part in computing if model_name(part.model) == model))
    require_card(profile, computing)
    for endpoint in _endpoints(profile, keys):
        endpoint_key(endpoint)
    for problem, split in sorted({(part.problem, part.split) for part in _every_part(profile)}):
        check_instances(get_problem(problem), split)


def on_this_machine(profile: Profile, ray: str | None) -> Profile:
    """Return the profile with what it runs here: runs on a cluster share its cards, not this machine's."""
    return profile if ray is None else msgspec.structs.replace(profile, jobs=1)


def _models(parts: Sequence[Part]) -> set[str]:
    return {model_name(part.model) for part in parts}


def _every_part(profile: Profile) -> list[Part]:
    return [profile, *profile.breadth, *profile.audit]


def _endpoints(profile: Profile, keys: Sequence[str]) -> Iterator[ApiSettings]:
    """The endpoints elsewhere that these layers ask."""
    if profile.generation.backend == "api" and set(keys) - {API, HELDOUT}:
        yield profile.generation.api
    if API in keys and profile.api is not None and profile.api.endpoint is not None:
        yield profile.api.endpoint


def parts_with_models(profile: Profile, keys: Sequence[str]) -> list[Part]:
    """The parts of a profile whose models these layers load.

    A reference through an endpoint and a held-out evaluation load none.
    """
    elsewhere = {API} if profile.api is not None and profile.api.endpoint is not None else set()
    cells: list[Part] = []
    if {BREADTH, UPDATES} & set(keys):
        cells += profile.breadth
    if AUDIT in keys:
        cells += profile.audit
    standing = set(keys) - {BREADTH, AUDIT, HELDOUT} - elsewhere
    return [profile, *cells] if standing else cells


def warnings_of(profile: Profile) -> Iterator[str]:
    """Yield a warning for every setting that is valid and defeats its purpose."""
    yield from _slow_models(profile)
    yield from _short_runs(profile)
    for name in unordered_normalizers(profile):
        yield (
            f"warning: normalizer {name} gives a higher reward a lower advantage, or equal rewards different "
            "ones: what a run learns then is not its reward (docs/adding.md)"
        )
    if profile.anchor is not None and profile.anchor.clock == "wall" and profile.jobs > 1:
        yield (
            f"warning: the anchor's budgets are of wall seconds, which {profile.jobs} runs side by side "
            "lengthen for each other: jobs = 1 leaves them alone (D30)"
        )


def _short_runs(profile: Profile) -> Iterator[str]:
    for groups in sorted({part.groups for part in _every_part(profile)}):
        if profile.search.collapses_always(groups):
            yield (
                f"warning: search.collapse_threshold -1 is a twentieth of {groups} groups, which is 0: the "
                "archive collapses before every prompt; give 20 groups or more, or a threshold of your own"
            )


def _slow_models(profile: Profile) -> Iterator[str]:
    """A warning for every embedded model that the profile trains at a learning rate that is too low."""
    rate = profile.learner.learning_rate
    parts: list[Profile | BreadthCell] = [profile, *profile.breadth]
    trained = {model_name(part.model) for part in parts if set(part.conditions) - {FROZEN}}
    for model in sorted(trained):
        if (
            profile.learner.optimizer != "sgd"
            and rate < _TOO_SLOW
            and "/" not in model
            and (MODELS / model).is_dir()
        ):
            yield (
                f"warning: {model} is trained at learner.learning_rate {rate:g}, too low for a model of its "
                f"size: runs will hardly differ from frozen ones; the shipped profiles use {EMBEDDED_RATE:g}"
            )


def reproduce(
    profile: Profile, results: Path, execution: Execution, progress: Progress, names: Sequence[str] = ()
) -> Path | None:
    """Run layers of a profile, then audit and report them; returns the report's page.

    Returns None while the cohort or another started run is unfinished. Complete runs are verified and kept.
    Raises RunDirectoryError where a layer that another one needs is missing, StorageError where the disk is
    full, and as ``require_parts`` and ``execute`` do.
    """
    chosen = chosen_layers(profile, names)
    here = on_this_machine(profile, execution.ray)
    require_parts(here, results, execution.resume, [layer.key for layer in chosen])
    reproduction = Reproduction(profile, results, execution, progress)
    progress.say(f"running {', '.join(layer.key for layer in chosen)} into {results}")
    for line in (*card_warnings(profile), *warnings_of(profile)):
        progress.say(line)
    with storage_errors(results, execution.remedy):
        for layer in chosen:
            start = time.perf_counter()
            run_layer(layer, reproduction)
            progress.say(f"layer {layer.key}: {time.perf_counter() - start:.1f} s")
        page = _audit_and_report(results, progress)
        seal(results, f"search-to-signal, {profile.problem} with {profile.model_name}")
    return page


def _audit_and_report(results: Path, progress: Progress) -> Path | None:
    if not (results / COHORT / SUMS).is_file():
        progress.say("no report: the cohort has not run")
        return None
    if left := unfinished(results):
        progress.say(f"no report: {left} not finished, go on with --resume")
        return None
    progress.say("touring one instance with the seed and with the best heuristic, for a picture")
    record_tours(results)
    progress.say("replaying the recorded groups under every mapping and normalizer")
    audit_results(results, results / AUDIT)
    return write_report(results, results / REPORT)


def write_report(results: Path, out: Path) -> Path:
    """Write the report of a results directory with the ledger of the paper's numbers; returns its page.

    While runs of a plan are awaited the ledger decides no direction.
    """
    lacking = find_awaited_runs(results)
    return report(results, out, lambda written: write_ledger(written, implementation(), lacking=lacking))
