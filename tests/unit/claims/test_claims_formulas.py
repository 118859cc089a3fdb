"""Numbers of a LaTeX document, and the formula language: nothing that is not arithmetic."""

from statistics import stdev

import pytest

from search_to_signal.base.errors import LedgerError
from search_to_signal.claims.expressions import Scope, evaluate
from search_to_signal.claims.extraction import numbers, numbers_in, plain_text
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


BEGIN = "\\documentclass[11pt]{article}\n\\begin{document}\n"


def found(text: str) -> list[tuple[str, str]]:
    """(number, context) of a text within a document."""
    return [(n.text, n.context) for n in numbers(BEGIN + text) if n.line > 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a gain of $+0.0240/-0.0214$", ["+0.0240", "-0.0214"]),
        ("2,000 of 1,926,000 and 42, 3407", ["2,000", "1,926,000", "42", "3407"]),
        ("from $0.37$--$4.95\\%$, 19.1--86.7", ["0.37", "4.95", "19.1", "86.7"]),
        ("$5\\times10^{-5}$", ["5", "10", "-5"]),
        ("Three of four, but none of the tense tenses", ["Three", "four"]),
        ("a 500-group horizon, rank-32", ["500", "32"]),
        ("version 2025.3.18", ["2025.3.18"]),
        ("100\\% sure % 7 in a comment", ["100"]),
    ],
)
def test_numbers_of_running_text(text: str, expected: list[str]) -> None:
    assert found(text) == [(number, "prose") for number in expected]


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("\\citep{hu2022lora}", "key"),
        ("Figure~\\ref{fig:2}", "key"),
        ("\\setlength{\\tabcolsep}{4pt}", "layout"),
        ("\\includegraphics[width=0.96\\textwidth]{x}", "layout"),
        ("Qwen-7B", "name"),
        ("\\begin{equation}\nx_{t+1}\n\\end{equation}", "equation"),
        ("\\begin{table*}\n\\caption{Over 3 seeds}\\label{tab:a}\\end{table*}", "caption tab:a"),
        (
            "\\begin{table}\\label{tab:b}\\begin{tabular}{@{}p{\\x}r@{}} 5 \\\\ \\end{tabular}\\end{table}",
            "table tab:b",
        ),
    ],
)
def test_kinds_of_text(text: str, context: str) -> None:
    """What is no running text is told apart, so that a rule can give its reason once."""
    assert {kind for _, kind in found(text)} == {context}


def test_places_and_plain_text() -> None:
    number = numbers(BEGIN + "one\n  and 12")[-1]
    assert (number.line, number.column, number.text) == (4, 7, "12")
    assert [plain_text(text) for text in ("Three", "+0.0240", "1,282", "-9.20")] == [
        "3",
        "0.0240",
        "1282",
        "-9.20",
    ]
    assert numbers_in("5×10^-5, alpha 64 of w5") == ["5", "10", "-5", "64", "5"]
