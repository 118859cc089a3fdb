"""Pre-generation tail weighting: concentrate the group's credit on its upper tail."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from search_to_signal.exponential_tilt import tilted
from search_to_signal.numerics import Bools, Floats, difference, midranks, rms, unit_scaled
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards.base import EQUAL_SCORES, Rewards, require, severity


@dataclass(frozen=True)
class TailWeighted:
    """r = G omega, with omega tilted by w = u + g / 2 until its KL from uniform is min(log 2, log(G / k)).

    Source: paper, eq. tail-tilt, and supplement, Pre-Generation Tail Weighting; D05,
    D07 to D12, D28.
    u in [0, 1] is the midrank: failures below the valid and by severity among themselves; the valid by
    (score absent from the archive, response not repeated, score). g = [f - F]_+ / RMS([f - F]_+) over the
    eligible set, 0 outside it, without a frontier and where the RMS is 0. Rewards sum to G; higher is better.

    ``order``       D07: indicators before score, score before indicators, or their count before score
    ``repetition``  D09: every member of a set of identical responses counts as repeated, or all but the first
    ``novelty``     D08: a score counts as archived when the nearest archived one is closer than this;
                    0.0 asks for an exact match
    ``gap``         D28: g over the eligible set, or over the valid, who have one after a creation prompt, too
    """

    order: Literal["indicators_first", "score_first", "summed"] = "indicators_first"
    repetition: Literal["every", "all_but_first"] = "every"
    novelty: float = EQUAL_SCORES
    gap: Literal["eligible", "valid"] = "eligible"
    name: str = "tail_weighted"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "midrank" (u) and "gap" (g), (N, G) each, and r.

        Raises IllFormedGroupError when a valid candidate lacks its archive gap although there is a frontier.
        """
        size = groups.outcome.shape[1]
        midrank = (midranks(*self._keys(groups)) - 1.0) / max(size - 1, 1)
        gap = frontier_gap(groups, groups.valid if self.gap == "valid" else groups.eligible)
        return Rewards({"midrank": midrank, "gap": gap}, size * tilted(midrank + 0.5 * gap))

    def _keys(self, groups: GroupBatch) -> Sequence[Floats]:
        failure, score = severity(groups, valid=0.0), np.where(groups.valid, groups.score, 0.0)
        novel = np.where(groups.valid, novel_scores(groups, self.novelty), 0.0)
        single = np.where(groups.valid, ~repeated_responses(groups, self.repetition), 0.0)
        return {
            "indicators_first": (failure, novel, single, score),
            "score_first": (failure, score, novel, single),
            "summed": (failure, novel + single, score),
        }[self.order]


def novel_scores(groups: GroupBatch, tolerance: float = EQUAL_SCORES) -> Bools:
    """(N, G): valid, and no archived score is closer than the tolerance (D08)."""
    absent = np.isnan(groups.archive_gap)
    require(
        ~(groups.valid & absent & ~np.isnan(groups.frontier)[:, None]),
        "a valid completion has no archive gap although the archive is not empty",
        "record the distance to the nearest archived score before the group was generated",
    )
    distant = groups.archive_gap >= tolerance if tolerance > 0.0 else groups.archive_gap > 0.0
    novel: Bools = groups.valid & (absent | distant)
    return novel


def repeated_responses(groups: GroupBatch, rule: Literal["every", "all_but_first"] = "every") -> Bools:
    """(N, G): the response text occurs elsewhere in the group, or, by the alternative rule, before (D09)."""
    columns = np.ascontiguousarray(groups.response.T)
    repeated = np.zeros(columns.shape, dtype=np.bool_)
    for j in range(len(columns)):
        for i in range(j):
            same = columns[i] == columns[j]
            repeated[j] |= same
            if rule == "every":
                repeated[i] |= same
    return np.ascontiguousarray(repeated.T)


def frontier_gap(groups: GroupBatch, members: Bools) -> Floats:
    """g (N, G) >= 0: the gap above the frontier in units of its RMS over ``members``, 0 elsewhere (D11)."""
    members = members & ~np.isnan(groups.frontier)[:, None]
    gap, _ = unit_scaled(np.maximum(difference(groups.score, groups.frontier, members), 0.0))
    scale = rms(gap, members)
    return np.divide(gap, scale, out=np.zeros_like(gap), where=scale > 0.0)
