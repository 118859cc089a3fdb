"""Samples from a server that loads LoRA adapters at run time, as vLLM's does; the learner is in this process.

The protocol is that of vLLM 0.24: ``/v1/completions`` takes a prompt as token ids and returns token ids and
log-probabilities, ``/v1/load_lora_adapter`` takes the name and the directory of an adapter in PEFT's form.
Every adapter gets a new name: under an old one a server may go on with the old weights, and with prompts that
it cached for them. A server batches requests as they come, so equal seeds need not give equal tokens.
"""

import math
import secrets
import shutil
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from openai import APIStatusError, OpenAI, OpenAIError

from search_to_signal.base.errors import UNREADABLE, GenerationError
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import (
    Adapter,
    ChatPrompt,
    Completion,
    Generation,
    completion_text,
    cut_prompt,
    encoded,
    messages,
    request_seeds,
)
from search_to_signal.models.files import json_settings
from search_to_signal.models.local import load_tokenizer
from search_to_signal.models.settings import GenerationSettings, ServerSettings, endpoint_key
from search_to_signal.models.vllm import stopping_ids

T = TypeVar("T")

# Characters of what a server says that are passed on.
_MOST_CHARACTERS = 300
_UNKNOWN_PATH = (404, 405, 501)
_NOT_THE_PROTOCOL = "use a server that answers as vLLM 0.24 does"
# What a server has to read out of our token ids of it.
_SENTENCE = "The quick brown fox jumps over the lazy dog."


class _Model(msgspec.Struct, frozen=True):
    """A served model; an adapter has a ``parent``. ``max_model_len`` is the context in tokens."""

    id: str
    parent: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


class _Logprobs(msgspec.Struct, frozen=True):
    token_logprobs: tuple[float | None, ...] = ()


class _Choice(msgspec.Struct, frozen=True):
    text: str
    finish_reason: str | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct, frozen=True):
    model: str
    choices: tuple[_Choice, ...]


