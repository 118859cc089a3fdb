"""Recorded tokens, compared with the random numbers that drew them: one pass through the model, on a CPU."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError, RecordError, S2SError
from search_to_signal.base.processes import keep_freed_memory
from search_to_signal.base.progress import Progress, counted
from search_to_signal.base.seeding import derive_seed
from search_to_signal.learner import GROUP, RULES
from search_to_signal.models.base import request_seeds
from search_to_signal.models.settings import GenerationSettings, ModelLoading
from search_to_signal.records.differences import Finding
from search_to_signal.records.files import refuse_special_files
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.reader import GENERATIONS, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.run.again import Sample
from search_to_signal.run.config import ADAPTER, RunConfig
from search_to_signal.run.replayed import run_config
from search_to_signal.verify.rerun import model_here

if TYPE_CHECKING:
    from search_to_signal.run.learning import Remade

_UNKNOWN_NUMBERS = {
    "api": "an endpoint shows no token ids",
    "server": "a server draws by numbers of its own, which no record holds",
    "vllm": "vLLM draws by numbers of its own, which no record holds",
    "unsloth": "Unsloth draws by numbers of its own, which no record holds",
}


@dataclass(frozen=True)
class SampledRun:
    """A run whose tokens can be compared with the random numbers of its seed.

    ``config`` names a model of this machine. The first ``readable`` groups can be read: each needs the
    adapter of the updates before it. ``updates`` may be computed again; where that is as many as groups, the
    final adapter comes of them. ``adapter`` is a stored one that all groups were sampled with.
    """

    name: str
    directory: Path
    config: RunConfig
    readable: int
    adapter: Path | None = None
    updates: int = 0

    @property
    def loading(self) -> ModelLoading:
        """The precision of sampling."""
        return self.config.base.loading

    @property
    def exact(self) -> bool:
        """Whether its updates have to give the recorded bits on this machine."""
        return _is_exact(self.config)


def sampled_run(
    name: str, run: Path, root: Path, models: tuple[Path, ...], adapters: Path | None, updates: int | None
) -> SampledRun:
    """Return a run as it can be read on this machine.

    ``updates`` is the number of updates to compute again: by default all where they are exact, else none.
    Raises ConfigError with the reason where no group can be read.
    """
    manifest = read_manifest(run)
    if manifest.of_host.own_loop:
        raise ConfigError("the released host samples by itself")
    if manifest.status != "complete":
        raise ConfigError("the run is not complete")
    config = run_config(manifest)
    if (backend := config.generation.backend) != "local":
        raise ConfigError(_UNKNOWN_NUMBERS.get(backend, f"{backend} draws by numbers of its own"))
    if config.base.quantization != "none":
        raise ConfigError("its model was in 4 bits, which only a GPU unpacks")
    filtered = config.generation.top_k is not None or config.generation.top_p < 1.0
    if filtered and (config.base.dtype != "float32"):
        raise ConfigError("with top_k or top_p in bfloat16 rounding decides which tokens are left out")
    config = msgspec.structs.replace(config, model=model_here(config, manifest, models))
    if not config.trained:
        return SampledRun(
            name, run, config, config.groups, _stored_adapter(name, run, root, config, adapters)
        )
    plugins.find(config.learning_rule, RULES, GROUP, "--rule")
    wanted = updates if updates is not None else config.groups if _is_exact(config) else 0
    computed = min(config.groups, wanted)
    return SampledRun(name, run, config, min(config.groups, computed + 1), updates=computed)


def _is_exact(config: RunConfig) -> bool:
    # A GPU sums in another order, and tokens are read in float32.
    return not config.on_card and config.base.dtype == "float32"


def _stored_adapter(
    name: str, run: Path, root: Path, config: RunConfig, adapters: Path | None
) -> Path | None:
    if config.parent is None or config.parent.adapter_sha256 is None:
        return None
    parent = (run / config.parent.run).resolve()
    if not parent.is_relative_to(root.resolve()):
        raise ConfigError("the run that it starts from is not here: give the whole results directory")
    parent_name = parent.relative_to(root.resolve())
    for directory in (parent, *([adapters / parent_name] if adapters is not None else [])):
        if (directory / ADAPTER).is_dir():
            return directory / ADAPTER
    raise ConfigError(
        f"the adapter of {parent_name} is not stored: s2s retrain makes it, and --adapters DIR says where"
    )


def models_by_group(sampled: SampledRun) -> "Iterator[Remade]":
    """Yield the model that sampled each group, in order; it is one model, which updates change in place.

    Raises S2SError where it cannot be loaded, or its updates cannot be computed here. Loads torch.
    """
    from search_to_signal.learner.adapter import adapter_sha256, load_adapter
    from search_to_signal.models.device import prepare_processor
    from search_to_signal.models.files import model_directory
    from search_to_signal.models.local import open_for_reading
    from search_to_signal.run.learning import Remade, remade_adapters

    config = sampled.config
    keep_freed_memory()
    prepare_processor(config.threads if sampled.exact else len(os.sched_getaffinity(0)))
    base = open_for_reading(model_directory(config.model), sampled.loading)
    if config.trained:
        yield from remade_adapters(config, sampled.directory, base)
        return
    if sampled.adapter is not None:
        base = load_adapter(base, sampled.adapter).eval()
        if config.parent is None or adapter_sha256(base) != config.parent.adapter_sha256:
            raise ConfigError(f"the adapter in {sampled.adapter} is not the recorded one: restore it")
    yield from repeat(Remade(base))


def vocabulary(model: Any, config: RunConfig) -> tuple[int, frozenset[int]]:
    """Return the size of a model's vocabulary, and the tokens that end a completion."""
    from search_to_signal.models.base import end_ids
    from search_to_signal.models.cpu_decoder import causal_model
    from search_to_signal.models.files import model_directory
    from search_to_signal.models.local import load_tokenizer

    base, tokenizer = causal_model(model), load_tokenizer(model_directory(config.model))
    return int(base.config.vocab_size), end_ids(tokenizer, getattr(base, "generation_config", None))


