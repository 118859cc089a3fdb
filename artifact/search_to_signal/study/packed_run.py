"""A packed run: a container with record lines in the compact encoding, and with all other files unchanged."""

import ast
import hashlib
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.base.errors import UNREADABLE, RunDirectoryError, reason
from search_to_signal.credit import find_mapping, rewards_of
from search_to_signal.credit.base import EQUAL_SCORES
from search_to_signal.credit.normalizers import advantages_by_group, find_normalizer
from search_to_signal.records.adapters import ADAPTER
from search_to_signal.records.checksums import SUMS, UNSHIPPED, read_sums
from search_to_signal.records.files import read_regular
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import MANIFEST, Manifest, RunFacts, read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TEXTS, TIMINGS
from search_to_signal.records.schema import (
    GIVEN,
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    StepRecord,
)
from search_to_signal.run.config import CONFIG
from search_to_signal.run.texts import ModelTokenizer
from search_to_signal.sandbox.programs import Proposal, parse, sha256_text
from search_to_signal.study.container import RECORDS, read_container, write_container, write_files

# Record lines without the fields that other lines determine: text hashes, token ids, credit, parents' ids.
#
# A rule computes every field that is left out. A field for which the rule is wrong stays in its line, so no
# rule has to be right for every record; packing checks that all bytes are restored.

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


_PHASES = ("generation", "evaluation", "update")


def _step_rule(line: Line, generations: Mapping[int, Line]) -> Line:
    return {"prompt_sha256": sha256_text(generations[line["step"]]["prompt"])}


def _seconds_rule(seconds: Line) -> Line:
    return {"other": seconds["total"] - sum(seconds.get(name, 0.0) for name in _PHASES)}


OPEN = (MANIFEST, CONFIG, SUMS)
"""The files of a run that are packed openly, next to the container."""

_ENCODED = (GENERATIONS, COMPLETIONS, HEURISTICS, STEPS, TIMINGS)
_WHOLE = "whole:"
_IDS = ("prompt_ids", "completion_ids")
# Heuristics are admitted completions and those of the first archive, of which there are at most so many.
_FIRST_ARCHIVE = 10_000
# The least number of bytes of a short line.
_SHORTEST_LINE = 16
NO_TOKENIZER = "the tokenizer of its model is not here with the recorded checksums"


class Tokenizer(NamedTuple):
    """A function from texts to token ids, and the tokens that end a completion, the usual one first."""

    encode: Encode
    ends: tuple[int, ...]


