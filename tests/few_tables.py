"""Reports with fewer tables, for tests that look at others or at none."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from search_to_signal.report.tables import catalogue

# Half of the time of a report goes into these; tests of a report read them.
LEFT_OUT = {
    *("operators", "operator_gains", "stages", "admissions", "controls", "reward_changes"),
    *("rules", "distinctions", "pairs", "pair_gaps", "group_size"),
    *("replay_pairs", "replay_context", "sensitivity"),
    *("coverage", "recurrence", "collapses", "truncation"),
}


@contextmanager
def few_tables() -> Iterator[None]:
    """Within it reports are without those tables."""
    make, few = catalogue.catalogue, [name for name in catalogue.BUILDERS if name not in LEFT_OUT]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "catalogue", lambda results: make(results, few))
        yield