def distance_to_stored(sampled: SampledRun, model: Any) -> float | None:
    """Return the distance of a model's adapter to the run's stored final one, divided by the smaller norm.

    None without a stored adapter; infinite where one of the two is zero and the other is not. Norms are those
    of the products of the adapters' factors; the product of a fresh adapter is zero.
    """
    from search_to_signal.learner.adapter import (
        TENSORS,
        adapter_delta,
        adapter_tensors,
        product_inner,
        read_tensors,
    )

    stored = sampled.directory / ADAPTER
    if not (stored / TENSORS).is_file():
        return None
    recorded = read_tensors(stored)
    made = adapter_tensors(model)
    zero = {name: tensor * 0 for name, tensor in recorded.items()}
    difference = adapter_delta(recorded, made)
    # By the norm of either alone, one scaled far up or far down would lie within 1 of the other.
    deltas = (adapter_delta(zero, tensors) for tensors in (recorded, made))
    size = min(product_inner(delta, delta) for delta in deltas)
    distance = math.sqrt(max(product_inner(difference, difference), 0.0))
    if size <= 0.0:
        # An adapter that does nothing, where the other does something.
        return math.inf if distance else None
    return distance / math.sqrt(size)


# Distances of recorded tokens to those that their random numbers draw, and the part that rounding explains.
#
# Sampling divides [0, 1) into intervals, one per token in order of id, as long as the token's probability;
# the token whose interval contains the random number is drawn. Other kernels or another precision change
# logits slightly, and so the ends of the intervals. Where no logit, divided by the temperature, changes by
# more than e, no end moves by more than 2 e in log-odds: with probabilities p and changes d, the odds of a
# set of tokens become the sum of p exp(d) over the set, divided by that over the others. Distances are
# therefore in log-odds, and one bound applies to every text and position.

Numbers = NDArray[np.float64]

# By the precision of sampling: the largest distance, in log-odds, by which rounding moves the end of an
# interval. It is many times the distance measured in honest bfloat16 runs (docs/reference/proofs.md).
BOUNDS = {"float32": 0.01, "bfloat16": 0.5}

