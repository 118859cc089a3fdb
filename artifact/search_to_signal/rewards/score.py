"""The score itself as a reward, as EvoTune and TTT-Discover hand it on."""

import numpy as np

from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards.base import Rewards

FAILED_SCORE = -20000.0
"""What a failure counts as (CLAIRE-Labo/EvoTune, configs/task/tsp.yaml; D56)."""


class Score:
    """The score of a valid completion, and one low number for every failure."""

    name = "score"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """One component, which is the reward."""
        reward = np.where(groups.valid, groups.score, FAILED_SCORE)
        return Rewards({"score": reward}, reward)
