"""Evidence layer "common-context probe": evaluated completions of every checkpoint for the same prompts."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.progress import Progress, Task
from search_to_signal.layers.settings import ProbeSettings
from search_to_signal.models.opening import model_files
from search_to_signal.models.settings import ENGINES
from search_to_signal.records import probe
from search_to_signal.records.checksums import sha256_file, write_sums
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.files import read_regular, write_atomically
from search_to_signal.records.layers import PROBE
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.provenance import environment, source
from search_to_signal.records.reader import read_groups
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import Kind, read_own
from search_to_signal.run.planned_runs import LOADING, Reproduction, make_adapters
from search_to_signal.run.profile import Profile
from search_to_signal.run.replayed import host_search, replayed
from search_to_signal.search.hosts import open_host

# The bank of the common-context probe: prompts of Frozen search, rebuilt from its records.


def spread(total: int, count: int) -> list[int]:
    """Return ``count`` evenly spaced positions of ``total``, half a distance from both ends."""
    return [(2 * i + 1) * total // (2 * count) for i in range(count)]


def chosen_steps(runs: Sequence[Path], prompts: int) -> list[tuple[Path, int]]:
    """Return evenly spaced steps among the runs' distinct prompts with a base, whatever their scores.

    Raises ConfigError when the runs have fewer distinct prompts.
    """
    seen: dict[str, tuple[Path, int]] = {}
    for run in runs:
        for group in read_groups(run):
            if group[0].base_scores:
                seen.setdefault(group[0].prompt_sha256, (run, group[0].step))
    if len(seen) < prompts:
        raise ConfigError(
            f"probe.prompts is {prompts} (--prompts of s2s retrain), but the runs have {len(seen)} distinct "
            "prompts: lower it"
        )
    steps = list(seen.values())
    return [steps[position] for position in spread(len(steps), prompts)]


def build_bank(runs: dict[Path, RunConfig], prompts: int) -> list[probe.BankPrompt]:
    """Return the bank of Frozen runs; equal records give equal banks.

    Raises ConfigError as ``chosen_steps``, RecordError as ``replayed``.
    """
    chosen = chosen_steps(list(runs), prompts)
    groups = []
    for run, config in runs.items():
        search = host_search(open_host(config.host, config.host_setup), config)
        groups += [
            (run, played.recorded, played.request.prompt)
            for played in replayed(run, search)
            if (run, played.recorded.step.step) in chosen
        ]
    return [
        probe.BankPrompt(
            prompt=number,
            run=run.name,
            step=recorded.step.step,
            operator=recorded.step.operator,
            system=prompt.system,
            user=prompt.user,
            prompt_sha256=recorded.group[0].prompt_sha256,
            base_scores=recorded.group[0].base_scores,
            frontier=recorded.group[0].frontier,
        )
        for number, (run, recorded, prompt) in enumerate(groups)
    ]


if TYPE_CHECKING:
    from search_to_signal.layers.probe.answers import Barriers, ProbeTask

KIND = Kind("probe", probe.PROBE_MANIFEST, probe.read_probe, (probe.BANK,))


def checkpoints(profile: Profile, cohort: Path) -> list[probe.Checkpoint]:
    """Return the initial model and the final adapter of every trained run of a finished cohort."""
    trained = [
        probe.Checkpoint(
            name=config.name,
            condition=config.condition,
            seed=config.seed,
            adapter_sha256=read_manifest(cohort / config.name).final_adapter_sha256,
        )
        for config in profile.runs()
        if config.trained
    ]
    return [probe.Checkpoint(name=probe.INITIAL, condition=FROZEN, seed=None, adapter_sha256=None), *trained]


def _manifest(config: RunConfig, prompts: int, bank: bytes) -> probe.ProbeManifest:
    return probe.ProbeManifest(
        status="running",
        purpose=config.purpose,
        problem=config.problem,
        split=config.split,
        model=config.model,
        prompts=prompts,
        completions=config.generation.group_size,
        config_sha256=config.sha256,
        bank_sha256=hashlib.sha256(bank).hexdigest(),
        source=source(),
        environment=environment(),
        model_files=model_files(config.generation, config.model),
        isolation={},
        checkpoints=(),
    )


def _identity(manifest: probe.ProbeManifest, plan: str | None) -> tuple[Any, ...]:
    """The facts that identify a probe; under a plan it may resume with another version of the source."""
    source_sha256 = manifest.source.sha256 if plan is None else None
    return manifest.config_sha256, manifest.bank_sha256, source_sha256, manifest.model_files


def _stored_manifest(
    directory: Path, fresh: probe.ProbeManifest, planned: Sequence[probe.Checkpoint], plan: str | None = None
) -> probe.ProbeManifest:
    expected = {(checkpoint.name, checkpoint.adapter_sha256) for checkpoint in planned}

    def is_same_probe(stored: probe.ProbeManifest) -> bool:
        probed = {(checkpoint.name, checkpoint.adapter_sha256) for checkpoint in stored.checkpoints}
        return _identity(stored, plan) == _identity(fresh, plan) and probed <= expected

    stored = read_own(KIND, directory, is_same_probe)
    for probed in stored.checkpoints if stored else ():
        file = directory / f"{probed.name}.jsonl"
        if not file.is_file() or sha256_file(file) != probed.records_sha256:
            raise RunDirectoryError(f"{file} is not what {probe.PROBE_MANIFEST} says: restore it")
    return stored or fresh


def _probe_checkpoint(
    config: RunConfig, checkpoint: probe.Checkpoint, cohort: Path, directory: Path, progress: Progress
) -> "tuple[Barriers, probe.ProbedCheckpoint]":
    # It loads torch, which neither a finished probe nor the estimate of the time needs.
    from search_to_signal.layers.probe.answers import ProbeTask

    bank = read_regular(directory / probe.BANK)
    prompts = [msgspec.json.decode(line, type=probe.BankPrompt) for line in bank.splitlines()]
    file = directory / f"{checkpoint.name}.jsonl"
    isolation = answers_writer(config)(ProbeTask(config, checkpoint, cohort, prompts, file), progress)
    digest = hashlib.sha256(bank).hexdigest()
    facts = msgspec.structs.asdict(checkpoint)
    return isolation, probe.ProbedCheckpoint(**facts, bank_sha256=digest, records_sha256=sha256_file(file))


def answers_writer(config: RunConfig) -> "Callable[[ProbeTask, Progress], Barriers]":
    """What writes a checkpoint's answers: here, or for an engine in a process of its own."""
    from search_to_signal.layers.probe.answers import write_answers, write_answers_apart

    return write_answers_apart if config.generation.backend in ENGINES else write_answers


