"""What one checkpoint of the common-context probe answers, wherever it does."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.records.probe import BankPrompt, Checkpoint
from search_to_signal.run.config import RunConfig


@dataclass(frozen=True)
class ProbeTask:
    """The prompts of ``bank`` for a checkpoint, whose adapter lies in ``cohort``; records go to ``file``."""

    config: RunConfig
    checkpoint: Checkpoint
    cohort: Path
    bank: Sequence[BankPrompt]
    file: Path


Barriers = dict[str, str | bool]
"""The isolation barriers that were in force while answers were evaluated."""
