"""How long prompt and completions of a round were, and which were cut: as far as it is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from search_to_signal.hosts.released.asking import Count, count_with
from search_to_signal.records.schema import RequestRecord

CountedBy = Literal["trainer", "model", "endpoint"]
Requests = Callable[[Sequence[str]], tuple[RequestRecord, ...]]
"""What an endpoint reported of these texts, one each; empty where it did not of all."""


@dataclass(frozen=True)
class Length:
    """Of one completion. ``ids`` are its tokens where the trainer shows them, ``request`` what was reported.

    Unknown counts are 0, and no completion counts as truncated.
    """

    prompt: int = 0
    completion: int = 0
    truncated: bool = False
    ids: tuple[int, ...] = ()
    request: RequestRecord | None = None


@dataclass(frozen=True)
class Lengths:
    """Of the completions of a round, and whose tokens they are; None where none were counted."""

    each: tuple[Length, ...]
    counted_by: CountedBy | None


def lengths_of(
    trainer: Any,
    chat: Any,
    texts: Sequence[str],
    named: Mapping[str, Any],
    requests: Requests,
    count: Count | None,
) -> Lengths:
    """By the trainer's tokenizer, else as the endpoint reports, else by ``count``, the model's own tokenizer.

    ``named`` are the further arguments of the reward call, among which TRL hands on ``completion_ids``.
    """
    tokenizer = getattr(trainer, "processing_class", None)
    if tokenizer is not None:
        return Lengths(_by_trainer(trainer, tokenizer, chat, texts, named.get("completion_ids")), "trainer")
    if reported := requests(texts):
        return Lengths(tuple(map(_by_endpoint, reported)), "endpoint")
    if count is not None:
        prompt = count(chat)
        return Lengths(tuple(Length(prompt, count(text)) for text in texts), "model")
    return Lengths((Length(),) * len(texts), None)


def _by_endpoint(request: RequestRecord) -> Length:
    cut = request.finish_reason == "length"
    return Length(request.prompt_tokens, request.completion_tokens, cut, request=request)


def _by_trainer(
    trainer: Any, tokenizer: Any, chat: Any, texts: Sequence[str], shown: Any
) -> tuple[Length, ...]:
    count, limit, end = count_with(tokenizer), _limit(trainer), getattr(tokenizer, "eos_token_id", None)
    prompt = count(chat)
    each = shown if shown is not None and len(shown) == len(texts) else [()] * len(texts)
    lengths = []
    for text, tokens in zip(texts, each, strict=True):
        ids = tuple(int(token) for token in tokens)
        length = len(ids) or count(text)
        # Without its tokens a text is as long as it is when it is tokenized again, and lacks its end token.
        cut = limit is not None and length >= limit and (not ids or ids[-1] != end)
        lengths.append(Length(prompt, length, cut, ids))
    return tuple(lengths)


def _limit(trainer: Any) -> int | None:
    """The most tokens that the trainer samples, its own or its arguments' limit; None where there is none."""
    places = (trainer, getattr(trainer, "args", None))
    limits = (getattr(place, "max_completion_length", None) for place in places)
    return next((limit for limit in limits if isinstance(limit, int)), None)
