"""A recipe decides the model: its batches, its device, and what is left behind when it is done."""

import itertools
import shutil
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest
import torch

from recipe import training
from recipe.model_card import Card, write_card
from recipe.pairs import sources
from recipe.training import (
    RECIPE,
    WINDOW,
    Architecture,
    Example,
    Optimization,
    Recipe,
    corpus,
    pretrain,
    read_training_facts,
    window,
)
from search_to_signal.base.errors import ConfigError, ModelFileError
from search_to_signal.base.package_data import MODELS
from search_to_signal.base.settings import load_toml
from search_to_signal.models.files import checked_files
from search_to_signal.models.local import load_tokenizer

pytestmark = pytest.mark.slow

SMALL = Recipe(
    name="small",
    problems={"tsp": 0.5, "obp": 0.5},
    seed=5,
    device="cpu",
    threads=1,
    vocabulary_size=400,
    tokenizer_examples=40,
    architecture=Architecture("llama", 16, 32, 1, 2, 1, 1024, 0.2),
    optimization=Optimization(
        examples=2 * 40,
        batch_size=2,
        learning_rate=1e-3,
        warmup_steps=2,
        weight_decay=0.0,
        max_grad_norm=1.0,
        prompt_loss_weight=0.1,
    ),
    defect_shares=dict.fromkeys(("simplification", "injection", "replacement", "crossover", "creation"), 0.3),
)


class Stopped(Exception):
    """What ends a run from outside."""


class Progress:
    """Silent; stops the run at a step."""

    def __init__(self, stop: int | None = None) -> None:
        self._stop = stop

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        if done == self._stop:
            raise Stopped

    def say(self, line: str) -> None:
        pass


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained in one go."""
    out = tmp_path_factory.mktemp("trained")
    pretrain(SMALL, out, Progress())
    return out


def ids(drawn: Sequence[list[Example]]) -> list[list[list[int]]]:
    """Token ids of batches."""
    return [[example.ids.tolist() for example in batch] for batch in drawn]


def test_a_stopped_run_ends_in_the_same_weights(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped and taken up again leaves the bytes of an undisturbed one, and nothing else."""
    monkeypatch.setattr(training, "_SAVED_EVERY", WINDOW + 4)
    with pytest.raises(Stopped):
        pretrain(SMALL, tmp_path, Progress(stop=WINDOW + 5))
    assert (tmp_path / "training.pt").exists()
    pretrain(SMALL, tmp_path, Progress())
    names = sorted(path.name for path in trained.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in (n for n in names if n != "made.json"):
        assert (tmp_path / name).read_bytes() == (trained / name).read_bytes(), name


def test_a_model_says_how_it_was_made(trained: Path, tmp_path: Path) -> None:
    """Beside the weights stand processor, torch version, examples and time; without that there is no card."""
    made = read_training_facts(trained)
    assert made.processor == "CPU"
    assert made.torch == torch.__version__
    assert made.examples == SMALL.optimization.examples
    assert made.seconds > 0
    with pytest.raises(ModelFileError, match="made.json"):
        read_training_facts(tmp_path)


def test_processes_change_no_batch(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the same batches, in the same order, from any step on."""
    # It need not load the libraries again.
    monkeypatch.setattr(training, "get_context", lambda _: get_context("fork"))
    tokenizer = load_tokenizer(trained)
    alone = list(corpus(SMALL, tokenizer, 0, workers=0))
    assert len(alone) >= SMALL.optimization.examples // SMALL.optimization.batch_size
    later = WINDOW + 3
    together = list(itertools.islice(corpus(SMALL, tokenizer, later, workers=1), 20))
    assert ids(together) == ids(alone[later : later + 20])


def test_windows_differ(trained: Path) -> None:
    """No example of one window comes again in the next."""
    tokenizer = load_tokenizer(trained)
    first, second = (
        {tuple(example) for batch in ids(window(SMALL, tokenizer, number)) for example in batch}
        for number in (0, 1)
    )
    assert len(first) == WINDOW * SMALL.optimization.batch_size
    assert first.isdisjoint(second)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for what this machine has")
def test_a_lacking_device_is_refused(tmp_path: Path) -> None:
    """A recipe for a GPU is refused where there is none, before anything is written, and says what to do."""
    with pytest.raises(ConfigError, match='device = "cpu"'):
        pretrain(msgspec.structs.replace(SMALL, device="cuda"), tmp_path / "out", Progress())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["qwen2-2.1m", "llama-2.1m"])
def test_shipped_models_follow_their_recipes(name: str) -> None:
    """A shipped recipe reads, speaks all four problems, and was made with as many examples as it says."""
    recipe = load_toml(MODELS / name / RECIPE, Recipe)
    assert recipe.name == name
    assert len(sources(list(recipe.problems))) == 4
    assert sum(recipe.problems.values()) == pytest.approx(1.0)
    assert read_training_facts(MODELS / name).examples == recipe.optimization.examples
    assert f'"model_type": "{recipe.architecture.model_type}"' in (MODELS / name / "config.json").read_text()


def test_a_card_has_a_column_per_problem(trained: Path, tmp_path: Path) -> None:
    """The card measures every problem of the recipe; page and numbers agree, and the model can be loaded."""
    directory = shutil.copytree(trained, tmp_path / "model")
    card = write_card(SMALL, directory, Progress(), prompts=2)
    assert list(card.problems) == ["tsp", "obp"]
    for shares in card.problems.values():
        assert sum(shares.outcomes.values()) == pytest.approx(1.0)
    assert msgspec.json.decode((directory / "card.json").read_bytes(), type=Card) == card
    page = (directory / "README.md").read_text()
    assert "| held-out prompts | tsp | obp |" in page
    first = (f"{100 * shares.outcomes.get('valid', 0.0):.1f} %" for shares in card.problems.values())
    assert f"| valid | {' | '.join(first)} |" in page
    assert f"torch {torch.__version__}" in page
    assert {"made.json", "card.json", "model.safetensors"} <= set(checked_files(directory))
