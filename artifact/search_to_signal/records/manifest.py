"""The manifest of a run: what ran, from which source, on what, and how long it took."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from search_to_signal.base.errors import UNREADABLE, RecordError, RunDirectoryError
from search_to_signal.records import files, schema
from search_to_signal.records.conditions import FROZEN, Condition, run_name
from search_to_signal.records.layers import COHORT

MANIFEST = "manifest.json"
# In a directory of runs: the names of all that belong in it, written before the first begins.
ROSTER = "runs.json"
# Beside the directories of the layers (``layers.py``).
REPORT = "report"
# More groups, and completions of one, than any configuration may have.
_MOST = (1_000_000, 1024)
# The sandbox reports these facts of a worker; a manifest's ``isolation`` may contain no others.
ISOLATION_FACTS = frozenset(
    {
        *("clock", "landlock", "landlock_abi", "limits", "mode"),
        *("no_new_privs", "seccomp", "timers", "unprivileged"),
    }
)
# Where a cohort keeps its unfinished runs; no reader takes them for runs.
INTERRUPTED = "interrupted"


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``sha256`` covers package, profiles and lock; ``clean`` is None where git gives no answer."""

    sha256: str
    commit: str | None
    clean: bool | None


class Accelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The card that a run computed on; ``cuda`` is what the driver offers at most.

    ``share`` is the percentage of its multiprocessors that CUDA_MPS_ACTIVE_THREAD_PERCENTAGE left the run,
    which decides bits: cuBLAS chooses its kernels by it. Absent where all were left.
    """

    name: str
    driver: str
    cuda: str
    memory_mib: int
    share: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def kind(self) -> str:
        """Its name, and its share where that was not all of it."""
        return f"{self.name} ({self.share} % of it)" if self.share else self.name


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run ran on. ``packages`` lists None for what is not installed.

    ``kernels`` are the variables that chose kernels and threads; absent in manifests of earlier versions and
    where none was set. ``accelerator`` is absent where none was computed on.
    """

    python: str
    packages: dict[str, str | None]
    system: str
    kernel: str
    libc: str
    machine: str
    cpu: str
    cpu_flags_simd: tuple[str, ...]
    cpu_count: int
    memory_mib: int
    kernels: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    accelerator: Accelerator | msgspec.UnsetType = msgspec.UNSET


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds of the loop by phase, set-up excluded, and live groups per minute."""

    generation: float
    evaluation: float
    update: float
    other: float
    total: float
    groups_per_minute: float


class Checkout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The released source that a run used; ``sha256`` covers its files.

    ``revision`` is None where nothing says which it is.
    ``tokenizer`` is whose tokens were counted: the trainer's, the model's, those that the endpoint reported,
    or nobody's (counts are then 0, and no completion counts as truncated).
    """

    revision: str | None
    sha256: str
    tokenizer: Literal["trainer", "model", "endpoint"] | None = None


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run. Only ``complete`` runs of purpose ``formal`` may enter a formal table.

    ``host`` names the search: ``reference``, ``released``, described by ``checkout``, or another one.
    ``host_facts`` and ``rule_facts`` say what host and learning rule can, which decides what is asked of the
    records; absent in manifests of earlier versions, whose names say it.
    ``score_unit`` says what scores measure; None in manifests of earlier versions. ``interruptions`` counts
    how often the run was stopped and went on from a checkpoint; its records are those of an undisturbed run,
    its timings those of the steps as they were last done. ``plan_sha256`` is that of the plan that the run
    belongs to (``records/plan.py``), ``mapping_name`` the name that a third-party mapping gives itself; each
    is absent where there is none.
    """

    status: Literal["running", "complete"]
    config: dict[str, Any]
    config_sha256: str
    source: Source
    environment: Environment
    model_files: dict[str, str]
    isolation: dict[str, str | bool]
    score_unit: str | None = None
    initial_adapter_sha256: str | None = None
    final_adapter_sha256: str | None = None
    timing: Timing | None = None
    interruptions: int = 0
    host: str = schema.FIRST_HOST
    host_facts: schema.HostFacts | msgspec.UnsetType = msgspec.UNSET
    rule_facts: schema.RuleFacts | msgspec.UnsetType = msgspec.UNSET
    checkout: Checkout | None = None
    mapping_name: str | msgspec.UnsetType = msgspec.UNSET
    plan_sha256: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def made_by(self) -> str:
        """What runs that are compared share: the SHA-256 of their source, or of the plan that they follow.

        A plan's runs may be recorded over days, while the source goes on; the plan fixes what they do.
        """
        return self.source.sha256 if self.plan_sha256 is msgspec.UNSET else str(self.plan_sha256)

    @property
    def facts(self) -> "RunFacts":
        """What its configuration says, whichever version wrote it."""
        return msgspec.structs.replace(msgspec.convert(self.config, RunFacts), host=self.host)

    @property
    def of_host(self) -> schema.HostFacts:
        """What its host can, whichever version wrote it."""
        recorded = self.host_facts
        return recorded if isinstance(recorded, schema.HostFacts) else schema.facts_of_host(self.host)

    @property
    def of_rule(self) -> schema.RuleFacts:
        """What its learning rule does, whichever version wrote it."""
        recorded, rule = self.rule_facts, self.facts.learning_rule
        return (
            recorded
            if isinstance(recorded, schema.RuleFacts)
            else schema.facts_of_rule(rule, self.rule_settings)
        )

    @property
    def rule_settings(self) -> dict[str, Any]:
        """``[rule_settings]``, empty where the configuration has none."""
        settings: dict[str, Any] = self.config.get("rule_settings", {})
        return settings


class _Generation(msgspec.Struct):
    group_size: int
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    long_prompts: str = ""
    backend: str = ""


class _Parent(msgspec.Struct):
    run: str
    adapter_sha256: str | None = ""
    completions_sha256: str = ""
    archive_sha256: str = ""


class _Tables(msgspec.Struct):
    """Tables of a configuration whose keys readers look up by themselves."""

    evaluation: dict[str, Any] = {}
    learner: dict[str, Any] = {}
    search: dict[str, Any] = {}
    rule_settings: dict[str, Any] = {}
    host_settings: dict[str, Any] = {}


class RunFacts(msgspec.Struct, frozen=True):
    """What readers of records ask of a run; keys of the configuration that are not here are for others.

    ``condition`` is the text of one (``records/conditions.py``); a restart has its parent's. ``groups`` were
    due. ``idea_end`` is how its completions are read (D37).
    """

    purpose: str
    problem: str
    split: str
    model: str
    condition: str
    seed: int
    groups: int
    generation: _Generation
    layer: str = COHORT
    normalizer: str = "group"
    learning_rule: str = schema.FIRST_RULE
    host: str = schema.FIRST_HOST
    parent: _Parent | None = None
    idea_end: schema.IdeaEnd = schema.BARE_FENCE

    @property
    def group_size(self) -> int:
        """Completions per group."""
        return self.generation.group_size

    @property
    def completions(self) -> int:
        """Completions of the whole run."""
        return self.groups * self.group_size

    @property
    def trained(self) -> bool:
        """Whether a learner took part."""
        return self.condition != FROZEN and self.parent is None

    @property
    def mapping(self) -> str:
        """The reward mapping of the condition, ``frozen`` where there is none."""
        return Condition.parse(self.condition).mapping

    @property
    def rank(self) -> tuple[bool, str, int]:
        """Sorts the runs of a cohort: frozen ones first, then by condition and seed."""
        return self.condition != FROZEN, self.condition, self.seed

    @property
    def name(self) -> str:
        """The run's directory name."""
        return run_name(self.condition, self.seed)


