"""A frozen generator behind any OpenAI-compatible endpoint: one request, and one seed, per completion."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from openai import NotFoundError, OpenAI, OpenAIError

from search_to_signal.base.errors import UNREADABLE, GenerationError
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import (
    ChatPrompt,
    Completion,
    Generation,
    Message,
    check_prompt,
    messages,
    request_seeds,
    sent_messages,
)
from search_to_signal.models.settings import GenerationSettings, endpoint_key
from search_to_signal.records.schema import RequestRecord

# Characters of an endpoint's error that are passed on.
_MOST_CHARACTERS = 300
_TRUNCATED = {"stop": False, "length": True}


class _AnsweredMessage(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _AnsweredMessage
    finish_reason: str


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int


class _Answer(msgspec.Struct, frozen=True):
    """What of a response is read; anything more in it is left alone."""

    id: str
    model: str
    choices: tuple[_Choice, ...]
    usage: _Usage
    system_fingerprint: str | None = None


class UnusableAnswer(Exception):
    """An endpoint answered, and there is no completion in the answer."""


def completion_of(body: bytes, seed: int | None) -> Completion:
    """The one completion of a response; raises UnusableAnswer for anything that is none."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except UNREADABLE as error:
        raise UnusableAnswer(f"not a chat completion ({error})") from error
    if len(answer.choices) != 1:
        raise UnusableAnswer(f"{len(answer.choices)} choices where one was asked for")
    choice = answer.choices[0]
    if choice.finish_reason not in _TRUNCATED:
        raise UnusableAnswer(f"finish_reason {choice.finish_reason!r}")
    if not choice.message.content:
        raise UnusableAnswer(f"empty content, finish_reason {choice.finish_reason!r}")
    request = RequestRecord(
        seed=seed,
        model=answer.model,
        fingerprint=answer.system_fingerprint,
        id=answer.id,
        finish_reason=choice.finish_reason,
        prompt_tokens=answer.usage.prompt_tokens,
        completion_tokens=answer.usage.completion_tokens,
    )
    return Completion((), choice.message.content, _TRUNCATED[choice.finish_reason], request)


@dataclass(frozen=True)
class ApiGenerator:
    """Asks an endpoint; see ``ApiSettings`` for what is tried again.

    ``model`` is the provider's name for the model, ``key`` the secret, which appears in no error.
    """

    client: OpenAI
    model: str
    settings: GenerationSettings
    key: str

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        """One group, one request per completion; raises GenerationError when one cannot be had."""
        sent = messages(prompt)
        seeds = request_seeds(seed, self.settings.group_size)
        with ThreadPoolExecutor(min(self.settings.api.concurrency, len(seeds))) as workers:
            completions = tuple(workers.map(lambda own: self._completion(sent, own), seeds))
        group = Generation(sent_messages(prompt), (), completions)
        check_prompt(max(group.prompt_tokens(index) for index in range(len(seeds))), self.settings)
        return group

    def _completion(self, sent: list[Message], seed: int) -> Completion:
        for attempt in range(1, self.settings.api.retries + 2):
            try:
                return completion_of(self._ask(sent, seed), seed)
            except UnusableAnswer as error:
                reason = f"{one_line(str(error), _MOST_CHARACTERS)}, {attempt} times"
            except OpenAIError as error:
                message = str(error).replace(self.key, "[key]")
                reason = f"{type(error).__name__}: {one_line(message, _MOST_CHARACTERS)}"
                break  # the client has already tried again what can be tried again
        raise GenerationError(
            f"{self.model} at {self.client.base_url.host} gave no completion ({reason}): the run stops here "
            "and stays incomplete; see to the endpoint, or raise generation.api.retries"
        )

    def _ask(self, sent: list[Message], seed: int) -> bytes:
        # The raw body: the client's own reading lets half an answer pass.
        answer = self.client.chat.completions.with_raw_response.create(
            model=self.model,
            messages=cast(Any, sent),
            n=1,
            seed=seed,
            temperature=self.settings.temperature,
            top_p=1,
            extra_body={
                self.settings.api.limit_parameter: self.settings.max_completion_tokens,
                **({"chat_template_kwargs": given} if (given := self.settings.for_template) else {}),
                **self.settings.api.extra,
            },
        )
        return answer.content


def open_api(settings: GenerationSettings, model: str) -> ApiGenerator:
    """A generator for the endpoint of the settings; raises ConfigError when its key is missing."""
    api, key = settings.api, endpoint_key(settings.api)
    client = OpenAI(api_key=key, base_url=api.base_url, timeout=api.timeout_s, max_retries=api.retries)
    return ApiGenerator(client, model, settings, key)


def listed_models(base_url: str, key: str) -> tuple[str, ...] | None:
    """The names of the models that an endpoint offers, None where it lists none.

    Raises GenerationError when it does not answer, or does not take the key.
    """
    client = OpenAI(api_key=key or "none", base_url=base_url, timeout=10, max_retries=1)
    try:
        return tuple(model.id for model in client.models.list())
    except NotFoundError:
        return None
    except OpenAIError as error:
        reason = f"{type(error).__name__}: {error}".replace(key or "\0", "[key]")
        raise GenerationError(
            f"{base_url} does not answer ({reason}): start that endpoint, or correct base_url and api_key"
        ) from error
