"""How many small changes of published numbers the ledger notices, on a sample."""

import pytest
from tests.proofs.ledger_mutations import CONSISTENT, OTHERS, Mutations, rates

from search_to_signal.claims.ledger import load_ledger
from search_to_signal.claims.settings import implementation

pytestmark = pytest.mark.slow


def test_small_changes_are_noticed() -> None:
    found = rates(list(Mutations(load_ledger(), implementation()).tried(units=2, every=25)))
    (consistent, of), (others, of_others) = found[CONSISTENT], found[OTHERS]
    assert min(of, of_others) > 15
    assert consistent >= 0.95 * of
    assert others >= 0.5 * of_others
