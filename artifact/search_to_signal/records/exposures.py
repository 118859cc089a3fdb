"""Exposures of recorded completions under the other readings of D13, and how to read them back."""

from pathlib import Path

import msgspec
import numpy as np

from search_to_signal.numerics import Floats
from search_to_signal.records.reader import read_records

EXPOSURES = "exposures.jsonl"


class ExposureRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One group of a run, G values each in [0, 1], None for an invalid completion.

    ``unconditional`` inserts every valid completion, also what the archive would refuse; ``sampled`` is the
    share of draws of the parent sampler that the recorded exposure gives.
    """

    run: str
    step: int
    unconditional: tuple[float | None, ...]
    sampled: tuple[float | None, ...]


def read_exposures(path: Path) -> dict[str, dict[str, Floats]]:
    """By run and reading (T, G) exposures, NaN where absent; empty without a file. Raises RecordError."""
    by_run: dict[str, list[ExposureRecord]] = {}
    for record in read_records(path, ExposureRecord) if path.is_file() else ():
        by_run.setdefault(record.run, []).append(record)
    return {
        run: {
            "exposure_unconditional": np.array(
                [record.unconditional for record in records], dtype=np.float64
            ),
            "exposure_sampled": np.array([record.sampled for record in records], dtype=np.float64),
        }
        for run, records in by_run.items()
    }
