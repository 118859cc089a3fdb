"""Prompts and completions of a log as they were written: texts or tokens, for a model or a person to read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.audit.groups import UNKNOWN
from search_to_signal.audit.importers import containers, find
from search_to_signal.audit.importers.streams import read_csv, read_document, read_lines
from search_to_signal.base.errors import RecordError
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, TEXTS, read_records

# What writers call a thing, the surest first: tokens before texts.
_STEP = ("step", "global_step", "training_step", "rollout_id", "iteration")
_PROMPT = ("prompt_ids", "prompt_token_ids", "prompt", "messages", "input", "question")
_COMPLETION = (
    *("completion_ids", "completion_token_ids", "response_ids", "output_ids", "output_token_ids"),
    *("completion", "response", "output", "completions"),
)
_LOGPROBS = (
    *("completion_logprobs", "rollout_log_probs", "inference_logprobs", "sampling_logprobs"),
    *("sampling_per_token_logps", "logprobs", "log_probs"),
)
# One sequence with a mask over what was sampled.
_SEQUENCE, _MASK = ("token_ids", "tokens", "input_ids"), ("loss_mask", "completion_mask", "response_mask")
# For a person texts come before tokens; other names are of evaluations and searches.
_PROMPT_TEXT = ("prompt", "messages", "input", "question", "input_prompt", *_PROMPT)
_COMPLETION_TEXT = (
    *("completion", "response", "output", "completions", "responses", "output_response"),
    *(*_COMPLETION, "code", "child_code", "llm_response", "function"),
)
_COLUMNS = {*_STEP, *_PROMPT_TEXT, *_COMPLETION_TEXT, *_LOGPROBS, *_SEQUENCE, *_MASK}

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Chat:
    """Messages, each with ``role`` and ``content``."""

    messages: tuple[Mapping[str, str], ...]


Prompt = str | Ids | Chat


@dataclass(frozen=True)
class Rollout:
    """One completion with its prompt: token ids, a text, or of a prompt chat messages.

    ``where`` is file and line. ``logprobs`` are the sampler's own, natural logarithms, one per token of the
    completion; empty where not logged. ``step`` is -1 where not logged.
    """

    where: str
    step: int
    prompt: Prompt
    completion: str | Ids
    logprobs: tuple[float, ...] = ()


def rollouts(path: Path, format: str | None = None) -> Iterator[Rollout]:
    """The rollouts of a log file, or of the files of a log directory, in order.

    Raises RecordError for a path without a log, and for one whose rows hold no prompt with a completion.
    """
    own = path / GENERATIONS if path.is_dir() else path
    files = [own] if own.is_file() else find(path, format)[1]
    found = False
    for file in files:
        for number, record in _records(file):
            for one in _rollouts(f"{file}:{number}", record):
                found = True
                yield one
    if not found:
        raise RecordError(
            f"{path} holds no prompt with its completion, as texts or tokens: log them (TRL: "
            "log_completions=True; verl: trainer.rollout_data_dir), and give that log"
        )


class _Texts(msgspec.Struct):
    """What a person reads of a GenerationRecord."""

    prompt: str
    completions: tuple[str, ...]


def shown_texts(path: Path) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Number, prompt and completions of each record of a file that has some, for a person to read.

    Messages come with their roles, and tokens without a text as numbers. Nothing comes of a file whose first
    record has no completion. Raises RecordError for a damaged file, and for one of another kind.
    """
    own = next((one for name in (GENERATIONS, TEXTS) if (one := path.with_name(name)).is_file()), None)
    if path.name == COMPLETIONS and own is not None:
        # Each line of a run's completions is one of those that its generations hold by group.
        groups = read_records(own, _Texts)
        texts = ((group.prompt, text) for group in groups for text in group.completions)
        yield from ((number, prompt, (text,)) for number, (prompt, text) in enumerate(texts, 1))
        return
    if not set(_COMPLETION_TEXT) & set(containers.sniff(path).columns):
        return
    for number, record in _records(path):
        completion, prompt = _first(record, _COMPLETION_TEXT), _first(record, _PROMPT_TEXT)
        if completion is None:
            continue
        if not _is_group(completion):
            yield number, _shown(prompt), (_shown(completion),)
            continue
        # Each completion of a group may come with its prompt.
        if isinstance(prompt, list) and len(prompt) == len(completion) and _is_group(prompt):
            prompt = prompt[0]
        yield number, _shown(prompt), tuple(map(_shown, completion))


