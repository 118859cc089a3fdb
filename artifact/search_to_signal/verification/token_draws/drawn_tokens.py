"""Recorded tokens, compared with the random numbers that drew them: one pass through the model, on a CPU."""

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
from search_to_signal.verification.findings import Finding
from search_to_signal.verification.recompute.tools import Sample
from search_to_signal.verification.token_draws.sampled_runs import (
    SampledRun,
    distance_to_stored,
    models_by_group,
    sampled_run,
    vocabulary,
)
from search_to_signal.verification.token_draws.token_distances import Tally, bound, distances

if TYPE_CHECKING:
    from search_to_signal.loop.retraining import Remade

_TOO_FEW_UPDATES = "they come after more updates than --updates makes again"
_OTHER_BITS = "their adapters were made in other bits than here (--updates N makes N of them again)"


@dataclass(frozen=True)
class TokenDrawOptions:
    """How recorded tokens are read. Without ``sample`` every readable group is read.

    ``models`` are directories of models, ``adapters`` is the output directory of ``s2s retrain``, ``updates``
    is the number of updates of a run to compute again (see ``sampled_run``).
    """

    sample: Sample | None = None
    models: tuple[Path, ...] = ()
    adapters: Path | None = None
    updates: int | None = None


@dataclass
class RunDraws:
    """The result of one run: ``groups`` that were read, and the number of others by the reason (``unread``).

    ``findings`` are problems. ``updates`` were computed again, and ``equal`` of them gave the recorded
    adapter. ``adapter_distance`` is the distance of the last one to the stored final adapter, in units of the
    smaller one's norm; None where it was not computed or has the recorded bits.
    """

    name: str
    tally: Tally
    groups: int = 0
    completions: int = 0
    unread: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    updates: int = 0
    equal: int = 0
    adapter_distance: float | None = None

    @property
    def problems(self) -> list[str]:
        """The findings as lines."""
        return [finding.line for finding in self.findings]

    def add_problem(self, text: str, where: str = "") -> None:
        """Record a problem of the run, or of a place in it."""
        self.findings.append(Finding(where, text))


def check_draws(directory: Path, options: TokenDrawOptions, progress: Progress) -> Iterator[RunDraws]:
    """Read the recorded completions of every run below a directory, and yield each run's result.

    Nothing in the directory is written. Raises RunDirectoryError for a link or pipe in it.
    """
    refuse_special_files(directory)
    for run in runs_below(directory):
        name = run.relative_to(directory).as_posix() if run != directory else run.resolve().name
        draws = RunDraws(name, Tally(0.0))
        try:
            sampled = sampled_run(name, run, directory, options.models, options.adapters, options.updates)
        except S2SError as error:
            draws.unread[str(error)] = _group_count(run)
            yield draws
            continue
        other = sampled.updates > 0 and not sampled.exact
        draws.tally = Tally(bound(sampled.loading.dtype, other_updates=other))
        try:
            _read_run(sampled, options.sample, draws, progress)
        except S2SError as error:
            draws.add_problem(f"not read to its end: {error}")
        _check_total_distance(draws.tally, draws)
        yield draws


def _group_count(run: Path) -> int:
    try:
        return read_manifest(run).facts.groups
    except S2SError:
        return 0


def _read_run(sampled: SampledRun, sample: Sample | None, draws: RunDraws, progress: Progress) -> None:
    config, readable = sampled.config, sampled.readable
    chosen = sample.chosen(sampled.name, readable) if sample else frozenset(range(readable))
    if readable < config.groups:
        draws.unread[_TOO_FEW_UPDATES if sampled.exact else _OTHER_BITS] = config.groups - readable
    # A completely read run needs one more update than it has groups, for the final adapter.
    complete = sample is None and config.trained and sampled.updates == config.groups
    model_count = config.groups + 1 if complete else max(chosen) + 1
    models = islice(models_by_group(sampled), model_count)
    generations = chain(read_records(sampled.directory / GENERATIONS, GenerationRecord), repeat(None))
    known_tokens = None
    for number, (remade, generation) in enumerate(zip(models, generations, strict=False)):
        if not _check_update(sampled, remade, draws):
            if later := sum(position >= number for position in chosen):
                draws.unread["they come after an update that gave another adapter"] = later
            return
        if number in chosen:
            if generation is None or generation.step != number:
                raise RecordError(f"step {number} has no tokens on record")
            known_tokens = known_tokens or vocabulary(remade.model, config)
            if _check_form(generation, config.generation, known_tokens, draws):
                _read_group(remade.model, generation, config, draws)
        progress.update(f"draws {sampled.name}", number + 1, model_count)
    if complete:
        _check_final_adapter(sampled, remade.model, draws)


