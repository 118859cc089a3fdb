"""The formula language: cells, seeds that pair, and nothing that is not arithmetic."""

from statistics import stdev

import pytest

from search_to_signal.base.errors import LedgerError
from search_to_signal.claims.expressions import Scope, evaluate
from search_to_signal.claims.intervals import exactly, rounded, sd, truth
from search_to_signal.claims.tables import ClaimTable

ROWS = (
    {"Condition": "Frozen", "Seed": "1", "Score": "2", "Text": "500 / 2,000"},
    {"Condition": "Frozen", "Seed": "2", "Score": "4", "Text": "none"},
    {"Condition": "Tail-weighted", "Seed": "1", "Score": "5", "Text": "none"},
    {"Condition": "Tail-weighted", "Seed": "3", "Score": "6", "Text": "none"},
)
TABLE = ClaimTable("t", ("Condition", "Seed", "Score", "Text"), ROWS)
FROZEN, ONE = 't["Score", "Condition=Frozen"]', 't["Score", "Seed=1", "Condition=Frozen"]'
SCOPE = Scope({"t": TABLE}, {"a": rounded("0.5"), "zero": rounded("0.0")})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('mean(t["Score", "Condition=Frozen"])', 3),
        ('sum(t["Score", "Condition=tail_weighted"])', 11),
        ('max(t["Score", "Condition!=Frozen"] - 1)', 5),
        ('count(t["Text", "Condition=Frozen"])', 2),
        ('sum(t["Score"] > 3)', 3),
        ("-2 + 3 * 4 / 6", 0),
        ("abs(-2)", 2),
        ("min([3, 1, 2])", 1),
        ("1 <= 2 <= 2", 1),
        ("1 < 2 < 2", 0),
    ],
)
def test_values(text: str, value: int) -> None:
    assert evaluate(text, SCOPE).one() == exactly(value)


def test_rounding_leaves_comparisons_open() -> None:
    """0.5 may be above or below 0.5; it is above 0.4."""
    assert evaluate("a > 0.5", SCOPE).one() == truth(False, True)
    assert evaluate("a > 0.4", SCOPE).one() == truth(True, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{FROZEN} - t["Score", "Condition=Tail-weighted"]', "pairs the seeds 1, 2 with 1, 3"),
        (f'{ONE} - t["Score", "Condition=Tail-weighted"]', "1, 1 with 1, 3"),
        (f'{FROZEN} - t["Score"]', "pairs 2 numbers with 4"),
        ('t["Speed"]', "no column 'Speed'"),
        ('t["Score", "Condition=Native"]', "no row with Condition=Native"),
        ('t["Score"] > 3', "4 numbers where one is meant"),
        ("a / zero", "may be zero"),
        ("sd([1])", "deviation of 1 numbers"),
        ("b", "may not hold 'b'"),
        ("a.real", "may not hold"),
        ("(lambda: 1)()", "may not hold"),
        ("[x for x in [1]]", "may not hold"),
        ("open('x')", "may not hold"),
        ("mean(a, key=a)", "may not hold"),
        ("t[0]", "no column '0'"),
        ("True", "may not hold"),
        ("mean([])", "too few"),
    ],
)
def test_refusals(text: str, said: str) -> None:
    with pytest.raises(LedgerError, match=said):
        evaluate(text, SCOPE).one()


def test_the_deviation_of_twenty_printed_numbers() -> None:
    printed = [f"{0.01 * (7 * k % 20):.2f}" for k in range(20)]
    found = sd([rounded(text) for text in printed])
    exact = stdev(map(float, printed))
    assert float(found.lo) < exact < float(found.hi)
    assert float(found.hi - found.lo) < 0.02
