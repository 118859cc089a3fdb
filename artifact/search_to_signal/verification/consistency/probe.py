"""Does the probe stand on the runs and adapters that it names, and do its records say what its texts say?"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from search_to_signal.config import canonical_sha256
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.files import is_component
from search_to_signal.records.layers import COHORT, PROBE
from search_to_signal.records.manifest import Manifest, read_manifest, run_directories
from search_to_signal.records.probe import (
    BANK,
    INITIAL,
    BankPrompt,
    ProbedCheckpoint,
    ProbeManifest,
    ProbeRecord,
    probed_config,
)
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import ANY_FENCE, GenerationRecord, IdeaEnd, Outcome
from search_to_signal.verification.consistency.completion_texts import ParsedTexts, answer_problems
from search_to_signal.verification.consistency.manifests import LAYERS


def probe_problems(directory: Path, manifest: ProbeManifest, parsed: ParsedTexts) -> Iterator[str]:
    """Contradictions of a probe, one line each; raises what reading raises."""
    cohort = {run.name: read_manifest(run) for run in run_directories(directory / COHORT)}
    bank = list(read_records(directory / PROBE / BANK, BankPrompt))
    yield from _bank_problems(directory / COHORT, bank, manifest)
    names = [INITIAL, *(name for name, run in cohort.items() if run.final_adapter_sha256 is not None)]
    if sorted(checkpoint.name for checkpoint in manifest.checkpoints) != sorted(names):
        yield "its checkpoints are not those of the cohort"
    yield from _setting_problems(manifest, cohort)
    # Its settings are those of a frozen run, which all runs of a cohort share.
    reading = next((run.facts.idea_end for run in cohort.values()), ANY_FENCE)
    for checkpoint in manifest.checkpoints:
        found = _checkpoint_problems(checkpoint, cohort.get(checkpoint.name))
        yield from (f"{checkpoint.name}: {problem}" for problem in found)
        answered = _answer_problems(directory / PROBE, manifest, checkpoint, parsed, reading)
        yield from (f"{checkpoint.name}: {problem}" for problem in answered)


def _setting_problems(manifest: ProbeManifest, cohort: dict[str, Manifest]) -> Iterator[str]:
    settings = {
        canonical_sha256(probed_config(run, manifest.completions))
        for run in cohort.values()
        if run.facts.condition == "frozen"
    }
    if manifest.config_sha256 not in settings:
        yield "config_sha256 is of no frozen run with its number of completions"
    for run in cohort.values():
        if any(
            getattr(manifest, name) != getattr(run.facts, name)
            for name in ("purpose", "problem", "split", "model")
        ):
            yield "it has another purpose, problem, split or model than the cohort"
        # A plan's runs may be of several sources, and so may what is made of them.
        planned = run.plan_sha256 is not msgspec.UNSET
        if manifest.model_files != run.model_files or not (
            planned or manifest.source.sha256 == run.source.sha256
        ):
            yield "it has another source or model files than the cohort"
    if manifest.isolation.keys() != LAYERS:
        yield "isolation is not what a sandbox reports"


def _bank_problems(cohort: Path, bank: list[BankPrompt], manifest: ProbeManifest) -> Iterator[str]:
    if len(bank) != manifest.prompts or any(entry.prompt != at for at, entry in enumerate(bank)):
        yield f"{BANK} does not hold {manifest.prompts} prompts in order"
    for name in sorted({entry.run for entry in bank}):
        place = cohort / name
        if Path(name).name != name or not place.is_dir():
            yield f"{BANK} names {name}, which is no run of the cohort"
            continue
        groups = {group[0].step: group[0] for group in read_groups(place)}
        texts = {one.step: one.prompt for one in read_records(place / GENERATIONS, GenerationRecord)}
        for entry in (entry for entry in bank if entry.run == name):
            asked = groups.get(entry.step) if entry.step in texts else None
            same = ("operator", "prompt_sha256", "base_scores", "frontier")
            if asked is None or any(getattr(entry, field) != getattr(asked, field) for field in same):
                yield f"{BANK}: prompt {entry.prompt} is not that of {name}, step {entry.step}"
            elif entry.user not in texts[entry.step] or entry.system.strip() not in _shown(
                texts[entry.step], entry
            ):
                yield f"{BANK}: the text of prompt {entry.prompt} is not that of {name}, step {entry.step}"


def _shown(text: str, entry: BankPrompt) -> str:
    """Where a system message may stand; a template that has no place for one shows nothing of it."""
    return text if entry.system[:20] in text else entry.system


def _checkpoint_problems(checkpoint: ProbedCheckpoint, run: Manifest | None) -> Iterator[str]:
    initial = checkpoint.name == INITIAL
    told = (checkpoint.condition, checkpoint.seed, checkpoint.adapter_sha256)
    if run is None:
        if not initial or told != ("frozen", None, None):
            yield "it is no checkpoint of the cohort"
        return
    if told != (run.facts.condition, run.facts.seed, run.final_adapter_sha256):
        yield f"it is not the final adapter of {run.facts.name}"


def _answer_problems(
    folder: Path, manifest: ProbeManifest, checkpoint: ProbedCheckpoint, parsed: ParsedTexts, reading: IdeaEnd
) -> Iterator[str]:
    if not is_component(checkpoint.name):
        yield "its name is none of a file"
        return
    file = folder / f"{checkpoint.name}.jsonl"
    if checkpoint.bank_sha256 != manifest.bank_sha256:
        yield "it answered another bank"
    if sha256_file(file) != checkpoint.records_sha256:
        yield "its records are not the recorded ones"
    answers = list(read_records(file, ProbeRecord))
    placed = [divmod(number, max(1, manifest.completions)) for number in range(len(answers))]
    whole = len(answers) == manifest.prompts * manifest.completions
    if not whole or [(answer.prompt, answer.position) for answer in answers] != placed:
        yield f"it does not answer every prompt {manifest.completions} times"
    config = {"problem": manifest.problem, "split": manifest.split, "idea_end": reading}
    for line, answer in enumerate(answers, start=1):
        found = [*answer_problems(answer, answer.text, config, parsed)]
        if answer.checkpoint != checkpoint.name:
            found.append(f"it is an answer of {answer.checkpoint}")
        if (answer.score is not None) != (answer.outcome is Outcome.VALID):
            found.append(f"outcome {answer.outcome.value} with score {answer.score}")
        yield from (f"line {line}: {problem}" for problem in found)