def sum_timings(steps: Sequence[schema.StepTiming]) -> Timing:
    """The timing of a run from that of its steps; raises TypeError for phases that are not those of a run."""
    seconds = {name: sum(step.seconds[name] for step in steps) for name in steps[0].seconds}
    return Timing(**seconds, groups_per_minute=60 * len(steps) / seconds["total"])


def write_manifest(directory: Path, manifest: Manifest) -> None:
    files.write_json(directory / MANIFEST, manifest)


def read_manifest(directory: Path) -> Manifest:
    """Read a run's manifest; raises RunDirectoryError when it is missing, unreadable, or of no run."""
    missing = f"{directory} has no {MANIFEST}: it is not a run directory"
    manifest = files.read_json(directory / MANIFEST, Manifest, missing)
    try:
        facts = msgspec.convert(manifest.config, RunFacts)
        msgspec.convert(manifest.config, _Tables)
        size = (facts.groups, facts.group_size)
        if min(size) < 1 or any(number > most for number, most in zip(size, _MOST, strict=True)):
            raise msgspec.ValidationError(
                f"{facts.groups} groups of {facts.group_size} are too few or too many for a run"
            )
    except msgspec.ValidationError as error:
        raise RunDirectoryError(f"{directory / MANIFEST}: config: {error}; restore the file") from error
    return manifest


