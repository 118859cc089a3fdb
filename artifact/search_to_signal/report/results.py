"""A results directory with its evidence layers, and recorded runs as records, arrays and origins.

Data is read lazily and once. Scores: higher is better. Runs of one table are complete, unchanged, of one
protocol, and none of their cohort is missing: else a table could look complete. Others are refused by name
(paper, supplement, Provenance and Exclusions).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

import numpy as np
from msgspec import UNSET

from search_to_signal.base.errors import ConfigError, MappingError, RunDirectoryError, S2SError
from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.credit import ALTERNATIVES, MAPPINGS
from search_to_signal.credit.normalizers import advantages_by_group, find_normalizer
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import score_unit
from search_to_signal.records.amendments import Partial, read_partial
from search_to_signal.records.anchor import (
    AnchorContract,
    Clock,
    FrozenSeconds,
    loop_seconds,
    prefix,
    read_contract,
    seconds_beside,
)
from search_to_signal.records.checksums import read_sums, refuse_other_bytes
from search_to_signal.records.conditions import FROZEN, Condition, run_name
from search_to_signal.records.files import refuse_special_files
from search_to_signal.records.groups import GroupBatch, batch_of
from search_to_signal.records.layers import ANCHOR, API, AUDIT, BREADTH, COHORT, RESTART
from search_to_signal.records.manifest import (
    MANIFEST,
    ROSTER,
    Manifest,
    RunFacts,
    read_manifest,
    read_roster,
    run_directories,
    runs_below,
)
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, STEPS, TIMINGS, read_groups, read_records
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Operator,
    StepRecord,
)
from search_to_signal.report.metrics.search import RunMetrics, group_trajectory, run_metrics

# Settings in which the runs of one cohort may differ; a condition may name its normalizer.
OWN = ("condition", "seed", "normalizer")
# Settings that two layers must share before a run of one is compared with a run of the other.
SHARED = ("problem", "split", "model", "search", "generation", "evaluation", "idea_end")
_FILES = (MANIFEST, COMPLETIONS, STEPS, TIMINGS)


def read_cohort(directory: Path, own: Sequence[str] = OWN) -> dict[Path, Manifest]:
    """Read the manifests of the runs at or directly below a directory, which may differ only in ``own``.

    Raises RunDirectoryError, naming the run, where there is no run, or one is unfinished, changed, of another
    protocol, or missing (from the directory's roster, or from conditions x seeds).
    """
    manifests = read_unpaired((directory,), own)
    held = Counter((m.facts.condition, m.facts.seed) for m in manifests.values())
    twice = [run_name(condition, seed) for (condition, seed), number in held.items() if number > 1]
    whole = product({condition for condition, _ in held}, {seed for _, seed in held})
    missing = {run_name(condition, seed) for condition, seed in whole if (condition, seed) not in held}
    missing |= set(read_roster(directory)) - {place.name for place in manifests}
    if twice or missing:
        what = f"has no run {', '.join(sorted(missing))}" if missing else f"holds {', '.join(twice)} twice"
        raise RunDirectoryError(f"{directory} {what}: a table over the rest would look complete")
    return manifests


def read_unpaired(directories: Sequence[Path], own: Sequence[str] = OWN) -> dict[Path, Manifest]:
    """Read the manifests of runs in several directories, whatever runs are missing beside them.

    Otherwise raises as ``read_cohort`` does.
    """
    manifests = {
        place: read_manifest(place) for directory in directories for place in run_directories(directory)
    }
    if not manifests:
        raise RunDirectoryError(f"{directories[0]} holds no run: give the directory of a run or of a cohort")
    for place, manifest in manifests.items():
        if manifest.status != "complete":
            raise RunDirectoryError(f"{place} is unfinished: finish or remove it, then report again")
        sums = read_sums(place)
        refuse_other_bytes(place, sums, [name for name in _FILES if name in sums])
    _check_protocol(directories[0], manifests, own)
    return manifests


def protocol(manifest: Manifest, own: Sequence[str] = OWN) -> dict[str, Any]:
    """Return the settings that all runs of one cohort share."""
    shared = {key: value for key, value in manifest.config.items() if key not in own}
    checkout = manifest.checkout.sha256 if manifest.checkout else None
    made = {"source": manifest.made_by, "model files": manifest.model_files}
    return {**shared, **made, "host": manifest.host, "checkout": checkout}


def _check_protocol(directory: Path, manifests: Mapping[Path, Manifest], own: Sequence[str]) -> None:
    protocols = {place: protocol(manifest, own) for place, manifest in manifests.items()}
    written = {place: repr(sorted(shared.items())) for place, shared in protocols.items()}
    common = Counter(written.values()).most_common(1)[0][0]
    usual = next(shared for place, shared in protocols.items() if written[place] == common)
    strange = {
        place.name: [key for key in {**usual, **other} if usual.get(key) != other.get(key)]
        for place, other in protocols.items()
        if other != usual
    }
    mixed = {
        manifest.facts.normalizer
        for manifest in manifests.values()
        if not Condition.parse(manifest.facts.condition).normalizer
    }
    if len(mixed) > 1:
        raise RunDirectoryError(
            f"{directory} mixes normalizers under conditions that name none: {', '.join(sorted(mixed))}. "
            "Report each in a directory of its own"
        )
    if strange:
        named = [f"{name} (in {', '.join(sorted(keys))})" for name, keys in strange.items()]
        raise RunDirectoryError(
            f"{directory} mixes protocols; other than the rest: {', '.join(named)}. "
            "Report each protocol in a directory of its own"
        )


T = TypeVar("T")


class NoTableError(S2SError):
    """A table cannot be built because its data was not recorded; the message gives the reason."""


@dataclass(frozen=True)
class Origin:
    """The records behind a value: a file (path relative to the results directory) and its lines.

    ``lines`` are in rising order, counted from 1; None means all lines.
    """

    path: str
    lines: Sequence[int] | None = None


@dataclass(frozen=True)
class RecordedRun:
    """One run with its T groups of G completions in order; ``path`` is relative to the results directory.

    ``condition`` is the name of its condition in tables, ``facts.condition`` its name in the records.
    """

    directory: Path
    path: str
    manifest: Manifest
    groups: tuple[tuple[CompletionRecord, ...], ...]
    steps: tuple[StepRecord, ...]
    condition: str

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.manifest.config

    @cached_property
    def facts(self) -> RunFacts:
        """The facts of the run: problem, condition, layer, normalizer."""
        return self.manifest.facts

    @property
    def seed(self) -> int:
        """The run seed, the statistical unit."""
        return self.facts.seed

    @property
    def trained(self) -> bool:
        """Whether the run had a learner; a restart has its parent's condition and no learner."""
        return self.facts.trained

    @property
    def unit(self) -> str:
        """The unit of scores, such as minus tour length; higher is better."""
        problem = PROBLEMS.get(self.facts.problem)
        return self.manifest.score_unit or (score_unit(problem) if problem else "score")

    @property
    def name(self) -> str:
        """Condition and seed, the name of the run in rows of tables."""
        return self.facts.name

    @cached_property
    def batch(self) -> GroupBatch:
        return batch_of(self.groups)

    @cached_property
    def metrics(self) -> RunMetrics:
        return run_metrics(self.groups)

    @cached_property
    def best(self) -> Floats:
        """(T,) best-so-far after each group, the seed heuristic included (D19)."""
        return group_trajectory(self.groups)

    @cached_property
    def advantages(self) -> Floats | None:
        """(T, G) advantages that the learner used; None for a run without a learner.

        Raises RunDirectoryError where a trained run lacks an advantage.
        """
        if not self.trained:
            return None
        rows = [[record.advantage for record in group] for group in self.groups]
        advantages = np.array(rows, dtype=np.float64)
        if np.isnan(advantages).any():
            raise RunDirectoryError(f"{self.directory} was trained and lacks advantages: restore its records")
        return advantages

    def normalized(self, rewards: Floats) -> Floats:
        """Return advantages (T, G) of other rewards (T, G) under the run's normalizer, without components.

        Raises NoTableError for a third-party normalizer that is not allowed, and where it fails.
        """
        try:
            normalizer = find_normalizer(self.facts.normalizer)
            return advantages_by_group(normalizer, rewards, {"reward": rewards})
        except (ConfigError, MappingError) as error:
            raise NoTableError(str(error)) from error

    @cached_property
    def admitted(self) -> Bools:
        """(T, G): whether the search admitted the completion to its archive."""
        return np.array([[r.archive_event is ArchiveEvent.ADMITTED for r in g] for g in self.groups])

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """The operator of each of the T groups."""
        return tuple(group[0].operator for group in self.groups)

    @cached_property
    def heuristics(self) -> tuple[HeuristicRecord, ...]:
        """The heuristics that the run kept; a run need not keep any."""
        file = self.directory / HEURISTICS
        return tuple(read_records(file, HeuristicRecord)) if file.is_file() else ()

    def seconds(self, clock: Clock) -> Floats:
        """Return (T,) seconds of each group's loop iteration by a clock, set-up excluded.

        Raises ContractError where the step timings lack this clock.
        """
        return np.array(prefix(loop_seconds(self.directory, clock), len(self.groups)))

    def seconds_beside(self, online: "RecordedRun", clock: Clock) -> FrozenSeconds:
        """Return (T,) seconds of each group, comparable with an online run's; raises as ``seconds`` does."""
        comparable = seconds_beside(online.directory, self.directory, clock)
        own = None if comparable.seconds is None else prefix(comparable.seconds, len(self.groups))
        return replace(comparable, seconds=own)

    def file(self, name: str) -> str:
        """Return the path of one of the run's files, relative to the results directory."""
        return (PurePosixPath(self.path) / name).as_posix()

    def prefix(self, groups: int) -> "RecordedRun":
        """Return the exact prefix of that many groups; raises RecordError when fewer are stored."""
        head = tuple(prefix(self.groups, groups))
        return replace(self, groups=head, steps=self.steps[:groups])

    @property
    def all_completions(self) -> Origin:
        """Every completion of the run, or of its prefix."""
        if len(self.groups) < self.facts.groups:
            return self.completions_of(0, len(self.groups))
        return Origin(self.file(COMPLETIONS))

    @property
    def all_steps(self) -> Origin:
        """Every step record of the run, or of its prefix."""
        if len(self.steps) < self.facts.groups:
            return self.steps_at(range(len(self.steps)))
        return Origin(self.file(STEPS))

    def completions(self, chosen: Bools) -> Origin:
        """Return the lines of the chosen completions; chosen: (T, G)."""
        return Origin(self.file(COMPLETIONS), tuple((np.flatnonzero(chosen) + 1).tolist()))

    def completions_of(self, start: int, stop: int) -> Origin:
        """Return the lines of groups start to stop - 1, counted from 0."""
        size = self.batch.outcome.shape[1]
        return Origin(self.file(COMPLETIONS), range(start * size + 1, stop * size + 1))

    def steps_at(self, groups: Sequence[int]) -> Origin:
        """Return the step records of these groups, counted from 0."""
        return Origin(self.file(STEPS), tuple(int(t) + 1 for t in groups))


Runs = tuple[RecordedRun, ...]


def load_runs(directory: Path, root: Path | None = None, own: Sequence[str] = OWN) -> Runs:
    """Read the runs at or directly below a directory, frozen first, then by condition and seed.

    ``root`` is the results directory that origins are relative to. Raises RunDirectoryError as
    ``read_cohort`` does, and for an incomplete run; RecordError for an unreadable line.
    """
    root = root or directory
    names = shown_conditions(read_manifest(run) for run in runs_below(root))
    runs = [
        _read(place, manifest, root, names[manifest.facts.condition])
        for place, manifest in read_cohort(directory, own).items()
    ]
    return _ranked(runs)


def _ranked(runs: Iterable[RecordedRun]) -> Runs:
    return tuple(sorted(runs, key=lambda run: run.facts.rank))


def shown_conditions(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return the name of each condition in tables: for a third-party mapping the name that it declares.

    The condition keeps its own name where the mapping declares none, or one that is taken.
    """
    asked = {}
    for manifest in manifests:
        condition, name = manifest.facts.condition, manifest.mapping_name
        taken = name in (FROZEN, *MAPPINGS, *ALTERNATIVES)
        asked[condition] = condition
        if name is not UNSET and not taken and re.fullmatch(r"\w[\w .-]*", str(name)):
            asked[condition] = str(replace(Condition.parse(condition), mapping=str(name)))
    times = Counter(asked.values())
    return {condition: name if times[name] == 1 else condition for condition, name in asked.items()}


def _read(directory: Path, manifest: Manifest, root: Path, shown: str) -> RecordedRun:
    path = directory.relative_to(root).as_posix()
    records = tuple(read_groups(directory))
    steps = tuple(read_records(directory / STEPS, StepRecord))
    groups, size = manifest.facts.groups, manifest.facts.group_size
    if len(records) != groups or len(steps) != groups or {len(group) for group in records} != {size}:
        raise RunDirectoryError(
            f"{directory} does not hold {groups} groups of {size} completions: restore it, or rerun"
        )
    return RecordedRun(directory, path, manifest, records, steps, shown)


@dataclass(frozen=True)
class Results:
    """A results directory, its layers read lazily.

    A layer that has not run raises NoTableError, a damaged layer RunDirectoryError. ``apart`` is a results
    directory with the finished runs of seeds that lack other runs, which tables leave out.
    """

    directory: Path
    apart: Path | None = None
    _made: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise RunDirectoryError for special files, which verification refuses too."""
        refuse_special_files(self.directory)

    @cached_property
    def cohort(self) -> Runs:
        """The live cohort; a directory without layers is itself a cohort or a run."""
        if (self.directory / COHORT).is_dir():
            return self.runs(COHORT)
        return load_runs(self.directory)

    @cached_property
    def finished(self) -> Runs:
        """The cohort with the runs that lie apart, so that conditions may differ in their seeds.

        It may have none but these.
        """
        apart = None if self.apart is None else self.apart / COHORT
        if apart is None or not apart.is_dir():
            return self.cohort
        whole = self.cohort if run_directories(self.directory / COHORT) else ()
        manifests = read_unpaired((self.directory / COHORT, apart))
        names = shown_conditions(manifests.values())
        runs = [
            _read(place, manifest, apart.parent, names[manifest.facts.condition])
            for place, manifest in manifests.items()
            if place.is_relative_to(apart)
        ]
        return _ranked((*whole, *runs))

    @cached_property
    def restart(self) -> Runs:
        """The runs that start from a final adapter with a fresh population."""
        return self.runs(RESTART, (*OWN, "parent"))

    @cached_property
    def breadth(self) -> dict[str, Runs]:
        """Single-seed cohorts by cell (problem-model); every cell has its own protocol."""
        return self._cells(BREADTH)

    @cached_property
    def audit_cells(self) -> dict[str, Runs]:
        """Frozen runs recorded only for the shared-record audit, by cell (problem-model)."""
        return self._cells(AUDIT)

    @cached_property
    def anchor(self) -> Runs:
        """Frozen runs long enough for every group budget of the contract; lengths may differ by seed."""
        return self.runs(ANCHOR, (*OWN, "groups"))

    @cached_property
    def contract(self) -> AnchorContract:
        """The anchor's budgets; raises ContractError where they are missing or altered."""
        return read_contract(self.folder(ANCHOR))

    @cached_property
    def api(self) -> Runs:
        """Frozen runs through an OpenAI-compatible endpoint."""
        return self.runs(API)

    @cached_property
    def smoke(self) -> bool:
        """Whether the runs are smoke runs; then no table is formal.

        Raises RunDirectoryError, naming the smoke runs, where formal runs lie in the same directory.
        """
        places = runs_below(self.directory)
        smoke = [p.name for p in places if read_manifest(p).facts.purpose != "formal"]
        if smoke and len(smoke) < len(places):
            raise RunDirectoryError(
                f"{self.directory} holds both smoke runs and formal ones ({', '.join(smoke)}): "
                "no formal table may include them; move them away"
            )
        return bool(smoke)

    @cached_property
    def partial(self) -> Partial:
        """The layers that lack planned runs; empty where the directory has no such mark."""
        return read_partial(self.directory) or Partial({})

    def once(self, make: Callable[["Results"], T]) -> T:
        """Return ``make(self)``, computed once and shared by all tables that need it."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])

    def folder(self, layer: str) -> Path:
        """Return the directory of a layer; raises NoTableError where it has not run."""
        path = self.directory / layer
        if not path.is_dir():
            raise NoTableError(f"layer {layer} has not run")
        return path

    def _cells(self, layer: str) -> dict[str, Runs]:
        cells = sorted(path for path in (self.directory / layer).glob("*") if run_directories(path))
        if not cells:
            raise NoTableError(f"layer {layer} has not run")
        return {path.name: self.runs(f"{layer}/{path.name}") for path in cells}

    def runs(self, path: str, own: Sequence[str] = OWN) -> Runs:
        """Read the runs of a layer, or of one of its cells; they may differ only in the settings ``own``."""
        folder = self.folder(path)
        if not run_directories(folder):
            # Of unfinished evidence the runs of seeds that lack one are put aside, and the roster stays.
            raise NoTableError(
                f"no seed of layer {path} has all its runs yet"
                if (folder / ROSTER).is_file()
                else f"layer {path} has not run"
            )
        runs, layer = load_runs(folder, self.directory, own), path.split("/")[0]
        strange = [f"{run.path} ({run.facts.layer})" for run in runs if run.facts.layer != layer]
        if strange:
            raise RunDirectoryError(f"{', '.join(strange)}: not of layer {layer}; layers are never pooled")
        return runs