def tasks(profile: Profile) -> list[Task]:
    prompts = (profile.probe or ProbeSettings()).prompts
    names = [probe.INITIAL, *(run.name for run in profile.runs() if run.trained)]
    return [Task(f"probe/{name}", prompts, setup=LOADING) for name in names]


def run(reproduction: Reproduction) -> None:
    """Probe every remaining checkpoint in order; complete ones are verified and kept.

    Raises RunDirectoryError when the cohort is not finished, or when there is another probe.
    """
    profile, directory = reproduction.profile, reproduction.results / PROBE
    settings, cohort = profile.probe or ProbeSettings(), reproduction.finished_cohort()
    make_adapters(reproduction, cohort, {config.name for config in profile.runs()})
    planned = checkpoints(profile, cohort)
    group = msgspec.structs.replace(profile.generation, group_size=settings.completions)
    config = profile.run(FROZEN, profile.seeds[0], generation=group)
    frozen = {cohort / run.name: run for run in profile.runs() if run.condition == FROZEN}
    bank = b"".join(msgspec.json.encode(entry) + b"\n" for entry in build_bank(frozen, settings.prompts))
    manifest = _stored_manifest(
        directory, _manifest(config, settings.prompts, bank), planned, reproduction.execution.plan
    )
    file = directory / probe.BANK
    directory.mkdir(parents=True, exist_ok=True)
    if file.exists() and read_regular(file) != bank:
        raise RunDirectoryError(
            f"{file} does not hold the prompts that the cohort's records give: move {directory} away"
        )
    write_atomically(file, bank)
    kept = {checkpoint.name for checkpoint in manifest.checkpoints}
    for checkpoint in planned:
        if checkpoint.name in kept:
            reproduction.progress.update(f"probe/{checkpoint.name}", manifest.prompts, manifest.prompts)
            reproduction.progress.say(f"probe/{checkpoint.name}: complete and verified, kept")
            continue
        isolation, probed = _probe_checkpoint(config, checkpoint, cohort, directory, reproduction.progress)
        manifest = msgspec.structs.replace(
            manifest, isolation=isolation, checkpoints=(*manifest.checkpoints, probed)
        )
        probe.write_probe(directory, manifest)
    probe.write_probe(directory, msgspec.structs.replace(manifest, status="complete"))
    write_sums(directory)
