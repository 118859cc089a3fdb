"""The held-out evaluation, recomputed: scores of final heuristics on unseen instances, program behaviours."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from search_to_signal.base.errors import RecordError
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.layers.heldout import behaviour_sha256, first_instances, score_record, valid_programs
from search_to_signal.layers.probe import build_bank
from search_to_signal.models.base import Completion, cut_prompt
from search_to_signal.models.settings import GenerationSettings
from search_to_signal.problems import find_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.differences import Finding
from search_to_signal.records.files import read_regular
from search_to_signal.records.heldout import (
    BEHAVIOURS,
    SCORES,
    BehaviourRecord,
    HeldoutManifest,
    HeldoutRecord,
    final_heuristic,
    read_heldout,
)
from search_to_signal.records.layers import COHORT, HELDOUT, PROBE
from search_to_signal.records.manifest import read_manifest, run_directories
from search_to_signal.records.probe import (
    BANK,
    BankPrompt,
    ProbeManifest,
    ProbeRecord,
    probed_config,
    read_probe,
)
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import Outcome
from search_to_signal.report.results import Results, Runs
from search_to_signal.run.again import LIMITED, Ending, RecordedText, Tools, compare_endings, text_findings
from search_to_signal.run.config import RunConfig
from search_to_signal.run.recorded import run_config
from search_to_signal.run.texts import NO_TOKENIZER, ModelTokenizer, rendered
from search_to_signal.sandbox.again import RunPrograms
from search_to_signal.sandbox.dialogues import BY_ELAPSED_TIME
from search_to_signal.sandbox.outcomes import Evaluation, Isolation
from search_to_signal.sandbox.programs import sha256_text
from search_to_signal.sandbox.settings import EvaluationSettings

# These records have no isolation result: an evaluation that reached a limit has one of these details.
_LIMIT_DETAILS = (*BY_ELAPSED_TIME, "SIGPROF", "SIGXCPU", "SIGKILL")


def heldout_findings(directory: Path, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a results directory's held-out evaluation; raises S2SError if unusable."""
    folder, manifest = directory / HELDOUT, read_heldout(directory / HELDOUT)
    for count in (manifest.instances, manifest.behaviour_instances):
        if count is not None and count < 1:
            raise RecordError(f"it is of {count} instances")
    problem, cohort = find_problem(manifest.problem), Results(directory).cohort
    yield from _scores(cohort, folder, manifest, problem, tools)
    yield from _behaviours(cohort, folder, manifest, problem, tools)


def _scores(
    cohort: Runs, folder: Path, manifest: HeldoutManifest, problem: Problem, tools: Tools
) -> Iterator[Finding]:
    rows = list(read_records(folder / SCORES, HeldoutRecord))
    finals = [(run, final_heuristic(run.directory)) for run in cohort]
    expected = [(split, run, best) for split in manifest.splits for run, best in finals]
    recorded = [(row.split, row.run, row.heuristic) for row in rows]
    if recorded != [(split, run.path, best.id) for split, run, best in expected]:
        yield Finding(SCORES, "its rows are not the final heuristics of the cohort on every split")
        return
    subset = first_instances(problem, manifest.instances)
    chosen = tools.chosen(f"{HELDOUT}/{SCORES}", len(rows))
    for number, (row, (split, run, best)) in enumerate(zip(rows, expected, strict=True)):
        if number in chosen:
            programs = tools.runner.programs(subset, split, _limits(manifest))
            actual = score_record(run, split, best, _evaluate(programs, best.code, _ending(row)))
            yield from compare_endings(f"{SCORES}, {row.run} on {split}", _ending(row), _ending(actual))
        tools.progress.update(f"{HELDOUT}/{SCORES}", number + 1, len(rows))


def _behaviours(
    cohort: Runs, folder: Path, manifest: HeldoutManifest, problem: Problem, tools: Tools
) -> Iterator[Finding]:
    rows = list(read_records(folder / BEHAVIOURS, BehaviourRecord))
    codes = valid_programs(cohort)
    if [row.program_sha256 for row in rows] != list(codes):
        yield Finding(BEHAVIOURS, "its rows are not the distinct valid programs of the cohort")
        return
    subset = first_instances(problem, manifest.behaviour_instances)
    programs = tools.runner.programs(subset, manifest.behaviour_split, _limits(manifest))
    chosen = tools.chosen(f"{HELDOUT}/{BEHAVIOURS}", len(rows))
    for number, row in enumerate(rows):
        if number in chosen:
            # A recorded failure may be a time limit: the record leaves that open.
            isolation = Isolation.TIMEOUT if row.outcome is Outcome.RUNTIME_FAILURE else Isolation.OK
            recorded = Ending(row.outcome, isolation.value, "", row.behaviour_sha256)
            result = _evaluate(programs, codes[row.program_sha256], recorded)
            if result.outcome is not row.outcome:
                isolation = result.isolation
            actual = Ending(result.outcome, isolation.value, "", behaviour_sha256(result.per_instance))
            yield from compare_endings(f"{BEHAVIOURS}, program {row.program_sha256[:12]}", recorded, actual)
        tools.progress.update(f"{HELDOUT}/{BEHAVIOURS}", number + 1, len(rows))


