"""A learner that was written down goes on as if nothing had been between: the same bits in every step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from search_to_signal.base.errors import LearnerError
from search_to_signal.learner.adapter import adapter_sha256, attach_adapter
from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.optimizer import dump_state, load_state
from search_to_signal.learner.settings import GrpoSettings, LearnerSettings

pytestmark = pytest.mark.slow  # it loads the largest libraries

SETTINGS = LearnerSettings(lora_rank=4, lora_alpha=8, learning_rate=5e-3)
Make = Callable[..., GrpoLearner]


@pytest.fixture
def learner(new_model: Callable[..., Any]) -> Make:
    """Make a learner with a fresh adapter."""

    def make(seed: int = 3, settings: LearnerSettings = SETTINGS, **rule: int) -> GrpoLearner:
        model = attach_adapter(new_model(), settings, seed)
        return GrpoLearner(model, settings, 0, GrpoSettings(**rule))

    return make


def steps(learner: GrpoLearner, first: int, last: int) -> list[str]:
    """Teach it groups that depend on the step; returns the adapters' checksums."""
    made = []
    for step in range(first, last):
        completions = ((11 + step, 12, 2), (14, 15 + step, 16, 2))
        made.append(
            learner.step(
                TrainingGroup((5, 6, 7 + step), completions, np.array([0.7, -0.7]) * (step % 3))
            ).adapter_sha256
        )
    return made


@pytest.mark.parametrize("rule", [{}, {"prompts_per_step": 2, "redraws": 1}])
def test_a_learner_goes_on_where_it_was(learner: Make, rule: dict[str, int]) -> None:
    """Six groups, two of them flat, are the same six adapters with a dump and another learner after any."""
    undisturbed = steps(learner(**rule), 0, 6)
    assert len(set(undisturbed)) > 1
    for stop in range(6):
        first, second = learner(**rule), learner(seed=99, **rule)
        assert steps(first, 0, stop) == undisturbed[:stop]
        second.load(first.dump())
        assert adapter_sha256(second.model) == adapter_sha256(first.model)
        assert steps(second, stop, 6) == undisturbed[stop:]


def test_the_moments_are_part_of_it(learner: Make) -> None:
    """An adapter without its optimizer state would go elsewhere: what is tested above can fail."""
    first, second = learner(), learner()
    steps(first, 0, 3)
    with torch.no_grad():
        for own, other in zip(second.model.parameters(), first.model.parameters(), strict=True):
            own.copy_(other)
    assert adapter_sha256(second.model) == adapter_sha256(first.model)
    assert steps(second, 3, 4) != steps(first, 3, 4)


def test_equal_learners_dump_equal_bytes(learner: Make) -> None:
    """The form is canonical, and dumping changes nothing."""
    first, second = learner(), learner()
    steps(first, 0, 2)
    steps(second, 0, 2)
    assert first.dump() == first.dump() == second.dump()


def test_another_adapter_is_refused(learner: Make) -> None:
    """A dump of another rank is an error before a weight changes."""
    other = learner(settings=LearnerSettings(lora_rank=2, lora_alpha=8))
    teacher = learner()
    before = adapter_sha256(teacher.model)
    with pytest.raises(LearnerError, match="another run"):
        teacher.load(other.dump())
    assert adapter_sha256(teacher.model) == before


def test_numbers_and_shared_tables_come_back() -> None:
    """What 8-bit optimizers keep, integers beside bytes and one table for all parameters, survives."""
    parameters = {"a": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Parameter(torch.zeros(3))}
    first, second = (torch.optim.SGD(list(parameters.values()), lr=1.0) for _ in range(2))
    table = torch.arange(4, dtype=torch.uint8)
    for parameter in parameters.values():
        first.state[parameter] = {"step": 7, "scale": 0.1, "qmap": table}
    data = dump_state(parameters, first)
    load_state(data, parameters, second)
    for parameter in parameters.values():
        found = second.state[parameter]
        assert (found["step"], found["scale"]) == (7, 0.1)
        assert isinstance(found["step"], int)
        assert torch.equal(found["qmap"].to(torch.uint8), table)
