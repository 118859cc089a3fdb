"""DPO in rounds, as EvoTune has it: pairs are collected group by group, and every so often trained on."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from safetensors.torch import load, save
from torch.nn import functional

from search_to_signal.base.errors import LearnerError
from search_to_signal.base.seeding import stream
from search_to_signal.base.settings import settings_of
from search_to_signal.credit.mappings import distinct_scores, entries_of
from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.base import LearnerSetup, StepResult, TrainingGroup
from search_to_signal.learner.grpo_loss import fitting_group, token_log_probabilities
from search_to_signal.learner.optimizer import build_optimizer, clipped_step
from search_to_signal.learner.settings import refuse_unread
from search_to_signal.records.schema import PreferencePair, PreferenceRecord, PreferenceRound
from search_to_signal.search.hosts.evotune.rule import DpoSettings

# The DPO loss of TRL 0.15.1 on prepared pairs, so that any caller can fix their tokens: from equal
# log-probabilities loss and gradient are TRL's to the bit. TRL reads the prompt once for each side and asks
# the reference in every epoch; here the prompt is read once a pair and the reference asked once a round: the
# numbers are TRL's to float32 rounding. Tests assert both.

Ids = Sequence[int]


@dataclass(frozen=True)
class TokenPair:
    """The tokens of a pair as they were sampled; a completion that ended has its end token (D54)."""

    prompt_ids: Ids
    chosen_ids: Ids
    rejected_ids: Ids

    @property
    def tokens(self) -> int:
        """Completion tokens of both sides, which carry loss."""
        return len(self.chosen_ids) + len(self.rejected_ids)


def log_probabilities(model: Any, pair: TokenPair, pad_id: int) -> torch.Tensor:
    """Of the chosen and of the rejected completion, (2,).

    Raises LearnerError for an empty text, and for a pair beyond the model's context.
    """
    group = fitting_group(model, pair.prompt_ids, [pair.chosen_ids, pair.rejected_ids], pad_id)
    return (token_log_probabilities(model, group) * group.completion_mask).sum(dim=1)


def dpo_loss(
    policy: torch.Tensor, reference: torch.Tensor, settings: DpoSettings
) -> tuple[torch.Tensor, float, float]:
    """Return (mean loss, accuracy, margin) of a batch from log-probabilities (N, 2), as TRL's ``dpo_loss``.

    The accuracy is how often the chosen side has the higher implicit reward, the margin the mean difference.
    """
    chosen, rejected = (policy - reference).unbind(dim=1)
    if settings.f_divergence_type == "alpha_divergence":
        power = settings.f_alpha_divergence_coef
        logits = (_bounded_exp(-power * rejected) - _bounded_exp(-power * chosen)) / power
    else:
        logits = (policy[:, 0] - policy[:, 1]) - (reference[:, 0] - reference[:, 1])
        if settings.f_divergence_type == "js_divergence":
            logits = logits - (functional.softplus(chosen) - functional.softplus(rejected))
    losses = -functional.logsigmoid(settings.beta * logits)
    of_chosen, of_rejected = settings.beta * chosen.detach(), settings.beta * rejected.detach()
    accuracy, margin = (of_chosen > of_rejected).float().mean(), (of_chosen - of_rejected).mean()
    return losses.mean(), float(accuracy), float(margin)


def _bounded_exp(values: torch.Tensor) -> torch.Tensor:
    """The exponential, bounded as TRL's is: by what its type holds, to four places of the exponent."""
    most = math.floor(math.log(torch.finfo(values.dtype).max) * 10_000) / 10_000
    return torch.exp(values.clamp(max=most))


# The pairs that a run has collected, with their tokens, and what of them a round is made of.


