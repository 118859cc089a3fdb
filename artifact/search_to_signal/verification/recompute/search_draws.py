"""Every round of a recorded search, drawn again from its seed: operator, parents, prompt, exposure, state."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from search_to_signal.errors import UNREADABLE
from search_to_signal.hosts import HOSTS
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.loop.recorded import (
    final_population,
    recorded_population,
    recorded_start,
    replayed_rounds,
)
from search_to_signal.problems import PROBLEMS
from search_to_signal.records.database import DATABASE, read_database
from search_to_signal.records.manifest import Manifest, read_manifest
from search_to_signal.records.reader import HEURISTICS
from search_to_signal.search.host import HasDatabase, Request, exposures_of
from search_to_signal.search.round import Round
from search_to_signal.studies.layers.other_exposures import has_rounds
from search_to_signal.verification.recompute.runs import run_config

# Exposures are sums of a few probabilities, whose last bits depend on the processor.
_TOLERANCE = 1e-9


def search_draw_problems(run: Path) -> Iterator[str]:
    """Yield the differences of the first round that its seed and the recorded scores do not give.

    Later rounds follow from it and are not checked. Runs of third-party hosts and problems are skipped, since
    their code is not executed. Raises ConfigError for settings of another version, RecordError as
    ``replayed_rounds`` does.
    """
    manifest = read_manifest(run)
    built_in = manifest.host in HOSTS and not manifest.of_host.own_loop
    if manifest.facts.problem not in PROBLEMS or not built_in or not has_rounds(run):
        return
    config = run_config(manifest)
    host = HOSTS[config.host](config.host_setup)
    if not _has_parents_population(run, manifest, config.search):
        yield "the population that it was given is not the one that its parent ends with"
    state = recorded_start(run, host)
    for recorded, request, transition in replayed_rounds(run, host, config):
        exposures = exposures_of(host, request, recorded.results())
        problems = [*_parent_problems(request, recorded), *_exposure_problems(recorded, exposures)]
        if not _contains_message(recorded.prompt, request.prompt.user):
            problems.append("the prompt is not the one that the search asks")
        if problems:
            yield from (f"step {recorded.step}: {problem}" for problem in problems)
            return
        state = transition.state
    if isinstance(host, HasDatabase) and host.database(state) != read_database(run):
        yield f"{DATABASE} is not the state that the search ends with"


def _has_parents_population(run: Path, manifest: Manifest, settings: SearchSettings) -> bool:
    """Whether a given population is the last archive of the run's parent; true without the parent (D45)."""
    population, parent = recorded_population(run), manifest.facts.parent
    if not population or parent is None or not (run / parent.run / HEURISTICS).is_file():
        return True
    return final_population(run / parent.run, settings) == population


def _contains_message(prompt: str, user: str) -> bool:
    """Whether a recorded prompt contains a user message, as text or in the JSON of a request."""
    if user in prompt:
        return True
    try:
        messages = msgspec.json.decode(prompt.encode("utf-8", "surrogatepass"), type=list[dict[str, str]])
    except UNREADABLE:
        return False
    return [message.get("content") for message in messages if message.get("role") == "user"] == [user]


def _parent_problems(request: Request, recorded: Round) -> Iterator[str]:
    parents, bases = tuple(p.id for p in request.parents), tuple(b.score for b in request.bases)
    if any((record.parents, record.base_scores) != (parents, bases) for record in recorded.records):
        yield "the search draws other parents"


def _exposure_problems(recorded: Round, exposures: Sequence[float | None]) -> Iterator[str]:
    for record, exposure in zip(recorded.records, exposures, strict=True):
        absent = (record.exposure is None) != (exposure is None)
        if absent or not math.isclose(record.exposure or 0.0, exposure or 0.0, abs_tol=_TOLERANCE):
            yield f"completion {record.index} has exposure {record.exposure}, the search gives {exposure}"
