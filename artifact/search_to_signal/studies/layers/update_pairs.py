"""One recorded run in the matched update layer: its window of groups, its updates, their records."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from search_to_signal.errors import ConfigError, LearnerError, RecordError
from search_to_signal.generators.files import model_directory
from search_to_signal.generators.local import load_tokenizer
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.deltas import Comparison, compare, product_inner, raw_inner
from search_to_signal.learner.device import prepare_processor
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.learner.update_comparison import (
    MatchedInputs,
    UpdateResult,
    fix_inputs,
    initial_log_probabilities,
    update,
)
from search_to_signal.loop.learning import model_of_files
from search_to_signal.normalizer import advantages, get_normalizer
from search_to_signal.numerics import Floats
from search_to_signal.profiles.layer_settings import UpdateSettings
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.progress import Progress
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.records.updates import PairRecord, Relation, UpdateRecord, Variant, couples
from search_to_signal.records.writer import RecordWriter
from search_to_signal.rewards import get_mapping, rewards_of
from search_to_signal.seeding import derive_seed

PROPORTIONAL = 1e-6

Credit = tuple[str, str]


@dataclass(frozen=True)
class Plan:
    """One optimizer over some of the groups, by their place in the window."""

    variant: Variant
    places: tuple[int, ...]
    learner: LearnerSettings


@dataclass(frozen=True)
class Cell:
    """A recorded run and the window of its groups that is looked at."""

    directory: Path
    config: RunConfig
    generations: tuple[GenerationRecord, ...]
    credit: Mapping[Credit, Floats]


def run_place(directory: Path) -> str:
    """Layer and name of a run, as it lies in a results directory."""
    return "/".join(directory.resolve().parts[-2:])


def read_cell(directory: Path, settings: UpdateSettings) -> Cell:
    """The middle groups of a run with every credit; raises ConfigError for a run that is too short."""
    try:
        config = msgspec.convert(read_manifest(directory).config, RunConfig)
    except msgspec.ValidationError as error:
        raise RecordError(f"{directory} has other settings than this version: {error}") from error
    generations = list(read_records(directory / GENERATIONS, GenerationRecord))
    needed = settings.groups + settings.withheld
    if len(generations) < needed:
        raise ConfigError(f"{directory} has {len(generations)} groups, a matched update takes {needed}")
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
    return Cell(directory, config, tuple(generations[start : start + needed]), credit)


def plans(settings: UpdateSettings, learner: LearnerSettings) -> list[Plan]:
    """Each group alone with a fresh optimizer, all of them with one, and all of them by plain descent."""
    every = tuple(range(settings.groups))
    plain = msgspec.structs.replace(
        learner, optimizer="sgd", learning_rate=settings.descent_rate, max_grad_norm=math.inf
    )
    alone = [Plan("fresh", (place,), learner) for place in every]
    return [*alone, *([Plan("history", every, learner)] if every[1:] else []), Plan("sgd", every, plain)]


def relation(first: Floats, second: Floats) -> Relation:
    """How two credits (steps, G) relate as the learner reads them, in float32."""
    one, other = first.astype(np.float32), second.astype(np.float32)
    if not one.any() or not other.any():
        return "without_credit"
    if np.array_equal(one, other):
        return "equal"
    aligned = np.abs(_directions(first) - _directions(second)).max() <= PROPORTIONAL
    return "proportional" if aligned else "different"


def _directions(credit: Floats) -> Floats:
    length = np.sqrt((credit * credit).sum(axis=1, keepdims=True))
    return np.divide(credit, length, out=np.zeros_like(credit), where=length > 0.0)


def _prepared(cell: Cell, settings: UpdateSettings) -> MatchedInputs:
    config, path = cell.config, model_directory(cell.config.model)
    model = attach_adapter(model_of_files(config), config.learner, derive_seed(config.seed, "adapter"))
    tokens = [(one.prompt_ids, one.completion_ids) for one in cell.generations]
    trained, withheld = tokens[: settings.groups], tokens[settings.groups :]
    return fix_inputs(model, config.learner, load_tokenizer(path).pad_token_id, trained, withheld)


def compare_cell(
    cell: Cell, settings: UpdateSettings, updates: RecordWriter, pairs: RecordWriter, progress: Progress
) -> None:
    """Make every update of a cell and write its records; credit that breaks an update is left out."""
    prepare_processor(settings.threads)
    todo = plans(settings, cell.config.learner)
    task, done, total = f"updates/{cell.config.cell}", 0, len(todo) * len(cell.credit)
    progress.update(task, done, total, "starting")
    given = _prepared(cell, settings)
    before = initial_log_probabilities(given)
    for plan in todo:
        rows = {key: values[list(plan.places)] for key, values in cell.credit.items()}
        moved = {}
        for key, result in _run_updates(given, plan, rows, progress):
            done += 1
            progress.update(task, done, total, f"{plan.variant}, {'/'.join(key)}")
            if result is not None:
                moved[key] = result
        for key, result in moved.items():
            updates.write(_update_record(cell, plan, key, rows[key], result, before))
        for one, other in couples(settings.mappings, settings.normalizers):
            if one in moved and other in moved:
                pairs.write(_pair_record(cell, plan, (one, other), rows, moved))


def _run_updates(
    given: MatchedInputs, plan: Plan, rows: Mapping[Credit, Floats], progress: Progress
) -> Iterator[tuple[Credit, UpdateResult | None]]:
    """The update of every credit, None where it breaks; equal credits share one, by determinism the same."""
    shared: dict[bytes, UpdateResult] = {}
    result: UpdateResult | None
    for key, credit in rows.items():
        seen = credit.astype(np.float32).tobytes()
        try:
            if seen not in shared:
                shared[seen] = update(given, plan.places, credit, plan.learner)
            result = shared[seen]
        except LearnerError as error:
            progress.say(f"matched updates: {plan.variant} {'/'.join(key)} left out: {error}")
            result = None
        yield key, result


def _update_record(
    cell: Cell, plan: Plan, key: Credit, credit: Floats, moved: UpdateResult, before: tuple[Floats, Floats]
) -> UpdateRecord:
    changed, tokens = moved.completions - before[0], moved.tokens - before[1]
    return UpdateRecord(
        run=run_place(cell.directory),
        purpose=cell.config.purpose,
        problem=cell.config.problem,
        model=cell.config.model,
        variant=plan.variant,
        steps=tuple(cell.generations[place].step for place in plan.places),
        mapping=key[0],
        normalizer=key[1],
        fixed=moved.fixed,
        optimizer_steps=moved.optimizer_steps,
        training_tokens=moved.training_tokens,
        advantages=tuple(tuple(row) for row in credit.tolist()),
        grad_norms=moved.grad_norms,
        adapter_sha256=moved.adapter_sha256,
        delta_norm=raw_inner(moved.change, moved.change) ** 0.5,
        product_norm=max(product_inner(moved.change, moved.change), 0.0) ** 0.5,
        withheld_mean_change=float(changed.mean()),
        withheld_max_change=float(np.abs(changed).max()),
        withheld_token_max_change=float(np.abs(tokens).max()),
    )


def _pair_record(
    cell: Cell,
    plan: Plan,
    keys: tuple[Credit, Credit],
    rows: Mapping[Credit, Floats],
    moved: Mapping[Credit, UpdateResult],
) -> PairRecord:
    (one, other), (first, second) = (rows[key] for key in keys), (moved[key] for key in keys)
    related = relation(one, other)
    void = related == "without_credit"
    found = Comparison(None, None, None, None) if void else compare(first.change, second.change)
    return PairRecord(
        run=run_place(cell.directory),
        problem=cell.config.problem,
        model=cell.config.model,
        variant=plan.variant,
        steps=tuple(cell.generations[place].step for place in plan.places),
        first=keys[0],
        second=keys[1],
        relation=related,
        by_construction=related == "equal" or (related == "proportional" and len(plan.places) == 1),
        advantage_difference=float(np.abs(one - other).max()),
        cosine=found.cosine,
        product_cosine=found.product_cosine,
        norm_ratio=found.norm_ratio,
        sign_agreement=found.sign_agreement,
        withheld_max_difference=float(np.abs(first.completions - second.completions).max()),
        withheld_token_max_difference=float(np.abs(first.tokens - second.tokens).max()),
    )
