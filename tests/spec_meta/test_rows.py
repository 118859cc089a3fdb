"""A table of cases as one test names every row that fails."""

import pytest
from spec.rows import check_all


def positive(number: int) -> None:
    """Fails for what is not above zero."""
    if number <= 0:
        raise ValueError(f"{number} is not above zero")


def test_every_failing_row_is_named_with_its_reason() -> None:
    """Not the first alone."""
    with pytest.raises(AssertionError) as failure:
        check_all({"a": 1, "b": -1, "c": 2, "d": 0}.items(), positive)
    lines = ["2 of 4 rows fail", "b: -1 is not above zero", "d: 0 is not above zero"]
    assert str(failure.value).splitlines()[:3] == lines


def test_a_table_without_rows_fails() -> None:
    """A file that is no longer found must not pass."""
    with pytest.raises(AssertionError, match="the table has no row"):
        check_all([], positive)
