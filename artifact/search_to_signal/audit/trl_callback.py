"""A callback that keeps every group that TRL trains on, whole and with names, as a log for ``s2s audit``.

>>> from search_to_signal.audit.trl_callback import GroupRecorder
>>> trainer = GRPOTrainer(...)
>>> trainer.add_callback(GroupRecorder(trainer, "rollouts"))
>>> trainer.train()

``s2s audit rollouts`` then reads what TRL's own completions log leaves out: groups, identities, weights of
reward functions, tokens, and the batches between two logged steps; with ``--follow``, while they are written.
Numbers of each batch go into TRL's own log (``live.numbers``), averaged over the batches of a logged step as
TRL averages its own: ``signal/dead_share``, ``signal/nan_share``, ``signal/effective_batch``,
``signal/largest_gain`` and others, and ``signal/share/NAME`` for each of several reward functions.

Read as installed: TRL 0.15.1 and 1.16.0. Neither hands rewards or advantages to a callback, so while
training the recorder stands before the method that samples and scores a batch, whose result has advantages,
tokens and masks: ``_prepare_inputs`` in 0.15.1, ``_generate_and_score_completions`` later. The rewards are
what ``_calculate_rewards`` returns, or the reward functions themselves where a version has no such method.
Of a batch in which RLOO clips rewards or adds a KL penalty, the reward is logged as it was before.
"""

import json
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any

from search_to_signal.audit.live import exceeded, number_or_none, numbers_of_rows, of_tokens, write_rows
from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.files import storage_errors

_SAMPLES = "_generate_and_score_completions"
_SAMPLES_0151 = "_prepare_inputs"
_REWARDS = "_calculate_rewards"
# Tensors are spoken to by their methods alone, so nothing here imports torch.
Tensor = Any


def _reward_names(trainer: Any) -> list[str]:
    """What TRL calls its reward functions; of equal names the later ones are numbered."""
    given = getattr(trainer, "reward_func_names", None) or [
        str(
            function.config._name_or_path.split("/")[-1] if hasattr(function, "config") else function.__name__
        )
        for function in trainer.reward_funcs
    ]
    return [name if given.index(name) == at else f"{name}#{at + 1}" for at, name in enumerate(given)]


def _endings(made: Mapping[str, Tensor], tokenizer: Any) -> list[str]:
    # One that is left out of the loss was cut off.
    end = getattr(tokenizer, "tokenizer", tokenizer).eos_token_id
    lengths = made["completion_mask"].sum(1)
    last = made["completion_ids"].gather(1, (lengths - 1).clamp(min=0)[:, None].long())[:, 0]
    ended = (last == end) & (lengths > 0)
    return ["finished" if by_itself else "truncated" for by_itself in ended.tolist()]


# Of a batch in which four groups of five are dead, most of what was generated teaches nothing. One advantage
# that is NaN makes the loss NaN.
WARN_ABOVE: Mapping[str, float] = MappingProxyType({"dead_share": 0.8, "nan_share": 0.0})


class SignalWarning(UserWarning):
    """A batch has less, or other, signal than the caller of GroupRecorder wants."""


