"""Good logs of every format with one value replaced: an audit or one line, never a traceback."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.changed_logs import LOGS, VALUES, Change, Place, audited_every_way, changes, few_normalizers

from search_to_signal.audit.importers import FORMATS

# Where a traceback came of it.
KNOWN: set[tuple[str, Place, str]] = {
    ("trl-wandb", (0, "columns", 0), "list"),
    ("trl-wandb", (0, "columns", 0), "mapping"),
    ("neutral-jsonl", (0, "label"), "list"),
    ("neutral-jsonl", (0, "label"), "true"),
    ("neutral-jsonl", (0, "label"), "1.5"),
    ("neutral-json", (1, "label"), "mapping"),
    ("verl", (0, "input"), "NUL"),
    ("neutral-csv", (0, "group"), "NUL"),
    ("neutral-jsonl", (0, "step"), "10**400"),
    ("prime-rl", (0, "traces", 0, "nodes", 0, "mask", 0), "NaN"),
    ("tinker", (0, "steps", 0, "ac_len"), "2**63"),
    ("skyrl-eval", (0, "input_prompt"), "nested 900"),
    ("verl v0", (0, "input"), "nested 900"),
    ("neutral-parquet", (0, "group"), "2**63"),
}


def test_every_format_is_tried() -> None:
    assert {form.name for form in FORMATS} <= set(LOGS)


@pytest.mark.slow
def test_any_value_in_any_field_is_an_audit_or_one_line(tmp_path: Path) -> None:
    drawn = random.Random(65)
    values: dict[tuple[str, Place], str] = {}

    def chosen(log: str, place: Place, value: str) -> bool:
        given = values.setdefault((log, place), drawn.choice(list(VALUES)))
        return (log, place, value) in KNOWN or (place[0] == 0 and value == given)

    with few_normalizers():
        for change in changes(tmp_path, chosen):
            with named(change):
                audited_every_way(change)


@contextmanager
def named(change: Change) -> Iterator[None]:
    """Let a failure say which change it was."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{change.log} {change.place} = {change.value}: {error!r}") from error
