"""Exposures of a recorded run under the other readings of D13, from its records: no model, no evaluation."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from search_to_signal.errors import RecordError
from search_to_signal.hosts.calm.exposure import exposures
from search_to_signal.hosts.calm.replay import drawn_from
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.loop.recorded import recorded_states
from search_to_signal.records.exposures import ExposureRecord
from search_to_signal.records.manifest import MANIFEST, read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS
from search_to_signal.search.round import Round
from search_to_signal.seeding import stream

DRAWS = 1000
"""Draws of the Monte Carlo reading: a standard error of 0.016 at most."""
_NEEDED = (MANIFEST, COMPLETIONS, GENERATIONS, HEURISTICS, STEPS)


def has_rounds(run: Path) -> bool:
    """Whether a directory holds what the search states of its groups follow from."""
    return all((run / name).is_file() for name in _NEEDED) and "search" in read_manifest(run).config


def has_search(run: Path) -> bool:
    """The same for CALM's search, whose exposures have other readings."""
    return has_rounds(run) and read_manifest(run).of_host.calm


def other_exposures(run: Path, name: str) -> Iterator[ExposureRecord]:
    """One record per group of a run that has its search; raises RecordError where its records do not fit."""
    manifest = read_manifest(run)
    try:
        settings = msgspec.convert(manifest.config["search"], SearchSettings)
    except msgspec.ValidationError as error:
        raise RecordError(f"{run} has other settings of the search than this version: {error}") from error
    for played, state in recorded_states(run, settings):
        yield _record(name, manifest.facts.seed, played, drawn_from(state, played), settings)


def _record(
    name: str, seed: int, played: Round, state: SearchState, settings: SearchSettings
) -> ExposureRecord:
    rng = stream(seed, "exposure", played.step)
    # Draws of the sampler are independent, so the number of hits is binomial in the exact chance.
    sampled = (
        r.exposure if r.exposure is None else rng.binomial(DRAWS, r.exposure) / DRAWS for r in played.records
    )
    unconditional = exposures(state, played.results(), settings, unconditional=True)
    return ExposureRecord(run=name, step=played.step, unconditional=unconditional, sampled=tuple(sampled))
