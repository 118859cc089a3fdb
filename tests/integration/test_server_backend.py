"""A run that a server samples for: by the same tokens the records of a local run, also after a stop."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapter_server import AdapterServer, Body, refusal, running, transformers_sampler
from tests.profiles import profile_head

from search_to_signal.cli import main
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer

MODEL, GROUPS = "qwen2-2.1m", 2
PROFILE = """
checkpoint_every = 1

[generation]
max_prompt_tokens = 1024
max_completion_tokens = 160
{backend}

[learner]
lora_rank = 16
lora_alpha = 32
learning_rate = 8e-4

[evaluation]
timeout_s = 5.0
memory_mb = 256
"""
RUN = "cohort/factorized-s42"


def run(directory: Path, backend: str, *more: str) -> int:
    """Run one trained run by a command; returns how it ended."""
    directory.mkdir(exist_ok=True)
    text = profile_head("factorized", groups=GROUPS, seed=42) + PROFILE.format(backend=backend)
    (directory / "mine.toml").write_text(text)
    return main(["run", "--profile", str(directory / "mine.toml"), "--out", str(directory / "out"), *more])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run by the local backend."""
    place = tmp_path_factory.mktemp("local")
    assert run(place, "") == 0
    return place / "out"


@pytest.fixture
def serving() -> Iterator[tuple[AdapterServer, Callable[..., str]]]:
    """A server of the same model, and the settings that name it."""
    model = model_directory(MODEL)
    tokenizer: Any = load_tokenizer(model)
    served = AdapterServer(MODEL, transformers_sampler(model), lambda ids: str(tokenizer.decode(ids)))
    with running(served) as url:
        yield (
            served,
            lambda limit=1e-05: (
                f'backend = "server"\nserver = {{base_url = "{url}", retries = 0, max_difference = {limit}}}'
            ),
        )


def test_a_run_by_a_server_is_the_local_run(
    serving: tuple[AdapterServer, Callable[..., str]],
    local: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It dies in the second group, goes on, and ends with the same records and adapter, which verify."""
    served, settings = serving

    def second_group(path: str, body: Body, answer: Body) -> tuple[int, Body]:
        loaded = sum(path == "load_lora_adapter" and bool(b["lora_name"]) for path, b in served.requests)
        return (
            (503, refusal("the engine is dead")) if path == "completions" and loaded == 1 else (200, answer)
        )

    served.fault = second_group
    assert run(tmp_path, settings()) != 0
    assert "status 503" in capsys.readouterr().err
    served.fault = lambda path, body, answer: (200, answer)
    assert run(tmp_path, settings(), "--resume") == 0
    mine, theirs = tmp_path / "out" / RUN, local / RUN
    same = ["generations.jsonl", "completions.jsonl", "heuristics.jsonl", "adapter/adapter_model.safetensors"]
    for name in same:
        assert (mine / name).read_bytes() == (theirs / name).read_bytes(), name
    steps = [json.loads(line) for line in (mine / "steps.jsonl").read_text().splitlines()]
    differences = [step.pop("sampler_difference") for step in steps]
    assert len(differences) == GROUPS
    assert max(differences) < 1e-5
    assert steps == [json.loads(line) for line in (theirs / "steps.jsonl").read_text().splitlines()]
    # A group has an adapter of its own, and the second group was asked twice.
    assert len({body["model"] for path, body in served.requests if "seed" in body}) == GROUPS + 1
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert main(["verify", "--draws", str(tmp_path / "out")]) != 0
    told = capsys.readouterr()
    assert "a server draws by numbers of its own" in told.out + told.err
    assert main(["rerun", str(tmp_path / "out"), RUN]) == 2
    assert "promises no equal ones again" in capsys.readouterr().err
    assert main(["retrain", str(tmp_path / "out"), RUN, "--out", str(tmp_path / "again")]) == 0
    made = tmp_path / "again" / RUN / "adapter" / "adapter_model.safetensors"
    assert made.read_bytes() == (theirs / "adapter" / "adapter_model.safetensors").read_bytes()
