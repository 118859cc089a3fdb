"""Matched updates, compared with the runs that they name: files, credit and pairs, without gradients."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.numerics import Floats
from search_to_signal.credit import find_mapping, rewards_of
from search_to_signal.credit.assignment import agree
from search_to_signal.credit.normalizers import NORMALIZERS, advantages
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.files import read_json
from search_to_signal.records.groups import batch_of
from search_to_signal.records.layers import UPDATES as FOLDER
from search_to_signal.records.manifest import Manifest, read_manifest, runs_below
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, read_groups, read_records
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, PairRecord, UpdateRecord, couples
from search_to_signal.run.texts import ParsedTexts

Credit = Mapping[tuple[str, str], Floats]
Key = tuple[str, str, tuple[int, ...], tuple[str, str]]


class _SourceRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    files: dict[str, str]
    model: dict[str, str]


class _Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: tuple[_SourceRun, ...]
    settings: dict[str, Any]
    source_sha256: str


def problems(directory: Path, parsed: ParsedTexts) -> Iterator[str]:
    """Yield contradictions of the matched update layer; raises S2SError for a file that cannot be read."""
    folder = directory / FOLDER
    if not (folder / SETUP).is_file():
        if (folder / UPDATES).is_file():
            yield f"there is no {SETUP}: they are not finished, or the file was removed"
        return
    setup = read_json(folder / SETUP, _Setup, f"{SETUP} was removed while it was read")
    directories = {"/".join(run.parts[-2:]): run for run in runs_below(directory)}
    credit: dict[str, Credit] = {}
    manifests: dict[str, Manifest] = {}
    for source in setup.runs:
        run = directories.get(source.run)
        if run is None:
            yield f"there is no run {source.run}"
            return
        manifest = manifests[source.run] = read_manifest(run)
        files = {name: sha256_file(run / name) for name in (COMPLETIONS, GENERATIONS)}
        if (files, manifest.model_files) != (source.files, source.model):
            yield f"they were made from other files than {source.run} has"
        credit[source.run] = _credit(run, setup.settings)
        if manifest.source.sha256 != setup.source_sha256:
            yield f"{SETUP} names another source than {source.run}"
    updates = list(read_records(folder / UPDATES, UpdateRecord))
    updates_by_key: dict[Key, UpdateRecord] = {
        (record.run, record.variant, record.steps, (record.mapping, record.normalizer)): record
        for record in updates
    }
    if len(updates_by_key) != len(updates):
        yield f"{UPDATES} holds an update twice"
    yield from _update_problems(updates, manifests, credit)
    yield from _pair_problems(folder, updates_by_key, setup.settings)


def _credit(run: Path, settings: Mapping[str, Any]) -> Credit:
    """Advantages (groups, group size) of a matched update's window of groups, by mapping and normalizer."""
    groups = list(read_groups(run))
    start = (len(groups) - settings["groups"] - settings["withheld"]) // 2
    window = groups[start : start + settings["groups"]]
    credit = {}
    for mapping in settings["mappings"]:
        rewards = rewards_of(find_mapping(mapping), batch_of(window))
        for name in settings["normalizers"]:
            # Third-party normalizers are not executed: their credit is not compared.
            if name in NORMALIZERS:
                credit[mapping, name] = advantages(NORMALIZERS[name], rewards.reward, rewards.components)
    return credit


def _update_problems(
    updates: list[UpdateRecord], manifests: Mapping[str, Manifest], credit: Mapping[str, Credit]
) -> Iterator[str]:
    first: dict[tuple[str, tuple[int, ...]], UpdateRecord] = {}
    for line, record in enumerate(updates, start=1):
        where = f"{UPDATES}:{line}"
        if record.run not in manifests:
            yield f"{where}: {SETUP} has no run {record.run}"
            continue
        facts = manifests[record.run].facts
        if any(getattr(record, name) != getattr(facts, name) for name in ("purpose", "problem", "model")):
            yield f"{where}: it has another purpose, problem or model than its run"
        earlier = first.setdefault((record.run, record.steps), record)
        if (earlier.fixed, earlier.training_tokens) != (record.fixed, record.training_tokens):
            yield f"{where}: its fixed inputs differ from the other updates of its steps"
        values = credit[record.run].get((record.mapping, record.normalizer))
        if values is not None and not _has_credit(record, values):
            yield f"{where}: its advantages are not what {record.mapping} and {record.normalizer} give"
        if record.optimizer_steps != len(record.steps) or len(record.grad_norms) != len(record.steps):
            yield f"{where}: it does not have one step for each of its groups"
        if abs(record.withheld_mean_change) > record.withheld_max_change:
            yield f"{where}: the mean withheld change is greater than the greatest one"


def _has_credit(record: UpdateRecord, values: Floats) -> bool:
    rows = [tuple(row) for row in values.tolist()]
    if len(record.steps) == len(rows):
        return all(map(agree, record.advantages, rows)) and len(record.advantages) == len(rows)
    return len(record.advantages) == len(record.steps) and all(
        any(agree(row, expected) for expected in rows) for row in record.advantages
    )


def _pair_problems(
    folder: Path, updates: Mapping[Key, UpdateRecord], settings: Mapping[str, Any]
) -> Iterator[str]:
    pairs = list(read_records(folder / PAIRS, PairRecord))
    sides = couples(settings["mappings"], settings["normalizers"])
    plans = dict.fromkeys(key[:3] for key in updates)
    expected = [(*p, a, b) for p in plans for a, b in sides if (*p, a) in updates and (*p, b) in updates]
    if [(pair.run, pair.variant, pair.steps, pair.first, pair.second) for pair in pairs] != expected:
        yield f"{PAIRS} does not hold every two updates that differ in one thing"
    for line, pair in enumerate(pairs, start=1):
        where = f"{PAIRS}:{line}"
        first = updates.get((pair.run, pair.variant, pair.steps, pair.first))
        second = updates.get((pair.run, pair.variant, pair.steps, pair.second))
        if first is None or second is None:
            yield f"{where}: one of its updates is not recorded"
            continue
        rows = zip(first.advantages, second.advantages, strict=True)
        gap = max(abs(a - b) for row in rows for a, b in zip(*row, strict=True))
        if not math.isclose(pair.advantage_difference, gap, rel_tol=1e-12):
            yield f"{where}: advantage_difference is {pair.advantage_difference}, its updates say {gap}"
        if (pair.problem, pair.model) != (first.problem, first.model):
            yield f"{where}: it has another problem or model than its updates"
        yield from (f"{where}: {problem}" for problem in _comparison_problems(pair, first, second))


def _comparison_problems(pair: PairRecord, first: UpdateRecord, second: UpdateRecord) -> Iterator[str]:
    equal = first.adapter_sha256 == second.adapter_sha256
    if (pair.relation == "equal") > equal:
        yield "equal credit led to different adapters"
    by_construction = pair.relation == "equal" or (pair.relation == "proportional" and len(pair.steps) == 1)
    if pair.by_construction != by_construction:
        yield "by_construction is not what its relation says"
    without_credit = not any(map(any, first.advantages)) or not any(map(any, second.advantages))
    if without_credit != (pair.relation == "without_credit"):
        yield f"relation is {pair.relation}, its credit says otherwise"
    if pair.norm_ratio is not None:
        ratio = first.delta_norm / second.delta_norm
        if not math.isclose(pair.norm_ratio, ratio, rel_tol=1e-6):
            yield f"norm_ratio is {pair.norm_ratio}, its updates say {ratio}"