class BufferedGroup(msgspec.Struct, frozen=True):
    """A group with the pairs that were made of it."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[tuple[int, ...], ...]
    pairs: tuple[PreferencePair, ...]


class PairBuffer(msgspec.Struct):
    """Every group so far, and the distinct valid scores since the last round."""

    groups: list[BufferedGroup] = msgspec.field(default_factory=list)
    scores: list[float] = msgspec.field(default_factory=list)

    def add(self, group: TrainingGroup) -> tuple[PreferencePair, ...]:
        """Take a group; returns its pairs."""
        entries = entries_of(group.records)
        completions = tuple(tuple(ids) for ids in group.completion_ids)
        self.groups.append(BufferedGroup(tuple(group.prompt_ids), completions, entries))
        self.scores += distinct_scores(group.records)
        return entries

    @property
    def collected(self) -> int:
        """How many pairs there are."""
        return sum(len(group.pairs) for group in self.groups)

    def above(self, threshold: float) -> list[TokenPair]:
        """The pairs whose choice reaches a threshold, in order, with their tokens."""
        return [
            TokenPair(group.prompt_ids, *(group.completion_ids[i] for i in (pair.chosen, pair.rejected)))
            for group in self.groups
            for pair in group.pairs
            if pair.chosen_score >= threshold
        ]


_BUFFER = "buffer"
# With its log-probabilities by the reference.
Referred = tuple[TokenPair, torch.Tensor]
Batches = list[list[Referred]]


class Update(NamedTuple):
    """What one optimizer step was; loss, accuracy and margin are means over its batches."""

    loss: float
    grad_norm: float
    accuracy: float
    margin: float
    tokens: int


class DpoLearner:
    """Collects pairs, and trains the adapter on them every ``finetuning_frequency`` groups.

    A round begins with the run's first adapter and a fresh optimizer, as EvoTune's begins with the base model
    and a fresh adapter, so that between rounds there is no state but adapter and pairs (D54).
    """

    def __init__(self, setup: LearnerSetup) -> None:
        refuse_unread(setup.learner, "dpo")
        self.model: Any = setup.model
        self._learner, self._pad_id, self._seed = setup.learner, setup.pad_id, setup.seed
        self._settings = settings_of(setup.settings, DpoSettings, "rule_settings")
        named = self.model.named_parameters()
        self._trained = {name: p for name, p in named if p.requires_grad}
        self._initial = {name: p.detach().clone() for name, p in self._trained.items()}
        self._buffer = PairBuffer()
        self.model.eval()

    def step(self, group: TrainingGroup) -> StepResult:
        """Take a group, and where a round is due train on all pairs so far that reach its threshold."""
        entries = self._buffer.add(group)
        step = len(self._buffer.groups) - 1
        if self._due:
            threshold = self._settings.threshold(self._buffer.scores)
            self._buffer.scores.clear()
            kept = [] if threshold is None else self._buffer.above(threshold)
            if threshold is not None and kept:
                updates = list(self.round(kept, step))
                done = PreferenceRound(
                    threshold=threshold,
                    collected=self._buffer.collected,
                    kept=len(kept),
                    optimizer_steps=len(updates),
                    accuracy=float(np.mean([update.accuracy for update in updates])),
                    margin=float(np.mean([update.margin for update in updates])),
                )
                return self._result(updates, PreferenceRecord(step=step, pairs=entries, round=done))
        return self._result([], PreferenceRecord(step=step, pairs=entries))

    def collect(self, group: TrainingGroup) -> None:
        """Take a group without the round that may be due: the next one begins with the first adapter."""
        self._buffer.add(group)
        if self._due:
            self._buffer.scores.clear()

    @property
    def _due(self) -> bool:
        return len(self._buffer.groups) % self._settings.finetuning_frequency == 0

    def round(self, pairs: Sequence[TokenPair], step: int) -> Iterator[Update]:
        """Train on pairs from the first adapter; ``step`` names the stream of their order.

        Raises LearnerError before anything non-finite reaches a weight.
        """
        settings = self._settings
        with torch.no_grad():
            for name, parameter in self._trained.items():
                parameter.copy_(self._initial[name])
        optimizer = build_optimizer(list(self._trained.values()), self._learner)
        with torch.no_grad(), self.model.disable_adapter():
            references = [log_probabilities(self.model, pair, self._pad_id) for pair in pairs]
        batches = list(self._batches(list(zip(pairs, references, strict=True)), step))
        steps = settings.steps(len(pairs))
        for number, accumulated in zip(range(steps), accumulations(batches, settings), strict=False):
            for part in optimizer.param_groups:
                part["lr"] = self._learner.learning_rate * rate(number, steps, settings)
            # One optimizer step; a batch weighs as one of a whole step's, also where there are fewer.
            batch_metrics = []
            self.model.train()
            for batch in accumulated:
                policy = torch.stack([log_probabilities(self.model, pair, self._pad_id) for pair, _ in batch])
                reference = torch.stack([reference for _, reference in batch])
                loss, *metrics = dpo_loss(policy, reference, self._settings)
                (loss / self._settings.gradient_accumulation_steps).backward()  # type: ignore[no-untyped-call]
                batch_metrics.append((float(loss), *metrics))
            self.model.eval()
            parameters = list(self._trained.values())
            norm = clipped_step(optimizer, parameters, self._learner.max_grad_norm, "pairs")
            loss_, accuracy, margin = np.mean(batch_metrics, axis=0).tolist()
            tokens = sum(pair.tokens for batch in accumulated for pair, _ in batch)
            yield Update(loss_, norm, accuracy, margin, tokens)

    def _batches(self, pairs: Sequence[Referred], step: int) -> Iterator[list[Referred]]:
        size = self._settings.per_device_train_batch_size
        for epoch in range(self._settings.num_train_epochs):
            order = stream(self._seed, "pairs", step, epoch).permutation(len(pairs))
            yield from ([pairs[i] for i in order[at : at + size]] for at in range(0, len(pairs), size))

    def _result(self, updates: Sequence[Update], pairs: PreferenceRecord) -> StepResult:
        sha256 = adapter_sha256(self.model)
        if not updates:
            return StepResult(None, None, None, 0, sha256, pairs)
        loss = float(np.mean([update.loss for update in updates]))
        norm = float(np.mean([update.grad_norm for update in updates]))
        return StepResult(loss, None, norm, sum(update.tokens for update in updates), sha256, pairs)

    def dump(self) -> bytes:
        """Adapter and pairs as bytes."""
        tensors = {name: p.detach().cpu().clone().contiguous() for name, p in self._trained.items()}
        packed = np.frombuffer(msgspec.msgpack.encode(self._buffer), dtype=np.uint8).copy()
        return save({**tensors, _BUFFER: torch.from_numpy(packed)})

    def load(self, data: bytes) -> None:
        """Go on from ``dump``; raises LearnerError when it belongs to another adapter."""
        tensors = load(data)
        buffer = tensors.pop(_BUFFER, torch.zeros(0, dtype=torch.uint8)).numpy().tobytes()
        shapes = {name: p.shape for name, p in self._trained.items()}
        if {name: tensor.shape for name, tensor in tensors.items()} != shapes or not buffer:
            raise LearnerError("the checkpoint belongs to another run: go on with that run")
        self._buffer = msgspec.msgpack.decode(buffer, type=PairBuffer)
        with torch.no_grad():
            for name, parameter in self._trained.items():
                parameter.copy_(tensors[name])


def accumulations(batches: Batches, settings: DpoSettings) -> Iterator[Batches]:
    """The batches of each optimizer step; what is left at the end of an epoch is a step of its own."""
    an_epoch = len(batches) // settings.num_train_epochs
    for start in range(0, len(batches), an_epoch):
        epoch = batches[start : start + an_epoch]
        size = settings.gradient_accumulation_steps
        yield from (epoch[at : at + size] for at in range(0, an_epoch, size))


def rate(number: int, steps: int, settings: DpoSettings) -> float:
    """The share of the learning rate at a step, counted from 0."""
    if settings.lr_scheduler_type == "constant":
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * number / steps))
