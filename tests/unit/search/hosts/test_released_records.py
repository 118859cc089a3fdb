"""Records of a released run say what was asked and how long it was, and are executed again."""

import json
import shutil
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from answering_host import some_answers, with_us
from tests.command import Capture, Patch
from tests.forging import configure, edit_line, reseal

from search_to_signal.cli import main
from search_to_signal.models.serving import serving
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import CompletionRecord, GenerationRecord
from search_to_signal.search.hosts.released.intervention import relayed

Sabotage = Callable[[str, str, str], Path]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gpu_packages")]


def records(run: Path) -> list[CompletionRecord]:
    return [record for group in read_groups(run) for record in group]


def generations(run: Path) -> list[GenerationRecord]:
    return list(read_records(run / GENERATIONS, GenerationRecord))


# --- what was asked ---


def test_the_whole_prompt_is_recorded(answering: Path, out: Path) -> None:
    config = with_us(answering, out).config
    assert config["search"]["prompts"] == "released"
    assert config["idea_end"] == "any_fence"
    for generation in generations(out):
        messages = json.loads(generation.prompt)
        assert [message["role"] for message in messages] == ["system", "user"]
        assert "You see algorithms and answer with another" in messages[0]["content"]
        assert "```python" in messages[1]["content"]
    assert main(["verify", str(out)]) == 0


# --- how long it was, by a trainer ---


class Words:
    """Stands in for a tokenizer: a token is a word, and 0 ends a text."""

    chat_template = None
    eos_token_id = 0

    def __call__(self, text: str, **options: Any) -> dict[str, list[str]]:
        return {"input_ids": text.split()}


def with_tokenizer(answering: Path, sabotaged: Sabotage, more: str) -> Path:
    """Give the trainer a tokenizer, and further attributes."""
    (answering / "words.py").write_text("from test_released_records import Words\n")
    sabotaged("calm_trainer.py", "import importlib\n", "import importlib\nimport words\n")
    given = f"        self.processing_class = words.Words()\n{more}        self.calm_args,"
    return sabotaged("calm_trainer.py", "        self.calm_args,", given)


def test_completions_that_the_trainer_cut_are_truncated(
    sabotaged: Sabotage, answering: Path, out: Path
) -> None:
    with_tokenizer(answering, sabotaged, "        self.max_completion_length = 6\n")
    ids = "[[1] * 6, [1, 1, 0], [1] * 5 + [0], [1] * 6]"
    sabotaged(
        "calm_trainer.py", "completions=completions)", f"completions=completions, completion_ids={ids})"
    )
    with_us(answering, out)
    for group in read_groups(out):
        assert [record.truncated for record in group] == [True, False, False, True]
        assert [record.completion_tokens for record in group] == [6, 3, 6, 6]
    assert generations(out)[0].completion_ids[1] == (1, 1, 0)
    assert main(["verify", str(out)]) == 0


def test_without_tokens_a_text_of_the_limits_length_is_truncated(
    sabotaged: Sabotage, answering: Path, out: Path
) -> None:
    with_tokenizer(answering, sabotaged, "        self.args = type('A', (), {'max_completion_length': 40})\n")
    with_us(answering, out)
    told = [(record.truncated, record.completion_tokens >= 40) for record in records(out)]
    assert all(cut is long for cut, long in told)
    assert {cut for cut, _ in told} == {True, False}


# --- how long it was, by an endpoint ---


class Endpoint:
    """Answers in order, as a provider does: with what it counted, or without."""

    def __init__(self) -> None:
        self.texts = [text or "nothing" for group in some_answers() for text in group]
        self.usage: bool = True
        self.keys: set[str | None] = set()
        self.asked = 0

    def __call__(self, handler: BaseHTTPRequestHandler) -> bool:
        """Answer a request; every third answer is cut."""
        self.keys.add(handler.headers.get("Authorization"))
        text, self.asked = self.texts[self.asked], self.asked + 1
        choice = {
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop" if self.asked % 3 else "length",
        }
        answer: dict[str, Any] = {"id": f"a{self.asked}", "model": "talker-7", "choices": [choice]}
        if self.usage:
            answer["usage"] = {"prompt_tokens": 100 + self.asked, "completion_tokens": self.asked}
        data = msgspec.json.encode(answer)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        return True


class Nobody:
    """No model: the endpoint answers by itself."""

    model: Any = None


@pytest.fixture
def endpoint() -> Iterator[tuple[str, Endpoint]]:
    answers = Endpoint()
    with serving(Nobody(), "talker", intercept=answers) as url:  # type: ignore[arg-type]
        yield url, answers


def served(calm: Path, out: Path, url: str) -> int:
    """Run the host against an endpoint; returns the exit code."""
    file = calm.parent / "mine.yaml"
    options = {
        **{"problem_name": "obp", "model_name": "online/talker", "base_url": url, "api_key": "a-secret"},
        **{"max_steps": 4, "n_generations": 4, "max_stuck_threshold": 25},
        **{"seed_algo_fp": "configs/obp/seed.py", "template_fp": "configs/obp/template.py"},
    }
    file.write_text("".join(f"{name}: {value}\n" for name, value in options.items()))
    return main(["released", "--calm", str(calm), "--config", str(file), "--out", str(out)])


