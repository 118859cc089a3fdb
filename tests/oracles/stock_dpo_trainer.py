"""TRL 0.15.1's own DPOTrainer loop, fed with given pairs of texts in given orders."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from torch.utils.data import Sampler
from trl import DPOConfig, DPOTrainer

from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.search.hosts.evotune.rule import DpoSettings

Texts = tuple[str, str, str]


class Orders(Sampler[int]):
    """One given order per epoch."""

    def __init__(self, orders: Sequence[Sequence[int]]) -> None:
        self._orders, self._epoch = orders, 0

    def __len__(self) -> int:
        return len(self._orders[0])

    def __iter__(self) -> Iterator[int]:
        self._epoch += 1
        return iter(int(place) for place in self._orders[self._epoch - 1])


class OrderedTrainer(DPOTrainer):  # type: ignore[misc]
    """The stock trainer, which takes its rows in the orders given."""

    orders: Sequence[Sequence[int]]

    def _get_train_sampler(self) -> Orders:
        return Orders(self.orders)


def stock_dpo_trainer(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[Texts],
    orders: Sequence[Sequence[int]],
    learner: LearnerSettings,
    settings: DpoSettings,
    out: Path,
) -> Any:
    """A trainer over pairs of (prompt, chosen, rejected); ``model`` carries its adapter."""
    arguments = DPOConfig(
        str(out),
        beta=settings.beta,
        f_divergence_type=settings.f_divergence_type,
        f_alpha_divergence_coef=settings.f_alpha_divergence_coef,
        num_train_epochs=settings.num_train_epochs,
        per_device_train_batch_size=settings.per_device_train_batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        lr_scheduler_type=settings.lr_scheduler_type,
        learning_rate=learner.learning_rate,
        adam_beta1=learner.adam_beta1,
        adam_beta2=learner.adam_beta2,
        weight_decay=learner.weight_decay,
        max_grad_norm=learner.max_grad_norm,
        optim="adamw_torch",
        max_length=None,
        max_prompt_length=None,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    rows = [dict(zip(("prompt", "chosen", "rejected"), texts, strict=True)) for texts in pairs]
    trainer = OrderedTrainer(
        model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    )
    trainer.orders = orders
    return trainer
