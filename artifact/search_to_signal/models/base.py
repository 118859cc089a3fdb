"""What proposes completions: a local model, an engine, or a server; the search does not depend on which."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from jinja2 import TemplateError

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import one_line
from search_to_signal.base.seeding import derive_seed
from search_to_signal.models.settings import GenerationSettings as GenerationSettings
from search_to_signal.records.schema import RequestRecord


class ChatPrompt(Protocol):
    """The two chat messages that a search asks with."""

    @property
    def system(self) -> str: ...
    @property
    def user(self) -> str: ...


Message = dict[str, str]


def messages(prompt: ChatPrompt) -> list[Message]:
    """A prompt as chat messages."""
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


def sent_messages(prompt: ChatPrompt) -> str:
    """A prompt as a record shows it that went to an endpoint."""
    return json.dumps(messages(prompt), ensure_ascii=False)


@dataclass(frozen=True)
class Completion:
    """One sampled answer: its tokens with the end token where one was drawn, and its text without.

    An endpoint gives no token ids: ``ids`` is then empty, and ``request`` says what it reported.
    ``logprobs`` are the tokens' natural log-probabilities as a server reports them, at temperature 1 and
    before any filter; empty where nobody does.
    """

    ids: tuple[int, ...]
    text: str
    truncated: bool
    request: RequestRecord | None = None
    logprobs: tuple[float, ...] = ()

    @property
    def tokens(self) -> int:
        """How many tokens were sampled, counted here or as reported."""
        return len(self.ids) if self.request is None else self.request.completion_tokens


@dataclass(frozen=True)
class Generation:
    """The G completions of one prompt, with the exact tokens that they were sampled from.

    ``prompt`` is the whole text; ``prompt_ids`` are its tokens without the first ``prompt_tokens_cut`` (D26).
    An endpoint applies a template and a tokenizer of its own: ``prompt`` is then the JSON of the messages
    that were sent, and ``prompt_ids`` is empty.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    prompt_tokens_cut: int = 0

    def prompt_tokens(self, index: int) -> int:
        """How many tokens of its prompt a completion was sampled from, counted here or as reported."""
        request = self.completions[index].request
        return len(self.prompt_ids) if request is None else request.prompt_tokens

    @property
    def requests(self) -> tuple[RequestRecord, ...]:
        """What an endpoint reported of each completion; empty for a model in this process."""
        return tuple(item.request for item in self.completions if item.request is not None)


class Generator(Protocol):
    """Samples a group; equal prompt and seed give equal completions on one machine.

    A prompt over its limit is cut, or refused with a ConfigError (D26). Raises GenerationError when
    completions cannot be had; never returns less than a group.
    """

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        """Sample one group.

        Args:
            prompt: The two chat messages.
            seed: Of the group; every completion has a stream derived from it.

        Returns:
            The group's completions in their order, with the tokens of the prompt.

        Raises:
            ConfigError: The prompt is over its limit, and the settings refuse such prompts (D26).
            GenerationError: Completions cannot be had.
        """


@runtime_checkable
class StreamsCompletions(Protocol):
    """A generator that hands out a completion of a group as soon as it has ended, before the others."""

    def stream_to(self, receive: Callable[[str], None]) -> None:
        """Name what takes completions from now on; one that reaches its limit may not be handed out.

        Args:
            receive: Called with the text of a completion; ``generate`` returns the same text later.
        """


class Adapter(Protocol):
    """What a learner offers a sampler: its adapter as weights, or as files in PEFT's form."""

    def merge_into(self, plain: Any) -> None:
        """Make a plain model compute what the adapted one computes.

        Args:
            plain: A copy of the base model, whose weights are replaced.
        """

    def save(self, directory: Path) -> None:
        """Write the adapter's files.

        Args:
            directory: Where; it is made.
        """


