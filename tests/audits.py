"""A replay of batches in one call, for tests of what is counted."""

from collections.abc import Iterable, Mapping

from search_to_signal.analysis.metrics.shared_record_audit import Audit, summed, tally
from search_to_signal.normalizer import Normalizer
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards.base import RewardMapping


def audit(
    batches: Iterable[tuple[str, GroupBatch]],
    mappings: Mapping[str, RewardMapping],
    normalizers: Mapping[str, Normalizer],
) -> Audit:
    """Every mapping and normalizer on every (problem, batch), summed per problem and over "all"."""
    return summed(tally(problem, batch, mappings, normalizers) for problem, batch in batches)
