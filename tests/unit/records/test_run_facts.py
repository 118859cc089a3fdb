"""The facts of a run and of its condition are those of its configuration, whichever version wrote it."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.command import Make

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.conditions import FROZEN, Condition, run_name, split_run_name
from search_to_signal.records.manifest import RunFacts, read_manifest

OLD = {
    "purpose": "smoke",
    "problem": "tsp",
    "split": "embedded",
    "model": "m",
    "condition": "native",
    "seed": 7,
    "groups": 3,
    "generation": {"group_size": 4},
}


def test_what_an_old_configuration_lacks_has_one_meaning() -> None:
    facts = msgspec.convert(OLD, RunFacts)
    assert (facts.layer, facts.normalizer, facts.learning_rule, facts.host) == (
        "cohort",
        "group",
        "grpo",
        "reference",
    )
    assert (facts.name, facts.group_size, facts.mapping) == ("native-s7", 4, "native")


@pytest.mark.parametrize(
    ("changes", "trained"),
    [({}, True), ({"condition": "frozen"}, False), ({"parent": {"run": "../../cohort/native-s7"}}, False)],
)
def test_a_restart_is_not_trained(changes: dict[str, object], trained: bool) -> None:
    assert msgspec.convert({**OLD, **changes}, RunFacts).trained is trained


@pytest.mark.parametrize(
    ("groups", "size", "read"),
    [
        (1, 4, True),
        (3, 1, True),
        (1_000_000, 1024, True),
        (0, 4, False),
        (3, 0, False),
        (-1, 4, False),
        (1_000_001, 4, False),
        (3, 1025, False),
    ],
)
def test_a_run_has_a_group_of_one_at_least(
    make_run: Make, tmp_path: Path, groups: int, size: int, read: bool
) -> None:
    run = make_run(tmp_path / "run", "native", 7)
    text = (run / "manifest.json").read_text()
    config = {**json.loads(text)["config"], "groups": groups}
    config["generation"] = {**config["generation"], "group_size": size}
    (run / "manifest.json").write_text(json.dumps({**json.loads(text), "config": config}))
    if read:
        assert read_manifest(run).facts.completions == groups * size
    else:
        with pytest.raises(RunDirectoryError, match=f"{groups} groups of {size} are"):
            read_manifest(run)


def test_the_host_is_the_manifest_s(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "native", 7, host="released")
    assert read_manifest(run).facts.host == "released"


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
