"""An OpenAI-compatible chat endpoint over a local generator, on this machine alone.

For the API layer of a profile and for tests over real HTTP: ``/v1/models`` and ``/v1/chat/completions``, no
streaming. Equal messages, seed, temperature and limit give the completion that the local generator gives.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import msgspec

from search_to_signal.base.errors import UNREADABLE, ConfigError, GenerationError, ModelFileError, reason
from search_to_signal.base.processes import answering
from search_to_signal.base.progress import one_line
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.models.base import GenerationSettings
from search_to_signal.models.device import memory_errors
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import LocalGenerator
from search_to_signal.models.opening import model_files
from search_to_signal.models.settings import LOOPBACK, ModelLoading, TemplateKwargs

Intercept = Callable[[BaseHTTPRequestHandler], bool]
Report = Callable[[str], None]
# For a client that has stopped in the middle of a request.
PATIENCE_S = 60.0
# Of a request, in bytes: a million tokens.
_LONGEST_BODY = 4 << 20
# Of what a client sent, in an answer.
_MOST_CHARACTERS = 300
Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request is honoured; without a seed one is drawn."""

    model: str
    messages: tuple[_Message, ...]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: float = 1.0
    seed: int | None = None
    top_p: float = 1.0
    n: int = 1
    stream: bool = False
    chat_template_kwargs: TemplateKwargs = {}


@dataclass(frozen=True)
class Served:
    """A generator under the name by which clients ask for it. ``fingerprint`` identifies its weights.

    ``less_memory`` is what there is to change for needing less of a card's memory.
    """

    generator: LocalGenerator
    name: str
    fingerprint: str
    lock: threading.Lock
    less_memory: str

    def models(self) -> dict[str, Any]:
        """The answer to ``/v1/models``."""
        entry = {"id": self.name, "object": "model", "created": 0, "owned_by": "search-to-signal"}
        return {"object": "list", "data": [entry]}

    def complete(self, body: bytes) -> dict[str, Any]:
        """The answer to ``/v1/chat/completions``; raises ConfigError for what it cannot honour.

        Raises GenerationError where the card has too little memory for it; the next one may have enough.
        """
        try:
            asked = msgspec.json.decode(body, type=_Request)
        except UNREADABLE as error:
            said = one_line(str(error), _MOST_CHARACTERS)
            raise ConfigError(f"not a chat completion request: {said}") from error
        if asked.model != self.name:
            other = one_line(repr(asked.model), _MOST_CHARACTERS)
            raise ConfigError(f"there is no model {other} here: ask for {self.name!r}")
        if not asked.messages:
            raise ConfigError("there are no messages: send one or more")
        if (asked.n, asked.top_p, asked.stream) != (1, 1.0, False):
            raise ConfigError("one whole completion per request, without filters: leave n, top_p and stream")
        seed = secrets.randbits(31) if asked.seed is None else asked.seed
        chat = [{"role": message.role, "content": message.content} for message in asked.messages]
        remedy = f"shorten the prompt, or {self.less_memory}"
        with memory_errors("this answer", remedy, GenerationError), self.lock:
            group = self.generator.answer(chat, [seed], self._settings(asked))
        (completion,) = group.completions
        return {
            "id": f"chatcmpl-{hashlib.sha256(body).hexdigest()[:24]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.name,
            "system_fingerprint": self.fingerprint,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": completion.text},
                    "logprobs": None,
                    "finish_reason": "length" if completion.truncated else "stop",
                }
            ],
            "usage": {
                "prompt_tokens": group.prompt_tokens(0),
                "completion_tokens": completion.tokens,
                "total_tokens": group.prompt_tokens(0) + completion.tokens,
            },
        }

    def _settings(self, asked: _Request) -> GenerationSettings:
        limit = asked.max_completion_tokens or asked.max_tokens or 1024
        room = self.generator.model.config.max_position_embeddings - limit
        return GenerationSettings(
            temperature=asked.temperature,
            max_completion_tokens=limit,
            max_prompt_tokens=max(room, 1),
            long_prompts="refuse",
            template_kwargs=asked.chat_template_kwargs,
        )


