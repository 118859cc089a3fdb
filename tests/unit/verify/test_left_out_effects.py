"""Effects of classes of credit: single ones, all together, and what is left between them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from search_to_signal.run.left_out import KINDS, NOTHING
from search_to_signal.verify import taught
from search_to_signal.verify.taught import RESIDUAL, Trial

INITIAL, VALID = np.array([20.0, 40.0]), "Valid (%)"


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A run without records, whose classes have equal shares of the positive advantage."""
    monkeypatch.setattr(taught, "_credit", lambda trial: dict.fromkeys(KINDS, 25.0))
    config: Any = SimpleNamespace()
    return Trial("run", config, Path("r"), {}, (NOTHING, *KINDS), 2, 1, Path("out"))


def _effects(trial: Trial, without: dict[str, float]) -> dict[str, list[float | None]]:
    """Mean and standard error of each row, where leaving a class out takes so many points off 80 and 100."""
    found = {"initial": {VALID: INITIAL}, "without-nothing": {VALID: np.array([80.0, 100.0])}}
    for kind in trial.variants[1:]:
        found[f"without-{kind}"] = {VALID: np.array([80.0, 100.0]) - without.get(kind, 0.0)}
    lines = taught._bought(trial, found)
    return {name: [cells[VALID].number, cells[VALID].spread] for name, cells in lines}


def test_effects_that_add_up_leave_no_residual(trial: Trial) -> None:
    """All credit moved every prompt by 60 points, which two classes share."""
    rows = _effects(trial, {"copies": 45.0, "failed": 15.0})
    assert rows["copies"] == [45.0, 0.0]
    assert rows["all credit"] == [60.0, 0.0]
    assert rows[RESIDUAL] == [0.0, 0.0]


def test_what_two_classes_teach_alike_is_the_residual(trial: Trial) -> None:
    """Without either the behaviour stays: single effects are none, and the whole is between them."""
    assert _effects(trial, {})[RESIDUAL] == [60.0, 0.0]


def test_without_all_four_classes_there_is_no_residual(trial: Trial) -> None:
    """The effects of some classes say nothing of how the others would add up."""
    some = Trial(**{**vars(trial), "variants": (NOTHING, "copies")})
    assert set(_effects(some, {})) == {"copies", "all credit"}
