"""Records and groups from outside: what goes in comes out, and damage is found."""

import json
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.base.errors import IllFormedGroupError, RecordError
from search_to_signal.credit import MAPPINGS
from search_to_signal.records import groups as external
from search_to_signal.records.groups import GroupBatch, batch_of
from search_to_signal.records.reader import read_completions, read_groups
from search_to_signal.records.schema import CompletionRecord, Outcome
from search_to_signal.search.hosts.calm.prompts import CREATION
from spec.strategies import completion_groups, groups, record

RUN = [record(step=step, index=index, score=-6.0 - index) for step in range(3) for index in range(2)]


def written(path: Path, lines: list[bytes]) -> Path:
    """A record file of these lines."""
    file = path / "completions.jsonl"
    file.write_bytes(b"".join(lines))
    return file


def encoded(records: list[CompletionRecord]) -> list[bytes]:
    """One JSON line per record."""
    return [msgspec.json.encode(item) + b"\n" for item in records]


@given(groups=st.lists(completion_groups(), min_size=1, max_size=4))
def test_identity(groups: list[tuple[CompletionRecord, ...]]) -> None:
    """R-REC-01: A record that is written and read again is the same record, floats to the last bit."""
    for item in (item for members in groups for item in members):
        assert msgspec.json.decode(msgspec.json.encode(item), type=CompletionRecord) == item


def test_read_groups(tmp_path: Path) -> None:
    """R-REC-02: A file reads back as its groups in order, from the file or from its directory."""
    file = written(tmp_path, encoded(RUN))
    assert [item for members in read_groups(file) for item in members] == RUN
    assert list(read_completions(tmp_path)) == RUN


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [*lines[:2], lines[2][:-20]], ":3: unreadable line"),
        (lambda lines: [*lines[:2], lines[2][:-1]], ":3: the last line is cut off"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], ":2: step 0 has index 0, expected 1"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], ":1: step 0 has index 1, expected 0"),
        (lambda lines: [*lines[2:4], *lines[:2], *lines[4:]], ":3: step 0 after step 1"),
        (lambda lines: [lines[0], *lines[2:], lines[1]], ":6: step 0 after step 2"),
        (lambda lines: [lines[0].replace(b'"step":0', b'"sTep":0'), *lines[1:]], ":1: unreadable line"),
        (lambda lines: [lines[0].replace(b'"valid"', b'"valit"'), *lines[1:]], ":1: unreadable line"),
    ],
)
def test_damage(tmp_path: Path, damage: object, message: str) -> None:
    """R-REC-03: A cut, garbled, duplicated, missing or reordered line is found and named by file and line."""
    file = written(tmp_path, damage(encoded(RUN)))  # type: ignore[operator]
    with pytest.raises(RecordError, match=message):
        list(read_groups(file))


def test_batch() -> None:
    """R-REC-04: Stacking keeps scores, pads bases, numbers responses and drops the scores of failures."""
    first = (
        record(index=0, score=-6.0, base_scores=(-7.0, -8.0)),
        record(
            index=1, score=-5.0, outcome=Outcome.RANDOMNESS, base_scores=(-7.0, -8.0), response_sha256="b"
        ),
    )
    second = tuple(record(step=1, index=index, base_scores=(-7.0,)) for index in range(2))
    batch = batch_of([first, second])
    np.testing.assert_array_equal(batch.score, [[-6.0, np.nan], [-6.0, -6.0]])
    np.testing.assert_array_equal(batch.best_base, [-7.0, -7.0])
    assert batch.response.tolist() == [[0, 1], [0, 0]]
    assert batch.valid.tolist() == [[True, False], [True, True]]


def test_creation_has_no_comparator() -> None:
    """R-REC-05: A creation prompt has no comparator, whatever bases its record names (D05)."""
    item = record(operator=CREATION, base_scores=(-7.0,))
    assert not batch_of([(item,)]).eligible.any()


