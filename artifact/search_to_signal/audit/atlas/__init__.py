"""The atlas of normalizers: what frameworks make of a group's rewards, as data with code that follows it.

``entries.toml`` holds the data, ``advantages`` computes a batch under an entry, ``token_weights`` the second
stage. Needs numpy, and nothing that trains.
"""

from search_to_signal.audit.atlas.compute import advantages
from search_to_signal.audit.atlas.entry import (
    DeviationScale,
    NormalizerEntry,
    NormalizerSource,
    RewardBatch,
    entries,
    get_entry,
    source_of,
    sources,
    token_weights,
)

__all__ = [
    "DeviationScale",
    "NormalizerEntry",
    "NormalizerSource",
    "RewardBatch",
    "advantages",
    "entries",
    "get_entry",
    "source_of",
    "sources",
    "token_weights",
]
