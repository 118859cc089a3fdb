"""The facts of a run are those of its configuration, whichever version wrote it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from search_to_signal.records.manifest import RunFacts, read_manifest

Make = Callable[..., Path]
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
    """Without layer, normalizer and rule a run is of the cohort, by the group normalizer and GRPO."""
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
    """A learner takes part in a run with a mapping, but for a restart, which has its parent's condition."""
    assert msgspec.convert({**OLD, **changes}, RunFacts).trained is trained


def test_the_host_is_the_manifest_s(make_run: Make, tmp_path: Path) -> None:
    """Whose search it was is said by the manifest, and settings that readers do not know are left alone."""
    run = make_run(tmp_path / "run", "native", 7, host="released")
    assert read_manifest(run).facts.host == "released"
