"""Reproduction of a profile: its evidence layers in order, each in its directory, then audit and report."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from tempfile import TemporaryFile
from typing import Any, cast

import msgspec
import numpy as np

from search_to_signal.base.errors import ConfigError, MappingError, ModelFileError, RunDirectoryError, reason
from search_to_signal.base.numerics import Floats
from search_to_signal.base.package_data import MODELS
from search_to_signal.base.plugins import third_party_errors
from search_to_signal.base.progress import Progress, Task
from search_to_signal.claims.page import write_ledger
from search_to_signal.claims.settings import implementation
from search_to_signal.credit import get_mapping, normalizers, rewards_of
from search_to_signal.layers.audit.layer import audit_results
from search_to_signal.layers.settings import BreadthCell
from search_to_signal.learner.settings import PROJECTIONS
from search_to_signal.models.files import model_directory, shipped, tensor_shapes
from search_to_signal.models.opening import described, model_files, require_model, require_server
from search_to_signal.models.settings import ENGINES, Endpoint, endpoint_key, model_name
from search_to_signal.problems import PROBLEMS, find_problem, get_problem
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance, Problem, instance_bytes
from search_to_signal.records import layers
from search_to_signal.records.amendments import find_awaited_runs
from search_to_signal.records.checksums import SUMS, seal
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.files import refuse_special_files, storage_errors
from search_to_signal.records.groups import OUTCOMES, VALID_CODE, GroupBatch
from search_to_signal.records.heldout import TOURS, Tour, Tours, final_heuristic, read_tours, write_tours
from search_to_signal.records.manifest import REPORT
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord
from search_to_signal.report.build import report
from search_to_signal.report.results import Results
from search_to_signal.run.execution import Execution
from search_to_signal.run.machine_check import Part, card_warnings, memory_line, require_card, trains
from search_to_signal.run.planned_runs import Reproduction, unfinished
from search_to_signal.run.profile import Profile
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

# Checks before any run: mappings and normalizers on synthetic groups, instances, models.


def check_conditions(profile: Profile) -> None:
    """Raise MappingError where a mapping or normalizer of a cohort fails on a group of its size."""
    trained = [config for config in profile.runs() if config.trained]
    groups = trial_groups(profile.generation.group_size)
    for mapping_name, normalizer_name in sorted({(config.mapping, config.normalizer) for config in trained}):
        mapping, normalizer = get_mapping(mapping_name), normalizers.get_normalizer(normalizer_name)
        # A run computes credit group by group.
        for number in range(len(groups.outcome)):
            rewards = rewards_of(mapping, groups.at(slice(number, number + 1)))
            normalizers.advantages_by_group(normalizer, rewards.reward, rewards.components)


def unordered_normalizers(profile: Profile) -> list[str]:
    """Own normalizers that give a higher reward of a group less, or equal ones different advantages.

    Those of components are not asked: their order is of no single reward.
    """
    names = {config.normalizer for config in profile.runs() if config.trained} - set(normalizers.NORMALIZERS)
    # Pairs of equal rewards, not in the order of their places.
    rewards = np.roll(np.arange(profile.generation.group_size) // 2, 1).astype(np.float64)[None]
    own = {name: normalizers.get_normalizer(name) for name in sorted(names)}
    return [
        name
        for name, normalizer in own.items()
        if not isinstance(normalizer, normalizers.ComponentNormalizer)
        and not _keeps_order(normalizer, rewards)
    ]


def _keeps_order(normalizer: normalizers.Normalizer, rewards: Floats) -> bool:
    credit = normalizers.advantages(normalizer, rewards, {"reward": rewards})
    order = np.argsort(rewards[0], kind="stable")
    steps, ties = np.diff(credit[0][order]), np.diff(rewards[0][order]) == 0
    slack = 1e-9 * float(np.abs(credit).max(initial=0.0))
    return bool((steps >= -slack).all() and (np.abs(steps[ties]) <= slack).all())


def check_instances(problem: Problem, split: str) -> None:
    """Raise DataHashError where instances of ours differ from the recorded ones.

    Raises MappingError where another's problem cannot make its instances, has none, or makes others when it
    is asked again.
    """
    if any(problem is ours for ours in PROBLEMS.values()):
        problem.instances(split)
        return
    what = f"problem {problem.name}, split {split}"
    with third_party_errors(what):
        first, again = tuple(problem.instances(split)), tuple(problem.instances(split))
    if not first:
        raise MappingError(f"{what} has no instances: give one or more")
    if not all(
        isinstance(instance, Mapping) and all(isinstance(a, np.ndarray) for a in instance.values())
        for instance in (*first, *again)
    ):
        raise MappingError(f"{what}: an instance is not a dict of arrays by name: make it by frozen_instance")
    if list(instance_bytes(first)) != list(instance_bytes(again)):
        raise MappingError(f"{what} gives other instances at each call: give the same ones every time")


def check_layers(model: str, trained: bool) -> None:
    """Raise ModelFileError where a model's weight files are cut, or lack the layers that adapters train.

    Their headers are read, not the weights, whose SHA-256 a run compares.
    """
    directory = model_directory(model)
    names = {name.split(".")[-2] for name in tensor_shapes(directory) if "." in name}
    lacking = [name for name in PROJECTIONS if name not in names]
    # Where some are there, others have joined them in one layer.
    if trained and len(lacking) == len(PROJECTIONS):
        raise ModelFileError(
            f"the model in {directory} has no {', '.join(lacking)}, and adapters are trained on these: give "
            "a model of a family that has them, such as Qwen2 or Llama"
        )


def trial_groups(size: int) -> GroupBatch:
    """Return three groups (3, size): equal scores, every outcome in turn, failures with an empty archive."""
    turns = np.arange(size) % len(OUTCOMES)
    failed = np.full(size, (VALID_CODE + 1) % len(OUTCOMES))
    outcome = np.array([np.full(size, VALID_CODE), turns, failed], dtype=np.int8)
    known = np.where(outcome == VALID_CODE, 1.0, np.nan)
    scores = -5.0 - 0.1 * np.arange(size)
    return GroupBatch(
        outcome=outcome,
        score=known * np.array([np.full(size, -5.0), scores, scores]),
        bases=np.array([[-5.0, -5.2], [-5.2, np.nan], [np.nan, np.nan]]),
        frontier=np.array([-5.0, -5.2, np.nan]),
        archive_gap=known * 0.1,
        exposure=known * 0.5,
        response=np.tile(np.arange(size), (3, 1)),
        matches_base_code=np.zeros((3, size), dtype=np.bool_),
    )


# Example tours for a picture: the seed's and the best heuristic's on one instance, built in isolation.

_LIMITS = EvaluationSettings(timeout_s=60.0, replay="off")


@dataclass(frozen=True)
class _RecordingProblem:
    problem: Any
    split_instances: tuple[Instance, ...]
    answers: dict[int, Array] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def instances(self, split: str) -> tuple[Instance, ...]:
        return self.split_instances

    def score(self, instance: Instance, answer: Array) -> float:
        position = next(number for number, other in enumerate(self.split_instances) if other is instance)
        self.answers[position] = answer
        return float(self.problem.score(instance, answer))


def record_tours(results: Path) -> bool:
    """Write two tours of a finished cohort's search; returns False for a problem without coordinates.

    The best heuristic is that of the best run, the first of equal ones. The instance is the one with the
    median gain over the split, so that it is neither the best nor the worst case. False also where a
    heuristic does not finish. Raises RunDirectoryError where the cohort is not complete.
    """
    runs = Results(results).cohort
    problem, split = find_problem(runs[0].facts.problem), runs[0].facts.split
    if not hasattr(problem, "coordinates") or problem.dialogue != "tour":
        return False
    run = max(runs, key=lambda run: final_heuristic(run.directory).score)
    seed = next(iter(read_records(run.directory / HEURISTICS, HeuristicRecord)))
    tours = [_tours(problem, split, heuristic) for heuristic in (seed, final_heuristic(run.directory))]
    if not all(tours):
        return False
    # The instance with the lower median gain, the first of equal ones.
    gains = [(after.score - before.score, at) for at, (before, after) in enumerate(zip(*tours, strict=True))]
    position = median_low(gains)[1]
    coordinates = problem.coordinates(split)[position]
    record = Tours(
        problem=runs[0].facts.problem,
        split=split,
        instance=position,
        run=run.path,
        coordinates=tuple((float(x), float(y)) for x, y in coordinates),
        seed=tours[0][position],
        best=tours[1][position],
    )
    write_tours(results, record)
    return True


def _tours(problem: Problem, split: str, heuristic: HeuristicRecord) -> list[Tour]:
    """The heuristic's tours; none where it does not finish, for example on a much slower machine."""
    recording = _RecordingProblem(problem, problem.instances(split))
    with EvaluationPool(cast(Problem, recording), split, _LIMITS) as pool:
        (result,) = pool.evaluate([heuristic.code])
    return [
        Tour(heuristic=heuristic.id, order=tuple(map(int, recording.answers[position])), score=score)
        for position, score in enumerate(result.per_instance)
    ]


