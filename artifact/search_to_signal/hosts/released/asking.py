"""What a round of the released host asks: its one prompt, the operator that it names, and tokens."""

import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import msgspec

from search_to_signal.errors import HostError
from search_to_signal.hosts.released.trainer import content, operator_named
from search_to_signal.records.schema import Operator

Count = Callable[[Any], int]
"""Number of tokens of a chat, given as its messages, or of a text."""


def only_prompt(prompts: Iterable[Any]) -> Any:
    """The one prompt of a group; raises HostError where there are several."""
    asked = {content(prompt): prompt for prompt in prompts}
    if len(asked) != 1:
        raise HostError(f"a call with {len(asked)} prompts: a group is one prompt, set n_prompts to 1")
    return next(iter(asked.values()))


def asked_operator(used_prompts: Iterable[Any], text: str) -> Operator | None:
    """The operator that the host's own object of a prompt names; None where it names none.

    Raises HostError where the host keeps texts instead, in which its reward function finds nothing.
    """
    for used in used_prompts:
        if type(used) is str:
            raise HostError("calm_trainer.py: used_prompts holds texts, in the released host prompt objects")
        values = list(getattr(used, "__dict__", {}).values())
        if any(isinstance(value, str) and value == text for value in values):
            return next(filter(None, map(operator_named, _words(values))), None)
    return None


def _words(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        word = value.name if isinstance(value, Enum) else value
        if isinstance(word, str) and word.isidentifier():
            yield word


def sent(chat: Any) -> str:
    """A prompt as a record shows it: the JSON of its messages, as one to an endpoint, or its text."""
    if isinstance(chat, str):
        return chat
    messages = [
        {name: str(message[name]) for name in ("role", "content") if name in message} for message in chat
    ]
    return json.dumps(messages, ensure_ascii=False)


def asked_text(prompt: str) -> str:
    """What the last message of a recorded prompt says; a text that is no list of messages is that itself."""
    try:
        return content(msgspec.json.decode(prompt, type=list[dict[str, str]]))
    except (msgspec.MsgspecError, UnicodeError, LookupError):
        return prompt


def count_with(tokenizer: Any) -> Count:
    """Count by a tokenizer: a text as it is, a chat as its template renders it."""

    def count(asked: Any) -> int:
        if isinstance(asked, str):
            return len(tokenizer(asked, add_special_tokens=False)["input_ids"])
        if getattr(tokenizer, "chat_template", None) is None:
            return sum(count(str(message["content"])) for message in asked)
        return len(tokenizer.apply_chat_template(asked, add_generation_prompt=True))

    return count
