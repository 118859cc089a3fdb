"""Pretraining: seeded weights, batches that lose nothing, and a run that can be put down."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recipe.training import Example, Optimization, Pretraining, batches, begin, train

pytestmark = pytest.mark.slow  # it loads the largest libraries

SETTINGS = Optimization(
    examples=24,
    batch_size=4,
    learning_rate=3e-3,
    warmup_steps=2,
    weight_decay=0.05,
    max_grad_norm=1.0,
    prompt_loss_weight=0.0,
)


def examples(count: int, seed: int = 0) -> list[Example]:
    """Short examples of random tokens."""
    rng = np.random.default_rng(seed)
    return [Example(rng.integers(3, 200, size=int(rng.integers(5, 12))), 3) for _ in range(count)]


def run(training: Pretraining, stop: int | None = None) -> list[float]:
    """Train from where it stands to the end, or until the given step; returns the losses."""
    losses: list[float] = []
    drawn = batches(examples(64), SETTINGS.batch_size, np.random.default_rng(1))
    report = lambda step, steps, loss: losses.append(loss)  # noqa: E731
    train(training, iter(drawn[training.step : stop]), SETTINGS, pad_id=0, report=report)
    return losses


def test_the_seed_decides_the_weights(new_model: Callable[..., Any]) -> None:
    """Equal seeds give equal models, other seeds others."""
    first, same, other = (next(new_model(seed).parameters()) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_batches_lose_nothing() -> None:
    """The batches hold every example once, in batches of like length and in no order of length."""
    source = examples(64)
    window = batches(source, 4, np.random.default_rng(1))
    assert sorted(id(example) for batch in window for example in batch) == sorted(map(id, source))
    lengths = [[len(example.ids) for example in batch] for batch in window]
    assert all(max(row) - min(row) <= 2 for row in lengths)
    assert lengths != sorted(lengths)


def test_an_interrupted_run_goes_on_as_if_nothing_happened(
    new_model: Callable[..., Any], tmp_path: Path
) -> None:
    """Putting a run down after two steps and taking it up gives the uninterrupted weights."""
    whole, broken = begin(new_model(1), SETTINGS), begin(new_model(1), SETTINGS)
    losses = run(whole)
    assert len(losses) == 6
    assert run(broken, stop=2) == losses[:2]
    broken.save(tmp_path / "training.pt")
    resumed = begin(new_model(4), SETTINGS)
    resumed.load(tmp_path / "training.pt")
    assert 0 < resumed.seconds == broken.seconds
    assert run(resumed) == losses[2:]
    for expected, found in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(expected, found)


def test_padding_and_prompt_carry_no_weight(new_model: Callable[..., Any]) -> None:
    """With a prompt weight of zero the loss is the mean over response tokens alone."""
    model, (first, second) = new_model(1), examples(2)
    total, count = 0.0, 0
    with torch.no_grad():
        for example in (first, second):
            ids = torch.from_numpy(example.ids)[None]
            logps = torch.log_softmax(model(input_ids=ids).logits, dim=-1)[0, 2:-1]
            total -= float(logps.gather(1, ids[0, 3:, None]).sum())
            count += len(example.ids) - 3
    losses: list[float] = []
    train(
        begin(model, SETTINGS),
        iter([[first, second]]),
        SETTINGS,
        pad_id=0,
        report=lambda step, steps, loss: losses.append(loss),
    )
    np.testing.assert_allclose(losses, [total / count], rtol=1e-5)
