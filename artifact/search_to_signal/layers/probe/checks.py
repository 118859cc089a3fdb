"""The probe, compared with the runs and adapters that it names; its records, compared with its texts."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from search_to_signal.base.settings import canonical_sha256
from search_to_signal.records import probe
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.files import is_component
from search_to_signal.records.layers import COHORT, PROBE
from search_to_signal.records.manifest import ISOLATION_FACTS, Manifest, read_manifest, run_directories
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import ANY_FENCE, GenerationRecord, IdeaEnd, Outcome
from search_to_signal.run.texts import ParsedTexts, answer_problems
from search_to_signal.sandbox.programs import sha256_text


def problems(directory: Path, parsed: ParsedTexts) -> Iterator[str]:
    """Yield contradictions of a probe; raises S2SError or OSError for a file that cannot be read."""
    folder = directory / PROBE
    if not (folder / probe.PROBE_MANIFEST).is_file():
        return
    manifest = probe.read_probe(folder)
    if manifest.status != "complete":
        yield "it is not complete"
    if sha256_file(folder / probe.BANK) != manifest.bank_sha256:
        yield f"{probe.BANK} is not the recorded one"
    cohort = {run.name: read_manifest(run) for run in run_directories(directory / COHORT)}
    bank = list(read_records(directory / PROBE / probe.BANK, probe.BankPrompt))
    yield from _bank_problems(directory / COHORT, bank, manifest)
    names = [probe.INITIAL, *(name for name, run in cohort.items() if run.final_adapter_sha256 is not None)]
    if sorted(checkpoint.name for checkpoint in manifest.checkpoints) != sorted(names):
        yield "its checkpoints differ from the cohort's"
    yield from _probe_setting_problems(manifest, cohort)
    # A probe has the settings of a frozen run; all runs of a cohort share this one.
    idea_end = next((run.facts.idea_end for run in cohort.values()), ANY_FENCE)
    for checkpoint in manifest.checkpoints:
        problems = _checkpoint_problems(checkpoint, cohort.get(checkpoint.name))
        yield from (f"{checkpoint.name}: {problem}" for problem in problems)
        problems = _answer_problems(directory / PROBE, manifest, checkpoint, parsed, idea_end)
        yield from (f"{checkpoint.name}: {problem}" for problem in problems)


def _probe_setting_problems(manifest: probe.ProbeManifest, cohort: dict[str, Manifest]) -> Iterator[str]:
    settings = {
        canonical_sha256(probe.probed_config(run, manifest.completions))
        for run in cohort.values()
        if run.facts.condition == FROZEN
    }
    if manifest.config_sha256 not in settings:
        yield "config_sha256 belongs to no frozen run with its number of completions"
    for run in cohort.values():
        if any(
            getattr(manifest, name) != getattr(run.facts, name)
            for name in ("purpose", "problem", "split", "model")
        ):
            yield "it has another purpose, problem, split or model than the cohort"
        # Runs of a plan may come from several versions of the source, and so may a probe of them.
        planned = run.plan_sha256 is not msgspec.UNSET
        if manifest.model_files != run.model_files or not (
            planned or manifest.source.sha256 == run.source.sha256
        ):
            yield "it has another source or model files than the cohort"
    if manifest.isolation.keys() != ISOLATION_FACTS:
        yield "isolation is not what a sandbox reports"


def _bank_problems(
    cohort: Path, bank: list[probe.BankPrompt], manifest: probe.ProbeManifest
) -> Iterator[str]:
    if len(bank) != manifest.prompts or any(entry.prompt != at for at, entry in enumerate(bank)):
        yield f"{probe.BANK} does not hold {manifest.prompts} prompts in order"
    for name in sorted({entry.run for entry in bank}):
        run = cohort / name
        if Path(name).name != name or not run.is_dir():
            yield f"{probe.BANK} names {name}, which is no run of the cohort"
            continue
        groups = {group[0].step: group[0] for group in read_groups(run)}
        generations = read_records(run / GENERATIONS, GenerationRecord)
        prompts = {generation.step: generation.prompt for generation in generations}
        for entry in (entry for entry in bank if entry.run == name):
            recorded = groups.get(entry.step) if entry.step in prompts else None
            shared = ("operator", "prompt_sha256", "base_scores", "frontier")
            source = f"that of {name}, step {entry.step}"
            if recorded is None or any(getattr(entry, key) != getattr(recorded, key) for key in shared):
                yield f"{probe.BANK}: prompt {entry.prompt} is not {source}"
            elif not _has_messages(prompts[entry.step], entry):
                yield f"{probe.BANK}: the text of prompt {entry.prompt} is not {source}"


def _has_messages(prompt: str, entry: probe.BankPrompt) -> bool:
    """Whether a prompt contains an entry's messages; some chat templates leave out the system message."""
    shows_system = entry.system[:20] in prompt
    return entry.user in prompt and (not shows_system or entry.system.strip() in prompt)


def _checkpoint_problems(checkpoint: probe.ProbedCheckpoint, run: Manifest | None) -> Iterator[str]:
    recorded = (checkpoint.condition, checkpoint.seed, checkpoint.adapter_sha256)
    if run is None:
        if checkpoint.name != probe.INITIAL or recorded != (FROZEN, None, None):
            yield "it is no checkpoint of the cohort"
        return
    if recorded != (run.facts.condition, run.facts.seed, run.final_adapter_sha256):
        yield f"it is not the final adapter of {run.facts.name}"


def _answer_problems(
    folder: Path,
    manifest: probe.ProbeManifest,
    checkpoint: probe.ProbedCheckpoint,
    parsed: ParsedTexts,
    idea_end: IdeaEnd,
) -> Iterator[str]:
    if not is_component(checkpoint.name):
        yield "its name cannot be the name of a file"
        return
    file = folder / f"{checkpoint.name}.jsonl"
    if checkpoint.bank_sha256 != manifest.bank_sha256:
        yield "it answered other prompts than the recorded bank"
    if sha256_file(file) != checkpoint.records_sha256:
        yield "its records do not have the recorded checksum"
    answers = list(read_records(file, probe.ProbeRecord))
    positions = [divmod(number, max(1, manifest.completions)) for number in range(len(answers))]
    complete = len(answers) == manifest.prompts * manifest.completions
    if not complete or [(answer.prompt, answer.position) for answer in answers] != positions:
        yield f"it does not answer every prompt {manifest.completions} times"
    config = {"problem": manifest.problem, "split": manifest.split, "idea_end": idea_end}
    for line, answer in enumerate(answers, start=1):
        problems = [*answer_problems(answer, answer.text, config, parsed)]
        if answer.response_sha256 != sha256_text(answer.text):
            problems.append("response_sha256 does not match its text")
        if answer.checkpoint != checkpoint.name:
            problems.append(f"it is an answer of {answer.checkpoint}")
        if (answer.score is not None) != (answer.outcome is Outcome.VALID):
            problems.append(f"outcome {answer.outcome.value} with score {answer.score}")
        yield from (f"line {line}: {problem}" for problem in problems)
