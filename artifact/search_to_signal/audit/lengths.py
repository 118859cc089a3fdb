"""What aggregation adds: how the weight of advantages falls on long and short completions."""

from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.atlas import RewardBatch, token_weights
from search_to_signal.audit.groups import Floats, RewardGroups
from search_to_signal.audit.steps import spans
from search_to_signal.numerics import added

RULES = ("token_mean", "sequence_mean", "constant_length", "prompt_mean")


@dataclass(frozen=True)
class LengthSums:
    """Over steps, of completions with tokens and an advantage: the longest quarter of each step, and all.

    ``tokens`` are theirs, and ``weight`` sums |A| times the weight that a rule of the atlas gives to them.
    """

    longest: int = 0
    completions: int = 0
    longest_tokens: int = 0
    tokens: int = 0
    longest_weight: float = 0.0
    weight: float = 0.0

    def __add__(self, more: "LengthSums") -> "LengthSums":
        return added(self, more)

    @property
    def share(self) -> float | None:
        """Share of the weight that the longest quarter has; None without weight."""
        return self.longest_weight / self.weight if self.weight else None

    @property
    def per_sequence(self) -> float | None:
        """Weight of one of the longest quarter over that of a completion; None without either."""
        return self.share * self.completions / self.longest if self.share and self.longest else None

    @property
    def per_token(self) -> float | None:
        """Weight of a token of the longest quarter over that of any token; None without either."""
        return self.share * self.tokens / self.longest_tokens if self.share and self.longest else None


def length_sums(groups: RewardGroups, advantage: Floats) -> dict[str, LengthSums]:
    """Sums by rule; none where a length was not logged. Completions of one length are no longest quarter."""
    if (groups.tokens < 0).any():
        return {}
    total = dict.fromkeys(RULES, LengthSums())
    for first, end in spans(groups):
        rows = slice(int(groups.offsets[first]), int(groups.offsets[end]))
        offsets = groups.offsets[first : end + 1] - groups.offsets[first]
        step = RewardBatch(groups.reward[rows], offsets, groups.tokens[rows])
        trained = np.where(groups.in_loss[rows], advantage[rows], np.nan)
        for rule, sums in _of_step(step, trained).items():
            total[rule] += sums
    return total


def _of_step(step: RewardBatch, advantage: Floats) -> dict[str, LengthSums]:
    known = np.isfinite(advantage) & (step.tokens > 0)
    if not known.any():
        return {}
    longest = known & (step.tokens > np.quantile(step.tokens[known], 0.75))
    size = np.where(known, np.abs(advantage), 0.0) * step.tokens
    sums = {}
    for rule in RULES:
        weight = size * token_weights(rule, step, int(step.tokens.max()))
        sums[rule] = LengthSums(
            longest=int(longest.sum()),
            completions=int(known.sum()),
            longest_tokens=int(step.tokens[longest].sum()),
            tokens=int(step.tokens[known].sum()),
            longest_weight=float(weight[longest].sum()),
            weight=float(weight.sum()),
        )
    return sums
