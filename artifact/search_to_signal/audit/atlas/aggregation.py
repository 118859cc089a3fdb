"""The second stage: how a loss turns advantages into weights of tokens, on one device.

The weight of a token is what its advantage is multiplied by in the loss, ratios and clipping left out. Where
a batch is spread over devices or accumulated, a framework may take totals of a part; entries.toml notes it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.atlas.batch import RewardBatch
from search_to_signal.errors import ConfigError
from search_to_signal.numerics import Floats

MEANING = {
    "token_mean": "1 / tokens of the batch",
    "token_sum": "1",
    "sequence_mean": "1 / (responses x tokens of the response): mean over responses of their token means",
    "sequence_sum": "1 / responses: mean over responses of their token sums",
    "constant_length": "1 / (responses x greatest length)",
    "constant_length_sum": "1 / greatest length: grows with the number of responses",
    "prompt_mean": "1 / (prompts x tokens of the prompt's group)",
    "rollout_mean": "1 / (rollouts x tokens of the rollout): sequence_mean where a rollout is one response",
    "backend": "left to the backend that trains",
    "unread": "not read in a source",
}


def token_weights(
    aggregation: str,
    batch: RewardBatch,
    greatest_length: int | None = None,
    rollouts: NDArray[Any] | None = None,
) -> Floats:
    """Weight of one token of each response, (n,); times its length it is the weight of the response.

    ``greatest_length``: the constant of the constant_length rules, in tokens. ``rollouts``: (n,) equal where
    responses are parts of one rollout; each response is one where it is missing. One without tokens
    gets 0.
    Raises ConfigError for a rule that is unknown or lacks its constant, IllFormedGroupError without lengths.
    """
    known = [name for name in MEANING if name not in ("backend", "unread")]
    if aggregation not in known:
        raise ConfigError(
            f"there is no rule {aggregation!r} for the weights of tokens: use one of {', '.join(known)}"
        )
    lengths = batch.tokens.astype(np.float64)
    count, ones = np.count_nonzero(lengths), np.ones_like(lengths)
    divisor: NDArray[Any]
    if aggregation.startswith("constant_length"):
        if greatest_length is None:
            raise ConfigError(f"{aggregation} divides by a greatest length: give it")
        rows = 1 if aggregation == "constant_length_sum" else len(lengths)
        divisor = ones * greatest_length * rows
    elif aggregation == "sequence_mean":
        divisor = lengths * count
    elif aggregation == "rollout_mean":
        parts = np.arange(len(lengths)) if rollouts is None else np.unique(rollouts, return_inverse=True)[1]
        divisor = np.bincount(parts, weights=lengths)[parts] * len(np.unique(parts))
    elif aggregation == "prompt_mean":
        divisor = batch.spread(batch.total(lengths)) * len(batch.sizes)
    else:
        totals = {"token_mean": lengths.sum(), "token_sum": 1.0, "sequence_sum": float(count)}
        divisor = ones * totals[aggregation]
    weights: Floats = np.divide(1.0, divisor, out=np.zeros_like(lengths), where=lengths > 0)
    return weights
