"""Matched updates of one recorded run: its window of groups, the updates, and their records."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from search_to_signal.base.errors import ConfigError, LearnerError, RecordError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import derive_seed
from search_to_signal.credit import get_mapping, rewards_of
from search_to_signal.credit.normalizers import advantages, get_normalizer
from search_to_signal.layers.settings import UpdateSettings
from search_to_signal.learner.adapter import (
    AdapterDelta,
    Comparison,
    Tensors,
    adapter_delta,
    adapter_sha256,
    adapter_tensors,
    attach_adapter,
    compare,
    product_inner,
    raw_inner,
    set_adapter,
)
from search_to_signal.learner.grpo import GrpoLearner, PreparedGroup
from search_to_signal.learner.grpo_loss import TokenGroup, token_log_probabilities
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.device import memory_errors, prepare_processor
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer
from search_to_signal.records.files import RecordWriter
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.records.updates import (
    FixedInputs,
    PairRecord,
    Relation,
    UpdateRecord,
    Variant,
    couples,
    run_name_below,
)
from search_to_signal.run.config import RunConfig
from search_to_signal.run.learning import model_of_files

# Updates that share initial adapter, tokens, masks and reference, and differ in credit alone.


@dataclass(frozen=True)
class MatchedInputs:
    """The fixed part: groups to step on with their reference log-probabilities, and withheld groups."""

    model: Any
    pad_id: int
    initial: Tensors
    groups: tuple[TokenGroup, ...]
    references: tuple[torch.Tensor, ...]
    withheld: tuple[TokenGroup, ...]


@dataclass(frozen=True)
class UpdateResult:
    """What one update did. ``completions`` (N,) and ``tokens`` (M,) are log-probabilities of the withheld."""

    fixed: FixedInputs
    optimizer_steps: int
    training_tokens: int
    grad_norms: tuple[float, ...]
    adapter_sha256: str
    change: AdapterDelta
    completions: Floats
    tokens: Floats


def update(
    given: MatchedInputs, steps: Sequence[int], credit: Floats, settings: LearnerSettings
) -> UpdateResult:
    """Step over the groups ``steps`` by ``credit`` (steps, G), with initial adapter and a new optimizer.

    Every completion is stepped on, also where the settings leave out what was cut at the limit. So is a group
    without credit. Raises LearnerError for what is not finite.
    """
    set_adapter(given.model, given.initial)
    learner = GrpoLearner(given.model, settings, given.pad_id)
    groups, references = [given.groups[i] for i in steps], [given.references[i] for i in steps]
    fixed = FixedInputs(
        initial_adapter=adapter_sha256(given.model),
        tokens=_sha256(tensor for group in groups for tensor in (group.prompt_ids, group.completion_ids)),
        masks=_sha256(group.completion_mask for group in groups),
        reference=_sha256(references),
    )
    scored = [PreparedGroup(*parts) for parts in zip(groups, references, credit, strict=True)]
    results = [learner.update([group]) for group in scored]
    completions, tokens = withheld_log_probabilities(given)
    return UpdateResult(
        fixed,
        len(results),
        sum(result.training_tokens for result in results),
        tuple(result.grad_norm or 0.0 for result in results),
        results[-1].adapter_sha256,
        adapter_delta(given.initial, adapter_tensors(given.model)),
        completions,
        tokens,
    )


@torch.no_grad()
def withheld_log_probabilities(given: MatchedInputs) -> tuple[Floats, Floats]:
    """Mean token log-probability of each withheld completion (N,), and that of each of their tokens (M,)."""
    means, tokens = [], []
    for group in given.withheld:
        for row, mask in zip(token_log_probabilities(given.model, group), group.completion_mask, strict=True):
            tokens.append(row[mask.bool()].double().cpu().numpy())
            means.append(float(tokens[-1].mean()))
    return np.array(means), np.concatenate(tokens) if tokens else np.zeros(0)


def _sha256(tensors: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


PROPORTIONAL = 1e-6

Credit = tuple[str, str]


@dataclass(frozen=True)
class UpdatePlan:
    """One optimizer, and the positions of its groups in the window."""

    variant: Variant
    places: tuple[int, ...]
    learner: LearnerSettings


@dataclass(frozen=True)
class UpdateWindow:
    """A recorded run and the window of its groups that updates are computed from."""

    directory: Path
    config: RunConfig
    generations: tuple[GenerationRecord, ...]
    credit: Mapping[Credit, Floats]


def read_cell(directory: Path, settings: UpdateSettings) -> UpdateWindow:
    """Return the middle groups of a run with every credit.

    Raises ConfigError for a run that is too short, RecordError for settings of another version.
    """
    try:
        config = msgspec.convert(read_manifest(directory).config, RunConfig)
    except msgspec.ValidationError as error:
        raise RecordError(f"{directory} has settings that this version cannot read: {error}") from error
    generations = list(read_records(directory / GENERATIONS, GenerationRecord))
    needed = settings.groups + settings.withheld
    if len(generations) < needed:
        raise ConfigError(f"{directory} has {len(generations)} groups, but a matched update needs {needed}")
    start = (len(generations) - needed) // 2
    groups = list(read_groups(directory))[start : start + settings.groups]
    rewards = {name: rewards_of(get_mapping(name), batch_of(groups)) for name in settings.mappings}
    credit = {
        (mapping, name): advantages(
            get_normalizer(name), rewards[mapping].reward, rewards[mapping].components
        )
        for mapping in settings.mappings
        for name in settings.normalizers
    }
    return UpdateWindow(directory, config, tuple(generations[start : start + needed]), credit)


def plans(settings: UpdateSettings, learner: LearnerSettings) -> list[UpdatePlan]:
    """Return the plans: each group with a new optimizer, all groups with one, and all by gradient descent."""
    every = tuple(range(settings.groups))
    plain = msgspec.structs.replace(
        learner, optimizer="sgd", learning_rate=settings.descent_rate, max_grad_norm=math.inf
    )
    single = [UpdatePlan("fresh", (position,), learner) for position in every]
    history = [UpdatePlan("history", every, learner)] if every[1:] else []
    return [*single, *history, UpdatePlan("sgd", every, plain)]


def relation(first: Floats, second: Floats) -> Relation:
    """Return the relation of two credits (steps, group size) in float32, as the learner reads them."""
    as_read = first.astype(np.float32), second.astype(np.float32)
    if not all(credit.any() for credit in as_read):
        return "without_credit"
    if np.array_equal(*as_read):
        return "equal"
    aligned = np.abs(_directions(first) - _directions(second)).max() <= PROPORTIONAL
    return "proportional" if aligned else "different"


def _directions(credit: Floats) -> Floats:
    length = np.sqrt((credit * credit).sum(axis=1, keepdims=True))
    return np.divide(credit, length, out=np.zeros_like(credit), where=length > 0.0)


def _matched_inputs(cell: UpdateWindow, settings: UpdateSettings) -> MatchedInputs:
    """Everything but credit, with the initial adapter."""
    config, pad_id = cell.config, load_tokenizer(model_directory(cell.config.model)).pad_token_id
    model = attach_adapter(model_of_files(config), config.learner, derive_seed(config.seed, "adapter"))
    learner = GrpoLearner(model, config.learner, pad_id)
    groups = [learner.group(given.prompt_ids, given.completion_ids) for given in cell.generations]
    trained, withheld = tuple(groups[: settings.groups]), tuple(groups[settings.groups :])
    initial = {name: tensor.clone() for name, tensor in adapter_tensors(model).items()}
    references = tuple(map(learner.reference, trained))
    return MatchedInputs(model, pad_id, initial, trained, references, withheld)


@memory_errors("matched updates")
def compare_cell(
    cell: UpdateWindow,
    settings: UpdateSettings,
    updates: RecordWriter,
    pairs: RecordWriter,
    progress: Progress,
) -> None:
    """Compute every update of a window and write its records; updates that fail are left out."""
    prepare_processor(settings.threads)
    update_plans = plans(settings, cell.config.learner)
    task, done, total = f"updates/{cell.config.cell}", 0, len(update_plans) * len(cell.credit)
    progress.update(task, done, total, "starting")
    inputs = _matched_inputs(cell, settings)
    set_adapter(inputs.model, inputs.initial)
    before = withheld_log_probabilities(inputs)
    for plan in update_plans:
        rows = {key: values[list(plan.places)] for key, values in cell.credit.items()}
        results = {}
        for key, result in _compute_updates(inputs, plan, rows, progress):
            done += 1
            progress.update(task, done, total, f"{plan.variant}, {'/'.join(key)}")
            if result is not None:
                results[key] = result
        for key, result in results.items():
            changed, tokens = result.completions - before[0], result.tokens - before[1]
            updates.write(
                UpdateRecord(
                    run=run_name_below(cell.directory),
                    purpose=cell.config.purpose,
                    problem=cell.config.problem,
                    model=cell.config.model,
                    variant=plan.variant,
                    steps=tuple(cell.generations[place].step for place in plan.places),
                    mapping=key[0],
                    normalizer=key[1],
                    fixed=result.fixed,
                    optimizer_steps=result.optimizer_steps,
                    training_tokens=result.training_tokens,
                    advantages=tuple(tuple(row) for row in rows[key].tolist()),
                    grad_norms=result.grad_norms,
                    adapter_sha256=result.adapter_sha256,
                    delta_norm=raw_inner(result.change, result.change) ** 0.5,
                    product_norm=max(product_inner(result.change, result.change), 0.0) ** 0.5,
                    withheld_mean_change=float(changed.mean()),
                    withheld_max_change=float(np.abs(changed).max()),
                    withheld_token_max_change=float(np.abs(tokens).max()),
                )
            )
        for first, second in couples(settings.mappings, settings.normalizers):
            if first in results and second in results:
                pairs.write(_pair_record(cell, plan, (first, second), rows, results))


def _compute_updates(
    inputs: MatchedInputs, plan: UpdatePlan, rows: Mapping[Credit, Floats], progress: Progress
) -> Iterator[tuple[Credit, UpdateResult | None]]:
    """The update of every credit, None where it fails; equal credits give equal updates and share one."""
    shared: dict[bytes, UpdateResult] = {}
    result: UpdateResult | None
    for key, credit in rows.items():
        content = credit.astype(np.float32).tobytes()
        try:
            if content not in shared:
                shared[content] = update(inputs, plan.places, credit, plan.learner)
            result = shared[content]
        except LearnerError as error:
            progress.say(f"matched updates: {plan.variant} {'/'.join(key)} left out: {error}")
            result = None
        yield key, result


def _pair_record(
    cell: UpdateWindow,
    plan: UpdatePlan,
    keys: tuple[Credit, Credit],
    rows: Mapping[Credit, Floats],
    results: Mapping[Credit, UpdateResult],
) -> PairRecord:
    credit, other_credit = (rows[key] for key in keys)
    first, second = (results[key] for key in keys)
    related = relation(credit, other_credit)
    without_credit = related == "without_credit"
    nothing = Comparison(None, None, None, None)
    comparison = nothing if without_credit else compare(first.change, second.change)
    return PairRecord(
        run=run_name_below(cell.directory),
        problem=cell.config.problem,
        model=cell.config.model,
        variant=plan.variant,
        steps=tuple(cell.generations[place].step for place in plan.places),
        first=keys[0],
        second=keys[1],
        relation=related,
        by_construction=related == "equal" or (related == "proportional" and len(plan.places) == 1),
        advantage_difference=float(np.abs(credit - other_credit).max()),
        cosine=comparison.cosine,
        product_cosine=comparison.product_cosine,
        norm_ratio=comparison.norm_ratio,
        sign_agreement=comparison.sign_agreement,
        withheld_max_difference=float(np.abs(first.completions - second.completions).max()),
        withheld_token_max_difference=float(np.abs(first.tokens - second.tokens).max()),
    )
