"""The common-context table: counts by hand, and answers that are not the recorded ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.evaluations import probe
from search_to_signal.errors import RunDirectoryError
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.probe import (
    BankPrompt,
    ProbedCheckpoint,
    ProbeManifest,
    ProbeRecord,
    write_probe,
)
from search_to_signal.records.schema import Operator, Outcome

# Two prompts, two positions: by prompt the scores, None for a failure. Bases are -6.0 and none.
ANSWERS = {
    "initial": [(-7.0, None), (None, None)],
    "native-s1": [(-5.0, -6.0), (-1.0, None)],
}


def write(path: Path, records: list[Any]) -> str:
    """Write record lines; returns their SHA-256."""
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return sha256_file(path)


def answers(name: str) -> list[ProbeRecord]:
    """The records of one checkpoint."""
    return [
        ProbeRecord(
            checkpoint=name,
            prompt=prompt,
            position=position,
            outcome=Outcome.MISSING_CODE if score is None else Outcome.VALID,
            detail="",
            score=score,
            evaluation="ok",
            response_sha256="r",
            program_sha256=None,
            prompt_tokens=1,
            completion_tokens=1,
            truncated=False,
            text="",
        )
        for prompt, row in enumerate(ANSWERS[name])
        for position, score in enumerate(row)
    ]


@pytest.fixture
def probed(tmp_path: Path, manifest: Callable[..., Manifest]) -> Path:
    """A complete probe of two checkpoints."""
    folder = tmp_path / "probe"
    folder.mkdir()
    bank = [
        BankPrompt(
            prompt=number,
            run="cohort/frozen-s1",
            step=number,
            operator=Operator.REPLACEMENT if bases else Operator.CREATION,
            system="",
            user="",
            prompt_sha256="p",
            base_scores=bases,
            frontier=-6.0,
        )
        for number, bases in enumerate([(-6.0, -8.0), ()])
    ]
    bank_sha256, plain = write(folder / "bank.jsonl", bank), manifest({})
    checkpoints = tuple(
        ProbedCheckpoint(
            name=name,
            condition=name.split("-")[0],
            seed=None,
            adapter_sha256=None,
            bank_sha256=bank_sha256,
            records_sha256=write(folder / f"{name}.jsonl", answers(name)),
        )
        for name in ANSWERS
    )
    write_probe(
        folder,
        ProbeManifest(
            status="complete",
            purpose="formal",
            problem="cvrp",
            split="embedded",
            model="tiny",
            prompts=2,
            completions=2,
            config_sha256="c",
            bank_sha256=bank_sha256,
            source=plain.source,
            environment=plain.environment,
            model_files={},
            isolation={},
            checkpoints=checkpoints,
        ),
    )
    return tmp_path


def test_probe_by_hand(probed: Path) -> None:
    """Native: three of four valid, one above both bases; without bases an answer never improves."""
    table = probe(Results(probed))
    shown = {row.label: [cell.value for cell in row.cells] for row in table.rows}
    assert shown["initial"] == [4, 1, 25.0, -7.0, 0.0, 0.0]
    assert shown["native-s1"] == pytest.approx([4, 3, 75.0, -4.0, 100 / 3, 50.0])
    assert table.cell("native-s1", "Valid").origins[0].path == "probe/native-s1.jsonl"


def test_altered_answers_are_refused(probed: Path) -> None:
    """A changed bank or changed answers are named."""
    for name in ("native-s1.jsonl", "bank.jsonl"):
        file = probed / "probe" / name
        kept = file.read_bytes()
        file.write_bytes(kept.replace(b"-6.0", b"-5.9"))
        with pytest.raises(RunDirectoryError, match=name):
            probe(Results(probed))
        file.write_bytes(kept)


def test_an_unfinished_probe_is_refused(probed: Path) -> None:
    """A probe that is still running gives no table."""
    file = probed / "probe" / "probe.json"
    file.write_bytes(file.read_bytes().replace(b'"complete"', b'"running"'))
    with pytest.raises(RunDirectoryError, match="unfinished"):
        probe(Results(probed))
