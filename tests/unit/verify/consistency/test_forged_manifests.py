"""Whatever stands in a manifest, verifying ends in problems or in one line."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from search_to_signal.base.errors import S2SError
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import MANIFEST
from search_to_signal.verify.directory import verify

pytestmark = pytest.mark.slow

VALUES: tuple[Any, ...] = (None, 0, -1, True, 1e300, "x", [], {}, [{"a": 1}])
RULES = {"dpo": {"finetuning_frequency": 2}, "entropic": {"groups_per_batch": 2}, "grpo": {}}


def places(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every value in nested tables."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(manifest: Any, path: tuple[str, ...], value: Any) -> Any:
    """A copy with one other value."""
    copy = json.loads(json.dumps(manifest))
    table = copy
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    return copy


def told(directory: Path) -> list[str]:
    """Every line that verifying says, each one alone."""
    try:
        lines = list(verify(directory).problems)
    except S2SError as error:
        lines = [str(error)]
    return [line for line in lines if "\n" not in line]


@pytest.mark.parametrize("rule", RULES)
def test_no_value_of_a_manifest_stops_verifying(
    make_run: Callable[..., Path], tmp_path: Path, rule: str
) -> None:
    """Every value in turn is made nothing, zero, text, a list or a table."""
    tables = {
        "evaluation": {"randomness": "text"},
        "learner": {"credit": "both"},
        "search": {"population_size": 3},
    }
    run = make_run(
        tmp_path / "native-s42",
        "native",
        config={**tables, "learning_rule": rule, "rule_settings": RULES[rule]},
    )
    write_sums(tmp_path)
    manifest = json.loads((run / MANIFEST).read_text())
    for path in places(manifest):
        for value in VALUES:
            (run / MANIFEST).write_text(json.dumps(changed(manifest, path, value)))
            assert told(tmp_path), (path, value)
