"""A table of cases as one test names every row that fails."""

from spec.rows import failing


def positive(number: int) -> None:
    """Fails for what is not above zero."""
    assert number > 0, f"{number} is not above zero"


def test_every_failing_row_is_named_with_its_reason() -> None:
    """Not the first alone."""
    assert failing({"a": 1, "b": -1, "c": 2, "d": 0}.items(), positive) == [
        "b: -1 is not above zero\nassert -1 > 0",
        "d: 0 is not above zero\nassert 0 > 0",
    ]


def test_a_table_without_rows_fails() -> None:
    """A file that is no longer found must not pass."""
    assert failing([], positive) == ["there is no row"]
