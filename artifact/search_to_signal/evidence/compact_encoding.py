"""Record lines without the fields that other lines determine: text hashes, token ids, credit, parents' ids.

A rule computes every field that is left out. A field for which the rule is wrong stays in its line, so no
rule has to be right for every record; packing checks that all bytes are restored.
"""

import ast
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from search_to_signal.normalizer import advantages_by_group, find_normalizer
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import RunFacts
from search_to_signal.records.population import GIVEN
from search_to_signal.records.schema import (
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    StepRecord,
)
from search_to_signal.rewards import find_mapping, rewards_of
from search_to_signal.rewards.base import EQUAL_SCORES

Line = dict[str, Any]
Encode = Callable[[Sequence[str]], list[list[int]]]
"""Token ids of texts, without special tokens that are not in them."""


@lru_cache(maxsize=1 << 16)
def _canonical_statement(line: str) -> str:
    """One line of a program in canonical form; the head of a block keeps its colon."""
    head = line.endswith(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.unparse(ast.parse(f"{line} pass" if head else line)).partition("\n")[0]


def guessed_program(code: str) -> str | None:
    """Return the SHA-256 of a program's canonical form, built by line; None where a line is no statement.

    It is twenty times as fast as parsing the whole program, and right for most programs of models.
    """
    statements: list[str] = []
    try:
        for line in code.strip().splitlines():
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            depth = len(line) - len(line.lstrip())
            if depth == 0 and text.startswith("def ") and statements:
                statements.append("")
            statements.append(" " * depth + _canonical_statement(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return sha256_text("\n".join(statements))


@lru_cache(maxsize=1 << 14)
def _parsed(text: str, idea_end: IdeaEnd) -> tuple[Proposal | None, str, str | None]:
    """A text's proposal, its hash, and the guessed hash of its program."""
    parsing = parse(text, idea_end)
    proposal = parsing if isinstance(parsing, Proposal) else None
    return proposal, sha256_text(text), guessed_program(proposal.code) if proposal else None


def _without(line: Line, rule: Mapping[str, Any]) -> Line:
    return {name: value for name, value in line.items() if name not in rule or rule[name] != value}


def _with(line: Line, rule: Mapping[str, Any], fields: Iterable[str]) -> Line:
    whole = {**rule, **line}
    return {name: whole[name] for name in fields if name in whole}


# --- generations: the only lines with texts, from which most other fields follow ---


def short_generations(lines: Sequence[Line], encode: Encode | None, ends: Sequence[int]) -> list[Line]:
    """Return generations without the token ids that the tokenizer gives; unchanged without ``encode``."""
    if encode is None:
        return list(lines)
    tokens = _token_ids(lines, encode, ends)
    return [_without_tokens(line, expected) for line, expected in zip(lines, tokens, strict=True)]


def _token_ids(
    lines: Sequence[Line], encode: Encode, ends: Sequence[int]
) -> Iterator[tuple[list[int], list[list[int]]]]:
    prompts = encode([line["prompt"] for line in lines])
    texts = iter(encode([text for line in lines for text in line["completions"]]))
    end = list(ends[:1])
    for line, prompt in zip(lines, prompts, strict=True):
        yield prompt, [[*next(texts), *end] for _ in line["completions"]]


def _without_tokens(line: Line, expected: tuple[list[int], list[list[int]]]) -> Line:
    prompt_ids, completion_ids = expected
    recorded = line["completion_ids"]
    ids = [None if row == computed else row for row, computed in zip(recorded, completion_ids, strict=False)]
    ids += recorded[len(completion_ids) :]
    differs = any(row is not None for row in ids) or len(ids) != len(completion_ids)
    stored = {"completion_ids": ids} if differs else {}
    if line["prompt_ids"] != prompt_ids:
        stored["prompt_ids"] = line["prompt_ids"]
    rest = {name: value for name, value in line.items() if name not in ("completion_ids", "prompt_ids")}
    return {**rest, **stored}


def whole_generations(lines: Sequence[Line], encode: Encode, ends: Sequence[int]) -> Iterator[Line]:
    """Yield the whole generations; ``encode`` and ``ends`` have to be those of ``short_generations``."""
    for line, (prompt, texts) in zip(lines, _token_ids(lines, encode, ends), strict=True):
        stored = line.get("completion_ids", [None] * len(texts))
        rows = zip(stored, [*texts, *stored[len(texts) :]], strict=False)
        ids = [computed if row is None else row for row, computed in rows]
        rule = {"prompt_ids": prompt}
        yield _with({**line, "completion_ids": ids}, rule, GenerationRecord.__struct_fields__)


# --- completions, steps, heuristics ---


@dataclass(frozen=True)
class Context:
    """What completions are computed from: texts, heuristics' ids in order, and the steps of collapses.

    ``seeds`` are the seeds' scores, which a collapse keeps; ``given`` are the other scores of the first
    archive. ``idea_end`` is the run's rule for where an idea ends (D37).
    """

    generations: Mapping[int, Line]
    ids: Sequence[str]
    collapsed: frozenset[int]
    seeds: Sequence[float]
    given: Sequence[float]
    idea_end: IdeaEnd


def context_of(
    generations: Mapping[int, Line], heuristics: Sequence[Line], steps: Sequence[Line], idea_end: IdeaEnd
) -> Context:
    """Return the context for whole heuristics, and for steps in either form."""
    first = [line for line in heuristics if line["operator"] is None or line["step"] == GIVEN]
    return Context(
        generations,
        [line["id"] for line in heuristics],
        frozenset(line["step"] for line in steps if line["collapsed"]),
        [line["score"] for line in first if line["operator"] is None],
        [line["score"] for line in first if line["operator"] is not None],
        idea_end,
    )


def _gaps(lines: Sequence[Line], context: Context) -> Iterator[float | None]:
    """Distance of every score to the nearest one of the archive before its group, by the reference host."""
    ranked, admitted, last = sorted([*context.seeds, *context.given]), list[float](), None
    for line in lines:
        if line["step"] != last:
            ranked, admitted, last = sorted([*ranked, *admitted]), [], line["step"]
            if last in context.collapsed and ranked:
                seeds = (seed for seed in context.seeds if abs(seed - ranked[-1]) >= EQUAL_SCORES)
                ranked = sorted([ranked[-1], *seeds])
        score = line["score"]
        if score is None or not ranked:
            yield None
            continue
        at = bisect_left(ranked, score)
        yield min(abs(near - score) for near in ranked[max(at - 1, 0) : at + 1])
        if line["archive_event"] == "admitted":
            admitted.append(score)


def _completion_rule(line: Line, context: Context, gap: float | None) -> dict[str, Any]:
    generation = context.generations[line["step"]]
    text = generation["completions"][line["index"]]
    _, response, program = _parsed(text, context.idea_end)
    hashes = {"prompt_sha256": sha256_text(generation["prompt"]), "response_sha256": response}
    return {**hashes, "program_sha256": program, "archive_gap": gap}


def short_completions(
    lines: Sequence[Line], context: Context, credit: Sequence[Line], size: int
) -> Iterator[Line]:
    """Yield completions without hashes, distances, step and index; parents are positions of heuristics.

    ``credit`` holds for each line the fields that mapping and normalizer give, none where credit is stored.
    ``size`` is the number of completions of a group.
    """
    positions = {name: position for position, name in reversed(list(enumerate(context.ids)))}
    rows = zip(lines, credit, _gaps(lines, context), strict=True)
    for number, (line, credited, gap) in enumerate(rows):
        rule = {**_completion_rule(line, context, gap), **credited}
        short = _without(line, {**rule, **_step_and_index(number, size)})
        yield {**short, "parents": [positions.get(name, name) for name in line["parents"]]}


def _step_and_index(number: int, size: int) -> Line:
    return {"step": number // size, "index": number % size}


def placed_completions(lines: Sequence[Line], size: int) -> list[Line]:
    """Return short completions with their step and index."""
    return [{**_step_and_index(number, size), **line} for number, line in enumerate(lines)]


def whole_completions(lines: Sequence[Line], context: Context) -> Iterator[Line]:
    """Yield placed completions with all fields but their credit."""
    for line, gap in zip(lines, _gaps(lines, context), strict=True):
        parents = [context.ids[parent] if isinstance(parent, int) else parent for parent in line["parents"]]
        rule = _completion_rule(line, context, gap)
        yield _with({**line, "parents": parents}, rule, CompletionRecord.__struct_fields__)


# Conditions without exponentials, whose credit every processor rounds alike.
_EXACT_MAPPINGS, _EXACT_NORMALIZERS = {"native", "factorized", "distinct"}, {"group", "dr_grpo", "rank"}


def credit_of(lines: Sequence[Line], facts: RunFacts) -> list[Line]:
    """Return components, reward and advantage of each completion.

    Empty for frozen runs, and for conditions whose credit depends on the processor and is therefore stored.
    """
    exact = facts.mapping in _EXACT_MAPPINGS and facts.normalizer in _EXACT_NORMALIZERS
    if not facts.trained or not exact or not lines:
        return [{}] * len(lines)
    blank = {"components": None, "reward": None, "advantage": None}
    records = [msgspec.convert({**blank, **line}, CompletionRecord) for line in lines]
    groups = [tuple(members) for _, members in groupby(records, key=lambda record: record.step)]
    credit = rewards_of(find_mapping(facts.mapping), batch_of(groups))
    advantages = advantages_by_group(find_normalizer(facts.normalizer), credit.reward, credit.components)
    components = {name: values.ravel().tolist() for name, values in credit.components.items()}
    numbers = zip(credit.reward.ravel().tolist(), advantages.ravel().tolist(), strict=True)
    return [
        {
            "components": {name: values[k] for name, values in components.items()},
            "reward": reward,
            "advantage": advantage,
        }
        for k, (reward, advantage) in enumerate(numbers)
    ]


def with_credit(lines: Sequence[Line], credit: Sequence[Line]) -> Iterator[Line]:
    """Yield completions with the credit that they lack."""
    for line, credited in zip(lines, credit, strict=True):
        yield _with(line, credited, CompletionRecord.__struct_fields__)


def _heuristic_rule(
    line: Line,
    completions: Mapping[tuple[int, int], Line],
    generations: Mapping[int, Line],
    idea_end: IdeaEnd,
) -> Line:
    """A heuristic's fields from its completion; none for a seed, whose line keeps its operator."""
    source = completions.get((line["step"], line["index"]))
    if source is None or "operator" in line:
        return {}
    proposal, _, program = _parsed(generations[line["step"]]["completions"][line["index"]], idea_end)
    from_text = {"idea": proposal.idea, "code": proposal.code} if proposal else {}
    from_record = {"operator": source["operator"], "score": source["score"]}
    return {"id": source.get("program_sha256", program), **from_text, **from_record}


def short_heuristics(
    lines: Sequence[Line],
    completions: Mapping[tuple[int, int], Line],
    generations: Mapping[int, Line],
    idea_end: IdeaEnd,
) -> Iterator[Line]:
    """Yield heuristics without the fields that their completion determines; ``completions`` may be short."""
    for line in lines:
        without_operator = {name: value for name, value in line.items() if name != "operator"}
        rule = _heuristic_rule(without_operator, completions, generations, idea_end)
        seed = line["operator"] is None or rule.get("operator") != line["operator"]
        yield dict(line) if seed else _without(line, rule)


def whole_heuristics(
    lines: Sequence[Line],
    completions: Mapping[tuple[int, int], Line],
    generations: Mapping[int, Line],
    idea_end: IdeaEnd,
) -> Iterator[Line]:
    """Yield the whole heuristics."""
    for line in lines:
        rule = _heuristic_rule(line, completions, generations, idea_end)
        yield _with(line, rule, HeuristicRecord.__struct_fields__)


def short_steps(lines: Sequence[Line], generations: Mapping[int, Line]) -> Iterator[Line]:
    """Yield steps without the hash of their prompt."""
    for line in lines:
        yield _without(line, {"prompt_sha256": sha256_text(generations[line["step"]]["prompt"])})


def whole_steps(lines: Sequence[Line], generations: Mapping[int, Line]) -> Iterator[Line]:
    """Yield the whole steps."""
    for line in lines:
        rule = {"prompt_sha256": sha256_text(generations[line["step"]]["prompt"])}
        yield _with(line, rule, StepRecord.__struct_fields__)


def short_timings(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield timings without the remaining seconds, which total and phases determine."""
    for line in lines:
        seconds = _without(line["seconds"], _remaining_seconds(line["seconds"]))
        yield {**line, "seconds": seconds}


def whole_timings(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the whole timings; a step's phases are in the order of the clock."""
    for line in lines:
        rule = _remaining_seconds(line["seconds"])
        seconds = _with(line["seconds"], rule, (*_PHASES, "other", "total"))
        yield {**line, "seconds": seconds}


_PHASES = ("generation", "evaluation", "update")


def _remaining_seconds(seconds: Line) -> Line:
    return {"other": seconds["total"] - sum(seconds.get(name, 0.0) for name in _PHASES)}