def tour_problems(results: Path) -> Iterator[str]:
    """Yield recorded tours whose order is no tour, or whose score differs from that of their order."""
    if not (results / TOURS).is_file():
        return
    tours = read_tours(results)
    problem = find_problem(tours.problem)
    instance = problem.instances(tours.split)[tours.instance]
    for name, tour in (("seed", tours.seed), ("best", tours.best)):
        try:
            score = problem.score(instance, np.array(tour.order))
        except InfeasibleAnswerError as error:
            yield f"{TOURS}: {name}: {error}"
            continue
        if score != tour.score:
            yield f"{TOURS}: {name}: the order has score {score!r}, but {tour.score!r} is recorded"


EMBEDDED_RATE = 8e-4
"""The learning rate that shipped profiles give embedded models; the default, 5e-5, is the paper's at 7B."""
_TOO_SLOW = EMBEDDED_RATE / 4


def chosen_layers(profile: Profile, names: Sequence[str]) -> list[layers.Layer]:
    """Return the named layers, or all layers of the profile; raises ConfigError for one that it lacks."""
    reproduction = [layer for layer in layers.LAYERS if profile.asks_for(layer.key)]
    known = [layer.key for layer in reproduction]
    for name in names:
        if name not in known:
            raise ConfigError(f"the profile has no layer {name!r}: choose from {', '.join(known)}")
    return [layer for layer in reproduction if not names or layer.key in names]


