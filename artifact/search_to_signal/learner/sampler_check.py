"""A sampler's log-probabilities, held against the learner's: whether both have the same weights."""

from typing import Any

import numpy as np
import torch

from search_to_signal.base.errors import GenerationError
from search_to_signal.learner.grpo_loss import fitting_group, token_log_probabilities
from search_to_signal.models.base import Generation


@torch.no_grad()
def sampler_difference(model: Any, generation: Generation, step: int, limit: float) -> float | None:
    """Mean distance per token of the sampler's log-probabilities to the model's, in nats.

    None where the sampler reports none. Raises GenerationError where the mean is over ``limit``, as it is for
    other weights, another model, or log-probabilities after temperature and filters.
    """
    if not all(completion.logprobs for completion in generation.completions):
        return None
    found = []
    for completion in generation.completions:
        group = fitting_group(model, generation.prompt_ids, [completion.ids], pad_id=0)  # nothing to pad
        own = token_log_probabilities(model, group)[0].tolist()
        pairs = zip(completion.ids, completion.logprobs, own, strict=True)
        found += [(abs(told - known), token, told, known) for token, told, known in pairs]
    mean = float(np.mean([distance for distance, *_ in found]))
    if not mean <= limit:
        _, token, told, known = max(found)
        raise GenerationError(
            f"step {step}: the server has other weights than the learner: log-probabilities of {len(found)} "
            f"tokens differ by {mean:.3g} in the mean (generation.server.max_difference is {limit:g}), most "
            f"for token {token}, {told:.4f} there and {known:.4f} here; see that it serves this model and "
            "reports them raw (--logprobs-mode raw_logprobs)"
        )
    return mean