def _limits(manifest: HeldoutManifest) -> EvaluationSettings:
    return EvaluationSettings(timeout_s=manifest.timeout_s, replay="off")


def _ending(row: HeldoutRecord) -> Ending:
    limited = row.outcome is Outcome.RUNTIME_FAILURE and row.detail in _LIMIT_DETAILS
    isolation = Isolation.TIMEOUT.value if limited else "ended"
    return Ending(row.outcome, isolation, row.detail, row.scores or None)


def _evaluate(programs: RunPrograms, code: str, recorded: Ending) -> Evaluation:
    """Evaluate a program, with more time where it reaches a limit and is not recorded so."""
    (result,) = programs.evaluate([code])
    if result.isolation.value in LIMITED and recorded.isolation not in LIMITED:
        with programs.with_more_time() as slower:
            (result,) = slower.evaluate([code])
    return result


# The common-context probe, recomputed: its bank from the Frozen runs, its answers from their texts.


def probe_findings(directory: Path, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a results directory's probe; raises S2SError if it is unusable."""
    folder, manifest = directory / PROBE, read_probe(directory / PROBE)
    frozen = _frozen_runs(directory, manifest)
    config = _probe_config(frozen, manifest)
    problem = find_problem(config.problem)
    tokenizer = tools.tokenizers.of(manifest.model_files)
    bank = build_bank({run: run_config(read_manifest(run)) for run in frozen}, manifest.prompts)
    if b"".join(msgspec.json.encode(entry) + b"\n" for entry in bank) != read_regular(folder / BANK):
        yield Finding(BANK, "it is not the bank that the Frozen runs give")
    for checkpoint in manifest.checkpoints:
        file = folder / f"{checkpoint.name}.jsonl"
        if file.parent != folder:
            raise RecordError(f"{checkpoint.name!r} is no name of a checkpoint")
        programs = tools.runner.programs(problem, config.split, config.evaluation)
        task = f"{PROBE}/{checkpoint.name}"
        chosen = tools.chosen(task, manifest.prompts)
        answers = groupby(read_records(file, ProbeRecord), key=lambda record: record.prompt)
        for done, (prompt, records) in enumerate(answers, start=1):
            group = list(records)
            texts = [_recorded_text(record) for record in group]
            tools.tally.update(groups=1, completions=len(texts), executed=prompt in chosen)
            if {record.checkpoint for record in group} != {checkpoint.name}:
                yield Finding(f"{checkpoint.name}, prompt {prompt}", "it is an answer of another checkpoint")
            yield from text_findings(texts, programs, prompt in chosen, config.reading)
            if tokenizer is not None and 0 <= prompt < len(bank):
                yield from _prompt_findings(bank[prompt], texts, tokenizer, config.generation)
            tools.progress.update(task, done, manifest.prompts)
    if tokenizer is None:
        yield Finding("all", NO_TOKENIZER, False)


def _recorded_text(record: ProbeRecord) -> RecordedText:
    # A probe does not record the token ids of its answers.
    where = f"{record.checkpoint}, prompt {record.prompt}, position {record.position}"
    return RecordedText(where, record, Completion((), record.text, record.truncated))


def _prompt_findings(
    entry: BankPrompt, texts: list[RecordedText], tokenizer: ModelTokenizer, settings: GenerationSettings
) -> Iterator[Finding]:
    prompt, ids = rendered(entry, tokenizer)
    if sha256_text(prompt) != entry.prompt_sha256:
        yield Finding(f"prompt {entry.prompt}", "prompt_sha256 is not that of its messages")
    length = len(cut_prompt(ids, settings))
    for text in texts:
        if text.record.prompt_tokens != length:
            recorded = text.record.prompt_tokens
            yield Finding(text.where, f"prompt_tokens is {recorded}, its prompt has {length}")


def _frozen_runs(directory: Path, manifest: ProbeManifest) -> list[Path]:
    """The Frozen runs of the cohort, in the profile's order of seeds, which is that of the checkpoints."""
    runs = [
        run for run in run_directories(directory / COHORT) if read_manifest(run).facts.condition == FROZEN
    ]
    order = [checkpoint.seed for checkpoint in manifest.checkpoints]
    seeds = {run: read_manifest(run).facts.seed for run in runs}
    return sorted(runs, key=lambda run: (order.index(seeds[run]) if seeds[run] in order else 0, seeds[run]))


def _probe_config(frozen: list[Path], manifest: ProbeManifest) -> RunConfig:
    """The configuration with the probe's checksum: a Frozen run's, with the probe's number of completions."""
    for run in frozen:
        run_manifest = read_manifest(run)
        config = probed_config(run_manifest, manifest.completions)
        if canonical_sha256(config) == manifest.config_sha256:
            return run_config(msgspec.structs.replace(run_manifest, config=config))
    raise RecordError("its config_sha256 is that of no Frozen run of the cohort")