def run_layer(layer: layers.Layer, reproduction: Reproduction) -> None:
    """Run a layer; raises RunDirectoryError where it needs a missing one."""
    layers.layer_part(layer.key, "layer").run(reproduction)


def planned_work(profile: Profile, keys: Sequence[str]) -> list[Task]:
    """The tasks of these layers for progress; a layer without ``tasks`` tells of them as it runs."""
    modules = [layers.layer_part(key, "layer") for key in keys]
    return [task for module in modules if hasattr(module, "tasks") for task in module.tasks(profile)]


def require_place(results: Path, resume: bool) -> None:
    """Raise RunDirectoryError where a results directory cannot be made or written; no file remains.

    Nor where a link in it leads what is written elsewhere. With ``resume`` what is in it goes on, and the
    error says how: in another place nothing would.
    """
    if results.exists() and not results.is_dir():
        raise RunDirectoryError(f"{results} is not a directory: give another --out, or move it away")
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
    start; GenerationError for a server that cannot sample, ModelFileError for an incomplete model,
    DataHashError for instances that differ from the recorded ones, RunDirectoryError for an unusable results
    directory, MappingError for a mapping or normalizer that fails on synthetic groups, and for a problem of
    somebody's own without fixed instances.
    """
    require_place(results, resume)
    check_conditions(profile)
    computing = parts_with_models(profile, keys)
    for model in sorted(_models(computing)):
        if require_model(profile.generation, model):
            check_layers(model, _is_trained(model, computing))
    require_card(profile, computing)
    for endpoint in _endpoints(profile, keys):
        endpoint_key(endpoint)
    for model in sorted(_models(computing)):
        require_server(profile.generation, model)
    for problem, split in sorted({(part.problem, part.split) for part in _every_part(profile)}):
        check_instances(get_problem(problem), split)


def described_models(profile: Profile, keys: Sequence[str]) -> Iterator[str]:
    """Yield what there is to know of each model of somebody else that runs of these layers load.

    Its memory is left out where its settings say no sizes. Raises as ``described`` does.
    """
    computing = parts_with_models(profile, keys)
    for model in sorted(_models(computing)):
        if require_model(profile.generation, model) and not shipped(model_directory(model)):
            yield from described(profile.generation, model)
            if profile.generation.backend == "local":
                with suppress(ModelFileError):
                    yield memory_line(profile, model, _is_trained(model, computing))


def _is_trained(model: str, parts: Sequence[Part]) -> bool:
    return any(trains(part) for part in parts if model_name(part.model) == model)


def on_this_machine(profile: Profile, ray: str | None) -> Profile:
    """Return the profile with what it runs here: runs on a cluster share its cards, not this machine's."""
    return profile if ray is None else msgspec.structs.replace(profile, jobs=1)


