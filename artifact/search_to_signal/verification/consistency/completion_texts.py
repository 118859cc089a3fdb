"""Do the recorded texts say what the records say of them? Texts are parsed here, and nothing of them runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from search_to_signal.problems import PROBLEMS
from search_to_signal.programs.canonical import program_sha256, sha256_text
from search_to_signal.programs.parsing import Failure, Proposal, mentions_randomness, parse
from search_to_signal.records.reader import HEURISTICS, Group
from search_to_signal.records.schema import (
    BARE_FENCE,
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    Outcome,
    StepRecord,
)

# What an isolated run ended with, by the outcomes that it can be recorded as.
_FINISHED = ("ok", "nondeterministic")
_PARTS = {"fallback", "repeat"}


@dataclass
class ParsedTexts:
    """What texts and code of a results directory say, each looked at once.

    ``programs`` is the recorded hash of every code; ``scores`` are those of valid programs, by problem, split
    and code: equal code has one score (D20).
    """

    texts: dict[tuple[str, IdeaEnd], Proposal | Failure] = field(default_factory=dict)
    programs: dict[str, str | None] = field(default_factory=dict)
    scores: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def text(self, text: str, config: Mapping[str, Any]) -> Proposal | Failure:
        """``parse``, as the run of this configuration reads texts (D37)."""
        key = (text, config.get("idea_end", BARE_FENCE))
        found = self.texts.get(key)
        if found is None:
            found = self.texts[key] = parse(*key)
        return found

    def program_problems(self) -> Iterator[str]:
        """Recorded hashes that are not those of the canonical code; a millisecond for each program."""
        for code, recorded in self.programs.items():
            if recorded != program_sha256(code):
                yield f"program {recorded} is not the hash of the code that it is recorded for"


def answer_problems(record: Any, text: str, config: Mapping[str, Any], parsed: ParsedTexts) -> Iterator[str]:
    """What a text contradicts in its completion or probe record."""
    if record.response_sha256 != sha256_text(text):
        yield "response_sha256 is not that of its text"
    found = parsed.text(text, config)
    if isinstance(found, Failure):
        recorded = (record.outcome, record.detail, record.evaluation, record.program_sha256, record.score)
        if recorded != (found.outcome, found.detail, "not_run", None, None):
            yield f"recorded as {record.outcome.value}, its text is {found.outcome.value} and cannot have run"
        return
    if record.program_sha256 != parsed.programs.setdefault(found.code, record.program_sha256):
        yield "program_sha256 is not the one that equal code has elsewhere"
    if told := _ending_problem(record, found.code, config):
        yield told
    if record.score is not None:
        key = (str(config["problem"]), str(config["split"]), found.code)
        if parsed.scores.setdefault(key, record.score) != record.score:
            yield f"score {record.score}, the same program scored {parsed.scores[key]} elsewhere"


def _ending_problem(record: Any, code: str, config: Mapping[str, Any]) -> str | None:
    ending, *notes = record.evaluation.split(", ")
    if ending in _FINISHED:
        random = mentions_randomness(code)
        if config.get("evaluation", {}).get("randomness", "text") == "behaviour":
            random = ending == "nondeterministic"
        due = Outcome.RANDOMNESS if random else Outcome.VALID
    else:
        due = Outcome.MISSING_FUNCTION if ending == "no_function" else Outcome.RUNTIME_FAILURE
    if record.outcome is not due or ending == "not_run" or not _PARTS.issuperset(notes):
        return f"recorded as {record.outcome.value}, its evaluation ({record.evaluation}) says {due.value}"
    return None


@dataclass
class TextReplay:
    """The texts of one run, held against its records group by group.

    ``heuristics`` are the stored ones by step and index; ``exposures`` says whether completions with a score
    have one, None where nobody knows; ``ends`` are the last tokens of completions that ended.
    """

    config: Mapping[str, Any]
    parsed: ParsedTexts
    heuristics: Mapping[tuple[int, int], HeuristicRecord]
    exposures: bool | None
    ends: set[int] = field(default_factory=set)

    def problems(self, group: Group, step: StepRecord, generation: GenerationRecord) -> Iterator[str]:
        """What the texts of a group contradict in its records."""
        where = f"step {step.step}"
        if generation.step != step.step or len(generation.completions) != len(group):
            yield f"{where}: generations.jsonl has other completions"
            return
        if sha256_text(generation.prompt) != step.prompt_sha256:
            yield f"{where}: prompt_sha256 is not that of the prompt"
        yield from (f"{where}: {problem}" for problem in self._tokens(group, generation))
        for record, text in zip(group, generation.completions, strict=True):
            for problem in self._completion(record, text):
                yield f"{where}, completion {record.index}: {problem}"

    def _completion(self, record: CompletionRecord, text: str) -> Iterator[str]:
        yield from answer_problems(record, text, self.config, self.parsed)
        if record.archive_event is ArchiveEvent.ADMITTED:
            yield from self._stored(record, text)
        if record.problem != self.config["problem"]:
            yield f"problem {record.problem}, the configuration says {self.config['problem']}"
        exposed = record.score is not None if self.exposures else False
        if self.exposures is not None and (record.exposure is not None) is not exposed:
            yield f"exposure {record.exposure} with score {record.score}"

    def _stored(self, record: CompletionRecord, text: str) -> Iterator[str]:
        stored = self.heuristics.get((record.step, record.index))
        if stored is None:
            return
        found = self.parsed.text(text, self.config)
        expected = (found.idea, found.code) if isinstance(found, Proposal) else None
        if (stored.idea, stored.code) != expected or stored.operator != record.operator:
            yield f"{HEURISTICS} has other idea, code or operator than its text"
        if stored.instance_scores != record.instance_scores:
            yield f"{HEURISTICS} has other instance scores than its completion"

    def _tokens(self, group: Group, generation: GenerationRecord) -> Iterator[str]:
        read = [len(generation.prompt_ids)] * len(group)
        drawn = [len(ids) for ids in generation.completion_ids]
        if generation.requests:
            read = [request.prompt_tokens for request in generation.requests]
            drawn = [request.completion_tokens for request in generation.requests]
        if [record.prompt_tokens for record in group] != read:
            yield "prompt_tokens are not those of the prompt"
        if [record.completion_tokens for record in group] != drawn:
            yield "completion_tokens are not those of the completions"
            return
        cut = self._truncated(generation)
        if any([due not in (None, r.truncated) for r, due in zip(group, cut, strict=True)]):
            yield "truncated is not what its completions say"

    def _truncated(self, generation: GenerationRecord) -> list[bool | None]:
        """Whether each completion was cut at the limit; None where its tokens cannot tell."""
        if generation.requests:
            return [request.finish_reason == "length" for request in generation.requests]
        limit = self.config["generation"].get("max_completion_tokens")
        return [self._at_limit(ids, limit) for ids in generation.completion_ids]

    def _at_limit(self, ids: tuple[int, ...], limit: int | None) -> bool | None:
        if limit is None or not ids or len(ids) > limit:
            return None
        if len(ids) < limit:
            self.ends.add(ids[-1])
            return False
        return ids[-1] not in self.ends if self.ends else None


def store_problems(
    heuristics: list[HeuristicRecord], config: Mapping[str, Any], parsed: ParsedTexts
) -> Iterator[str]:
    """Ids against code, and the seed against the problem's, where that is one of ours."""
    problem = PROBLEMS.get(str(config["problem"]))
    for line, heuristic in enumerate(heuristics, start=1):
        where = f"{HEURISTICS}:{line}"
        if heuristic.id != parsed.programs.setdefault(heuristic.code, heuristic.id):
            yield f"{where}: the id is not the one that equal code has elsewhere"
        if heuristic.operator is None:
            key = (str(config["problem"]), str(config["split"]), heuristic.code)
            if parsed.scores.setdefault(key, heuristic.score) != heuristic.score:
                yield f"{where}: score {heuristic.score}, elsewhere the same program has {parsed.scores[key]}"
            seed = problem.seed if problem else heuristic
            if line > 1 or (heuristic.idea, heuristic.code) != (seed.idea, seed.code):
                yield f"{where}: it is not the seed heuristic of {config['problem']}"
            if (heuristic.step, heuristic.index) != (0, 0):
                yield f"{where}: a seed heuristic has step and index 0"