class Server:
    """Requests to one server. Whatever goes wrong with one is a GenerationError of one line."""

    def __init__(self, settings: ServerSettings) -> None:
        key = endpoint_key(settings)
        self._secret = key if settings.key_variable else "\0"
        self._client = OpenAI(
            api_key=key, base_url=settings.base_url, timeout=settings.timeout_s, max_retries=settings.retries
        )

    def error(self, problem: str) -> GenerationError:
        """What is wrong, and with which server; the key never appears."""
        told = problem.replace(self._secret, "[key]")
        return GenerationError(f"the server at {self._client.base_url} {told}")

    def require(self, name: str, tokens: int) -> None:
        """Raise GenerationError unless it serves this model, reads so many tokens, and can load adapters."""
        served = [model for model in self._answer("/models", None, _Models).data if model.parent is None]
        found = next((model for model in served if model.id == name), None)
        if found is None:
            others = ", ".join(model.id for model in served) or "no model"
            raise self.error(f"serves {others}: start it with --served-model-name {name}")
        if found.max_model_len is not None and found.max_model_len < tokens:
            raise self.error(
                f"reads {found.max_model_len} tokens, prompt and completion may take {tokens}: raise its "
                "--max-model-len, or lower generation.max_prompt_tokens or max_completion_tokens"
            )
        if self._status("/load_lora_adapter", {"lora_name": "", "lora_path": ""}) in _UNKNOWN_PATH:
            raise self.error(
                "cannot load adapters: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            )

    def complete(self, body: Mapping[str, Any]) -> _Choice:
        """The one completion of a request."""
        answer = self._answer("/completions", body, _Answer)
        if answer.model != body["model"]:
            raise self.error(f"answered as {answer.model}, asked for {body['model']}: {_NOT_THE_PROTOCOL}")
        if len(answer.choices) != 1:
            raise self.error(f"gave {len(answer.choices)} completions, asked for one: {_NOT_THE_PROTOCOL}")
        return answer.choices[0]

    def load(self, name: str, directory: Path) -> None:
        """Have it load an adapter under a new name."""
        try:
            self._ask("/load_lora_adapter", {"lora_name": name, "lora_path": str(directory)})
        except APIStatusError as error:
            raise self.error(
                f"does not load the adapter in {directory} ({_told(error)}): see that it can read that "
                "directory (generation.server.adapters), and that its --max-lora-rank is learner.lora_rank"
            ) from error

    def unload(self, name: str) -> None:
        """Have it forget an adapter; one that it does not know is forgotten already."""
        self._status("/unload_lora_adapter", {"lora_name": name})

    def _answer(self, path: str, body: Mapping[str, Any] | None, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self._ask(path, body), type=kind)
        except APIStatusError as error:
            raise self.error(
                f"refuses {path} with status {error.status_code} ({_told(error)}): see to it, then --resume"
            ) from error
        except UNREADABLE as error:
            raise self.error(f"answers {path} otherwise ({error}): {_NOT_THE_PROTOCOL}") from error

    def _status(self, path: str, body: Mapping[str, Any]) -> int:
        try:
            self._ask(path, body)
        except APIStatusError as error:
            return error.status_code
        return 200

    def _ask(self, path: str, body: Mapping[str, Any] | None) -> bytes:
        """The bytes of an answer; raises APIStatusError for a refusal, after the client's retries."""
        try:
            if body is None:
                return self._client.get(path, cast_to=bytes)
            return self._client.post(path, body=body, cast_to=bytes)
        except APIStatusError:
            raise
        except OpenAIError as error:
            raise self.error(
                f"does not answer ({_told(error)}): start it, or correct generation.server.base_url; for a "
                "slow one raise timeout_s"
            ) from error


def _told(error: OpenAIError) -> str:
    return one_line(str(error.__cause__ or error), _MOST_CHARACTERS)


class ServerGenerator:
    """Samples from a server: one request and one seed per completion, each with its log-probabilities.

    ``name`` is the server's for the base model. Adapters go through ``folder``, which both see; one is
    removed when the next one is loaded, and the last with the generator.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        tokenizer: Any,
        settings: GenerationSettings,
        folder: Path,
        model: Path,
    ) -> None:
        self.tokenizer = tokenizer
        self._server, self._settings, self._folder = server, settings, folder
        self._text, self._ends = completion_text(tokenizer), stopping_ids(tokenizer, model)
        self._vocabulary = json_settings(model / "config.json").get("vocab_size", math.inf)
        self._base = self._name = name
        self._adapters = 0
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def pad_id(self) -> int:
        """The token that fills up a batch."""
        return int(self.tokenizer.pad_token_id)

    def base(self) -> None:
        """Nothing: a learner loads a base of its own."""

    def load_adapter(self, adapter: Adapter) -> None:
        """Sample with the adapter from the next group on; the one before is forgotten."""
        self._adapters += 1
        before, name = self._name, f"{self._folder.name}-{self._adapters}"
        adapter.save(self._folder / name)
        self._server.load(name, self._folder / name)
        self._name = name
        if before != self._base:
            self._server.unload(before)
            shutil.rmtree(self._folder / before, ignore_errors=True)

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        """Sample one group; raises GenerationError, and ConfigError for a prompt that is refused."""
        text, whole = encoded(self.tokenizer, messages(prompt), self._settings.for_template)
        prompt_ids = cut_prompt(whole, self._settings)
        seeds = request_seeds(seed, self._settings.group_size)
        with ThreadPoolExecutor(min(self._settings.served.concurrency, len(seeds))) as workers:
            completions = tuple(workers.map(lambda own: self._completion(prompt_ids, own), seeds))
        return Generation(text, tuple(prompt_ids), completions, len(whole) - len(prompt_ids))

    def check_vocabulary(self) -> None:
        """Raise GenerationError where the server reads another text out of the same token ids."""
        _, ids = encoded(self.tokenizer, [{"role": "user", "content": _SENTENCE}])
        body = {"model": self._base, "prompt": ids, "max_tokens": 1, "temperature": 0.0, "echo": True}
        read = self._server.complete(body).text
        if _SENTENCE not in " ".join(read.split()):
            raise self._server.error(
                f"reads {one_line(repr(read), 120)} out of the tokens of {_SENTENCE!r}: it has another "
                "vocabulary than the model here; serve this one"
            )

    def _completion(self, prompt_ids: Sequence[int], seed: int) -> Completion:
        settings = self._settings
        body = {
            "model": self._name,
            "prompt": prompt_ids,
            "max_tokens": settings.max_completion_tokens,
            "seed": seed,
            "temperature": settings.temperature,
            # Said in full: a server takes what is left out from the model's generation settings (D23).
            "top_p": settings.top_p,
            "top_k": -1 if settings.top_k is None else settings.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": sorted(self._ends),
            "logprobs": 0,  # of the sampled token, and of no other
            "return_token_ids": True,
        }
        choice = self._server.complete(body)
        ids, logprobs = self._checked(choice, prompt_ids)
        return Completion(ids, self._text(ids), choice.finish_reason == "length", logprobs=logprobs)

    def _checked(
        self, choice: _Choice, prompt_ids: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Tokens and log-probabilities; raises GenerationError unless they are what was asked for."""
        ids, read, error = choice.token_ids, choice.prompt_token_ids, self._server.error
        if ids is None or read is None:
            raise error(f"gives no token ids (return_token_ids): {_NOT_THE_PROTOCOL}")
        if list(read) != list(prompt_ids):
            pairs = enumerate(zip(read, prompt_ids, strict=False))
            at = next((place for place, (a, b) in pairs if a != b), min(len(read), len(prompt_ids)))
            raise error(
                f"read another prompt than it was sent, {len(read)} tokens for {len(prompt_ids)}, the first "
                f"other one at {at}: {_NOT_THE_PROTOCOL}"
            )
        stopped = choice.finish_reason == "stop" and ids[-1:] and ids[-1] in self._ends
        cut = choice.finish_reason == "length" and len(ids) == self._settings.max_completion_tokens
        if not (stopped or cut) or not all(0 <= token < self._vocabulary for token in ids):
            raise error(
                f"did not complete a prompt of {len(prompt_ids)} tokens as asked (it wrote {len(ids)}, the "
                f"last {ids[-1:]}, for {choice.finish_reason!r}): serve the model that is here"
            )
        told = choice.logprobs.token_logprobs if choice.logprobs is not None else ()
        logprobs = tuple(value for value in told if value is not None)
        if len(logprobs) != len(ids):
            raise error(f"gives {len(logprobs)} log-probabilities of {len(ids)} tokens: {_NOT_THE_PROTOCOL}")
        return ids, logprobs


def open_server(settings: GenerationSettings, model: Path, scratch: Path) -> ServerGenerator:
    """A generator over the server of the settings.

    Raises GenerationError where it is away, serves another model, reads too few tokens or loads no adapters.
    """
    served = settings.served
    server = Server(served)
    server.require(model.name, settings.max_prompt_tokens + settings.max_completion_tokens)
    folder = Path(served.adapters or scratch).resolve() / f"s2s-{secrets.token_hex(4)}"
    generator = ServerGenerator(server, model.name, load_tokenizer(model), settings, folder, model)
    generator.check_vocabulary()
    return generator
