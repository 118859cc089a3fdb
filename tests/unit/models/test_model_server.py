"""The loopback server: an OpenAI client gets on with it, and what it cannot honour it refuses."""

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import torch
from openai import APIConnectionError, BadRequestError, InternalServerError, NotFoundError, OpenAI
from tests.forked import Commands

from search_to_signal.base.errors import ConfigError
from search_to_signal.cli import main
from search_to_signal.models import serving as serving_module
from search_to_signal.models.api import open_api
from search_to_signal.models.base import GenerationSettings
from search_to_signal.models.local import LocalGenerator
from search_to_signal.models.serving import serving
from search_to_signal.models.settings import ApiSettings
from search_to_signal.search.member import Prompt

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


def test_the_chat_template_takes_the_settings_of_a_run(
    local: LocalGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go to the endpoint with every request, by the name that vLLM has for them."""
    monkeypatch.setattr(local.tokenizer, "chat_template", "{{ messages[1].content }}{{ more }}")
    counts = []
    with serving(local, "tiny") as url:
        api = ApiSettings(base_url=url, key_variable="")
        for given in ({}, {"more": "and more"}):
            settings = GenerationSettings(
                group_size=1, max_completion_tokens=1, backend="api", api=api, template_kwargs=given
            )
            counts.append(open_api(settings, "tiny").generate(Prompt("", "words"), 1).prompt_tokens(0))
    assert counts[0] < counts[1]


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


def port_of(url: str) -> int:
    """The port of a server."""
    return int(url.split(":")[2].split("/")[0])


def raw(port: int, data: bytes, *, ends: bool = False) -> tuple[int, bytes]:
    """Status and body of what a server answers to bytes; ``ends`` says that no more will come."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def posted(body: bytes, headers: bytes = b"Connection: close\r\n") -> bytes:
    """A request for a completion."""
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST /v1/chat/completions HTTP/1.1\r\n" + length + headers + b"\r\n" + body


GOOD = json.dumps({"model": "tiny", "messages": CHAT, "max_tokens": 200, "seed": 1}).encode()
DEEP = b"[" * 100_000
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\n"


def requests_of_no_use() -> Iterator[tuple[int, bytes]]:
    """The status that is due, and the bytes."""
    fields: dict[str, list[Any]] = {
        "model": [None, 3, "", "x" * 100_000, [], {}],
        "messages": [None, 3, "x", [], {}, [3], [[]], [{}], [{"role": "user"}], [{"role": 3}]],
        "max_tokens": [True, -1, 0, 1.5, 10**30, "4", []],
        "max_completion_tokens": [True, -1, 0, 10**9, "4"],
        "temperature": [None, True, -1, 0, 1e300, "1", []],
        "seed": [True, 1.5, "1", []],
        "top_p": [None, 0, 2, "1"],
        "n": [None, 0, 2, "1"],
        "stream": [None, True, "no", 3],
    }
    for name, values in fields.items():
        for value in values:
            yield 400, posted(json.dumps({**json.loads(GOOD), name: value}).encode())
    for content in ("null", "3", '[{"type": "text", "text": "x"}]', '"\\ud800"'):
        body = '{"model": "tiny", "messages": [{"role": "user", "content": ' + content + "}]}"
        yield 400, posted(body.encode())
    for number in (b"NaN", b"Infinity", b"1e999"):
        yield 400, posted(GOOD[:-1] + b', "temperature": ' + number + b"}")
    for body in (b"", b"null", b"{", DEEP, b'{"x": ' + DEEP, GOOD[:-1], GOOD + b"x", b"\xff", b"\x00" * 9):
        yield 400, posted(body)
    for length in (b"-5", b"x", b"", b"1e3", b"0x5", "٣".encode()):
        yield 400, HEAD + b"Content-Length: " + length + b"\r\n\r\n"
    for length in (b"99999999999", b"9" * 5000):
        yield 413, HEAD + b"Content-Length: " + length + b"\r\n\r\n"
    yield 411, HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    yield 411, HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"
    yield 414, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"
    yield 431, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n"
    yield 501, b"PUT / HTTP/1.1\r\n\r\n"
    yield 404, b"GET /\x1b[31m HTTP/1.1\r\nConnection: close\r\n\r\n"
    yield 400, b"\x16\x03\x01\x02\x00\x01\r\n\r\n"
    yield 505, b"GET / HTTP/9.9\r\n\r\n"


def test_a_request_of_no_use_is_answered_in_one_line(
    local: LocalGenerator, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the status that is due and a short message; the server says nothing of its own, and goes on."""
    with serving(local, "tiny") as url:
        for status, data in requests_of_no_use():
            found, body = raw(port_of(url), data)
            assert (found, data[:300]) == (status, data[:300])
            message = json.loads(body)["error"]["message"]
            assert "\n" not in message
            assert len(message) < 500
        for cut in (len(HEAD) - 3, len(posted(GOOD)) - 5):
            assert raw(port_of(url), posted(GOOD)[:cut], ends=True)[0] in (400, 404)
        assert raw(port_of(url), posted(GOOD))[0] == 200
    assert capfd.readouterr().err == ""


def test_a_client_that_resets_its_connection_is_no_event(
    local: LocalGenerator, capfd: pytest.CaptureFixture[str]
) -> None:
    """In whatever phase: before, within and behind a request, before and within the answer, and after it."""
    data = posted(GOOD, b"")
    with serving(local, "tiny") as url:
        for cut in (0, 1, 30, len(HEAD), len(data) - 5, len(data)):
            for pause in (0.0, 0.05):
                _reset(port_of(url), data[:cut], pause=pause)
        for read in (1, 100, 1 << 16):
            _reset(port_of(url), data + data, read=read)
        assert raw(port_of(url), posted(GOOD))[0] == 200
    assert capfd.readouterr().err == ""


def _reset(port: int, data: bytes, *, pause: float = 0.0, read: int = 0) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(data)
        if read:
            connection.recv(read)
        time.sleep(pause)


def test_a_client_that_stops_in_the_middle_is_told_so(
    local: LocalGenerator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And meanwhile others get their answers."""
    monkeypatch.setattr(serving_module, "PATIENCE_S", 0.5)
    with serving(local, "tiny") as url, socket.create_connection(("127.0.0.1", port_of(url))) as slow:
        slow.sendall(posted(GOOD)[:-3])
        assert raw(port_of(url), posted(GOOD))[0] == 200
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 408 ")
    assert capfd.readouterr().err == ""


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
    monkeypatch.setattr("search_to_signal.base.processes.end_in_order", lambda: None)
    monkeypatch.setattr("search_to_signal.cli.models.time", SimpleNamespace(sleep=ask_and_interrupt))
    assert main(["serve", "qwen2-2.1m", "--port", "0"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("s2s: error: the card has too little free memory for this answer: ")
    assert line.endswith("or serve with --dtype bfloat16, or --device cpu")


def test_the_command_serves_until_it_is_stopped(commands: Commands) -> None:
    """``s2s serve`` prints its address, answers there, and ends quietly when it is told to."""
    process = commands.start("serve", "qwen2-2.1m", "--port", "0")
    url = process.stdout.readline().decode().split(" at ")[1].split(" ")[0]
    client = OpenAI(base_url=url, api_key="any", max_retries=0)
    answer = client.chat.completions.create(model="qwen2-2.1m", messages=CHAT, max_tokens=4, seed=1)
    assert str(answer.system_fingerprint).startswith("fp_")
    process.terminate()
    assert process.wait(60) == 0