class _Unread(Exception):
    """A request whose body cannot be read, and the status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _handler(
    served: Served, intercept: Intercept | None, report: Report | None
) -> type[BaseHTTPRequestHandler]:
    class ChatHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        default_request_version = "HTTP/1.0"  # of a line that says none: 0.9 has no status
        timeout = PATIENCE_S

        def handle(self) -> None:
            # A client may go away whenever it likes: nobody is left to be told, and nothing went wrong here.
            with suppress(ConnectionError, TimeoutError):
                super().handle()

        def do_GET(self) -> None:
            if self._body() is None:
                return
            if self.path == "/v1/models":
                self._send(200, served.models())
            else:
                self._refuse(404, f"there is nothing at {one_line(self.path, _MOST_CHARACTERS)}")

        def do_POST(self) -> None:
            body = self._body()
            if body is None or (intercept is not None and intercept(self)):
                return
            if self.path != "/v1/chat/completions":
                self._refuse(404, f"there is nothing at {one_line(self.path, _MOST_CHARACTERS)}")
                return
            try:
                self._send(200, served.complete(body))
            except ConfigError as error:
                self._refuse(400, str(error))
            except (GenerationError, ModelFileError) as error:
                if report is not None:
                    report(str(error))
                status = 503 if isinstance(error, GenerationError) else 500
                self._refuse(status, str(error), "server_error")

        def _body(self) -> bytes | None:
            """What was sent along; None where that cannot be read, which is told."""
            try:
                return self._read()
            except _Unread as error:
                self._give_up(error.status, str(error))
                return None

        def _read(self) -> bytes:
            said = self.headers.get_all("Content-Length", ["0"])
            if "Transfer-Encoding" in self.headers or len(said) > 1:
                raise _Unread(411, "send the body as a whole, with one Content-Length")
            if not (said[0].isascii() and said[0].isdigit()):
                raise _Unread(400, f"Content-Length is {one_line(repr(said[0]), 40)}, no number of bytes")
            # Reading a number of thousands of digits takes its time.
            if len(said[0]) > 20 or int(said[0]) > _LONGEST_BODY:
                raise _Unread(413, f"a request has {_LONGEST_BODY >> 20} MB at most")
            try:
                body = self.rfile.read(int(said[0]))
            except TimeoutError as error:
                raise _Unread(408, f"nothing of the request came for {PATIENCE_S:g} s") from error
            if len(body) < int(said[0]):
                raise _Unread(400, f"the request ends after {len(body)} of {said[0]} bytes")
            return body

        def _give_up(self, status: int, message: str) -> None:
            """Refuse a request whose end is not known, and with it the connection."""
            self.close_connection = True
            self._refuse(status, message)

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """What the library refuses, in the words of this endpoint."""
            self._give_up(code, one_line(message or HTTPStatus(code).phrase, _MOST_CHARACTERS))

        def _refuse(self, status: int, message: str, kind: str = "invalid_request_error") -> None:
            self._send(status, {"error": {"message": message, "type": kind}})

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            data = msgspec.json.encode(answer)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: requests are recorded by who asks."""

    return ChatHandler


@contextmanager
def serving(
    generator: LocalGenerator,
    name: str,
    *,
    port: int = 0,
    fingerprint: str = "",
    intercept: Intercept | None = None,
    less_memory: str = "serve a smaller model",
    report: Report | None = None,
) -> Iterator[str]:
    """Serve on 127.0.0.1 while the context lasts; yields the base URL. Port 0 takes any free one.

    Where the card has too little memory for an answer the client gets status 503 with a line that ends in
    ``less_memory``, what there is to change; ``report`` is told the same line, and the next answer is tried.
    ``intercept`` sees every POST first and returns whether it answered: for tests of what clients do then.
    Raises ConfigError when the port is taken.
    """
    served = Served(generator, name, fingerprint, threading.Lock(), less_memory)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(served, intercept, report))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on port {port} ({reason(error)}): give another port, or 0 for any"
        ) from error
    with answering(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"


# An endpoint of a run's own: its model behind real HTTP on this machine, for as long as the run lasts.


@contextmanager
def reachable(
    settings: GenerationSettings, model: str, loading: ModelLoading
) -> Iterator[GenerationSettings]:
    """The settings, while the endpoint that they name can be reached; ``model`` is a name or a path."""
    if settings.backend != "api" or settings.api.base_url != LOOPBACK:
        yield settings
        return
    # Loaded for this alone: a run against a real endpoint needs no model library.
    from search_to_signal.models.device import LESS_MEMORY
    from search_to_signal.models.local import open_local

    path = model_directory(model)
    fingerprint = f"fp_{canonical_sha256(model_files(settings, model))[:16]}"
    generator = open_local(path, loading, settings)
    with serving(generator, model, fingerprint=fingerprint, less_memory=LESS_MEMORY) as url:
        opened = msgspec.structs.replace(settings.api, base_url=url)
        yield msgspec.structs.replace(settings, api=opened)