class GroupRecorder:
    """A callback for ``GRPOTrainer`` and ``RLOOTrainer``; loads nothing heavy until training begins.

    Each batch that is sampled for training becomes one file of the neutral form,
    ``rollouts_STEP_NUMBER.jsonl``, whole or not there at all; STEP is the first update that it trains. The
    main process writes what all processes sampled, since a normalizer may look at all of it. Evaluation is
    left out. A run that resumes replaces the steps that it repeats. A number that rises over its limit in
    ``warn_above`` is a SignalWarning, and again once it was below; an empty mapping warns of nothing.
    Raises RunDirectoryError where the directory holds another run's files, or the disk is full.
    """

    def __init__(
        self, trainer: Any, directory: str | Path, warn_above: Mapping[str, float] = WARN_ABOVE
    ) -> None:
        self._trainer = trainer
        self._directory = Path(directory)
        self._limits, self._over = dict(warn_above), set[str]()
        self._undo: list[Callable[[], None]] = []
        # Rewards of all processes where the trainer gathers them in a method, else those of each function.
        self._gathered: Any = None
        self._given: dict[int, Any] = {}
        self._step, self._number = 0, 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Events of training at which there is nothing to do."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def on_train_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Stand before the trainer's methods."""
        self.on_train_end()
        if state.is_world_process_zero:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not state.global_step and any(self._directory.glob("rollouts_*.jsonl")):
                raise RunDirectoryError(
                    f"{self._directory} holds the rollouts of another run: give this run another directory"
                )
        self._replace(_SAMPLES if hasattr(self._trainer, _SAMPLES) else _SAMPLES_0151, self._recorded)
        if hasattr(self._trainer, _REWARDS):
            self._replace(_REWARDS, self._kept)
        else:
            functions = self._trainer.reward_funcs
            self._trainer.reward_funcs = [self._watched(*numbered) for numbered in enumerate(functions)]
            self._undo.append(lambda: setattr(self._trainer, "reward_funcs", functions))

    def on_log(self, _: Any, state: Any, *__: Any, logs: Mapping[str, Any] | None = None, **___: Any) -> None:
        """Warn of a gradient that is no number: the weights have taken it, whatever the rewards look like."""
        norm = (logs or {}).get("grad_norm")
        if isinstance(norm, float) and not math.isfinite(norm):
            message = (
                f"step {state.global_step}: the gradient's norm is {norm}: stop, use an earlier checkpoint"
            )
            warnings.warn(message, SignalWarning, stacklevel=2)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Give the trainer its methods back."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        before = vars(self._trainer).get(name)
        setattr(self._trainer, name, around(getattr(self._trainer, name)))
        if before is None:
            self._undo.append(lambda: delattr(self._trainer, name))
        else:
            self._undo.append(lambda: setattr(self._trainer, name, before))

    def _recorded(self, sample: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(sample)
        def recorded(inputs: Any) -> Any:
            made = sample(inputs)
            if self._trainer.model.training:
                self._write(inputs, made)
            return made

        return recorded

    def _kept(self, score: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(score)
        def kept(*given: Any, **named: Any) -> Any:
            self._gathered = rewards = score(*given, **named)
            return rewards

        return kept

    def _watched(self, place: int, function: Any) -> Any:
        if hasattr(function, "register_forward_hook"):
            hook = function.register_forward_hook(
                lambda _, __, made: self._given.update({place: made.logits[:, 0]})
            )
            self._undo.append(hook.remove)
            return function

        @wraps(function)
        def watched(*given: Any, **named: Any) -> Any:
            self._given[place] = rewards = function(*given, **named)
            return rewards

        return watched

    def _write(self, inputs: Sequence[Mapping[str, Any]], made: Mapping[str, Any]) -> None:
        from accelerate.utils import gather_object  # type: ignore[import-untyped]

        step = self._trainer.state.global_step + 1
        self._step, self._number = step, self._number + 1 if step == self._step else 0
        rows = gather_object(self._rows(inputs, made))
        self._log(rows)
        if self._trainer.accelerator.is_main_process:
            with storage_errors(self._directory, "go on from the last checkpoint"):
                write_rows(self._directory, step, self._number, rows)

    def _log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        numbers = numbers_of_rows(rows)
        # What is logged next; one table in 0.15.1, one for each of training and evaluation later.
        kept = getattr(self._trainer, "_metrics", {"train": defaultdict(list)})
        kept = kept.get("train", kept)
        for name, value in numbers.items():
            if math.isfinite(value):
                kept[name].append(value)
        over = exceeded(numbers, self._limits)
        for name in over.keys() - self._over:
            warnings.warn(f"step {self._step}: {over[name]}", SignalWarning, stacklevel=2)
        self._over = set(over)

    def _scored(self, size: int, first: int, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards (size, functions) before weighting, and their sum (size,); NaN where none applies."""
        if self._gathered is None:
            parts = weights.new_zeros((size, len(weights)))
            for place, given in self._given.items():
                parts[:, place] = weights.new_tensor(
                    [math.nan if value is None else float(value) for value in given]
                )
        else:
            parts = self._gathered[first : first + size]
        # 0.15.1 knows no function without a reward; later versions leave it out of the sum.
        if hasattr(self._trainer, _SAMPLES):
            return parts, (parts * weights).nansum(1).masked_fill(parts.isnan().all(1), math.nan)
        return parts, (parts * weights).sum(1)

    def _rows(
        self, examples: Sequence[Mapping[str, Any]], made: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]:
        """One row per completion here; ``made`` has advantages (n,), tokens and masks (n, longest)."""
        trainer, tokenizer = self._trainer, self._trainer.processing_class
        # Its first row among those of all processes.
        first = trainer.accelerator.process_index * len(examples)
        weights = trainer.reward_weights.to(made["advantages"].device)
        parts, reward = self._scored(len(examples), first, weights)
        names = _reward_names(trainer)
        # What a tool answered does not enter the loss.
        trained, tools = made["completion_mask"], made.get("tool_mask")
        trained = trained if tools is None else trained * tools
        columns = zip(
            examples,
            map(number_or_none, reward.tolist()),
            of_tokens(made["advantages"], trained).tolist(),
            trained.sum(1).tolist(),
            _endings(made, tokenizer),
            parts.tolist(),
            tokenizer.batch_decode(made["completion_ids"], skip_special_tokens=True),
            strict=True,
        )
        rows = []
        for place, (example, total, advantage, tokens, ending, own, text) in enumerate(columns, first):
            group, member = divmod(place, trainer.num_generations)
            name, prompt = f"{self._step}-{self._number}-{group}", example.get("prompt", "")
            rows.append(
                {
                    "group": name,
                    "id": f"{name}-{member}",
                    "step": self._step,
                    "reward": total,
                    "advantage": advantage,
                    "tokens": tokens,
                    "status": ending,
                    "components": dict(zip(names, map(number_or_none, own), strict=True)),
                    "weights": dict(zip(names, weights.tolist(), strict=True)),
                    "prompt": prompt if isinstance(prompt, str) else json.dumps(prompt, default=str),
                    "response": text,
                    # Columns of the data set that can serve as a class.
                    "example": {
                        key: value
                        for key, value in example.items()
                        if key != "prompt" and isinstance(value, str | int | float | bool)
                    },
                }
            )
        return rows
