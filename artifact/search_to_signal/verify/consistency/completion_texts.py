"""Recorded texts parsed again and compared with their records; no program is executed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from search_to_signal.problems import PROBLEMS
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
from search_to_signal.sandbox.programs import (
    Failure,
    Proposal,
    mentions_randomness,
    parse,
    program_sha256,
    sha256_text,
)

# Isolation results of programs that ended by themselves, and the notes that may follow one.
_FINISHED = ("ok", "nondeterministic")
_NOTES = {"fallback", "repeat"}


@dataclass
class ParsedTexts:
    """A cache of the parsed texts of a results directory, with recorded hashes and scores by code.

    ``programs`` maps code to its recorded hash. ``scores`` maps (problem, split, code) of valid programs to
    their recorded score: equal code has equal scores (D20).
    """

    texts: dict[tuple[str, IdeaEnd], Proposal | Failure] = field(default_factory=dict)
    programs: dict[str, str | None] = field(default_factory=dict)
    scores: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def text(self, text: str, config: Mapping[str, Any]) -> Proposal | Failure:
        """Parse a text by the run's rule for where an idea ends (D37)."""
        key = (text, config.get("idea_end", BARE_FENCE))
        parsed = self.texts.get(key)
        if parsed is None:
            parsed = self.texts[key] = parse(*key)
        return parsed

    def program_problems(self) -> Iterator[str]:
        """Yield recorded hashes that are not those of the canonical code; takes 1 ms for each program."""
        for code, recorded in self.programs.items():
            if recorded != program_sha256(code):
                yield f"program {recorded} is not the hash of the code that it is recorded for"


def answer_problems(record: Any, text: str, config: Mapping[str, Any], parsed: ParsedTexts) -> Iterator[str]:
    """Yield the contradictions between a text and its completion or probe record."""
    if record.response_sha256 != sha256_text(text):
        yield "response_sha256 is not that of its text"
    parsing = parsed.text(text, config)
    if isinstance(parsing, Failure):
        recorded = (record.outcome, record.detail, record.evaluation, record.program_sha256, record.score)
        if recorded != (parsing.outcome, parsing.detail, "not_run", None, None):
            outcome = parsing.outcome.value
            yield f"recorded as {record.outcome.value}, its text is {outcome} and cannot have run"
        return
    if record.program_sha256 != parsed.programs.setdefault(parsing.code, record.program_sha256):
        yield "program_sha256 is not the one that equal code has elsewhere"
    if problem := _ending_problem(record, parsing.code, config):
        yield problem
    if record.score is not None:
        key = (str(config["problem"]), str(config["split"]), parsing.code)
        if parsed.scores.setdefault(key, record.score) != record.score:
            yield f"score {record.score}, the same program scored {parsed.scores[key]} elsewhere"


def _ending_problem(record: Any, code: str, config: Mapping[str, Any]) -> str | None:
    ending, *notes = record.evaluation.split(", ")
    if ending in _FINISHED:
        random = mentions_randomness(code)
        if config.get("evaluation", {}).get("randomness", "text") == "behaviour":
            random = ending == "nondeterministic"
        expected = Outcome.RANDOMNESS if random else Outcome.VALID
    else:
        expected = Outcome.MISSING_FUNCTION if ending == "no_function" else Outcome.RUNTIME_FAILURE
    if record.outcome is not expected or ending == "not_run" or not _NOTES.issuperset(notes):
        outcome = record.outcome.value
        return f"recorded as {outcome}, its evaluation ({record.evaluation}) says {expected.value}"
    return None


@dataclass
class TextReplay:
    """The texts of one run, compared with its records group by group.

    ``heuristics`` holds the stored ones by step and index. ``exposures`` is whether the host computes an
    exposure for every score, None where that is unknown. ``ends`` collects the last tokens of completions
    that are shorter than the limit.
    """

    config: Mapping[str, Any]
    parsed: ParsedTexts
    heuristics: Mapping[tuple[int, int], HeuristicRecord]
    exposures: bool | None
    ends: set[int] = field(default_factory=set)

    def problems(self, group: Group, step: StepRecord, generation: GenerationRecord) -> Iterator[str]:
        """Yield the contradictions between a group's texts and its records."""
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
        proposal = self.parsed.text(text, self.config)
        expected = (proposal.idea, proposal.code) if isinstance(proposal, Proposal) else None
        if (stored.idea, stored.code) != expected or stored.operator != record.operator:
            yield f"{HEURISTICS} has other idea, code or operator than its text"
        if stored.instance_scores != record.instance_scores:
            yield f"{HEURISTICS} has other instance scores than its completion"

    def _tokens(self, group: Group, generation: GenerationRecord) -> Iterator[str]:
        prompt_tokens = [len(generation.prompt_ids)] * len(group)
        completion_tokens = [len(ids) for ids in generation.completion_ids]
        if generation.requests:
            prompt_tokens = [request.prompt_tokens for request in generation.requests]
            completion_tokens = [request.completion_tokens for request in generation.requests]
        if [record.prompt_tokens for record in group] != prompt_tokens:
            yield "prompt_tokens are not those of the prompt"
        if [record.completion_tokens for record in group] != completion_tokens:
            yield "completion_tokens are not those of the completions"
            return
        truncated = self._truncated(generation)
        if any([expected not in (None, r.truncated) for r, expected in zip(group, truncated, strict=True)]):
            yield "truncated is not what its completions say"

    def _truncated(self, generation: GenerationRecord) -> list[bool | None]:
        """Whether each completion was truncated at the limit; None where its tokens leave that open."""
        if generation.requests:
            return [request.finish_reason == "length" for request in generation.requests]
        limit = self.config["generation"].get("max_completion_tokens")
        return [self._is_truncated(ids, limit) for ids in generation.completion_ids]

    def _is_truncated(self, ids: tuple[int, ...], limit: int | None) -> bool | None:
        if limit is None or not ids or len(ids) > limit:
            return None
        if len(ids) < limit:
            self.ends.add(ids[-1])
            return False
        return ids[-1] not in self.ends if self.ends else None


def prompt_problems(
    group: Sequence[CompletionRecord], step: StepRecord, generation: Mapping[str, Any]
) -> Iterator[str]:
    """Yield contradictions between a prompt's length, its truncation and the run's limit (D26).

    ``generation`` holds the generation settings. Only a tokenizer can check that the truncated tokens are
    those of the text (recompute).
    """
    limit, cut = generation.get("max_prompt_tokens"), step.prompt_tokens_cut
    # Runs older than the setting refused long prompts.
    setting = "send whole" if generation.get("backend") == "api" else generation.get("long_prompts", "refuse")
    longest = max(record.prompt_tokens for record in group)
    if cut and (cut < 0 or setting != "cut" or longest != limit):
        yield (
            f"step {step.step}: {cut} prompt tokens cut, {longest} left, limit {limit} (setting: {setting})"
        )
    elif limit is not None and longest > limit and setting != "send whole":
        yield f"step {step.step}: {longest} tokens of a prompt were read, its limit is {limit}"


def store_problems(
    heuristics: list[HeuristicRecord], config: Mapping[str, Any], parsed: ParsedTexts
) -> Iterator[str]:
    """Yield heuristics whose id is not that of their code, and a seed that is not the built-in problem's."""
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