class Trainable(Generator, Protocol):
    """A generator whose model a learner can adapt."""

    @property
    def pad_id(self) -> int: ...

    def base(self) -> Any:
        """Share the base model.

        Returns:
            The model that a learner attaches its adapter to; None where it has to load one itself.
        """

    def load_adapter(self, adapter: Adapter) -> None:
        """Sample with an adapter from the next token on.

        Args:
            adapter: A restart's before its first group, the learner's after each step.
        """


def request_seeds(seed: int, count: int) -> tuple[int, ...]:
    """The sampling seed of each completion of a group, 31 bits: what every engine and server takes."""
    return tuple(derive_seed(seed, "completion", index) >> 32 for index in range(count))


def completion_text(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """How a tokenizer gives the text of a completion's tokens: special ones leave no trace."""
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True))


# What a template may add to messages, and how often it may repeat them.
_MOST_TEXT, _MOST_GROWTH = 1 << 20, 16
# Some templates tell the model the date: a prompt has to be the same on any day.
DAY = date(2024, 7, 26)


def encoded(
    tokenizer: Any, chat: list[Message], for_template: Mapping[str, object] = MappingProxyType({})
) -> tuple[str, list[int]]:
    """A chat as the text that a model continues, and as its tokens; ``for_template`` goes to its template.

    Raises ConfigError where the chat template refuses it, or makes nothing of it.
    """
    if hasattr(tokenizer, "encoded"):  # somebody else's
        return tokenizer.encoded(chat, dict(for_template))  # type: ignore[no-any-return]
    return rendered(tokenizer, chat, for_template)


def rendered(
    tokenizer: Any, chat: list[Message], for_template: Mapping[str, object], at: Callable[[str], object] = str
) -> tuple[str, list[int]]:
    """The same in this process; ``at`` is told what is about to be done, as what fails is named."""
    at("chat_template")
    ours = {"tokenize": False, "add_generation_prompt": True, "strftime_now": DAY.strftime}
    try:
        text: str = tokenizer.apply_chat_template(chat, **{**for_template, **ours})
    except TemplateError as error:
        raise ConfigError(
            f"the chat template in {tokenizer.name_or_path} refuses these messages "
            f"({one_line(str(error), 200)}): give others, or another model"
        ) from error
    most = _MOST_TEXT + _MOST_GROWTH * sum(len(part) for message in chat for part in message.values())
    if len(text) > most:
        raise ConfigError(
            f"the chat template in {tokenizer.name_or_path} makes {len(text):,} characters of these "
            f"messages, more than {most:,}: give another model"
        )
    at("tokenizer.json")
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not ids:
        raise ConfigError(f"the chat template in {tokenizer.name_or_path} makes nothing of these messages")
    return text, ids


def end_ids(tokenizer: Any, generation_config: Any) -> frozenset[int]:
    """Every token that ends a completion: the tokenizer's, and those of the model's generation settings.

    Qwen's instruction models stop on two, of which the tokenizer has one.
    """
    configured = getattr(generation_config, "eos_token_id", None)
    more = configured if isinstance(configured, list | tuple) else [configured]
    return frozenset(token for token in [tokenizer.eos_token_id, *more] if token is not None)


# Prompts longer than the limit: cut on their left, or refused (D26).


def check_prompt(tokens: int, settings: GenerationSettings) -> None:
    """Raise ConfigError for a prompt over its limit where such are refused."""
    if settings.long_prompts == "refuse" and tokens > settings.max_prompt_tokens:
        raise ConfigError(
            f"a prompt has {tokens} tokens, generation.max_prompt_tokens is {settings.max_prompt_tokens}: "
            'raise it in the profile, or set generation.long_prompts to "cut"'
        )


def cut_prompt(prompt_ids: Sequence[int], settings: GenerationSettings) -> list[int]:
    """What of a prompt a group is sampled from, and scored on: at most its last ``max_prompt_tokens`` (D26).

    TRL 0.15.1 cuts so what it scores; with vLLM it samples from the whole text. Raises as ``check_prompt``.
    """
    check_prompt(len(prompt_ids), settings)
    return list(prompt_ids[-settings.max_prompt_tokens :])