def _models(parts: Sequence[Part]) -> set[str]:
    return {model_name(part.model) for part in parts}


def _every_part(profile: Profile) -> list[Part]:
    return [profile, *profile.breadth, *profile.audit]


def _endpoints(profile: Profile, keys: Sequence[str]) -> Iterator[Endpoint]:
    """The endpoints elsewhere that these layers ask."""
    if profile.generation.backend == "api" and set(keys) - {layers.API, layers.HELDOUT}:
        yield profile.generation.api
    if profile.generation.backend == "server" and set(keys) - {layers.API, layers.HELDOUT}:
        yield profile.generation.served
    if layers.API in keys and profile.api is not None and profile.api.endpoint is not None:
        yield profile.api.endpoint


def parts_with_models(profile: Profile, keys: Sequence[str]) -> list[Part]:
    """The parts of a profile whose models these layers load.

    A reference through an endpoint and a held-out evaluation load none.
    """
    elsewhere = {layers.API} if profile.api is not None and profile.api.endpoint is not None else set()
    cells: list[Part] = []
    if {layers.BREADTH, layers.UPDATES} & set(keys):
        cells += profile.breadth
    if layers.AUDIT in keys:
        cells += profile.audit
    standing = set(keys) - {layers.BREADTH, layers.AUDIT, layers.HELDOUT} - elsewhere
    return [profile, *cells] if standing else cells


def warnings_of(profile: Profile) -> Iterator[str]:
    """Yield a warning for every setting that is valid and defeats its purpose."""
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
    for groups in sorted({part.groups for part in _every_part(profile)}):
        if profile.search.collapses_always(groups):
            yield (
                f"warning: search.collapse_threshold -1 is a twentieth of {groups} groups, which is 0: the "
                "archive collapses before every prompt; give 20 groups or more, or a threshold of your own"
            )
    for name in unordered_normalizers(profile):
        yield (
            f"warning: normalizer {name} gives a higher reward a lower advantage, or equal rewards different "
            "ones: a run then does not learn its reward (docs/your-reward.md)"
        )
    if profile.anchor is not None and profile.anchor.clock == "wall" and profile.jobs > 1:
        yield (
            f"warning: the anchor's budgets are wall seconds, and {profile.jobs} runs side by side slow each "
            "other down: set jobs = 1 to avoid this (D30)"
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
    if not (results / layers.COHORT / SUMS).is_file():
        progress.say("no report: the cohort has not run")
        return None
    if left := unfinished(results):
        progress.say(f"no report: {left} not finished, go on with --resume")
        return None
    progress.say("touring one instance with the seed and with the best heuristic, for a picture")
    record_tours(results)
    progress.say("replaying the recorded groups under every mapping and normalizer")
    audit_results(results, results / layers.AUDIT)
    return write_report(results, results / REPORT)


def write_report(results: Path, out: Path) -> Path:
    """Write the report of a results directory with the ledger of the paper's numbers; returns its page.

    While runs of a plan are awaited the ledger decides no direction.
    """
    lacking = find_awaited_runs(results)
    return report(results, out, lambda written: write_ledger(written, implementation(), lacking=lacking))
