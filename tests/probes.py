"""A probe written by hand: what each checkpoint answered, by prompt and position."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from spec.synthetic_runs import plain_manifest

from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.probe import (
    BankPrompt,
    ProbedCheckpoint,
    ProbeManifest,
    ProbeRecord,
    write_probe,
)
from search_to_signal.records.schema import Outcome
from search_to_signal.search.hosts.calm.prompts import CREATION, REPLACEMENT

Scores = Sequence[Sequence[float | None]]
"""By prompt and position, None for a failure."""


def write_synthetic_probe(
    folder: Path, bases: Sequence[tuple[float, ...]], answers: Mapping[str, Scores]
) -> Path:
    """Write a complete probe; ``bases`` are those of each prompt, ``answers`` by checkpoint."""
    folder.mkdir(parents=True)
    bank = [
        BankPrompt(
            prompt=number,
            run="cohort/frozen-s1",
            step=number,
            operator=REPLACEMENT if scores else CREATION,
            system="",
            user="",
            prompt_sha256="p",
            base_scores=scores,
            frontier=-6.0,
        )
        for number, scores in enumerate(bases)
    ]
    bank_sha256, plain = _write(folder / "bank.jsonl", bank), plain_manifest({})
    checkpoints = tuple(
        ProbedCheckpoint(
            name=name,
            condition=name.split("-")[0],
            seed=None,
            adapter_sha256=None,
            bank_sha256=bank_sha256,
            records_sha256=_write(folder / f"{name}.jsonl", _records(name, scores)),
        )
        for name, scores in answers.items()
    )
    manifest = ProbeManifest(
        status="complete",
        purpose="formal",
        problem="cvrp",
        split="embedded",
        model="tiny",
        prompts=len(bank),
        completions=len(next(iter(answers.values()))[0]),
        config_sha256="c",
        bank_sha256=bank_sha256,
        source=plain.source,
        environment=plain.environment,
        model_files={},
        isolation={},
        checkpoints=checkpoints,
    )
    write_probe(folder, manifest)
    return folder


def _records(name: str, scores: Scores) -> list[ProbeRecord]:
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
        for prompt, row in enumerate(scores)
        for position, score in enumerate(row)
    ]


def _write(path: Path, records: Sequence[Any]) -> str:
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return sha256_file(path)
