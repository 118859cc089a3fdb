"""A replay of batches in one call, for tests of what is counted."""

from collections.abc import Iterable, Mapping

from search_to_signal.credit.base import RewardMapping
from search_to_signal.credit.normalizers import Normalizer
from search_to_signal.records.groups import GroupBatch
from search_to_signal.report.metrics.replay import Audit, summed, tally


def audit(
    batches: Iterable[tuple[str, GroupBatch]],
    mappings: Mapping[str, RewardMapping],
    normalizers: Mapping[str, Normalizer],
) -> Audit:
    """Every mapping and normalizer on every (problem, batch), summed per problem and over "all"."""
    return summed(tally(problem, batch, mappings, normalizers) for problem, batch in batches)
