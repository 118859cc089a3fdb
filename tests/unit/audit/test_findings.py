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
        assert found.agreements[name].apart == np.inf, name


def test_advantages_that_come_late_are_told() -> None:
    """A log whose first groups hold no advantage is not said to hold none."""
    early = audit.of_arrays([0.0, 1.0], sizes=[2], step=[0])
    late = audit.of_arrays([0.0, 1.0], sizes=[2], step=[1], advantage=[-1.0, 1.0])
    said = " ".join(audit.conclusions(audit.audit([early, late])))
    assert "The log holds no advantages" not in said
    assert "The first groups hold no advantages" in said
    assert "2 completions later on do" in said
    assert "The log holds no advantages" in " ".join(audit.conclusions(audit.audit(early)))