def test_what_an_endpoint_reports_is_recorded(calm: Path, out: Path, endpoint: tuple[str, Endpoint]) -> None:
    url, answers = endpoint
    assert served(calm, out, url) == 0
    manifest, found = read_manifest(out), records(out)
    assert manifest.checkout is not None
    assert manifest.checkout.tokenizer == "endpoint"
    assert manifest.config["options"]["base_url"] == url
    assert [record.completion_tokens for record in found] == [*range(1, 17)]
    assert [record.prompt_tokens for record in found] == [*range(101, 117)]
    assert [record.truncated for record in found] == [number % 3 == 0 for number in range(1, 17)]
    requests = [request for generation in generations(out) for request in generation.requests]
    assert [(r.id, r.model, r.seed) for r in requests] == [(f"a{n}", "talker-7", None) for n in range(1, 17)]
    assert answers.keys == {"Bearer a-secret"}
    assert all(b"a-secret" not in path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert main(["verify", str(out)]) == 0


def test_tokens_of_a_served_model(
    calm: Path, out: Path, endpoint: tuple[str, Endpoint], tokenizer: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer.save_pretrained("talker")
    url, answers = endpoint
    answers.usage = False
    assert served(calm, out, url) == 0
    checkout, (first, *_) = read_manifest(out).checkout, records(out)
    assert checkout is not None
    assert checkout.tokenizer == "model"
    text = generations(out)[0].completions[0]
    assert first.completion_tokens == len(tokenizer.encode(text, add_special_tokens=False))
    assert first.prompt_tokens > 0
    assert generations(out)[0].requests == ()


def test_the_relay_passes_on_what_it_gets(endpoint: tuple[str, Endpoint]) -> None:
    url, _ = endpoint
    with relayed(url) as relay:
        assert relay.url.endswith("/v1")
        listed = httpx.get(f"{relay.url}/models", trust_env=False)
        assert listed.json()["data"][0]["id"] == "talker"
        assert httpx.get(f"{relay.url}/nothing", trust_env=False).status_code == 404
    with relayed("http://127.0.0.1:9/v1") as relay:
        assert httpx.get(f"{relay.url}/models", trust_env=False).status_code == 502


# --- executed again ---


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run lies that the first test makes."""
    return tmp_path_factory.mktemp("made") / "run"


@pytest.fixture
def recorded(made: Path, answering: Path, out: Path) -> Path:
    """A copy of a sealed run, said to be on the instances that the stand-in has in tests."""
    if not made.exists():
        with_us(answering, made, "factorized")
        configure(made, split="embedded")
        reseal(made)
    return Path(shutil.copytree(made, out))


def recomputed(run: Path, capsys: Capture) -> tuple[int, str]:
    """Exit code and words of ``verify --recompute``, after new lists."""
    reseal(run)
    capsys.readouterr()
    code = main(["verify", str(run), "--recompute"])
    return code, "".join(capsys.readouterr())


def test_programs_of_the_released_host_are_executed(recorded: Path, capsys: Capture) -> None:
    code, said = recomputed(recorded, capsys)
    assert code == 0, said
    assert "programs of 4 groups" in said
    assert " 0 executions" not in said
    assert "the released host makes them by itself" in said


def _forged(line: dict[str, Any]) -> None:
    line.update(score=line["score"] + 1e-12, archive_gap=None)


FORGED: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "text": (GENERATIONS, lambda g: g["completions"].reverse(), "response_sha256"),
    "prompt": (GENERATIONS, lambda g: g.update(prompt='[{"content": "x"}]'), "does not show its parents"),
    "program": ("completions.jsonl", lambda c: c.update(program_sha256="0" * 64), "program_sha256"),
    "score": ("completions.jsonl", _forged, "its program gives"),
    "outcome": ("completions.jsonl", lambda c: c.update(outcome="randomness", score=None), "its text gives"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_records_of_a_released_run_are_found(recorded: Path, capsys: Capture, name: str) -> None:
    file, change, told = FORGED[name]
    valid = next(record.step * 4 + record.index for record in records(recorded) if record.score is not None)
    edit_line(recorded / file, 0 if file == GENERATIONS else valid, change)
    code, said = recomputed(recorded, capsys)
    assert code == 1
    assert told in said


def test_another_checkout_s_instances_are_named_once(
    sabotaged: Sabotage, answering: Path, out: Path, capsys: Capture
) -> None:
    """Where the seed heuristic scores otherwise no score is compared, and outcomes still are."""
    with_us(sabotaged("problems/obp.py", "seed(2027)", "seed(2028)"), out)
    configure(out, split="embedded")
    code, said = recomputed(out, capsys)
    assert code == 1
    assert said.count("its instances are others") == 1
    assert "its program gives" not in said
