"""TRL 0.15.1's own GRPOTrainer loop, fed with given prompts and, where wanted, tokens."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from search_to_signal.learner.settings import LearnerSettings

SEED = 42


class RecordingTrainer(GRPOTrainer):  # type: ignore[misc]
    """The stock trainer; keeps what every step was given."""

    def _prepare_inputs(self, inputs: Any) -> Any:
        prepared = super()._prepare_inputs(inputs)
        self.prepared.append(prepared)
        return prepared


def stock_trainer(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    reward: Callable[..., list[float]],
    settings: LearnerSettings,
    out: Path,
    **options: Any,
) -> Any:
    """A trainer of one step per prompt, in the order given; ``options`` go to GRPOConfig.

    ``model`` carries its adapter; ``settings`` are the learner's. Nothing is logged or saved. It computes on
    the processor unless ``options`` have ``use_cpu=False``.
    """
    config: dict[str, Any] = {
        "num_generations": 4,
        "max_prompt_length": None,
        "temperature": 0.9,
        "beta": settings.kl,
        "learning_rate": settings.learning_rate,
        "adam_beta1": settings.adam_beta1,
        "adam_beta2": settings.adam_beta2,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch",
        "use_cpu": True,
        **options,
    }
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    size = config["num_generations"]
    arguments = GRPOConfig(
        str(out), per_device_train_batch_size=size, num_train_epochs=1, seed=SEED, **quiet, **config
    )
    shuffled = torch.randperm(len(prompts), generator=torch.Generator().manual_seed(SEED)).tolist()
    rows = {place: {"prompt": prompt} for place, prompt in zip(shuffled, prompts, strict=True)}
    dataset = Dataset.from_list([rows[place] for place in range(len(prompts))])
    trainer = RecordingTrainer(model, reward, arguments, dataset, processing_class=tokenizer)
    trainer.prepared = []
    return trainer


@contextmanager
def replayed(groups: Sequence[Sequence[Sequence[int]]], end_id: int) -> Iterator[None]:
    """Let sampling draw as ever, and then return the tokens of these groups, one group after the other."""
    draw = torch.multinomial
    columns = _columns(groups, end_id)

    def given(probabilities: torch.Tensor, num_samples: int) -> torch.Tensor:
        draw(probabilities, num_samples)
        return torch.tensor(next(columns), device=probabilities.device)[:, None]

    with patch("torch.multinomial", given):
        yield


def _columns(groups: Sequence[Sequence[Sequence[int]]], end_id: int) -> Iterator[list[int]]:
    for group in groups:
        for column in range(max(map(len, group))):
            yield [row[column] if column < len(row) else end_id for row in group]
