"""Whether a run goes on, begins again or is refused; from where, and its search as records left it."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.base.errors import RecordError, RunDirectoryError
from search_to_signal.credit import BUILT_IN, RewardMapping, get_mapping, own_name
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.credit.normalizers import NORMALIZERS, Normalizer
from search_to_signal.learner import get_rule, rule_errors
from search_to_signal.learner.base import rule_facts
from search_to_signal.models.opening import model_files
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Problem, score_unit
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.records.files import START, Mark
from search_to_signal.records.manifest import (
    Accelerator,
    Environment,
    Manifest,
    read_manifest,
)
from search_to_signal.records.provenance import environment, source
from search_to_signal.records.reader import read_groups, read_records
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import (
    NAMES,
    PAIRED_NAMES,
    EvaluationNote,
    begin,
    is_begun,
    lock_directory,
    move_aside,
    newest_checkpoint,
)
from search_to_signal.run.replayed import CREDIT, host_search, recorded_seeds, recorded_start, replayed
from search_to_signal.sandbox.pool import Run
from search_to_signal.search.host import Host, host_facts
from search_to_signal.search.hosts import open_host


def manifest_now(config: RunConfig) -> Manifest:
    """The manifest of a run that begins here and now."""
    unit = score_unit(get_problem(config.problem))
    files = model_files(config.generation, config.model)
    host = open_host(config.host, config.host_setup)
    with rule_errors(config.learning_rule):
        rule = rule_facts(get_rule(config.learning_rule), config.rule_settings)
    facts: dict[str, Any] = {"score_unit": unit, **mapping_facts(config.condition)}
    facts |= {"host": config.host, "host_facts": host_facts(host), "rule_facts": rule}
    return first_manifest(config, config.sha256, files, config.on_card, **facts)


def mapping_facts(condition: str) -> dict[str, str]:
    """The manifest's name of a third-party mapping: the one that the mapping gives itself."""
    mapping = Condition.parse(condition).mapping
    if mapping == FROZEN:
        return {}
    get_mapping(mapping)
    name = own_name(mapping)
    return {} if name is None else {"mapping_name": name}


def first_manifest(
    config: msgspec.Struct, sha256: str, files: dict[str, str], card: bool = False, **facts: Any
) -> Manifest:
    """The manifest of a run that begins; ``files`` are the model's, ``facts`` further fields.

    ``card`` says that it computes on an accelerator.
    """
    manifest = Manifest(
        status="running",
        config=msgspec.to_builtins(config),
        config_sha256=sha256,
        source=source(),
        environment=environment(card),
        model_files=files,
        isolation={},
        **facts,
    )
    # As it will be read back: lists where the settings have tuples.
    return msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)


# Facts of a machine that decide no bit of a record.
_FREE = ("kernel", "cpu_count", "memory_mib")
# Cards of one chip, whose runs came out byte for byte the same (artifact/evidence/NOTEBOOK.md).
_SAME_CHIP = {"NVIDIA H200": "NVIDIA H100 80GB HBM3"}


class ResumePoint(NamedTuple):
    """Where a stopped run goes on: behind ``done`` groups, with record files cut at their ``marks``.

    ``learner`` is what it dumped, ``learner_sha256`` the checksum of that. Where there is a checksum alone,
    the dump was left out to travel lighter, and the records make the learner again.
    """

    done: int
    marks: Mapping[str, Mark]
    learner: bytes | None
    learner_sha256: str | None = None


def changes(recorded: Manifest, now: Manifest) -> list[str]:
    """In what a run would go on as another one, by name; empty where it can go on."""
    return [
        *_changes("configuration", recorded.config, now.config),
        *_changes("source", {"sha256": recorded.source.sha256}, {"sha256": now.source.sha256}),
        *_changes("model files", recorded.model_files, now.model_files),
        *_changes("environment", _deciding(recorded.environment), _deciding(now.environment)),
    ]


def open_run(
    directory: Path, descriptor: int, config: RunConfig, plan: str | msgspec.UnsetType = msgspec.UNSET
) -> tuple[Manifest, ResumePoint | None]:
    """Begin a run, or take up the one that is there; ``descriptor`` is its locked configuration file.

    Returns its manifest, and where an earlier process stopped, None in a fresh one. Raises RunDirectoryError,
    touching nothing, when what is there is another run or is damaged.
    """
    now = msgspec.structs.replace(manifest_now(config), plan_sha256=plan)
    if not is_begun(directory):
        begin(directory, descriptor, config, now)
        return now, None
    recorded = read_manifest(directory)
    if changed := changes(recorded, now):
        raise RunDirectoryError(
            f"{directory} was begun with other settings ({'; '.join(changed)}): go back to these, "
            "give another --out, or run again without --resume"
        )
    if recorded.status == "complete":
        return recorded, None
    return recorded, resume_point(directory)


