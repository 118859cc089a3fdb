"""The common-context probe, recomputed: its bank from the Frozen runs, its answers from their texts."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from search_to_signal.base.errors import RecordError
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.layers.probe.layer import build_bank
from search_to_signal.models.base import Completion, cut_prompt
from search_to_signal.models.settings import GenerationSettings
from search_to_signal.problems import find_problem
from search_to_signal.records import probe
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.differences import Finding
from search_to_signal.records.files import read_regular
from search_to_signal.records.layers import COHORT, PROBE
from search_to_signal.records.manifest import read_manifest, run_directories
from search_to_signal.records.reader import read_records
from search_to_signal.run.again import RecordedText, Tools, text_findings
from search_to_signal.run.config import RunConfig
from search_to_signal.run.replayed import run_config
from search_to_signal.run.texts import NO_TOKENIZER, ModelTokenizer, rendered
from search_to_signal.sandbox.programs import sha256_text

# Where this file is, there is something to recompute.
MANIFEST = probe.PROBE_MANIFEST


def findings(directory: Path, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a results directory's probe; raises S2SError if it is unusable."""
    folder, manifest = directory / PROBE, probe.read_probe(directory / PROBE)
    # The Frozen runs of the cohort, in the profile's order of seeds, which is that of the checkpoints.
    runs = [
        run for run in run_directories(directory / COHORT) if read_manifest(run).facts.condition == FROZEN
    ]
    order = [checkpoint.seed for checkpoint in manifest.checkpoints]
    seeds = {run: read_manifest(run).facts.seed for run in runs}
    frozen = sorted(runs, key=lambda run: (order.index(seeds[run]) if seeds[run] in order else 0, seeds[run]))
    config = _probe_config(frozen, manifest)
    problem = find_problem(config.problem)
    tokenizer = tools.tokenizers.of(manifest.model_files)
    bank = build_bank({run: run_config(read_manifest(run)) for run in frozen}, manifest.prompts)
    if b"".join(msgspec.json.encode(entry) + b"\n" for entry in bank) != read_regular(folder / probe.BANK):
        yield Finding(probe.BANK, "its prompts differ from the prompts of the frozen runs")
    for checkpoint in manifest.checkpoints:
        file = folder / f"{checkpoint.name}.jsonl"
        if file.parent != folder:
            raise RecordError(f"{checkpoint.name!r} is not the name of a checkpoint")
        programs = tools.runner.programs(problem, config.split, config.evaluation)
        task = f"{PROBE}/{checkpoint.name}"
        chosen = tools.chosen(task, manifest.prompts)
        answers = groupby(read_records(file, probe.ProbeRecord), key=lambda record: record.prompt)
        for done, (prompt, records) in enumerate(answers, start=1):
            group = list(records)
            # A probe does not record the token ids of its answers.
            texts = [
                RecordedText(
                    f"{one.checkpoint}, prompt {prompt}, position {one.position}",
                    one,
                    Completion((), one.text, one.truncated),
                )
                for one in group
            ]
            tools.tally.update(groups=1, completions=len(texts), executed=prompt in chosen)
            if {record.checkpoint for record in group} != {checkpoint.name}:
                yield Finding(f"{checkpoint.name}, prompt {prompt}", "it is an answer of another checkpoint")
            yield from text_findings(texts, programs, prompt in chosen, config.reading)
            if tokenizer is not None and 0 <= prompt < len(bank):
                yield from _prompt_findings(bank[prompt], texts, tokenizer, config.generation)
            tools.progress.update(task, done, manifest.prompts)
    if tokenizer is None:
        yield Finding("all", NO_TOKENIZER, False)


def _prompt_findings(
    entry: probe.BankPrompt,
    texts: list[RecordedText],
    tokenizer: ModelTokenizer,
    settings: GenerationSettings,
) -> Iterator[Finding]:
    prompt, ids = rendered(entry, tokenizer, settings)
    if sha256_text(prompt) != entry.prompt_sha256:
        yield Finding(f"prompt {entry.prompt}", "prompt_sha256 is not that of its messages")
    length = len(cut_prompt(ids, settings))
    for text in texts:
        if text.record.prompt_tokens != length:
            recorded = text.record.prompt_tokens
            yield Finding(text.where, f"prompt_tokens is {recorded}, its prompt has {length}")


def _probe_config(frozen: list[Path], manifest: probe.ProbeManifest) -> RunConfig:
    """The configuration with the probe's checksum: a Frozen run's, with the probe's number of completions."""
    for run in frozen:
        run_manifest = read_manifest(run)
        config = probe.probed_config(run_manifest, manifest.completions)
        if canonical_sha256(config) == manifest.config_sha256:
            return run_config(msgspec.structs.replace(run_manifest, config=config))
    raise RecordError("its config_sha256 belongs to no frozen run of the cohort")