def test_mixed_groups_are_refused() -> None:
    """R-REC-06: Groups of several sizes, of several prompts, or none at all do not stack."""
    one, two = (record(),), (record(index=0), record(index=1))
    with pytest.raises(IllFormedGroupError, match="same size"):
        batch_of([one, two])
    with pytest.raises(IllFormedGroupError, match="several prompts"):
        batch_of([(record(), record(prompt_sha256="other"))])
    with pytest.raises(IllFormedGroupError, match="search states"):
        batch_of([(record(index=0), record(index=1, frontier=-1.0))])
    with pytest.raises(IllFormedGroupError, match="at least one group"):
        batch_of([])


@given(groups=st.lists(completion_groups(size=4), min_size=1, max_size=3))
def test_external_agrees(groups: list[tuple[CompletionRecord, ...]]) -> None:
    """R-REC-07: A group written in the published outside form gives the rewards that its records give."""
    outside = [as_external(members) for members in groups]
    for name in ("native", "factorized", "tail_weighted"):
        expected = MAPPINGS[name](batch_of(groups)).reward
        np.testing.assert_array_equal(MAPPINGS[name](external.external_batch(outside)).reward, expected)


@given(members=completion_groups())
def test_external_schema(members: tuple[CompletionRecord, ...]) -> None:
    """R-REC-08: The published JSON Schema accepts what the reader accepts."""
    schema = json.loads(external.SCHEMA.read_text(encoding="utf-8"))
    line = msgspec.json.encode(as_external(members))
    jsonschema.validate(json.loads(line), schema)
    assert msgspec.json.decode(line, type=external.ExternalGroup) == as_external(members)


@pytest.mark.parametrize(
    "line",
    [
        '{"candidates": [{"outcome": "excellent", "score": 1.0}]}',
        '{"candidates": [{"outcome": "valid", "score": "high"}]}',
        '{"candidates": []}',
        '{"candidates": [{"outcome": "valid"}]}',
        '{"candidates": [{"outcome": "missing_code", "score": 1.0}]}',
        '{"candidates": [{"outcome": "valid", "score": 1.0, "exposure": 1.5}]}',
        '{"candidates": [{"outcome": "valid", "score": 1.0, "archive_gap": -1.0}]}',
        '{"scores": [1.0]}',
        "[1, 2]",
    ],
)
def test_external_refusal(tmp_path: Path, line: str) -> None:
    """R-REC-09: What the schema refuses the reader refuses, naming file and line."""
    schema = json.loads(external.SCHEMA.read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(line), schema)
    file = tmp_path / "groups.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(RecordError, match=r"groups\.jsonl:1"):
        list(external.read_external(file))


def test_archive_gives_context() -> None:
    """R-REC-10: From the archived scores of an outside group follow frontier and archive gaps (D22)."""
    line = '{"archive": [-7.0, -6.0], "candidates": [{"outcome": "valid", "score": -6.25}]}'
    batch = external.external_batch([msgspec.json.decode(line, type=external.ExternalGroup)])
    assert (batch.frontier.tolist(), batch.archive_gap.tolist()) == ([-6.0], [[0.25]])


@given(batch=groups())
def test_eligible(batch: GroupBatch) -> None:
    """R-REC-11: Eligible means valid beside a comparator; failures and first proposals are not (D05)."""
    compared = not np.isnan(batch.bases).all()
    np.testing.assert_array_equal(batch.eligible, batch.valid if compared else np.zeros_like(batch.valid))


def as_external(members: tuple[CompletionRecord, ...]) -> external.ExternalGroup:
    """The same group in the outside form."""
    head = members[0]
    return external.ExternalGroup(
        candidates=tuple(
            external.Candidate(
                r.outcome, r.score, r.response_sha256, r.archive_gap, r.exposure, r.matches_base_code
            )
            for r in members
        ),
        problem=head.problem,
        bases=() if head.operator == CREATION else head.base_scores,
        frontier=head.frontier,
    )
