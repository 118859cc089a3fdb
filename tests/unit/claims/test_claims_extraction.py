"""Numbers of a LaTeX document: all of them, where they stand, and in which kind of text."""

import pytest

from search_to_signal.claims.extraction import numbers, numbers_in, plain_text

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


def test_places() -> None:
    number = numbers(BEGIN + "one\n  and 12")[-1]
    assert (number.line, number.column, number.text) == (4, 7, "12")


def test_plain_text() -> None:
    assert [plain_text(text) for text in ("Three", "+0.0240", "1,282", "-9.20")] == [
        "3",
        "0.0240",
        "1282",
        "-9.20",
    ]
    assert numbers_in("5×10^-5, alpha 64 of w5") == ["5", "10", "-5", "64", "5"]
