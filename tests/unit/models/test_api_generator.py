"""The API generator over real HTTP: what it sends, what it records, what it tries again, when it stops."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from search_to_signal.base.errors import ConfigError, GenerationError
from search_to_signal.models.api import ApiGenerator, open_api
from search_to_signal.models.base import request_seeds
from search_to_signal.models.local import LocalGenerator
from search_to_signal.models.opening import model_files, open_generator, open_trainable
from search_to_signal.models.serving import serving
from search_to_signal.models.settings import ApiSettings, GenerationSettings
from search_to_signal.search.member import Prompt

pytestmark = pytest.mark.slow  # it loads the largest libraries

PROMPT = Prompt("You are told nothing.", "def select_next_node(current_node): return 0.4 # é")
KEY = "sk-very-secret"
LIMITS: dict[str, Any] = {"group_size": 3, "max_completion_tokens": 16, "max_prompt_tokens": 200}

Answer = Callable[[BaseHTTPRequestHandler], None]


def send(status: int, body: bytes, headers: dict[str, str] | None = None) -> Answer:
    """Answer with exactly this."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def chat(**changes: Any) -> bytes:
    """A chat completion, changed."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
    whole = {
        "id": "x",
        "model": "m",
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        "choices": [choice],
    }
    choice |= changes.pop("choice", {})
    return json.dumps(whole | changes).encode()


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Say nothing until the client has gone."""
    handler.connection.recv(1)
    handler.close_connection = True


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Announce a whole body, send half of it, and close the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id": ')
    handler.close_connection = True


AT_ONCE = {"retry-after-ms": "1"}
BUSY = send(429, b'{"error": {"message": "slow down"}}', AT_ONCE)
BROKEN = send(500, b"oops", AT_ONCE)
MALFORMED = send(200, b'{"id": "x", "choices": [')
NO_TEXT = send(200, b'{"id": "\xff"}')
NESTED = send(200, b'{"id": "x", "more": ' + b"[" * 9999)
EMPTY = send(200, chat(choice={"message": {"role": "assistant", "content": ""}}))
FILTERED = send(200, chat(choice={"finish_reason": "content_filter"}))
UNCOUNTED = send(200, chat(usage=None))
TWO = send(200, chat(choices=[{"finish_reason": "stop", "message": {"content": text}} for text in "ab"]))
REFUSED = send(401, json.dumps({"error": {"message": f"Incorrect API key: {KEY}"}}).encode())


class Endpoint:
    """The embedded kind of model behind a server whose first answers are scripted."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.asked: list[dict[str, str]] = []
        self.url = ""
        self._lock = threading.Lock()

    def intercept(self, handler: BaseHTTPRequestHandler) -> bool:
        """Play the next scripted answer, if there is one."""
        with self._lock:
            self.asked.append(dict(handler.headers))
            answer = self.script.pop(0) if self.script else None
        if answer is not None:
            answer(handler)
        return answer is not None


@pytest.fixture(scope="module")
def local(new_model: Callable[..., Any], tokenizer: Any) -> LocalGenerator:
    """The generator that is served."""
    return LocalGenerator(new_model(), tokenizer, GenerationSettings(**LIMITS))


@pytest.fixture
def endpoint(local: LocalGenerator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """A running server, with its key in the environment."""
    monkeypatch.setenv("S2S_TEST_KEY", KEY)
    found = Endpoint()
    with serving(local, "tiny", fingerprint="fp_1", intercept=found.intercept) as found.url:
        yield found


def client(endpoint: Endpoint, api: dict[str, Any] | None = None, **changes: Any) -> ApiGenerator:
    """A generator for the endpoint."""
    settings = {"key_variable": "S2S_TEST_KEY", "base_url": endpoint.url, "retries": 2, **(api or {})}
    return open_api(
        GenerationSettings(**{**LIMITS, "backend": "api", "api": ApiSettings(**settings), **changes}), "tiny"
    )


def test_an_endpoint_says_what_the_local_generator_says(endpoint: Endpoint, local: LocalGenerator) -> None:
    """Over HTTP, one request per completion: the same texts, cuts and token counts from the same seed."""
    own, served = local.generate(PROMPT, 7), client(endpoint).generate(PROMPT, 7)
    assert [item.text for item in served.completions] == [item.text for item in own.completions]
    assert [item.truncated for item in served.completions] == [item.truncated for item in own.completions]
    assert [item.tokens for item in served.completions] == [item.tokens for item in own.completions]
    assert [served.prompt_tokens(i) for i in range(3)] == [own.prompt_tokens(i) for i in range(3)]
    assert len(endpoint.asked) == 3


def test_what_is_recorded_is_what_was_reported(endpoint: Endpoint) -> None:
    """No token ids are invented; the provider's model name, fingerprint, seed and counts are kept."""
    generation = client(endpoint).generate(PROMPT, 7)
    assert generation.prompt_ids == ()
    assert [item.ids for item in generation.completions] == [()] * 3
    assert json.loads(generation.prompt) == [
        {"role": "system", "content": PROMPT.system},
        {"role": "user", "content": PROMPT.user},
    ]
    assert [request.seed for request in generation.requests] == list(request_seeds(7, 3))
    assert {(request.model, request.fingerprint) for request in generation.requests} == {("tiny", "fp_1")}
    assert client(endpoint).generate(PROMPT, 7) == generation


