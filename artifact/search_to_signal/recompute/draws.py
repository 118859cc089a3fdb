"""Every round of a recorded run drawn again from its seed: operator, parents, prompt, exposure, state."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from search_to_signal.errors import ConfigError, RecordError
from search_to_signal.experiments.layers.other_exposures import has_rounds
from search_to_signal.experiments.runs.recorded import final_population
from search_to_signal.hosts import HOSTS, RELEASED
from search_to_signal.hosts.base import HasDatabase, Host, HostSetup, Question, begin, exposures_of
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import Problem
from search_to_signal.records.database import DATABASE, read_database
from search_to_signal.records.manifest import Manifest, read_manifest
from search_to_signal.records.population import given
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord, HeuristicRecord, StepRecord
from search_to_signal.search.replay import Round, evaluated
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import seed_member
from search_to_signal.seeding import stream

# Sums of a few shares; another processor may round the last bits otherwise.
_TOLERANCE = 1e-9


def draw_problems(run: Path) -> Iterator[str]:
    """Where a run departs from what its seed and its scores draw; it ends there, since all else follows.

    Only our own hosts are asked, and no problem of somebody's own for its prompts: other runs are left out.
    """
    manifest = read_manifest(run)
    problem = PROBLEMS.get(manifest.facts.problem)
    ours = manifest.host in HOSTS and manifest.host != RELEASED
    if problem is None or not ours or not has_rounds(run):
        return
    seed = next(read_records(run / HEURISTICS, HeuristicRecord))
    search = _search(run, manifest)
    host = _host(run, manifest, problem, search)
    population = given(read_records(run / HEURISTICS, HeuristicRecord))
    if population and not _is_last_archive(population, run, manifest, search):
        yield "the population that it was given is not the one that its parent ends with"
    state = begin(host, seed_member(problem.seed, seed.score), population)
    steps = read_records(run / STEPS, StepRecord)
    generations = read_records(run / GENERATIONS, GenerationRecord)
    for step, group, generation in zip(steps, read_groups(run), generations, strict=True):
        played = Round(step.step, step.operator, step.collapsed, group, generation.completions)
        question = host.ask(state, stream(manifest.facts.seed, "search", step.step))
        results = [evaluated(*pair) for pair in zip(group, generation.completions, strict=True)]
        reach = exposures_of(host, question, results)
        found = [*_question_problems(question, played), *_exposure_problems(played, reach)]
        if not _asked(question.prompt.user, generation.prompt):
            found.append("the prompt is not the one that the search asks")
        effect = host.play(question, results, step.step)
        state = effect.state
        if (step.archive_size, step.stagnation) != (len(effect.archive), effect.stagnation):
            found.append("archive_size or stagnation is not that of the search")
        if found:
            yield from (f"step {step.step}: {text}" for text in found)
            return
    if isinstance(host, HasDatabase) and host.database(state) != read_database(run):
        yield f"{DATABASE} is not the state that the search ends with"


def _search(run: Path, manifest: Manifest) -> SearchSettings:
    try:
        return msgspec.convert(manifest.config["search"], SearchSettings)
    except msgspec.ValidationError as error:
        raise RecordError(f"{run} has other settings of the search than this version: {error}") from error


def _host(run: Path, manifest: Manifest, problem: Problem, search: SearchSettings) -> Host:
    try:
        return HOSTS[manifest.host](HostSetup(problem, search, manifest.config.get("host_settings", {})))
    except ConfigError as error:
        raise RecordError(f"{run} has other settings of its host than this version: {error}") from error


def _is_last_archive(
    population: tuple[HeuristicRecord, ...], run: Path, manifest: Manifest, settings: SearchSettings
) -> bool:
    """Whether a given population is its parent's last archive; true where the parent is not here (D45)."""
    parent = manifest.facts.parent
    if parent is None or not (run / parent.run / HEURISTICS).is_file():
        return True
    return final_population(run / parent.run, settings) == population


def _asked(user: str, prompt: str) -> bool:
    """Whether a recorded prompt shows a user message, as text or in the JSON that an endpoint was sent."""
    if user in prompt:
        return True
    try:
        sent = msgspec.json.decode(prompt.encode("utf-8", "surrogatepass"), type=list[dict[str, str]])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return [message.get("content") for message in sent if message.get("role") == "user"] == [user]


def _question_problems(question: Question, played: Round) -> Iterator[str]:
    parents, bases = tuple(p.id for p in question.parents), tuple(b.score for b in question.bases)
    if (question.operator, question.collapsed) != (played.operator, played.collapsed):
        yield f"the search draws {question.operator.value}, recorded is {played.operator.value} or a collapse"
    if any((record.parents, record.base_scores) != (parents, bases) for record in played.records):
        yield "the search draws other parents"


def _exposure_problems(played: Round, reach: Sequence[float | None]) -> Iterator[str]:
    for record, due in zip(played.records, reach, strict=True):
        found = record.exposure
        if (found is None) != (due is None) or not math.isclose(found or 0.0, due or 0.0, abs_tol=_TOLERANCE):
            yield f"completion {record.index} has exposure {found}, the search gives {due}"
