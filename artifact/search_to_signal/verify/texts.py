"""Recorded texts parsed again and compared with their records; no program is executed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from search_to_signal.records.schema import (
    BARE_FENCE,
    IdeaEnd,
    Outcome,
)
from search_to_signal.sandbox.programs import (
    Failure,
    Proposal,
    mentions_randomness,
    parse,
    program_sha256,
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
    """Yield the contradictions between a text and its completion or probe record, checksum aside."""
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
