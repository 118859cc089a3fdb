"""A run of the released host recomputed: texts and programs; what it draws and learns is its own affair."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from search_to_signal.errors import RecordError
from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.generators.base import Completion
from search_to_signal.hosts.released.asking import asked_text
from search_to_signal.loop.group import EvaluatedCompletion, evaluate_group
from search_to_signal.problems import find_problem
from search_to_signal.programs.canonical import program_sha256, sha256_text
from search_to_signal.programs.parsing import Failure, parse
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
from search_to_signal.verification.findings import LIMITED, Finding, same_bits
from search_to_signal.verification.recompute.programs import RunPrograms
from search_to_signal.verification.recompute.tools import Tools

ITS_OWN = "draws, tokens and updates: the released host makes them by itself"
_COLONIES = ("cvrp", "op")
# From torch 2.7 on the noise of ant colonies is another one than ours.
_OUR_NOISE = ("2.5.", "2.6.")


@dataclass(frozen=True)
class _Check:
    """What the completions of a run are held against; ``scored``: scores here are to the bit those there."""

    programs: RunPrograms
    idea_end: IdeaEnd
    scored: bool


def released_findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    """What is otherwise in a run of the released host; raises S2SError for what cannot be recomputed."""
    manifest, heuristics = read_manifest(run), list(read_records(run / HEURISTICS, HeuristicRecord))
    problem, split = find_problem(manifest.facts.problem), manifest.facts.split
    programs = tools.runner.programs(problem, split, EvaluationSettings(replay="off"))
    yield Finding("all", ITS_OWN, False)
    scored = _has_our_noise(manifest)
    if not scored:
        yield Finding("all", "scores of ant colonies: the noise of its torch is another one", False)
    elif told := _seed_problem(heuristics, programs):
        scored = False
        yield Finding("seed heuristic", told)
    check = _Check(programs, manifest.facts.idea_end, scored)
    codes = _codes(heuristics)
    steps = list(read_records(run / STEPS, StepRecord))
    chosen = tools.chosen(name, len(steps))
    for number, (step, group, generation) in enumerate(_groups(run, steps)):
        tools.tally.update(groups=1, completions=len(group), executed=number in chosen)
        yield from _prompt(f"step {step.step}", step, group, generation, codes)
        yield from _texts(group, generation.completions, check)
        if number in chosen:
            yield from _programs(group, generation.completions, check)
        tools.progress.update(name, number + 1, len(steps))


def _has_our_noise(manifest: Manifest) -> bool:
    torch = manifest.environment.packages.get("torch") or ""
    return manifest.facts.problem not in _COLONIES or torch.startswith(_OUR_NOISE)


def _seed_problem(heuristics: Sequence[HeuristicRecord], programs: RunPrograms) -> str | None:
    """Why no score of a run can be ours: its seed, whose score is beyond doubt, has another one here."""
    seed = next((heuristic for heuristic in heuristics if heuristic.operator is None), None)
    if seed is None:
        raise RecordError("the seed heuristic is not recorded")
    (found,) = programs.evaluate([seed.code])
    if same_bits(found.score, seed.score):
        return None
    return f"score {seed.score}, it gives {found.score}: its instances are others, so no score is compared"


def _codes(heuristics: Sequence[HeuristicRecord]) -> Mapping[str, list[str]]:
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


def _prompt(
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
    for record, told in zip(group, generation.requests, strict=False):
        if record.truncated != (told.finish_reason == "length"):
            yield Finding(_where(record), "truncated is not what its request ended with")


def _where(record: CompletionRecord) -> str:
    return f"step {record.step}, completion {record.index}"


def _texts(group: Group, texts: Sequence[str], check: _Check) -> Iterator[Finding]:
    for record, text in zip(group, texts, strict=True):
        found = parse(text, check.idea_end)
        code = "" if isinstance(found, Failure) else found.code
        if record.response_sha256 != sha256_text(text):
            yield Finding(_where(record), "response_sha256 is not that of its text")
        if record.program_sha256 != (program_sha256(code) if code else None):
            yield Finding(_where(record), "program_sha256 is not that of its text")
        named = found.outcome.value if isinstance(found, Failure) else "a proposal"
        unparsed = record.outcome in (Outcome.MISSING_RATIONALE, Outcome.MISSING_CODE)
        if (record.outcome is not found.outcome) if isinstance(found, Failure) else unparsed:
            yield Finding(_where(record), f"outcome {record.outcome.value} is recorded, its text is {named}")


def _programs(group: Group, texts: Sequence[str], check: _Check) -> Iterator[Finding]:
    completions = [Completion((), text, False) for text in texts]
    for record, judged in zip(group, _judged(group, completions, check), strict=True):
        if judged.proposal is not None:
            yield from _ended(record, judged, check)


def _judged(group: Group, completions: Sequence[Completion], check: _Check) -> list[EvaluatedCompletion]:
    """Every text as we judge it; what is cut off here and not there is given more time."""
    found = evaluate_group(completions, check.programs, check.idea_end)
    slow = [
        index
        for index, (record, item) in enumerate(zip(group, found, strict=True))
        if _isolation(item) in LIMITED and record.outcome is not Outcome.RUNTIME_FAILURE
    ]
    if slow:
        with check.programs.with_more_time() as slower:
            again = evaluate_group([completions[index] for index in slow], slower, check.idea_end)
        for index, item in zip(slow, again, strict=True):
            found[index] = item
    return found


def _isolation(judged: EvaluatedCompletion) -> str:
    return "" if judged.evaluation is None else judged.evaluation.isolation.value


def _ended(record: CompletionRecord, judged: EvaluatedCompletion, check: _Check) -> Iterator[Finding]:
    """How a program ended; what the host's clock may have ended is not compared (D42)."""
    where, failed = _where(record), Outcome.RUNTIME_FAILURE
    if record.outcome is failed and judged.outcome is not failed and judged.outcome.evaluated:
        yield Finding(where, "recorded as a runtime failure, which ends here: the host's clock", False)
    elif record.outcome is not judged.outcome:
        told = f"{judged.outcome.value} ({_isolation(judged)}: {judged.detail})"
        yield Finding(where, f"outcome {record.outcome.value} is recorded, its text gives {told}")
    elif check.scored and not same_bits(record.score, judged.score):
        assert judged.proposal is not None
        (again,) = check.programs.replay([judged.proposal.code])
        chance = again.isolation is Isolation.NONDETERMINISTIC
        told = f"score {record.score} is recorded, its program gives {judged.score}"
        yield Finding(where, "its program decides by chance" if chance else told, not chance)
