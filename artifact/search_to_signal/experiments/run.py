"""One run in this process: from a configuration to a complete, checksummed run directory."""

from pathlib import Path

import msgspec
import torch

from search_to_signal.config import canonical_json
from search_to_signal.errors import RunDirectoryError
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.experiments.configuration import CONFIG, RunConfig
from search_to_signal.experiments.learning import begin_training
from search_to_signal.experiments.live import Live, run_live
from search_to_signal.experiments.output import RunFiles, StepTiming, run_files
from search_to_signal.generators.files import checked_files, model_directory
from search_to_signal.generators.local import LocalGenerator, load_model, load_tokenizer
from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.bits import load_4bit
from search_to_signal.problems import get_problem
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import write_sums
from search_to_signal.provenance.environment import environment
from search_to_signal.provenance.source import source
from search_to_signal.records.manifest import Manifest, Timing, write_manifest
from search_to_signal.runtime import keep_freed_memory


def timing(directory: Path) -> Timing:
    """Sum the step timings of a run directory."""
    lines = (directory / "timings.jsonl").read_bytes().splitlines()
    steps = [msgspec.json.decode(line, type=StepTiming).seconds for line in lines]
    seconds = {name: sum(step[name] for step in steps) for name in steps[0]}
    return Timing(**seconds, groups_per_minute=60 * len(steps) / seconds["total"])


def spoken(split: Timing) -> str:
    """One line for people: speed, and the share of every phase."""
    shares = (
        (name, getattr(split, name) / split.total) for name in ("generation", "evaluation", "update", "other")
    )
    parts = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares)
    return f"{split.groups_per_minute:.1f} groups per minute ({parts})"


def _execute(
    config: RunConfig, directory: Path, files: RunFiles, manifest: Manifest, progress: Progress
) -> Manifest:
    path = model_directory(config.model)
    tokenizer = load_tokenizer(path)
    load = load_4bit if config.learner.load_in_4bit else load_model
    generator = LocalGenerator(load(path), tokenizer, config.generation)
    training = begin_training(config, generator.model, tokenizer.pad_token_id)
    problem = get_problem(config.problem)
    with EvaluationPool(problem, config.split, config.evaluation) as pool:
        run_live(Live(config, problem, generator, pool, training, files), progress)
        layers = dict(pool.layers())
    return msgspec.structs.replace(
        manifest,
        status="complete",
        isolation=layers,
        initial_adapter_sha256=training.initial_sha256 if training else None,
        final_adapter_sha256=adapter_sha256(training.learner.model) if training else None,
    )


def run(config: RunConfig, directory: Path, progress: Progress) -> Manifest:
    """Run into an empty directory; its manifest says ``running`` until everything else is on disk.

    Raises RunDirectoryError, before anything is touched, for a directory that holds something.
    """
    if directory.exists() and any(directory.iterdir()):
        raise RunDirectoryError(f"{directory} is not empty: give another --out, or move it away")
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG).write_bytes(msgspec.json.format(canonical_json(config), indent=2) + b"\n")
    manifest = Manifest(
        status="running",
        config=msgspec.to_builtins(config),
        config_sha256=config.sha256,
        source=source(),
        environment=environment(),
        model_files=checked_files(model_directory(config.model)),
        isolation={},
    )
    write_manifest(directory, manifest)
    with run_files(directory) as files:
        manifest = _execute(config, directory, files, manifest, progress)
    manifest = msgspec.structs.replace(manifest, timing=timing(directory))
    write_manifest(directory, manifest)
    write_sums(directory)
    return manifest
