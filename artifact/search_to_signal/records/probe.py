"""The common-context probe: a fixed bank of prompts, and what every checkpoint answered to them.

Paper, supplement "Common-Context Executable Checkpoint Probe". All checkpoints answer the same prompts from
the same sampling seeds, so that validity and improvement are comparable between them.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from search_to_signal.records.files import read_json, write_json
from search_to_signal.records.manifest import Environment, Manifest, Source
from search_to_signal.records.schema import Operator, Outcome

BANK = "bank.jsonl"
PROBE_MANIFEST = "probe.json"
# The checkpoint before any update: the model without an adapter.
INITIAL = "initial"


class BankPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One prompt of the bank, as the search asked it in step ``step`` of the Frozen run ``run``.

    ``prompt_sha256`` is that of the rendered chat text, equal to the run's record. An answer improves when
    its score is above all ``base_scores`` (higher is better); without any there is no comparator (D05).
    """

    prompt: int
    run: str
    step: int
    operator: Operator
    system: str
    user: str
    prompt_sha256: str
    base_scores: tuple[float, ...]
    frontier: float | None


class ProbeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One completion of one checkpoint: the ``position``-th that was drawn for bank prompt ``prompt``."""

    checkpoint: str
    prompt: int
    position: int
    outcome: Outcome
    detail: str
    score: float | None
    evaluation: str
    response_sha256: str
    program_sha256: str | None
    prompt_tokens: int
    completion_tokens: int
    truncated: bool
    text: str


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model without adapter, or with the final adapter of the cohort run ``name``."""

    name: str
    condition: str
    seed: int | None
    adapter_sha256: str | None


class ProbedCheckpoint(Checkpoint, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A checkpoint whose answers are complete in ``<name>.jsonl``, and the bank that it answered."""

    bank_sha256: str
    records_sha256: str


class ProbeManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A probe; ``config_sha256`` is of the run configuration that it took its settings from.

    Only a ``complete`` one of purpose ``formal`` may enter a formal table.
    """

    status: Literal["running", "complete"]
    purpose: Literal["formal", "smoke"]
    problem: str
    split: str
    model: str
    prompts: int
    completions: int
    config_sha256: str
    bank_sha256: str
    source: Source
    environment: Environment
    model_files: dict[str, str]
    isolation: dict[str, str | bool]
    checkpoints: tuple[ProbedCheckpoint, ...]


def probed_config(run: Manifest, completions: int) -> dict[str, Any]:
    """The configuration of a probe: a Frozen run's, with its own number of completions."""
    return {**run.config, "generation": {**run.config["generation"], "group_size": completions}}


def write_probe(directory: Path, manifest: ProbeManifest) -> None:
    write_json(directory / PROBE_MANIFEST, manifest)


def read_probe(directory: Path) -> ProbeManifest:
    """Read a probe's manifest; raises RunDirectoryError when it is missing or unreadable."""
    missing = f"{directory} has no {PROBE_MANIFEST}: no probe has run there"
    return read_json(directory / PROBE_MANIFEST, ProbeManifest, missing)
