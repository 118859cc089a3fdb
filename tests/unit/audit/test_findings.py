"""What an audit finds in groups at the edge: rewards too large to square, advantages that come late."""

import numpy as np

from search_to_signal import audit

ENORMOUS = [0.0, 1e200, 3e200]


def test_advantages_too_large_to_square_have_no_cosine() -> None:
    """A comparison that overflows says nothing: neither equal nor at a right angle."""
    found = audit.audit(audit.of_arrays(ENORMOUS, sizes=[3]), normalizer="dr_grpo")
    for name in ("dr_grpo", "group", "rloo"):
        assert found.agreements[name].cosine is None, name
        assert found.agreements[name].size is None, name
        assert not np.isnan(found.agreements[name].distance), name
