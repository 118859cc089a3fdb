"""Canonical form: what it ignores, what it keeps, and that no code breaks it."""

import warnings

import pytest

from search_to_signal.sandbox.programs import canonical, differ_in_numbers, program_sha256

CODE = "def f(a, b):\n    return a + b"


@pytest.mark.parametrize(
    "same",
    [
        "def f(a,b): return a+b\n",
        "# why\ndef f(a, b):  # how\n    return (a + b)",
        '"""module"""\n"second"\ndef f(a, b):\n    "function"\n    return a + b',
    ],
)
def test_layout_comments_and_docstrings_do_not_matter(same: str) -> None:
    assert canonical(same) == CODE
    assert program_sha256(same) == program_sha256(CODE)


@pytest.mark.parametrize("other", ["def f(b, a):\n    return b + a", "def f(a, b):\n    return b + a", ""])
def test_names_and_order_matter(other: str) -> None:
    assert program_sha256(other) != program_sha256(CODE)


def test_a_body_of_docstrings_becomes_pass() -> None:
    """A function with nothing but strings still parses afterwards."""
    assert canonical("def f():\n    'a'\n    'b'") == "def f():\n    pass"
    assert canonical("class C:\n    'a'") == "class C:\n    pass"
    assert canonical("'a'") == ""


@pytest.mark.parametrize(
    "code",
    [
        "def f(:",
        "a\0b",
        "\ud800",
        "(" * 1000,
        "-" * 40_000 + "1",
        "a" + "+a" * 24_000,
        "a" + "+a" * 300_000,
        "a" + ".b" * 300_000,
        "x = " + "9" * 10_000,
    ],
    ids=["syntax", "nul", "surrogate", "parens", "unary", "deep", "longer", "chain", "digits"],
)
def test_code_that_cannot_be_parsed_safely_is_only_stripped(code: str) -> None:
    """Hostile code falls back to its text instead of crashing the parent."""
    assert canonical(f" {code}\n") == code
    assert len(program_sha256(code)) == 64


def test_depth_decides_and_not_the_callers_stack() -> None:
    """Just below the depth limit the form is canonical, above it the text."""
    assert canonical("a" + " +a" * 90) == "a" + " + a" * 90
    assert canonical("a" + " +a" * 110) == "a" + " +a" * 110


def test_the_form_does_not_depend_on_warning_filters() -> None:
    """Code with an invalid escape parses even where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert canonical("x='\\d'") == "x = '\\\\d'"


SUM = "def f(a, x1):\n    return 0.5 * a + 2 * x1"


@pytest.mark.parametrize(
    "same",
    [
        SUM,
        "def f(a, x1):\n    return .25e-1 * a + 17 * x1",
        "def f(a,x1): return (1_000 * a) + 2.*x1  # 0.5 was better",
        'def f(a, x1):\n    """Weigh a with 3, it\'s enough."""\n    return 3 * a + 4 * x1',
    ],
)
def test_programs_with_other_numbers_are_told(same: str) -> None:
    """However a number is written; digits of a name are none, and comments count for nothing."""
    assert differ_in_numbers(SUM, same)


@pytest.mark.parametrize(
    "other",
    [
        "def f(a, x2):\n    return 0.5 * a + 2 * x2",
        "def f(a, x1):\n    return 0.5 * a - 2 * x1",
        "def f(a, x1):\n    return 2 * x1 + 0.5 * a",
        "def f(a, x1):\n    return a + 2 * x1",
    ],
)
def test_programs_that_differ_in_more_are_others(other: str) -> None:
    """Another name, sign or order, and a number where there was none."""
    assert not differ_in_numbers(SUM, other)
