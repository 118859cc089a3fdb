"""Updates that share initial adapter, tokens, masks and reference, and differ in credit alone."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from search_to_signal.learner.adapter import adapter_sha256, adapter_tensors, set_adapter
from search_to_signal.learner.deltas import AdapterDelta, Tensors, adapter_delta
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.grpo_loss import TokenGroup, token_log_probabilities
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.numerics import Floats
from search_to_signal.records.updates import FixedInputs

Tokens = tuple[Sequence[int], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class MatchedInputs:
    """The fixed part: groups to step on with their reference log-probabilities, and withheld groups."""

    model: Any
    pad_id: int
    initial: Tensors
    groups: tuple[TokenGroup, ...]
    references: tuple[torch.Tensor, ...]
    withheld: tuple[TokenGroup, ...]


@dataclass(frozen=True)
class UpdateResult:
    """What one update did. ``completions`` (N,) and ``tokens`` (M,) are log-probabilities of the withheld."""

    fixed: FixedInputs
    optimizer_steps: int
    training_tokens: int
    grad_norms: tuple[float, ...]
    adapter_sha256: str
    change: AdapterDelta
    completions: Floats
    tokens: Floats


def fix_inputs(
    model: Any, settings: LearnerSettings, pad_id: int, groups: Sequence[Tokens], withheld: Sequence[Tokens]
) -> MatchedInputs:
    """Fix everything but credit; ``model`` carries the initial adapter, groups are (prompt, completions)."""
    learner = GrpoLearner(model, settings, pad_id)
    read = [learner.group(*tokens) for tokens in groups]
    initial = {name: tensor.clone() for name, tensor in adapter_tensors(model).items()}
    aside = tuple(learner.group(*tokens) for tokens in withheld)
    return MatchedInputs(model, pad_id, initial, tuple(read), tuple(map(learner.reference, read)), aside)


def update(
    given: MatchedInputs, steps: Sequence[int], credit: Floats, settings: LearnerSettings
) -> UpdateResult:
    """Step over the groups ``steps`` by ``credit`` (steps, G), with initial adapter and a new optimizer.

    Every completion is stepped on, also where the settings leave out what was cut at the limit. So is a group
    without credit. Raises LearnerError for what is not finite.
    """
    set_adapter(given.model, given.initial)
    learner = GrpoLearner(given.model, settings, given.pad_id)
    groups, references = [given.groups[i] for i in steps], [given.references[i] for i in steps]
    fixed = FixedInputs(
        initial_adapter=adapter_sha256(given.model),
        tokens=_sha256(tensor for group in groups for tensor in (group.prompt_ids, group.completion_ids)),
        masks=_sha256(group.completion_mask for group in groups),
        reference=_sha256(references),
    )
    results = [learner.update(*parts) for parts in zip(groups, references, credit, strict=True)]
    completions, tokens = withheld_log_probabilities(given)
    return UpdateResult(
        fixed,
        len(results),
        sum(result.training_tokens for result in results),
        tuple(result.grad_norm or 0.0 for result in results),
        results[-1].adapter_sha256,
        adapter_delta(given.initial, adapter_tensors(given.model)),
        completions,
        tokens,
    )


def initial_log_probabilities(given: MatchedInputs) -> tuple[Floats, Floats]:
    """Withheld log-probabilities under the initial adapter."""
    set_adapter(given.model, given.initial)
    return withheld_log_probabilities(given)


@torch.no_grad()
def withheld_log_probabilities(given: MatchedInputs) -> tuple[Floats, Floats]:
    """Mean token log-probability of each withheld completion (N,), and that of each of their tokens (M,)."""
    means, tokens = [], []
    for group in given.withheld:
        for row, mask in zip(token_log_probabilities(given.model, group), group.completion_mask, strict=True):
            tokens.append(row[mask.bool()].double().cpu().numpy())
            means.append(float(tokens[-1].mean()))
    return np.array(means), np.concatenate(tokens) if tokens else np.zeros(0)


def _sha256(tensors: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
