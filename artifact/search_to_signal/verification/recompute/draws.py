"""Every round of a recorded run drawn again from its seed: operator, parents, prompt, exposure, state."""

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

# Sums of a few shares; another processor may round the last bits otherwise.
_TOLERANCE = 1e-9


def draw_problems(run: Path) -> Iterator[str]:
    """Where a run departs from what its seed and its scores draw; it ends there, since all else follows.

    Only our own hosts are asked, and no problem of somebody's own for its prompts: other runs are left out.
    Raises ConfigError for settings of another version, RecordError as ``replayed_rounds`` does.
    """
    manifest = read_manifest(run)
    ours = manifest.host in HOSTS and not manifest.of_host.own_loop
    if manifest.facts.problem not in PROBLEMS or not ours or not has_rounds(run):
        return
    config = run_config(manifest)
    host = HOSTS[config.host](config.host_setup)
    if not _given_a_last_archive(run, manifest, config.search):
        yield "the population that it was given is not the one that its parent ends with"
    state = recorded_start(run, host)
    for played, request, transition in replayed_rounds(run, host, config):
        reach = exposures_of(host, request, played.results())
        found = [*_parent_problems(request, played), *_exposure_problems(played, reach)]
        if not _asked(request.prompt.user, played.prompt):
            found.append("the prompt is not the one that the search asks")
        if found:
            yield from (f"step {played.step}: {text}" for text in found)
            return
        state = transition.state
    if isinstance(host, HasDatabase) and host.database(state) != read_database(run):
        yield f"{DATABASE} is not the state that the search ends with"


def _given_a_last_archive(run: Path, manifest: Manifest, settings: SearchSettings) -> bool:
    """Whether a given population is its parent's last archive; true where the parent is not here (D45)."""
    population, parent = recorded_population(run), manifest.facts.parent
    if not population or parent is None or not (run / parent.run / HEURISTICS).is_file():
        return True
    return final_population(run / parent.run, settings) == population


def _asked(user: str, prompt: str) -> bool:
    """Whether a recorded prompt shows a user message, as text or in the JSON that an endpoint was sent."""
    if user in prompt:
        return True
    try:
        sent = msgspec.json.decode(prompt.encode("utf-8", "surrogatepass"), type=list[dict[str, str]])
    except UNREADABLE:
        return False
    return [message.get("content") for message in sent if message.get("role") == "user"] == [user]


def _parent_problems(request: Request, played: Round) -> Iterator[str]:
    parents, bases = tuple(p.id for p in request.parents), tuple(b.score for b in request.bases)
    if any((record.parents, record.base_scores) != (parents, bases) for record in played.records):
        yield "the search draws other parents"


def _exposure_problems(played: Round, reach: Sequence[float | None]) -> Iterator[str]:
    for record, due in zip(played.records, reach, strict=True):
        found = record.exposure
        if (found is None) != (due is None) or not math.isclose(found or 0.0, due or 0.0, abs_tol=_TOLERANCE):
            yield f"completion {record.index} has exposure {found}, the search gives {due}"