def _shown(value: Any) -> str:
    """Text, message, messages or tokens as one text."""
    if isinstance(value, Mapping):
        return _shown(value.get("content"))
    if isinstance(value, list) and len(value) > 1 and all(isinstance(one, Mapping) for one in value):
        return "\n\n".join(f"[{one.get('role')}]\n{_shown(one)}" for one in value)
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    return "" if value is None else str(value)


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    container = containers.container_of(path)
    if container == containers.PARQUET:
        return containers.read_table(
            path, [name for name in containers.sniff(path).columns if name in _COLUMNS]
        )
    readers = {containers.JSONL: read_lines, containers.CSV: read_csv}
    if container == containers.JSON:
        return enumerate(read_document(path))
    if container not in readers:
        raise RecordError(f"{path} is {container}, which holds no rollouts of a trainer: give a log of one")
    return readers[container](path)


def _rollouts(where: str, record: Mapping[str, Any]) -> Iterator[Rollout]:
    step = _first(record, _STEP)
    step = step if isinstance(step, int) else UNKNOWN
    logprobs = _first(record, _LOGPROBS)
    sequence, mask = _ids(_first(record, _SEQUENCE)), _first(record, _MASK)
    if sequence and isinstance(mask, list) and len(mask) == len(sequence) and any(mask):
        # What follows the first turn was put there by an environment, so only that turn is read.
        start = next(at for at, trained in enumerate(mask) if trained)
        turn = next((at for at in range(start, len(mask)) if not mask[at]), len(mask))
        given = (
            logprobs[start:turn] if isinstance(logprobs, list) and len(logprobs) == len(mask) else logprobs
        )
        yield Rollout(where, step, sequence[:start], sequence[start:turn], _numbers(given, turn - start))
        return
    prompt = _prompt(_first(record, _PROMPT))
    completion = _first(record, _COMPLETION)
    if prompt is None or completion is None:
        return
    group = _is_group(completion)
    for index, one in enumerate(completion if group else [completion]):
        own = logprobs[index] if group and isinstance(logprobs, list) and index < len(logprobs) else logprobs
        tokens = _ids(one)
        if tokens:
            yield Rollout(where, step, prompt, tokens, _numbers(own, len(tokens)))
        elif isinstance(text := _text(one), str) and text:
            yield Rollout(where, step, prompt, text)


def _is_group(completion: Any) -> bool:
    """Whether a record is one of a whole group, which holds a list of completions."""
    return isinstance(completion, list) and bool(completion) and isinstance(completion[0], list | str)


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if record.get(name) not in (None, "", [])), None)


def _ids(value: Any) -> Ids:
    plain = isinstance(value, list) and all(type(token) is int for token in value)
    return tuple(value) if plain else ()


def _numbers(value: Any, count: int) -> tuple[float, ...]:
    fits = (
        isinstance(value, list) and len(value) == count and all(isinstance(one, int | float) for one in value)
    )
    return tuple(map(float, value)) if fits else ()


def _prompt(value: Any) -> Prompt | None:
    if isinstance(value, str):
        return value
    if ids := _ids(value):
        return ids
    if isinstance(value, list) and value and all(isinstance(message, Mapping) for message in value):
        texts = [(message.get("role"), message.get("content")) for message in value]
        if all(isinstance(role, str) and isinstance(text, str) for role, text in texts):
            return Chat(tuple({"role": str(role), "content": str(text)} for role, text in texts))
    return None


def _text(value: Any) -> str | None:
    """The text of a completion, which conversational trainers log as one message of the assistant."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0]
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None
