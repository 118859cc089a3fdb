"""A run of the released host, recomputed: texts and programs, not its draws and updates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from search_to_signal.base.errors import RecordError
from search_to_signal.models.base import Completion
from search_to_signal.problems import find_problem
from search_to_signal.records.manifest import Manifest, read_manifest
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import (
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    Outcome,
    StepRecord,
)
from search_to_signal.run.group import EvaluatedCompletion, evaluate_group
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.programs import Failure, parse, program_sha256, sha256_text
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.hosts.released.trainer import asked_text
from search_to_signal.verify.findings import Finding
from search_to_signal.verify.recompute.programs import LIMITED, RunPrograms, same_bits
from search_to_signal.verify.recompute.tokens import Tools

HOST_INTERNAL = "draws, tokens and updates: the released host makes them by itself"
_ANT_COLONY_PROBLEMS = ("cvrp", "op")
# The problems' ant colonies use the noise of these versions of torch; from 2.7 on torch draws another one.
_NOISE_VERSIONS = ("2.5.", "2.6.")


@dataclass(frozen=True)
class _Check:
    """How a run's completions are compared; ``scored``: scores have to be equal to the bit."""

    programs: RunPrograms
    idea_end: IdeaEnd
    scored: bool


def released_findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a run of the released host; raises S2SError if it cannot be recomputed."""
    manifest, heuristics = read_manifest(run), list(read_records(run / HEURISTICS, HeuristicRecord))
    problem, split = find_problem(manifest.facts.problem), manifest.facts.split
    programs = tools.runner.programs(problem, split, EvaluationSettings(replay="off"))
    yield Finding("all", HOST_INTERNAL, False)
    scored = _has_same_noise(manifest)
    if not scored:
        yield Finding("all", "scores of ant colonies: the noise of its torch is another one", False)
    elif problem_text := _seed_problem(heuristics, programs):
        scored = False
        yield Finding("seed heuristic", problem_text)
    check = _Check(programs, manifest.facts.idea_end, scored)
    codes = _codes_by_id(heuristics)
    steps = list(read_records(run / STEPS, StepRecord))
    chosen = tools.chosen(name, len(steps))
    for number, (step, group, generation) in enumerate(_groups(run, steps)):
        tools.tally.update(groups=1, completions=len(group), executed=number in chosen)
        yield from _compare_prompt(f"step {step.step}", step, group, generation, codes)
        yield from _compare_texts(group, generation.completions, check)
        if number in chosen:
            yield from _compare_programs(group, generation.completions, check)
        tools.progress.update(name, number + 1, len(steps))


def _has_same_noise(manifest: Manifest) -> bool:
    torch = manifest.environment.packages.get("torch") or ""
    return manifest.facts.problem not in _ANT_COLONY_PROBLEMS or torch.startswith(_NOISE_VERSIONS)


def _seed_problem(heuristics: Sequence[HeuristicRecord], programs: RunPrograms) -> str | None:
    """Return a line where the seed heuristic has another score here: then no score can be compared."""
    seed = next((heuristic for heuristic in heuristics if heuristic.operator is None), None)
    if seed is None:
        raise RecordError("the seed heuristic is not recorded")
    (actual,) = programs.evaluate([seed.code])
    if same_bits(actual.score, seed.score):
        return None
    return f"score {seed.score}, it gives {actual.score}: its instances are others, so no score is compared"


def _codes_by_id(heuristics: Sequence[HeuristicRecord]) -> Mapping[str, list[str]]:
    codes: dict[str, list[str]] = {}
    for heuristic in heuristics:
        codes.setdefault(heuristic.id, []).append(heuristic.code.strip())
    return codes


def _groups(run: Path, steps: Sequence[StepRecord]) -> Iterator[tuple[StepRecord, Group, GenerationRecord]]:
    generations = read_records(run / GENERATIONS, GenerationRecord)
    for step, group, generation in zip_longest(steps, read_groups(run), generations):
        if step is None or group is None or generation is None:
            raise RecordError("steps, completions and generations do not hold the same number of groups")
        if len(group) != len(generation.completions) or {group[0].step, generation.step} != {step.step}:
            raise RecordError(f"step {step.step}: completions and texts are not of the same group")
        yield step, group, generation


def _compare_prompt(
    where: str,
    step: StepRecord,
    group: Group,
    generation: GenerationRecord,
    codes: Mapping[str, list[str]],
) -> Iterator[Finding]:
    if step.prompt_sha256 != sha256_text(generation.prompt):
        yield Finding(where, "prompt_sha256 is not that of the prompt")
    text = asked_text(generation.prompt)
    if any(not any(code in text for code in codes.get(parent, ())) for parent in group[0].parents):
        yield Finding(where, "its prompt does not show its parents")
    for record, request in zip(group, generation.requests, strict=False):
        if record.truncated != (request.finish_reason == "length"):
            yield Finding(_where(record), "truncated is not what its request ended with")


def _where(record: CompletionRecord) -> str:
    return f"step {record.step}, completion {record.index}"


def _compare_texts(group: Group, texts: Sequence[str], check: _Check) -> Iterator[Finding]:
    for record, text in zip(group, texts, strict=True):
        parsing = parse(text, check.idea_end)
        code = "" if isinstance(parsing, Failure) else parsing.code
        if record.response_sha256 != sha256_text(text):
            yield Finding(_where(record), "response_sha256 is not that of its text")
        if record.program_sha256 != (program_sha256(code) if code else None):
            yield Finding(_where(record), "program_sha256 is not that of its text")
        named = parsing.outcome.value if isinstance(parsing, Failure) else "a proposal"
        unparsed = record.outcome in (Outcome.MISSING_RATIONALE, Outcome.MISSING_CODE)
        if (record.outcome is not parsing.outcome) if isinstance(parsing, Failure) else unparsed:
            yield Finding(_where(record), f"outcome {record.outcome.value} is recorded, its text is {named}")


def _compare_programs(group: Group, texts: Sequence[str], check: _Check) -> Iterator[Finding]:
    completions = [Completion((), text, False) for text in texts]
    for record, actual in zip(group, _evaluate(group, completions, check), strict=True):
        if actual.proposal is not None:
            yield from _compare_ending(record, actual, check)


def _evaluate(group: Group, completions: Sequence[Completion], check: _Check) -> list[EvaluatedCompletion]:
    """Evaluate texts; programs that only here reach a limit get more time."""
    evaluated = evaluate_group(completions, check.programs, check.idea_end)
    limited = [
        index
        for index, (record, actual) in enumerate(zip(group, evaluated, strict=True))
        if _isolation(actual) in LIMITED and record.outcome is not Outcome.RUNTIME_FAILURE
    ]
    if limited:
        with check.programs.with_more_time() as slower:
            again = evaluate_group([completions[index] for index in limited], slower, check.idea_end)
        for index, actual in zip(limited, again, strict=True):
            evaluated[index] = actual
    return evaluated


def _isolation(actual: EvaluatedCompletion) -> str:
    return "" if actual.evaluation is None else actual.evaluation.isolation.value


def _compare_ending(
    record: CompletionRecord, actual: EvaluatedCompletion, check: _Check
) -> Iterator[Finding]:
    """Compare endings; failures that the host's time limit may have caused are not compared (D42)."""
    where, failed = _where(record), Outcome.RUNTIME_FAILURE
    if record.outcome is failed and actual.outcome is not failed and actual.outcome.evaluated:
        yield Finding(where, "recorded as a runtime failure, which ends here: the host's clock", False)
    elif record.outcome is not actual.outcome:
        ended = f"{actual.outcome.value} ({_isolation(actual)}: {actual.detail})"
        yield Finding(where, f"outcome {record.outcome.value} is recorded, its text gives {ended}")
    elif check.scored and not same_bits(record.score, actual.score):
        assert actual.proposal is not None
        (again,) = check.programs.replay([actual.proposal.code])
        chance = again.isolation is Isolation.NONDETERMINISTIC
        scores = f"score {record.score} is recorded, its program gives {actual.score}"
        yield Finding(where, "its program decides by chance" if chance else scores, not chance)
