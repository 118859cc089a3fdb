"""Record lines without what follows from other lines: hashes of texts, token ids, credit, names of parents.

A field that is left out is found again by the rule here; one that the rule would get wrong stays, line by
line. So no rule has to hold for every record, and whoever packs looks whether all bytes come back.
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
def _statement(line: str) -> str:
    """One line of a program in canonical form; a head of a block keeps its colon."""
    head = line.endswith(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.unparse(ast.parse(f"{line} pass" if head else line)).partition("\n")[0]


def guessed_program(code: str) -> str | None:
    """The SHA-256 of a program's canonical form, put together by line; None where a line is no statement.

    Twenty times as fast as parsing the whole, and right for most programs that models write.
    """
    out: list[str] = []
    try:
        for line in code.strip().splitlines():
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            depth = len(line) - len(line.lstrip())
            if depth == 0 and text.startswith("def ") and out:
                out.append("")
            out.append(" " * depth + _statement(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return sha256_text("\n".join(out))


@lru_cache(maxsize=1 << 14)
def _read(text: str, idea_end: IdeaEnd) -> tuple[Proposal | None, str, str | None]:
    """A text's proposal, its hash, and the guessed hash of its program."""
    found = parse(text, idea_end)
    proposal = found if isinstance(found, Proposal) else None
    return proposal, sha256_text(text), guessed_program(proposal.code) if proposal else None


def _without(line: Line, rule: Mapping[str, Any]) -> Line:
    return {name: value for name, value in line.items() if name not in rule or rule[name] != value}


def _with(line: Line, rule: Mapping[str, Any], fields: Iterable[str]) -> Line:
    whole = {**rule, **line}
    return {name: whole[name] for name in fields if name in whole}


# --- generations: the only lines that hold texts; everything else may follow from them ---


def short_generations(lines: Sequence[Line], encode: Encode | None, ends: Sequence[int]) -> list[Line]:
    """Generations without the token ids that the tokenizer gives again."""
    if encode is None:
        return list(lines)
    return [_without_tokens(line, due) for line, due in zip(lines, _tokens(lines, encode, ends), strict=True)]


def _tokens(
    lines: Sequence[Line], encode: Encode, ends: Sequence[int]
) -> Iterator[tuple[list[int], list[list[int]]]]:
    prompts = encode([line["prompt"] for line in lines])
    texts = iter(encode([text for line in lines for text in line["completions"]]))
    end = list(ends[:1])
    for line, prompt in zip(lines, prompts, strict=True):
        yield prompt, [[*next(texts), *end] for _ in line["completions"]]


def _without_tokens(line: Line, due: tuple[list[int], list[list[int]]]) -> Line:
    found = line["completion_ids"]
    ids = [None if one == other else one for one, other in zip(found, due[1], strict=False)]
    ids += found[len(due[1]) :]
    kept = {"completion_ids": ids} if any(one is not None for one in ids) or len(ids) != len(due[1]) else {}
    rest = {name: value for name, value in line.items() if name not in ("completion_ids", "prompt_ids")}
    return {**rest, **kept, **({} if line["prompt_ids"] == due[0] else {"prompt_ids": line["prompt_ids"]})}


def whole_generations(lines: Sequence[Line], encode: Encode, ends: Sequence[int]) -> Iterator[Line]:
    """The generations again; ``encode`` and ``ends`` as when they were shortened."""
    for line, (prompt, texts) in zip(lines, _tokens(lines, encode, ends), strict=True):
        kept = line.get("completion_ids", [None] * len(texts))
        ids = [
            due if one is None else one for one, due in zip(kept, [*texts, *kept[len(texts) :]], strict=False)
        ]
        rule = {"prompt_ids": prompt}
        yield _with({**line, "completion_ids": ids}, rule, GenerationRecord.__struct_fields__)


# --- completions, steps, heuristics ---


