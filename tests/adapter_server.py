"""A stand-in for vLLM: its requests for models, adapters and completions, over real HTTP on this machine."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Body = dict[str, Any]
# Token ids and their log-probabilities, of a prompt under the adapter in a directory, if any.
Sample = Callable[[Path | None, Body], tuple[list[int], list[float]]]
# What to answer instead: the request's last part, its body and the answer, to a status and an answer.
Fault = Callable[[str, Body, Body], tuple[int, Body]]


@dataclass
class AdapterServer:
    """A server of one model; ``requests`` are all that it was asked, ``fault`` changes what it answers."""

    name: str
    sample: Sample
    decode: Callable[[list[int]], str]
    fault: Fault = lambda path, body, answer: (200, answer)
    context: int = 4096
    knows_adapters: bool = True
    adapters: dict[str, Path] = field(default_factory=dict)
    requests: list[tuple[str, Body]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, body: Body) -> tuple[int, Body]:
        """Status and body of an answer, as vLLM 0.24 gives them."""
        self.requests.append((path, body))
        if path == "models":
            base = {"id": self.name, "parent": None, "max_model_len": self.context}
            return 200, {"data": [base, *({"id": name, "parent": self.name} for name in self.adapters)]}
        if path.endswith("lora_adapter") and self.knows_adapters:
            return self._adapter(path, body)
        if path != "completions" or body["model"] not in (self.name, *self.adapters):
            return 404, refusal("there is no such thing here")
        with self.lock:
            return 200, self._completion(body)

    def _adapter(self, path: str, body: Body) -> tuple[int, Body]:
        name = body["lora_name"]
        if path.startswith("unload"):
            return (200, {}) if self.adapters.pop(name, None) else (404, refusal(f"{name} cannot be found"))
        if not name or name in self.adapters:
            return 400, refusal("both names must be provided" if not name else f"{name} is loaded already")
        if not Path(body["lora_path"], "adapter_config.json").is_file():
            return 404, refusal(f"No adapter found for {body['lora_path']}")
        self.adapters[name] = Path(body["lora_path"])
        return 200, {}

    def _completion(self, body: Body) -> Body:
        if body.get("echo"):
            choice: Body = {"text": self.decode(body["prompt"]), "finish_reason": "length"}
        else:
            ids, logprobs = self.sample(self.adapters.get(body["model"]), body)
            stopped = ids[-1] in body["stop_token_ids"]
            choice = {
                "text": self.decode(ids),
                "finish_reason": "stop" if stopped else "length",
                "token_ids": ids,
                "prompt_token_ids": body["prompt"],
                "logprobs": {"token_logprobs": logprobs},
            }
        return {"id": "cmpl-1", "model": body["model"], "choices": [{"index": 0, **choice}]}


def refusal(message: str) -> Body:
    """An error as vLLM words one."""
    return {"error": {"message": message, "type": "NotFoundError", "code": 404}}


@contextmanager
def running(server: AdapterServer) -> Iterator[str]:
    """Answer on a free port while the context lasts; yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: Body) -> None:
            path = self.path.removeprefix("/v1/")
            status, answer = server.answer(path, body)
            if status == 200:
                status, answer = server.fault(path, body, answer)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}/v1"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def transformers_sampler(directory: Path) -> Sample:
    """Samples as the local backend does: from a model of these files, with adapters that PEFT loads."""
    from peft import PeftModel

    from search_to_signal.learner.adapter import merge_adapter
    from search_to_signal.learner.grpo_loss import fitting_group, token_log_probabilities
    from search_to_signal.models.local import load_model
    from search_to_signal.models.sampling import Filters, sample_group

    base, merged = load_model(directory), load_model(directory)
    current: list[Path | None] = [None]

    def sample(adapter: Path | None, body: Body) -> tuple[list[int], list[float]]:
        if adapter != current[0]:
            assert adapter is not None
            adapted: Any = PeftModel.from_pretrained(load_model(directory), str(adapter))
            merge_adapter(adapted, merged)
            current[0] = adapter
        model = base if adapter is None else merged
        group = sample_group(
            model,
            body["prompt"],
            seeds=[body["seed"]],
            max_new_tokens=body["max_tokens"],
            temperature=body["temperature"],
            end_ids=frozenset(body["stop_token_ids"]),
            filters=Filters(None if body["top_k"] == -1 else body["top_k"], body["top_p"]),
        )
        (ids,) = group.completion_ids
        scored = token_log_probabilities(model, fitting_group(model, body["prompt"], [ids], 0))
        return list(ids), [float(value) for value in scored[0].detach()]

    return sample
