"""What an endpoint reports of its answers, read on the way: the released host keeps their texts alone.

The host asks a relay on this machine, which passes every request on as it is and every answer back. No header
is kept, so no key is.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx

from search_to_signal.base.processes import variables
from search_to_signal.models.api import UnusableAnswer, completion_of
from search_to_signal.records.schema import RequestRecord

# What one connection says to the next hop alone, or follows from the bytes that are sent on.
_OWN = {
    *("connection", "keep-alive", "host", "transfer-encoding", "te", "trailer", "upgrade"),
    *("content-length", "content-encoding", "accept-encoding", "date", "server"),
}
_NO_PROXY = ("NO_PROXY", "no_proxy")
_HERE = "127.0.0.1"


@dataclass
class RequestRelay:
    """An endpoint's address here, and its answers since they were last taken."""

    url: str = ""
    pending: list[tuple[str, RequestRecord]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, body: bytes) -> None:
        """Keep what an answer says of its one completion; anything else is the host's to see to."""
        with suppress(UnusableAnswer):
            completion = completion_of(body, None)
            if completion.request is not None:
                with self.lock:
                    self.pending.append((completion.text.strip(), completion.request))

    def taken(self, texts: Sequence[str]) -> tuple[RequestRecord, ...]:
        """What was reported of these texts, one each, and forget the rest; empty where one is missing."""
        with self.lock:
            pending, self.pending = self.pending, []
        requests: list[RequestRecord] = []
        for text in texts:
            place = next((i for i, (known, _) in enumerate(pending) if known == text.strip()), None)
            if place is None:
                return ()
            requests.append(pending.pop(place)[1])
        return tuple(requests)


@contextmanager
def relayed(address: str) -> Iterator[RequestRelay]:
    """Pass requests to ``address`` on while the context lasts; yields what to ask instead."""
    parts, relay = urlsplit(address), RequestRelay()
    with httpx.Client(timeout=None, follow_redirects=True) as client:
        handler = _handler(client, f"{parts.scheme}://{parts.netloc}", relay)
        server = ThreadingHTTPServer((_HERE, 0), handler)
        server.daemon_threads = True
        relay.url = f"http://{_HERE}:{server.server_address[1]}{parts.path}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            # No proxy stands between the host and this machine.
            with variables(**{n: ",".join(filter(None, (os.environ.get(n), _HERE))) for n in _NO_PROXY}):
                yield relay
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(client: httpx.Client, origin: str, relay: RequestRelay) -> type[BaseHTTPRequestHandler]:
    class RelayHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            try:
                answer = client.request(self.command, origin + self.path, content=body, headers=headers)
            except httpx.HTTPError as error:
                self._send(502, {}, f"the endpoint does not answer ({type(error).__name__})".encode())
                return
            if answer.status_code == httpx.codes.OK and self.command == "POST":
                relay.note(answer.content)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
            self._send(answer.status_code, kept, answer.content)

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            # A host that no longer waits has reported it itself.
            with suppress(ConnectionError):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: requests are in the records."""

    return RelayHandler