def begin_again_where_changed(directory: Path, config: RunConfig, plan: str) -> None:
    """Move an unfinished run aside that another plan, version or environment began: it cannot go on."""
    if not is_begun(directory):
        return
    with lock_directory(directory):
        manifest = read_manifest(directory)
        if manifest.status != "complete" and (
            manifest.plan_sha256 != plan or changes(manifest, manifest_now(config))
        ):
            move_aside(directory)


def _deciding(environment: Environment) -> dict[str, Any]:
    facts = {name: value for name, value in msgspec.structs.asdict(environment).items() if name not in _FREE}
    del facts["accelerator"]
    if isinstance(card := environment.accelerator, Accelerator):
        facts |= {"card": _SAME_CHIP.get(card.name, card.name), "share of the card": card.share or None}
    return facts | {f"package {name}": version for name, version in facts.pop("packages").items()}


def _changes(what: str, recorded: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    names = sorted(name for name in {*recorded, *now} if recorded.get(name) != now.get(name))
    if names:
        yield f"{what}: {', '.join(names)}"


def resume_point(directory: Path) -> ResumePoint:
    """Where a stopped run goes on; raises RunDirectoryError when it has groups but no whole checkpoint."""
    newest = newest_checkpoint(directory)
    if newest is not None:
        checkpoint, learner = newest
        return ResumePoint(checkpoint.done, checkpoint.files, learner, checkpoint.learner)
    # The first checkpoint is made before the first group.
    steps = directory / NAMES["steps"]
    if steps.exists() and steps.stat().st_size:
        raise RunDirectoryError(
            f"{directory} holds groups but no checkpoint: restore it from a copy, or move the run away "
            "to begin again"
        )
    return ResumePoint(0, dict.fromkeys(PAIRED_NAMES, START), None)


def refuse_changed_problem(
    directory: Path, problem: Problem, known: Collection[str], key: Callable[[str], str]
) -> None:
    """Raise RunDirectoryError where the recorded seed heuristic was evaluated on other instances.

    ``known`` are the keys of what was evaluated, ``key`` gives that of a program on today's instances. So it
    does where the problem has another seed heuristic. A score that is computed otherwise is not seen:
    ``s2s verify --recompute`` finds it.
    """
    seed = recorded_seeds(directory)[0]
    if seed.code != problem.seed.code or key(seed.code) not in known:
        raise RunDirectoryError(
            f"{directory} was begun when problem {problem.name} had another seed heuristic or other "
            "instances: go back to these, or give another --out"
        )


def refuse_changed_credit(directory: Path, mapping: RewardMapping, normalizer: Normalizer, done: int) -> None:
    """Raise RunDirectoryError where the recorded credit is not what mapping and normalizer give now.

    The source of ours is part of the manifest; a third party's code is not, and may have changed since.
    """
    built_in = (*BUILT_IN, *NORMALIZERS.values())
    if all(any(part is ours for ours in built_in) for part in (mapping, normalizer)):
        return
    for group in islice(read_groups(directory), done):
        pairs = zip(group, assign_credit(group, mapping, normalizer), strict=True)
        if any(getattr(old, name) != getattr(new, name) for old, new in pairs for name in CREDIT):
            raise RunDirectoryError(
                f"{directory}: mapping {mapping.name} and its normalizer give step {group[0].step} other "
                "rewards or advantages than the recorded ones: their code has changed, or is not "
                "deterministic; go back to the code of then, or give another --out"
            )


def known_evaluations(directory: Path) -> dict[str, Run]:
    """What the evaluation pool knew, by key."""
    notes = read_records(directory / NAMES["evaluations"], EvaluationNote)
    return {note.key: note.run for note in notes}


def replayed_state(directory: Path, host: Host, config: RunConfig, done: int) -> Any:
    """The host's state after ``done`` groups, which is how many the records hold.

    Raises RecordError when the records contradict themselves, or the host plays them otherwise.
    """
    search = host_search(host, config)
    groups, state = 0, recorded_start(directory, search)
    for played in replayed(directory, search):
        groups, state = groups + 1, played.transition.state
    if groups != done:
        raise RecordError(
            f"{directory}: the records do not give the state of its checkpoint at step {done}; restore them"
        )
    return state
