"""Recorded tokens against the numbers that drew them: read once through the model, on a processor."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_to_signal.errors import RecordError, S2SError
from search_to_signal.generators.base import request_seeds
from search_to_signal.generators.settings import GenerationSettings
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.progress import Progress, counted
from search_to_signal.records.files import refuse_special_files
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.reader import GENERATIONS, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.seeding import derive_seed
from search_to_signal.verification.recompute.tools import Sample
from search_to_signal.verification.token_draws.sampled_runs import (
    SampledRun,
    distance_to_stored,
    models_by_group,
    sampled_run,
    vocabulary,
)
from search_to_signal.verification.token_draws.token_distances import BOUNDS, Tally, distances

if TYPE_CHECKING:
    from search_to_signal.loop.retraining import Remade

_OTHER_BITS = "their adapters were made in other bits than here (--updates N makes N of them again)"


@dataclass(frozen=True)
class Options:
    """What is read, and with what. Without ``sample`` every group is that can be.

    ``models`` are directories of models, ``adapters`` is where ``s2s retrain`` wrote, ``updates`` how many
    updates of a run are made again (``sampled_run``).
    """

    sample: Sample | None = None
    models: tuple[Path, ...] = ()
    adapters: Path | None = None
    updates: int | None = None


@dataclass
class RunFound:
    """What came out of one run. ``groups`` were read; ``left_out`` counts the others by reason.

    ``updates`` were made again, and ``equal`` of them gave the recorded adapter. ``apart`` is how far the
    last one lies from the stored final adapter, by the change that training made to it; None where it was
    not made again, or has the recorded bits.
    """

    name: str
    tally: Tally
    groups: int = 0
    completions: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    updates: int = 0
    equal: int = 0
    apart: float | None = None


def check_draws(directory: Path, options: Options, progress: Progress) -> Iterator[RunFound]:
    """Read the recorded completions of every run below a directory; nothing in it is written.

    Raises RunDirectoryError for a link or pipe in it.
    """
    refuse_special_files(directory)
    for run in runs_below(directory):
        name = run.relative_to(directory).as_posix() if run != directory else run.resolve().name
        found = RunFound(name, Tally(0.0))
        try:
            sampled = sampled_run(name, run, directory, options.models, options.adapters, options.updates)
        except S2SError as error:
            found.left_out[str(error)] = _groups_of(run)
            yield found
            continue
        found.tally = Tally(BOUNDS[sampled.loading.dtype])
        try:
            _read_run(sampled, options.sample, found, progress)
        except S2SError as error:
            found.problems.append(f"not read to its end: {error}")
        found.problems += _together(found.tally)
        yield found


def _groups_of(run: Path) -> int:
    try:
        return read_manifest(run).facts.groups
    except S2SError:
        return 0


def _read_run(sampled: SampledRun, sample: Sample | None, found: RunFound, progress: Progress) -> None:
    config, readable = sampled.config, sampled.readable
    chosen = sample.chosen(sampled.name, readable) if sample else frozenset(range(readable))
    if readable < config.groups:
        found.left_out[_OTHER_BITS] = config.groups - readable
    # One more than there are groups: the last update gives the final adapter.
    whole = sample is None and config.trained and readable == config.groups
    models = islice(models_by_group(sampled), config.groups + 1 if whole else max(chosen) + 1)
    generations = chain(read_records(sampled.directory / GENERATIONS, GenerationRecord), repeat(None))
    known = None
    for number, (remade, generation) in enumerate(zip(models, generations, strict=False)):
        if _departed(sampled, remade, found):
            if behind := sum(at >= number for at in chosen):
                found.left_out["they come after an update that gave another adapter"] = behind
            return
        if number in chosen:
            if generation is None or generation.step != number:
                raise RecordError(f"step {number} has no tokens on record")
            known = known or vocabulary(remade.model, config)
            if _well_formed(generation, config.generation, known, found):
                _read_group(remade.model, generation, config, found)
        progress.update(f"draws {sampled.name}", number + 1, config.groups + 1 if whole else max(chosen) + 1)
    if whole:
        found.apart = distance_to_stored(sampled, remade.model)
        if found.apart is not None and found.apart >= 1.0:
            found.problems.append(
                f"the final adapter lies {found.apart:.2f} of its size away from the one that the recorded "
                "updates make, no nearer than none would"
            )


def _departed(sampled: SampledRun, remade: "Remade", found: RunFound) -> bool:
    """Take note of an update; whether it had to give the recorded bits, and did not."""
    if remade.result is None:
        return False
    found.updates += 1
    found.equal += remade.difference is None
    if sampled.exact and remade.difference is not None:
        found.problems.append(remade.difference)
        return True
    return False


def _read_group(model: Any, generation: GenerationRecord, config: RunConfig, found: RunFound) -> None:
    from search_to_signal.generators.token_intervals import token_intervals

    where, settings = f"step {generation.step}", config.generation
    seeds = request_seeds(derive_seed(config.seed, "sample", generation.step), settings.group_size)
    texts = token_intervals(model, generation.prompt_ids, generation.completion_ids, seeds, settings)
    for index, intervals in enumerate(texts):
        apart = distances(*intervals)
        if beyond := found.tally.add(apart):
            first = beyond[0]
            found.problems.append(
                f"{where}, completion {index}: {counted(len(beyond), 'token')} that the run's numbers do "
                f"not draw; the first is token {first}, {apart.log_odds[first]:.2g} away in log-odds, where "
                f"rounding explains {found.tally.bound}"
            )
    found.groups += 1
    found.completions += len(texts)


def _well_formed(
    generation: GenerationRecord,
    settings: GenerationSettings,
    known: tuple[int, frozenset[int]],
    found: RunFound,
) -> bool:
    """Whether a group can be read at all; what no sampler leaves becomes a problem."""
    wrong = list(_misshapen(generation, settings, *known))
    found.problems += [f"step {generation.step}{text}" for text in wrong]
    if wrong:
        reason = "no sampler leaves such tokens"
        found.left_out[reason] = found.left_out.get(reason, 0) + 1
    return not wrong


def _misshapen(
    generation: GenerationRecord, settings: GenerationSettings, size: int, ends: frozenset[int]
) -> Iterator[str]:
    """Ids outside the vocabulary, and ends before or behind an end."""
    if len(generation.completion_ids) != settings.group_size or not generation.prompt_ids:
        yield ": its prompt or one of its completions is missing"
        return
    if not all(0 <= token < size for token in generation.prompt_ids):
        yield ": its prompt has ids that the model does not know"
    for index, ids in enumerate(generation.completion_ids):
        if not ids or len(ids) > settings.max_completion_tokens or not all(0 <= t < size for t in ids):
            yield f", completion {index}: its tokens are too many, none, or unknown to the model"
        elif any(token in ends for token in ids[:-1]):
            yield f", completion {index}: it goes on behind the token that ends it"
        elif ids[-1] not in ends and len(ids) < settings.max_completion_tokens:
            yield f", completion {index}: it ends before its limit, without a token that ends it"


def _together(tally: Tally) -> Iterator[str]:
    if tally.together > tally.allowed:
        yield (
            f"the {tally.unequal} of {tally.tokens} tokens that differ lie {tally.together:.2g} apart "
            f"together in log-odds, where rounding explains {tally.allowed:.2g}: another model, temperature "
            "or seed"
        )
