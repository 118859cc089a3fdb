"""A server that loads adapters: what it is asked, what of its answers is taken, and what is one line."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapter_server import AdapterServer, Body, Fault, refusal, running

from search_to_signal.base.errors import ConfigError, GenerationError
from search_to_signal.models.base import encoded, messages, request_seeds
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer
from search_to_signal.models.opening import open_trainable, require_server
from search_to_signal.models.server import ServerGenerator
from search_to_signal.models.settings import GenerationSettings, ServerSettings
from search_to_signal.search.member import Prompt

pytestmark = pytest.mark.slow  # it loads the largest libraries

MODEL = "qwen2-2.1m"
PROMPT = Prompt("You are told nothing.", "def select_next_node(current_node): return 0.4")
SCRIPTED = [300, 301, 302]


class Files:
    """An adapter as far as a server sees one."""

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "adapter_config.json").write_text("{}")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The shipped model's."""
    return load_tokenizer(model_directory(MODEL))


@pytest.fixture
def server(tokenizer: Any) -> AdapterServer:
    """It answers three tokens and the end."""

    def sample(adapter: Path | None, body: Body) -> tuple[list[int], list[float]]:
        return [*SCRIPTED, body["stop_token_ids"][0]], [-0.5, -1.0, -1.5, -2.0]

    return AdapterServer(MODEL, sample, lambda ids: str(tokenizer.decode(ids)))


@pytest.fixture
def url(server: AdapterServer) -> Iterator[str]:
    """Where it runs."""
    with running(server) as base:
        yield base


def settings_of(url: str, **changes: Any) -> GenerationSettings:
    """Settings of a run that asks the server, without waiting for a second try."""
    served = {"base_url": url, "retries": 0, "timeout_s": 20.0, **changes.pop("server", {})}
    limits = {"group_size": 3, "max_prompt_tokens": 200, "max_completion_tokens": 8}
    return GenerationSettings(backend="server", server=ServerSettings(**served), **{**limits, **changes})


def opened(url: str, scratch: Path, **changes: Any) -> Any:
    """A generator over the server."""
    return open_trainable(settings_of(url, **changes), MODEL, scratch)


