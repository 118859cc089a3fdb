"""Distances of numbers to recorded tokens: what they are, and what a change of the logits can do to them."""

import numpy as np
import pytest

from search_to_signal.verify.token_draws import BOUNDS, Tally, distances


def test_a_number_within_its_interval_is_drawn() -> None:
    below, above = np.full(4, 0.25), np.full(4, 0.5)
    found = distances(below, above, np.array([0.25, 0.4999, 0.5, 0.75]))
    assert found.drawn.tolist() == [True, True, False, False]
    assert found.log_odds[[0, 1, 2]].tolist() == [0.0, 0.0, 0.0]
    assert found.log_odds[3] == pytest.approx(np.log(3.0))
    bound = BOUNDS["bfloat16"]
    one = Tally(bound)
    assert one.add(distances(np.full(3, 0.2), np.full(3, 0.4), np.array([0.3, 0.9, 0.45]))) == [1]
    assert (one.tokens, one.unequal, one.open_places) == (3, 2, 2 + (np.log(0.4 / 0.6 / (0.3 / 0.7)) < bound))
    many = Tally(bound)
    assert many.add(distances(np.full(50, 0.2), np.full(50, 0.4), np.full(50, 0.45))) == []
    assert many.together > many.allowed
    nothing = np.full(2, np.nan)
    tally = Tally(BOUNDS["bfloat16"])
    assert tally.add(distances(nothing, nothing, np.array([0.2, 0.7]))) == [0, 1]
    assert tally.together > tally.allowed


def _intervals(logits: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    above = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    above[:, -1] = 1.0
    below = np.pad(above, ((0, 0), (1, 0)))[:, :-1]
    rows = np.arange(len(tokens))
    return below[rows, tokens], above[rows, tokens]


def test_logits_that_move_by_e_move_no_token_further_than_2_e() -> None:
    """Drawn by moved logits and read by others: within 2 e for every token, and not within 0.5 e for all."""
    rng, e = np.random.default_rng(0), 0.1
    logits = rng.normal(0.0, 2.0, (20_000, 30))
    moved = logits + rng.uniform(-e, e, logits.shape)
    number = rng.random(len(logits))
    shares = np.exp(moved) / np.exp(moved).sum(axis=1, keepdims=True)
    tokens = np.minimum((shares.cumsum(axis=1) <= number[:, None]).sum(axis=1), 29)
    found = distances(*_intervals(logits, tokens), number)
    assert (~found.drawn).sum() > 100
    assert 0.5 * e < found.log_odds.max() <= 2 * e