def finished_manifest(directory: Path) -> Manifest | None:
    """The manifest of a run that is recorded to its end; None for any other place."""
    if not (directory / MANIFEST).is_file():
        return None
    manifest = read_manifest(directory)
    return manifest if manifest.status == "complete" else None


def write_roster(directory: Path, names: Iterable[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    files.write_atomically(directory / ROSTER, msgspec.json.encode(sorted(names)) + b"\n")


def read_roster(directory: Path) -> list[str]:
    """The names of all runs that a directory is to hold, none where no roster was written.

    Raises RunDirectoryError for an unreadable list, and for a name that is not that of a directory in here.
    """
    path = directory / ROSTER
    names = files.read_json(path, list[str], f"{path} was removed while it was read") if path.exists() else []
    for name in names:
        if not files.is_component(name):
            raise RunDirectoryError(
                f"{path} names {name!r}, which is not the name of a directory: restore the file"
            )
    return names


def planned_runs(directory: Path) -> set[str]:
    """Return the names of all planned runs, which rosters list before the first run is recorded."""
    runs = (path.parent / name for path in directory.rglob(ROSTER) for name in read_roster(path.parent))
    return {run.relative_to(directory).as_posix() for run in runs}


def run_directories(directory: Path) -> list[Path]:
    """The run directories at or directly below a directory, sorted by name; links are none."""
    below = (path for path in directory.glob("*") if path.is_dir() and not path.is_symlink())
    return [path for path in (directory, *sorted(below)) if (path / MANIFEST).is_file()]


def runs_below(directory: Path) -> list[Path]:
    """Every run directory of every layer of a results directory, sorted; unfinished ones left out."""
    directories = (path.parent for path in files.files_named(directory, MANIFEST))
    return sorted(path for path in directories if INTERRUPTED not in path.relative_to(directory).parts)


DATABASE = "database.json"
VERSION = 1


class Database(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Islands of programs after ``groups`` groups, and ``waiting`` ones with the number of their island."""

    groups: int
    islands: tuple[tuple[str, ...], ...]
    waiting: tuple[tuple[int, str], ...]
    version: int = VERSION


class _StoredVersion(msgspec.Struct):
    version: int = 0


def write_database(directory: Path, database: Database) -> None:
    """Write the database of a run directory."""
    files.write_json(directory / DATABASE, database)


def read_database(directory: Path) -> Database:
    """The database of a run directory; raises RecordError where there is none of this version."""
    path = directory / DATABASE
    try:
        data = files.read_regular(path)
        if (version := msgspec.json.decode(data, type=_StoredVersion).version) != VERSION:
            raise RecordError(
                f"{path} is a database of version {version}, but only version {VERSION} can be read: "
                "use the version of search-to-signal that wrote it, or run again"
            )
        return msgspec.json.decode(data, type=Database)
    except FileNotFoundError as error:
        raise RecordError(f"there is no {path}: restore it") from error
    except UNREADABLE as error:
        raise RecordError(f"{path} is not a readable database ({error}): restore it") from error
