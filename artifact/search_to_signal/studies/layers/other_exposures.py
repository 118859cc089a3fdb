"""Exposures of a recorded run under the alternative definitions of D13, from its records alone."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from search_to_signal.errors import RecordError
from search_to_signal.hosts.calm.exposure import exposures
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.hosts.calm.transition import drawn_from
from search_to_signal.loop.recorded import recorded_states
from search_to_signal.records.exposures import ExposureRecord
from search_to_signal.records.manifest import MANIFEST, read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS
from search_to_signal.search.round import Round
from search_to_signal.seeding import stream

DRAWS = 1000
"""Draws of the Monte Carlo estimate, for a standard error of 0.016 at most."""
_NEEDED = (MANIFEST, COMPLETIONS, GENERATIONS, HEURISTICS, STEPS)


def has_rounds(run: Path) -> bool:
    """Whether a directory has the records that determine the search states of its groups."""
    return all((run / name).is_file() for name in _NEEDED) and "search" in read_manifest(run).config


def has_search(run: Path) -> bool:
    """Whether a directory has the records of CALM's search, whose exposures have alternative definitions."""
    return has_rounds(run) and read_manifest(run).of_host.calm


def other_exposures(run: Path, name: str) -> Iterator[ExposureRecord]:
    """Yield one record per group of a run; raises RecordError for settings of another version."""
    manifest = read_manifest(run)
    try:
        settings = msgspec.convert(manifest.config["search"], SearchSettings)
    except msgspec.ValidationError as error:
        raise RecordError(f"{run} has other settings of the search than this version: {error}") from error
    for recorded, state in recorded_states(run, settings):
        yield _record(name, manifest.facts.seed, recorded, drawn_from(state, recorded), settings)


def _record(
    name: str, seed: int, recorded: Round, state: SearchState, settings: SearchSettings
) -> ExposureRecord:
    rng = stream(seed, "exposure", recorded.step)
    # Draws of the sampler are independent, so the number of hits is binomial with the exact probability.
    sampled = (
        r.exposure if r.exposure is None else rng.binomial(DRAWS, r.exposure) / DRAWS
        for r in recorded.records
    )
    unconditional = exposures(state, recorded.results(), settings, unconditional=True)
    return ExposureRecord(run=name, step=recorded.step, unconditional=unconditional, sampled=tuple(sampled))