# An update that is made again in other bits moves logits once more: Adam's first steps have one size, and the
# sign of a gradient near zero is rounding's.
_BEHIND_OTHER_UPDATES = 2.0

# Rounding changes few of the open positions, and by little: their mean distance, as a fraction of the bound.
_MEAN_FRACTION = 1 / 25

# Sums of float32 probabilities are not more exact than this near 0 and 1.
LEAST = 1e-6


def bound(dtype: str, *, other_updates: bool) -> float:
    """The largest distance that rounding explains in a run, in log-odds.

    ``other_updates`` says whether groups are read behind updates that are made again in other bits.
    """
    return BOUNDS[dtype] * (_BEHIND_OTHER_UPDATES if other_updates else 1.0)


class Distances(NamedTuple):
    """Arrays (tokens,): whether a token's number draws it, and the distance to its interval in log-odds.

    ``log_odds`` is zero for a drawn token, infinite where the interval is no number. ``margin`` is its
    distance to the nearer end, else zero.
    """

    drawn: NDArray[np.bool_]
    log_odds: Numbers
    margin: Numbers


def distances(below: Numbers, above: Numbers, number: Numbers) -> Distances:
    """Return the distances of numbers to intervals ``below <= number < above``; arrays of one shape."""
    drawn = (below <= number) & (number < above)
    low, high, position = (_log_odds(value) for value in (below, above, number))
    inside = np.minimum(position - low, high - position)
    # Shares that are no numbers, of a temperature that logits overflow at say, draw nothing.
    inside = np.where(np.isnan(inside), -np.inf, inside)
    return Distances(drawn, np.where(drawn, 0.0, -inside), np.where(drawn, inside, 0.0))


def _log_odds(probabilities: Numbers) -> Numbers:
    clipped = np.clip(probabilities, LEAST, 1.0 - LEAST)
    log_odds: Numbers = np.log(clipped) - np.log1p(-clipped)
    return log_odds


@dataclass
class Tally:
    """Counts of the tokens of a run or a group.

    How many differ, and the sum (``together``) and maximum of their distances.
    ``open_places`` counts positions that differ, or where a change of ``bound`` would draw another token.
    """

    bound: float
    tokens: int = 0
    unequal: int = 0
    open_places: int = 0
    together: float = 0.0
    farthest: float = 0.0

    def add(self, completion: Distances) -> list[int]:
        """Count a completion's tokens; returns the positions of tokens beyond the bound."""
        self.tokens += len(completion.drawn)
        self.unequal += int((~completion.drawn).sum())
        self.open_places += int((completion.margin < self.bound).sum())
        self.together += float(completion.log_odds.sum())
        self.farthest = max(self.farthest, float(completion.log_odds.max(initial=0.0)))
        return [int(position) for position in np.flatnonzero(completion.log_odds > self.bound)]

    @property
    def allowed(self) -> float:
        """The largest sum of distances that rounding explains."""
        return self.bound * (1.0 + _MEAN_FRACTION * self.open_places)


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
            if unfit := list(_form_findings(generation, config.generation, *known_tokens)):
                reason = "no sampler leaves such tokens"
                draws.findings += unfit
                draws.unread[reason] = draws.unread.get(reason, 0) + 1
            else:
                _read_group(remade.model, generation, config, draws)
        progress.update(f"draws {sampled.name}", number + 1, model_count)
    if complete:
        draws.adapter_distance = distance_to_stored(sampled, remade.model)
        if draws.adapter_distance is not None and not draws.adapter_distance < 1.0:
            draws.add_problem(
                f"the final adapter differs by {draws.adapter_distance:.2f} of the smaller one's size from "
                "the one that the recorded updates make: another adapter, or scaled"
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
    from search_to_signal.models.sampling import token_intervals

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
            f"{tally.unequal} of {tally.tokens} tokens differ, by {tally.together:.2g} together in log-odds, "
            f"where rounding explains {tally.allowed:.2g}: another model, temperature or seed",
            where,
        )