@dataclass(frozen=True)
class Context:
    """What completions are shortened by: texts, the heuristics' ids in order, and where a collapse came.

    ``seeds`` are the scores that a collapse keeps, ``given`` those of the rest of the first archive.
    ``idea_end`` is how the run reads texts (D37).
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
    """The context of whole heuristics and of steps in any form."""
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
    """Distance of every score to the nearest one of the archive before its group, as our host keeps it."""
    ranked, fresh, last = sorted([*context.seeds, *context.given]), list[float](), None
    for line in lines:
        if line["step"] != last:
            ranked, fresh, last = sorted([*ranked, *fresh]), [], line["step"]
            if last in context.collapsed and ranked:
                kept = (seed for seed in context.seeds if abs(seed - ranked[-1]) >= EQUAL_SCORES)
                ranked = sorted([ranked[-1], *kept])
        score = line["score"]
        if score is None or not ranked:
            yield None
            continue
        at = bisect_left(ranked, score)
        yield min(abs(near - score) for near in ranked[max(at - 1, 0) : at + 1])
        if line["archive_event"] == "admitted":
            fresh.append(score)


def _of_completion(line: Line, context: Context, gap: float | None) -> dict[str, Any]:
    generation = context.generations[line["step"]]
    text = generation["completions"][line["index"]]
    _, response, program = _read(text, context.idea_end)
    hashes = {"prompt_sha256": sha256_text(generation["prompt"]), "response_sha256": response}
    return {**hashes, "program_sha256": program, "archive_gap": gap}


def short_completions(
    lines: Sequence[Line], context: Context, credit: Sequence[Line], size: int
) -> Iterator[Line]:
    """Completions without hashes, distances and places; parents as places among the heuristics.

    ``credit`` is per line what mapping and normalizer give, empty where they are not asked; groups have
    ``size`` completions.
    """
    places = {name: place for place, name in reversed(list(enumerate(context.ids)))}
    rows = zip(lines, credit, _gaps(lines, context), strict=True)
    for number, (line, given, gap) in enumerate(rows):
        rule = {**_of_completion(line, context, gap), **given}
        short = _without(line, {**rule, **_place(number, size)})
        yield {**short, "parents": [places.get(name, name) for name in line["parents"]]}


def _place(number: int, size: int) -> Line:
    return {"step": number // size, "index": number % size}


def placed_completions(lines: Sequence[Line], size: int) -> list[Line]:
    """Short completions with step and index."""
    return [{**_place(number, size), **line} for number, line in enumerate(lines)]


def whole_completions(lines: Sequence[Line], context: Context) -> Iterator[Line]:
    """Placed completions again but for their credit."""
    for line, gap in zip(lines, _gaps(lines, context), strict=True):
        parents = [context.ids[one] if isinstance(one, int) else one for one in line["parents"]]
        rule = _of_completion(line, context, gap)
        yield _with({**line, "parents": parents}, rule, CompletionRecord.__struct_fields__)


_EXACT = {"native", "factorized"}, {"group", "dr_grpo", "rank"}


def credit_of(lines: Sequence[Line], facts: RunFacts) -> list[Line]:
    """Components, reward and advantage per completion, by arithmetic that every processor rounds alike.

    Empty for frozen runs and for mappings and normalizers with exponentials, whose credit is stored.
    """
    if not facts.trained or facts.mapping not in _EXACT[0] or facts.normalizer not in _EXACT[1] or not lines:
        return [{}] * len(lines)
    blank = {"components": None, "reward": None, "advantage": None}
    records = [msgspec.convert({**blank, **line}, CompletionRecord) for line in lines]
    groups = [tuple(members) for _, members in groupby(records, key=lambda record: record.step)]
    credit = rewards_of(find_mapping(facts.mapping), batch_of(groups))
    advantage = advantages_by_group(find_normalizer(facts.normalizer), credit.reward, credit.components)
    parts = {name: values.ravel().tolist() for name, values in credit.components.items()}
    numbers = zip(credit.reward.ravel().tolist(), advantage.ravel().tolist(), strict=True)
    return [
        {
            "components": {name: values[k] for name, values in parts.items()},
            "reward": reward,
            "advantage": one,
        }
        for k, (reward, one) in enumerate(numbers)
    ]


def with_credit(lines: Sequence[Line], credit: Sequence[Line]) -> Iterator[Line]:
    """Completions with the credit that they lack."""
    for line, given in zip(lines, credit, strict=True):
        yield _with(line, given, CompletionRecord.__struct_fields__)


def _of_heuristic(
    line: Line,
    completions: Mapping[tuple[int, int], Line],
    generations: Mapping[int, Line],
    idea_end: IdeaEnd,
) -> Line:
    """What a heuristic has from its completion; nothing of a seed, whose line keeps its operator."""
    source = completions.get((line["step"], line["index"]))
    if source is None or "operator" in line:
        return {}
    proposal, _, program = _read(generations[line["step"]]["completions"][line["index"]], idea_end)
    told = {"idea": proposal.idea, "code": proposal.code} if proposal else {}
    own = {"operator": source["operator"], "score": source["score"]}
    return {"id": source.get("program_sha256", program), **told, **own}


def short_heuristics(
    lines: Sequence[Line],
    completions: Mapping[tuple[int, int], Line],
    generations: Mapping[int, Line],
    idea_end: IdeaEnd,
) -> Iterator[Line]:
    """Heuristics without what their completion says; ``completions`` may be short."""
    for line in lines:
        open_line = {name: value for name, value in line.items() if name != "operator"}
        rule = _of_heuristic(open_line, completions, generations, idea_end)
        seed = line["operator"] is None or rule.get("operator") != line["operator"]
        yield dict(line) if seed else _without(line, rule)


def whole_heuristics(
    lines: Sequence[Line],
    completions: Mapping[tuple[int, int], Line],
    generations: Mapping[int, Line],
    idea_end: IdeaEnd,
) -> Iterator[Line]:
    """The heuristics again."""
    for line in lines:
        rule = _of_heuristic(line, completions, generations, idea_end)
        yield _with(line, rule, HeuristicRecord.__struct_fields__)


def short_steps(lines: Sequence[Line], generations: Mapping[int, Line]) -> Iterator[Line]:
    """Steps without the hash of their prompt."""
    for line in lines:
        yield _without(line, {"prompt_sha256": sha256_text(generations[line["step"]]["prompt"])})


def whole_steps(lines: Sequence[Line], generations: Mapping[int, Line]) -> Iterator[Line]:
    """The steps again."""
    for line in lines:
        rule = {"prompt_sha256": sha256_text(generations[line["step"]]["prompt"])}
        yield _with(line, rule, StepRecord.__struct_fields__)


def short_timings(lines: Sequence[Line]) -> Iterator[Line]:
    """Timings without the seconds that are the rest of the others."""
    for line in lines:
        seconds = _without(line["seconds"], _rest(line["seconds"]))
        yield {**line, "seconds": seconds}


def whole_timings(lines: Sequence[Line]) -> Iterator[Line]:
    """The timings again; a step's phases stand in the order of the clock."""
    for line in lines:
        seconds = _with(line["seconds"], _rest(line["seconds"]), (*_PHASES, "other", "total"))
        yield {**line, "seconds": seconds}


_PHASES = ("generation", "evaluation", "update")


def _rest(seconds: Line) -> Line:
    return {"other": seconds["total"] - sum(seconds.get(name, 0.0) for name in _PHASES)}