def tokenizer(tokens: ModelTokenizer | None) -> Tokenizer | None:
    """Return the parts of a model's tokenizer that the encoding needs."""
    if tokens is None:
        return None

    def encode(texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = tokens.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return ids

    return Tokenizer(encode, tuple(sorted(tokens.ends)))


def pack_run(run: Path, out: Path, tokens: Tokenizer | None, adapter: bool) -> None:
    """Write a complete run's container and copy its open files; ``adapter`` includes its final weights.

    Every file is restored before the container is written: one whose bytes differ is stored whole.
    """
    manifest = read_manifest(run)
    files = {name: read_regular(run / name) for name in _ENCODED if (run / name).is_file()}
    parts = _encoded_files(files, manifest, tokens)
    decoded = restored(parts, manifest.facts, tokens)
    parts = {name: data for name, data in parts.items() if decoded.get(name) == files[name]}
    parts |= {f"{_WHOLE}{name}": data for name, data in files.items() if name not in parts}
    others = sorted(path for path in run.rglob("*") if path.is_file())
    for path in others:
        name = path.relative_to(run).as_posix()
        known = name in (*files, *OPEN) or path.name == UNSHIPPED
        if not known and (adapter or name.split("/")[0] != ADAPTER):
            parts[f"{_WHOLE}{name}"] = read_regular(path)
    out.mkdir(parents=True, exist_ok=True)
    write_container(out / RECORDS, parts)
    for name in OPEN:
        if (run / name).is_file():
            (out / name).write_bytes(read_regular(run / name))


def _encoded_files(
    files: Mapping[str, bytes], manifest: Manifest, tokens: Tokenizer | None
) -> dict[str, bytes]:
    try:
        lines = {name: _decoded(data) for name, data in files.items()}
        generations = {line["step"]: line for line in lines[GENERATIONS]}
        completions = {(line["step"], line["index"]): line for line in lines[COMPLETIONS]}
        idea_end, size = manifest.facts.idea_end, manifest.facts.group_size
        context = context_of(generations, lines[HEURISTICS], lines[STEPS], idea_end)
        credit = credit_of(lines[COMPLETIONS], manifest.facts)
        encode, ends = tokens or (None, ())
        short: dict[str, Iterable[Line]] = {
            GENERATIONS: short_generations(lines[GENERATIONS], encode, ends),
            COMPLETIONS: short_completions(lines[COMPLETIONS], context, credit, size),
            HEURISTICS: short_heuristics(lines[HEURISTICS], completions, generations, idea_end),
            STEPS: (_without(line, _step_rule(line, generations)) for line in lines[STEPS]),
            TIMINGS: (
                {**line, "seconds": _without(line["seconds"], _seconds_rule(line["seconds"]))}
                for line in lines[TIMINGS]
            ),
        }
        return {name: _encoded(short[name]) for name in files}
    except (KeyError, IndexError, TypeError, ValueError, *UNREADABLE):
        # Other hosts may write records of another form, which are stored whole.
        return {}


def _decoded(data: bytes, most: int | None = None) -> list[Line]:
    """Lines as objects; raises ValueError for more than ``most`` lines, before any is decoded."""
    if most is not None and data.count(b"\n") > min(most, _FIRST_ARCHIVE + len(data) // _SHORTEST_LINE):
        raise ValueError("it has more lines than its run has answers")
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in data.split(b"\n") if line]


def _encoded(lines: Iterable[Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def restored(
    parts: Mapping[str, bytes], facts: RunFacts, tokens: Tokenizer | None, with_tokens: bool = True
) -> dict[str, bytes]:
    """Return the files of a container, generations only ``with_tokens``, which takes most of the time.

    Raises RunDirectoryError where token ids are missing and there is no tokenizer; ValueError and the like
    for parts of another form.
    """
    files = {name.removeprefix(_WHOLE): data for name, data in parts.items() if name.startswith(_WHOLE)}
    most = _FIRST_ARCHIVE + facts.completions
    short = {name: _decoded(data, most) for name, data in parts.items() if not name.startswith(_WHOLE)}
    generations = {line["step"]: line for line in short.get(GENERATIONS, _lines(files, GENERATIONS, most))}
    source = short.get(COMPLETIONS, _lines(files, COMPLETIONS, most))
    source = [{**_step_and_index(number, facts.group_size), **line} for number, line in enumerate(source)]
    completions = {(line["step"], line["index"]): line for line in source}
    if HEURISTICS in short:
        fields = HeuristicRecord.__struct_fields__
        files[HEURISTICS] = _encoded(
            _with(line, _heuristic_rule(line, completions, generations, facts.idea_end), fields)
            for line in short[HEURISTICS]
        )
    if STEPS in short:
        fields = StepRecord.__struct_fields__
        steps = (_with(line, _step_rule(line, generations), fields) for line in short[STEPS])
        files[STEPS] = _encoded(steps)
    if TIMINGS in short:
        clock = (*_PHASES, "other", "total")
        timings = (
            {**line, "seconds": _with(line["seconds"], _seconds_rule(line["seconds"]), clock)}
            for line in short[TIMINGS]
        )
        files[TIMINGS] = _encoded(timings)
    if COMPLETIONS in short:
        heuristics, collapses = _lines(files, HEURISTICS, most), _lines(files, STEPS, most)
        context = context_of(generations, heuristics, collapses, facts.idea_end)
        lines, fields = list(whole_completions(source, context)), CompletionRecord.__struct_fields__
        credited = zip(lines, credit_of(lines, facts), strict=True)
        files[COMPLETIONS] = _encoded(_with(line, credit, fields) for line, credit in credited)
    if GENERATIONS in short and with_tokens:
        stored: Iterable[Line] = short[GENERATIONS]
        if tokens is not None:
            stored = whole_generations(short[GENERATIONS], *tokens)
        elif any(name not in line for line in stored for name in _IDS):
            raise RunDirectoryError(f"{NO_TOKENIZER}, so its token ids cannot be restored: give --model DIR")
        files[GENERATIONS] = _encoded(stored)
    return files


def _lines(files: Mapping[str, bytes], name: str, most: int) -> list[Line]:
    return _decoded(files.get(name, b""), most)


def needs_tokenizer(packed: Path) -> bool:
    """Whether token ids were left out of a packed run; raises RunDirectoryError as ``read_container``."""
    lines = read_container(packed / RECORDS).get(GENERATIONS, b"").split(b"\n")
    return any(line and not all(f'"{name}":'.encode() in line for name in _IDS) for line in lines)


def write_texts(packed: Path, out: Path) -> None:
    """Write TEXTS of a packed run below ``out``; raises RunDirectoryError as ``read_container``."""
    path = packed / RECORDS
    write_files({TEXTS: read_container(path)[GENERATIONS]}, out, path)


def unpack_run(packed: Path, out: Path, tokens: Tokenizer | None, with_tokens: bool = True) -> None:
    """Write the files of a packed run below ``out``, generations only ``with_tokens``.

    Raises RunDirectoryError for a container that cannot be read, and for a file that differs from its
    recorded checksum.
    """
    manifest = read_manifest(packed)
    path = packed / RECORDS
    parts = read_container(path)
    try:
        files = restored(parts, manifest.facts, tokens, with_tokens)
    except (KeyError, IndexError, TypeError, ArithmeticError, ValueError, *UNREADABLE) as error:
        raise RunDirectoryError(f"cannot read {path} ({reason(error)}): restore the file") from error
    files |= {name: read_regular(packed / name) for name in OPEN if (packed / name).is_file()}
    for name, sha256 in read_sums(packed).items():
        if name in files and hashlib.sha256(files[name]).hexdigest() != sha256:
            raise RunDirectoryError(
                f"{path}: {name} comes back with other bytes than {SUMS} says: restore the file"
            )
    write_files(files, out, path)
