"""The text of a condition is read in one place, and written as it was read."""

import pytest

from search_to_signal.records.conditions import FROZEN, Condition, run_name, split_run_name


@pytest.mark.parametrize("text", [FROZEN, "native", "native+rank", "mine:reward+mine:scale", "native+"])
def test_a_condition_is_written_as_it_was_read(text: str) -> None:
    """Records and names of runs keep their bytes, whatever a configuration wrote."""
    assert str(Condition.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "mapping", "normalizer"),
    [
        ("frozen", "frozen", "group"),
        ("native", "native", "group"),
        ("native+rank", "native", "rank"),
        ("native+", "native", "group"),
        ("native+a:b+c", "native", "a:b+c"),
    ],
)
def test_a_condition_that_names_no_normalizer_takes_the_given(
    text: str, mapping: str, normalizer: str
) -> None:
    condition = Condition.parse(text)
    assert (condition.mapping, condition.normalizer_or("group")) == (mapping, normalizer)


def test_runs_of_own_parts_have_names_without_colons() -> None:
    assert run_name("native+my_normalizer:scaled", 3) == "native+my_normalizer.scaled-s3"


@pytest.mark.parametrize("condition", [FROZEN, "native+rank", "my-search-s2"])
def test_a_runs_name_gives_back_condition_and_seed(condition: str) -> None:
    assert split_run_name(run_name(condition, 42)) == (condition, "42")