def test_a_group_is_asked_token_by_token(
    server: AdapterServer, url: str, tokenizer: Any, tmp_path: Path
) -> None:
    """The prompt goes as ids, each completion has its own seed, and nothing is left to defaults there."""
    group = opened(url, tmp_path, temperature=0.7, top_p=0.5).generate(PROMPT, 11)
    text, ids = encoded(tokenizer, messages(PROMPT))
    assert (group.prompt, list(group.prompt_ids)) == (text, ids)
    assert [completion.ids[:-1] for completion in group.completions] == [tuple(SCRIPTED)] * 3
    assert all(completion.logprobs == (-0.5, -1.0, -1.5, -2.0) for completion in group.completions)
    assert not any(completion.truncated for completion in group.completions)
    asked = [body for path, body in server.requests if path == "completions" and "seed" in body]
    assert sorted(body["seed"] for body in asked) == sorted(request_seeds(11, 3))
    for body in asked:
        assert body["prompt"] == ids
        told = [body[key] for key in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")]
        assert told == [0.7, 0.5, -1, 0.0, 1.0]


def test_every_adapter_has_its_own_name(server: AdapterServer, url: str, tmp_path: Path) -> None:
    """The next group names the new one; the old one is forgotten there and removed here, like the last."""
    shared = tmp_path / "shared"
    generator = opened(url, tmp_path / "scratch", server={"adapters": str(shared)})
    for _ in range(2):
        generator.load_adapter(Files())
    loaded = [body["lora_name"] for path, body in server.requests if path == "load_lora_adapter"][1:]
    assert len(set(loaded)) == 2
    assert list(server.adapters) == loaded[1:]
    assert [path.name for path in shared.glob("*/*")] == loaded[1:]
    generator.generate(PROMPT, 1)
    assert server.requests[-1][1]["model"] == loaded[1]
    del generator
    assert list(shared.iterdir()) == []


def choice(**changes: Any) -> Fault:
    """Change the choice of a sampled completion."""

    def fault(path: str, body: Body, answer: Body) -> tuple[int, Body]:
        if path == "completions" and "seed" in body:
            answer["choices"][0] |= changes
        return 200, answer

    return fault


def whole(change: Callable[[Body], Body], status: int = 200) -> Fault:
    """Change the whole answer to a request for a sampled completion."""
    return lambda path, body, answer: (status, change(answer)) if "seed" in body else (200, answer)


FAULTS: dict[str, tuple[Fault, str]] = {
    "no ids": (choice(token_ids=None), "no token ids"),
    "another prompt": (choice(prompt_token_ids=[5, 6]), "2 tokens for"),
    "no log-probabilities": (choice(logprobs=None), "0 log-probabilities of 4"),
    "some log-probabilities": (choice(logprobs={"token_logprobs": [-1.0, None]}), "1 log-probabilities of 4"),
    "ended early": (choice(token_ids=SCRIPTED, finish_reason="length"), "as asked"),
    "no end": (choice(token_ids=SCRIPTED), "as asked"),
    "no tokens": (choice(token_ids=[]), "as asked"),
    "unknown token": (choice(token_ids=[9_000_000, 2]), "as asked"),
    "no completion": (whole(lambda answer: answer | {"choices": []}), "gave 0 completions"),
    "two completions": (whole(lambda answer: answer | {"choices": answer["choices"] * 2}), "gave 2"),
    "another adapter": (whole(lambda answer: answer | {"model": "else"}), "answered as else"),
    "something else": (whole(lambda answer: {"hello": 1}), "answers /completions otherwise"),
    "an error": (whole(lambda answer: refusal("the engine died"), 500), "status 500 .*the engine died"),
    "a refusal": (whole(lambda answer: refusal("too long"), 400), "status 400 .*too long"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_that_was_not_asked_for_is_one_line(
    fault: str, server: AdapterServer, url: str, tmp_path: Path
) -> None:
    """No token of it is recorded or learned from; the line names the server."""
    server.fault, told = FAULTS[fault]
    generator = opened(url, tmp_path)
    with pytest.raises(GenerationError, match=rf"the server at {url}/ .*{told}") as error:
        generator.generate(PROMPT, 1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("attribute", "value", "told"),
    [
        ("name", "somebody/else", f"serves somebody/else: start it with --served-model-name {MODEL}"),
        ("context", 207, "reads 207 tokens, prompt and completion may take 208"),
        ("knows_adapters", False, "cannot load adapters: .*VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
    ],
)
def test_a_server_that_cannot_do_it_is_told_before_a_run(
    attribute: str, value: Any, told: str, server: AdapterServer, url: str, tmp_path: Path
) -> None:
    """Another model, too short a context, no adapters: when a run opens it, and before the first run."""
    setattr(server, attribute, value)
    for attempt in (lambda: opened(url, tmp_path), lambda: require_server(settings_of(url), MODEL)):
        with pytest.raises(GenerationError, match=told):
            attempt()


def test_another_vocabulary_is_told(server: AdapterServer, url: str, tmp_path: Path) -> None:
    """A server of the right name that reads other words out of our tokens."""
    server.decode = lambda ids: "".join(chr(97 + token % 26) for token in ids)
    with pytest.raises(GenerationError, match="another vocabulary"):
        opened(url, tmp_path)


def test_an_adapter_that_is_not_loaded_is_told(server: AdapterServer, url: str, tmp_path: Path) -> None:
    """A directory that the server does not see: where it is, what the server says, which setting helps."""
    generator: ServerGenerator = opened(url, tmp_path)

    class Nowhere:
        def save(self, directory: Path) -> None: ...

    with pytest.raises(GenerationError, match=r"No adapter found for .*generation\.server\.adapters"):
        generator.load_adapter(Nowhere())  # type: ignore[arg-type]


def test_a_server_that_is_away_or_slow_is_told(server: AdapterServer, url: str, tmp_path: Path) -> None:
    """Nobody listens, or nobody answers in time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(GenerationError, match=r"does not answer \(.*refused"):
        opened(nobody, tmp_path)
    generator = opened(url, tmp_path, server={"timeout_s": 1.0})
    with server.lock, pytest.raises(GenerationError, match="does not answer .*raise timeout_s"):
        generator.generate(PROMPT, 1)


def test_a_key_is_sent_and_never_told(
    server: AdapterServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variable has to be set; an error that repeats it shows none."""
    with pytest.raises(ConfigError, match="KEY_OF_MINE is not set"):
        opened(url, tmp_path, server={"key_variable": "KEY_OF_MINE"})
    monkeypatch.setenv("KEY_OF_MINE", "very-secret")
    server.fault = lambda path, body, answer: (401, refusal("very-secret is no key"))
    with pytest.raises(GenerationError, match=r"\[key\] is no key"):
        opened(url, tmp_path, server={"key_variable": "KEY_OF_MINE"})
