"""Entries of the atlas applied to logged groups, step by step where they look at a whole step."""

import warnings
from collections.abc import Mapping

import numpy as np

from search_to_signal.audit.atlas import Entry, RewardBatch, advantages
from search_to_signal.audit.groups import Floats, RewardGroups
from search_to_signal.audit.steps import spans
from search_to_signal.errors import IllFormedGroupError


def apply(
    entry: Entry,
    groups: RewardGroups,
    reward: Floats | None = None,
    parts: Mapping[str, Floats] | None = None,
) -> Floats:
    """Advantages (R,) of whole steps; NaN where the entry refuses a step or gives NaN.

    ``reward`` (R,) and ``parts`` stand in for the logged reward and components.
    """
    reward = groups.reward if reward is None else reward
    parts = groups.components if parts is None else parts
    even = len(set(groups.sizes.tolist())) == 1
    together = entry.scope == "group" and (even or entry.uneven == "by group")
    if together:
        try:
            return _advantages(entry, groups, (0, len(groups.step)), reward, parts)
        except IllFormedGroupError:
            pass
    result = np.full(len(reward), np.nan)
    for first, end in spans(groups):
        rows = slice(int(groups.offsets[first]), int(groups.offsets[end]))
        try:
            result[rows] = _advantages(entry, groups, (first, end), reward, parts)
        except IllFormedGroupError:
            continue
    return result


def _advantages(
    entry: Entry, groups: RewardGroups, span: tuple[int, int], reward: Floats, parts: Mapping[str, Floats]
) -> Floats:
    """Advantages of the groups from the first of the span to before its second."""
    first, end = span
    rows = slice(int(groups.offsets[first]), int(groups.offsets[end]))
    rewards, tokens = reward[rows], groups.tokens[rows]
    if entry.domain == "binary" and not np.isin(rewards, (0.0, 1.0)).all():
        raise IllFormedGroupError(f"{entry.name} takes rewards 0 and 1: use another entry")
    offsets = groups.offsets[first : end + 1] - groups.offsets[first]
    known = tokens if (tokens >= 0).all() else None
    chosen = {name: values[rows] for name, values in parts.items()}
    batch = RewardBatch(rewards, offsets, known, chosen, groups.weights)
    with warnings.catch_warnings():
        # A deviation of one number is NaN in the framework too, and is counted as that.
        warnings.simplefilter("ignore", RuntimeWarning)
        return advantages(entry, batch)