@pytest.mark.parametrize("fault", [BUSY, BROKEN, hang, hang_up, MALFORMED, EMPTY, UNCOUNTED, TWO])
def test_what_passes_is_tried_again(endpoint: Endpoint, fault: Answer) -> None:
    """A rate limit, a server error, a hang, a lost connection and an unusable body cost a repetition only."""
    # On a busy machine the answer itself takes a while.
    settings: dict[str, Any] = {"group_size": 1, "api": {"timeout_s": 2.0 if fault is hang else 60.0}}
    expected = client(endpoint, **settings).generate(PROMPT, 3)
    endpoint.script = [fault]
    endpoint.asked.clear()
    assert client(endpoint, **settings).generate(PROMPT, 3) == expected
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (BUSY, "RateLimitError.*slow down"),
        (BROKEN, "InternalServerError"),
        (hang_up, "APIConnectionError"),
        (MALFORMED, "not a chat completion.*3 times"),
        (NO_TEXT, "not a chat completion.*3 times"),
        (NESTED, "not a chat completion.*3 times"),
        (EMPTY, "empty content.*3 times"),
        (FILTERED, "finish_reason 'content_filter', 3 times"),
        (UNCOUNTED, r"not a chat completion.*usage.*3 times"),
    ],
)
def test_what_does_not_pass_stops_the_run(endpoint: Endpoint, fault: Answer, message: str) -> None:
    """After the bounded attempts there is an error that says why, and no completion to be rewarded."""
    endpoint.script = [fault] * 20
    with pytest.raises(GenerationError, match=rf"tiny at 127\.0\.0\.1 gave no completion \({message}"):
        client(endpoint, group_size=1).generate(PROMPT, 3)
    assert len(endpoint.asked) == 3


def test_one_lost_completion_loses_the_group(endpoint: Endpoint) -> None:
    """A group is whole or not at all."""
    endpoint.script = [EMPTY]
    with pytest.raises(GenerationError):
        client(endpoint, {"retries": 0}).generate(PROMPT, 3)


def test_a_refusal_is_not_repeated_and_keeps_the_key(endpoint: Endpoint) -> None:
    """A wrong key is reported at once; no message shows the key, even when the endpoint says it."""
    endpoint.script = [REFUSED] * 3
    with pytest.raises(GenerationError, match=r"AuthenticationError.*\[key\]") as caught:
        client(endpoint, group_size=1).generate(PROMPT, 3)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(endpoint.asked) == 1
    assert endpoint.asked[0]["Authorization"] == f"Bearer {KEY}"


def test_nobody_there_is_an_error_of_ours(endpoint: Endpoint) -> None:
    """An endpoint that cannot be reached stops the run like any other failure."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(GenerationError, match="APIConnectionError"):
        client(endpoint, {"base_url": url, "retries": 0}).generate(PROMPT, 3)


def test_the_key_is_read_from_the_environment(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing key names its variable; the settings hold the name and never the key."""
    assert KEY not in repr(client(endpoint).settings)
    monkeypatch.delenv("S2S_TEST_KEY")
    with pytest.raises(ConfigError, match="S2S_TEST_KEY"):
        client(endpoint)
    assert client(endpoint, {"key_variable": ""}).generate(PROMPT, 3).completions


def test_the_address_may_come_from_the_environment(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without base_url the client's own variable counts, so that a port is no part of a configuration."""
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    assert client(endpoint, {"base_url": None}).generate(PROMPT, 3).completions


def test_an_over_long_prompt_is_refused(endpoint: Endpoint) -> None:
    """Where long prompts are refused, one that the endpoint counts over the limit stops the run."""
    with pytest.raises(ConfigError, match="max_prompt_tokens is 5"):
        client(endpoint, max_prompt_tokens=5, long_prompts="refuse").generate(PROMPT, 3)


def test_messages_are_sent_whole(endpoint: Endpoint) -> None:
    """An endpoint's tokens are its own: however low the limit, nothing of a message is cut."""
    whole = client(endpoint).generate(PROMPT, 3)
    assert client(endpoint, max_prompt_tokens=5).generate(PROMPT, 3) == whole
    assert (whole.prompt_tokens_cut, whole.prompt_tokens(0) > 5) == (0, True)


def test_extra_fields_reach_the_endpoint(endpoint: Endpoint) -> None:
    """What a server must be told to sample without filters is sent along; ours refuses what it lacks."""
    whole = client(endpoint, {"limit_parameter": "max_completion_tokens"}).generate(PROMPT, 3)
    assert [item.truncated for item in whole.completions] == [True] * 3
    assert {item.tokens for item in whole.completions} == {LIMITS["max_completion_tokens"]}
    with pytest.raises(GenerationError, match="BadRequestError.*leave n, top_p and stream"):
        client(endpoint, {"extra": {"top_p": 0.5}}).generate(PROMPT, 3)


def test_backends_are_opened_by_name(endpoint: Endpoint, tmp_path: Any) -> None:
    """Settings alone decide the generator; an endpoint has no files here and cannot be taught."""
    settings = client(endpoint).settings
    assert isinstance(open_generator(settings, "tiny", tmp_path), ApiGenerator)
    assert model_files(settings, "tiny") == {}
    own = GenerationSettings(**LIMITS)
    assert isinstance(open_generator(own, "qwen2-2.1m", tmp_path), LocalGenerator)
    assert "model.safetensors" in model_files(own, "qwen2-2.1m")
    with pytest.raises(ConfigError, match="cannot be trained"):
        open_trainable(settings, "qwen2-2.1m", tmp_path)
    with pytest.raises(ConfigError, match=r"generation\.top_k"):
        GenerationSettings(top_k=5, backend="api")
