"""The loopback server: an OpenAI client gets on with it, and what it cannot honour it refuses."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import torch
from openai import APIConnectionError, BadRequestError, InternalServerError, NotFoundError, OpenAI

from search_to_signal.cli import main
from search_to_signal.errors import ConfigError
from search_to_signal.generators.base import GenerationSettings
from search_to_signal.generators.local import LocalGenerator
from search_to_signal.generators.serving import serving

pytestmark = pytest.mark.slow

CHAT: Any = [{"role": "user", "content": "score += 0.4"}]


@pytest.fixture(scope="module")
def local(new_model: Callable[..., Any], tokenizer: Any) -> LocalGenerator:
    """The generator that is served."""
    return LocalGenerator(new_model(), tokenizer, GenerationSettings())


@pytest.fixture
def client(local: LocalGenerator) -> Iterator[OpenAI]:
    """The stock client of a running server."""
    with serving(local, "tiny") as url:
        yield OpenAI(base_url=url, api_key="any", max_retries=0)


def test_models_are_listed(client: OpenAI) -> None:
    """The served model is listed under its name."""
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_an_answer_is_a_chat_completion(client: OpenAI) -> None:
    """The stock client reads text, reason and counts; the seed decides the text, and the limit the cut."""
    first, again, other = (
        client.chat.completions.create(model="tiny", messages=CHAT, seed=seed, max_tokens=12)
        for seed in (1, 1, 2)
    )
    assert first.choices[0].message.content == again.choices[0].message.content
    assert first.choices[0].message.content != other.choices[0].message.content
    assert first.usage is not None
    assert (first.choices[0].finish_reason, first.usage.completion_tokens) == ("length", 12)
    assert first.usage.total_tokens == first.usage.prompt_tokens + 12


def test_without_a_seed_answers_differ(client: OpenAI) -> None:
    """A server draws a seed where none is given."""
    texts = {
        client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=12).choices[0].message.content
        for _ in range(3)
    }
    assert len(texts) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 2}, "one whole completion per request"),
        ({"stream": True}, "one whole completion per request"),
        ({"model": "gpt-4o-mini"}, "there is no model 'gpt-4o-mini' here"),
        ({"temperature": 0}, "temperature is 0"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 250}, "max_prompt_tokens"),
    ],
)
def test_what_cannot_be_honoured_is_refused(client: OpenAI, changes: dict[str, Any], message: str) -> None:
    """A request is answered as it was meant or not at all."""
    with pytest.raises(BadRequestError, match=message):
        client.chat.completions.create(**{"model": "tiny", "messages": CHAT, "max_tokens": 4, **changes})


def test_a_body_that_is_no_text_is_refused(client: OpenAI) -> None:
    """Bytes that are no UTF-8 get an answer, as any other request that cannot be read."""
    with pytest.raises(HTTPError, match="400") as told:
        urlopen(f"{client.base_url}chat/completions", b'{"model": "\xff"}')
    assert b"not a chat completion request" in told.value.read()


def test_other_paths_are_not_there(client: OpenAI) -> None:
    """Two endpoints, and no others."""
    with pytest.raises(NotFoundError):
        client.embeddings.create(model="tiny", input="a")


def test_a_taken_port_is_an_error_of_ours(local: LocalGenerator) -> None:
    """Two servers cannot share a port; the second says what to do."""
    with serving(local, "tiny") as url:
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(ConfigError, match=f"port {port}"), serving(local, "tiny", port=port):
            pass


class Crowded(LocalGenerator):
    """A generator on a card whose memory others hold: the first answers end in the given error."""

    def __init__(self, local: LocalGenerator, *errors: Exception) -> None:
        super().__init__(local.model, local.tokenizer, GenerationSettings())
        self._errors = list(errors)

    def answer(self, *arguments: Any) -> Any:
        """Raise what is left of the errors, then answer."""
        if self._errors:
            raise self._errors.pop(0)
        return super().answer(*arguments)


def ended_capture() -> RuntimeError:
    """The error of a capture that the lack of memory ended, behind which the first one stands."""
    error = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    error.__context__ = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total of 79 GiB"
        ),
        RuntimeError("CUDA error: out of memory"),
        ended_capture(),
    ],
)
def test_a_card_without_memory_is_one_line_and_the_next_answer_is_given(
    local: LocalGenerator, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """The client and whoever serves read what ran out and what to do; the server goes on."""
    told: list[str] = []
    with serving(Crowded(local, error), "tiny", less_memory="buy a card", report=told.append) as url:
        client = OpenAI(base_url=url, api_key="any", max_retries=0)
        with pytest.raises(InternalServerError, match="503") as refused:
            client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=4)
        answer = client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=4)
    assert answer.choices
    assert told == [
        "the card has too little free memory for this answer: end what else runs on it, or shorten the "
        "prompt, or buy a card"
    ]
    assert told[0] in refused.value.message
    assert capsys.readouterr().err == ""


def test_another_failure_of_the_model_is_not_told_as_lack_of_memory(
    local: LocalGenerator, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake of ours keeps its traceback."""
    told: list[str] = []
    with serving(Crowded(local, RuntimeError("shapes differ")), "tiny", report=told.append) as url:
        client = OpenAI(base_url=url, api_key="any", max_retries=0)
        with pytest.raises(APIConnectionError):
            client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=4)
    assert told == []
    assert "shapes differ" in capsys.readouterr().err


def test_the_command_prints_the_line_with_its_own_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever started ``s2s serve`` reads which of its options need less memory, in one line."""

    def ask_and_interrupt(_: float) -> None:
        url = capsys.readouterr().out.split(" at ")[1].split(" ")[0]
        client = OpenAI(base_url=url, api_key="any", max_retries=0)
        with pytest.raises(InternalServerError):
            client.chat.completions.create(model="qwen2-2.1m", messages=CHAT, max_tokens=4)
        raise KeyboardInterrupt

    def answer(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(LocalGenerator, "answer", answer)
    monkeypatch.setattr("search_to_signal.stopping.end_in_order", lambda: None)
    monkeypatch.setattr("search_to_signal.cli.models.time", SimpleNamespace(sleep=ask_and_interrupt))
    assert main(["serve", "qwen2-2.1m", "--port", "0"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("s2s: error: the card has too little free memory for this answer: ")
    assert line.endswith("or serve with --dtype bfloat16, or --device cpu")


def test_the_command_serves_until_it_is_stopped() -> None:
    """``s2s serve`` prints its address, answers there, and ends quietly when it is told to."""
    command = [sys.executable, "-m", "search_to_signal.cli", "serve", "qwen2-2.1m", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].split(" ")[0]
        client = OpenAI(base_url=url, api_key="any", max_retries=0)
        answer = client.chat.completions.create(model="qwen2-2.1m", messages=CHAT, max_tokens=4, seed=1)
        assert str(answer.system_fingerprint).startswith("fp_")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