def _check_final_adapter(sampled: SampledRun, model: Any, draws: RunDraws) -> None:
    draws.adapter_distance = distance_to_stored(sampled, model)
    if draws.adapter_distance is not None and not draws.adapter_distance < 1.0:
        draws.add_problem(
            f"the final adapter lies {draws.adapter_distance:.2f} of the smaller one's size away from the "
            "one that the recorded updates make: another adapter, or scaled"
        )


def _check_update(sampled: SampledRun, remade: "Remade", draws: RunDraws) -> bool:
    """Count an update; False, with a problem, where it had to give the recorded adapter and did not."""
    if remade.result is None:
        return True
    draws.updates += 1
    draws.equal += remade.difference is None
    if sampled.exact and remade.difference is not None:
        draws.add_problem(remade.difference)
        return False
    return True


def _read_group(model: Any, generation: GenerationRecord, config: RunConfig, draws: RunDraws) -> None:
    from search_to_signal.generators.token_intervals import token_intervals

    where, settings = f"step {generation.step}", config.generation
    seeds = request_seeds(derive_seed(config.seed, "sample", generation.step), settings.group_size)
    texts = token_intervals(model, generation.prompt_ids, generation.completion_ids, seeds, settings)
    group, any_beyond = Tally(draws.tally.bound), False
    for index, intervals in enumerate(texts):
        token_distances = distances(*intervals)
        draws.tally.add(token_distances)
        if beyond := group.add(token_distances):
            any_beyond = True
            first = beyond[0]
            draws.add_problem(
                f"{counted(len(beyond), 'token')} that the run's numbers do not draw; the first is token "
                f"{first}, {token_distances.log_odds[first]:.2g} away in log-odds, where rounding explains "
                f"{draws.tally.bound}",
                f"{where}, completion {index}",
            )
    # The run's total grows with its length, and alone would let all of it lie in one group.
    if not any_beyond:
        _check_total_distance(group, draws, where)
    draws.groups += 1
    draws.completions += len(texts)


def _check_form(
    generation: GenerationRecord,
    settings: GenerationSettings,
    known_tokens: tuple[int, frozenset[int]],
    draws: RunDraws,
) -> bool:
    """Whether a group has tokens that a sampler can give; others are problems, and the group is not read."""
    findings = list(_form_findings(generation, settings, *known_tokens))
    draws.findings += findings
    if findings:
        reason = "no sampler leaves such tokens"
        draws.unread[reason] = draws.unread.get(reason, 0) + 1
    return not findings


def _form_findings(
    generation: GenerationRecord, settings: GenerationSettings, size: int, ends: frozenset[int]
) -> Iterator[Finding]:
    """Missing texts, ids outside the vocabulary of ``size`` tokens, and end tokens that are misplaced."""
    step = f"step {generation.step}"
    if len(generation.completion_ids) != settings.group_size or not generation.prompt_ids:
        yield Finding(step, "its prompt or one of its completions is missing")
        return
    if not all(0 <= token < size for token in generation.prompt_ids):
        yield Finding(step, "its prompt has ids that the model does not know")
    for index, ids in enumerate(generation.completion_ids):
        where = f"{step}, completion {index}"
        if not ids or len(ids) > settings.max_completion_tokens or not all(0 <= t < size for t in ids):
            yield Finding(where, "its tokens are too many, none, or unknown to the model")
        elif any(token in ends for token in ids[:-1]):
            yield Finding(where, "it goes on behind the token that ends it")
        elif ids[-1] not in ends and len(ids) < settings.max_completion_tokens:
            yield Finding(where, "it ends before its limit, without a token that ends it")


def _check_total_distance(tally: Tally, draws: RunDraws, where: str = "") -> None:
    if tally.together > tally.allowed:
        draws.add_problem(
            f"the {tally.unequal} of {tally.tokens} tokens that differ lie {tally.together:.2g} apart "
            f"together in log-odds, where rounding explains {tally.allowed:.2g}: another model, temperature "
            "or seed",
            where,
        )
