"""Do matched updates follow from the runs that they name, as far as credit goes? Gradients are not redone."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.normalizer import NORMALIZERS, advantages
from search_to_signal.numerics import Floats
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.files import read_json
from search_to_signal.records.groups import batch_of
from search_to_signal.records.layers import UPDATES as FOLDER
from search_to_signal.records.manifest import Manifest, read_manifest, runs_below
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, read_groups, read_records
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, PairRecord, UpdateRecord, couples
from search_to_signal.rewards import find_mapping, rewards_of
from search_to_signal.verification.consistency.rounding import agree

Credit = Mapping[tuple[str, str], Floats]
Key = tuple[str, str, tuple[int, ...], tuple[str, str]]


class _Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    files: dict[str, str]
    model: dict[str, str]


class _Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: tuple[_Run, ...]
    settings: dict[str, Any]
    source_sha256: str


def update_problems(directory: Path) -> Iterator[str]:
    """Contradictions of the matched update layer, one line each; raises what reading raises."""
    folder = directory / FOLDER
    if not (folder / SETUP).is_file():
        if (folder / UPDATES).is_file():
            yield f"updates: there is no {SETUP}: they have not ended, or it went away"
        return
    setup = read_json(folder / SETUP, _Setup, f"{SETUP} went away")
    places = {"/".join(run.parts[-2:]): run for run in runs_below(directory)}
    credit: dict[str, Credit] = {}
    manifests: dict[str, Manifest] = {}
    for one in setup.runs:
        place = places.get(one.run)
        if place is None:
            yield f"updates: there is no run {one.run}"
            return
        manifests[one.run] = read_manifest(place)
        files = {name: sha256_file(place / name) for name in (COMPLETIONS, GENERATIONS)}
        if (files, manifests[one.run].model_files) != (one.files, one.model):
            yield f"updates: they were made of other files than those of {one.run}"
        credit[one.run] = _credit(place, setup.settings)
        if manifests[one.run].source.sha256 != setup.source_sha256:
            yield f"updates: {SETUP} names another source than {one.run}"
    updates = list(read_records(folder / UPDATES, UpdateRecord))
    known = {_key(record): record for record in updates}
    if len(known) != len(updates):
        yield f"updates: {UPDATES} holds an update twice"
    yield from (f"updates: {p}" for p in _update_problems(updates, manifests, credit))
    yield from (f"updates: {p}" for p in _pair_problems(folder, known, setup.settings))


def _key(record: UpdateRecord) -> Key:
    return record.run, record.variant, record.steps, (record.mapping, record.normalizer)


def _credit(run: Path, settings: Mapping[str, Any]) -> Credit:
    """Advantages (groups, G) of the window that a matched update takes, by mapping and normalizer."""
    groups = list(read_groups(run))
    start = (len(groups) - settings["groups"] - settings["withheld"]) // 2
    window = groups[start : start + settings["groups"]]
    found = {}
    for mapping in settings["mappings"]:
        rewards = rewards_of(find_mapping(mapping), batch_of(window))
        for name in settings["normalizers"]:
            # A normalizer of somebody's own is not run; its credit is then compared with nothing.
            if name in NORMALIZERS:
                values = advantages(NORMALIZERS[name], rewards.reward, rewards.components)
                found[mapping, name] = values
    return found


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
        same = first.setdefault((record.run, record.steps), record)
        if (same.fixed, same.training_tokens) != (record.fixed, record.training_tokens):
            yield f"{where}: its fixed inputs are not those of the other updates of its steps"
        values = credit[record.run].get((record.mapping, record.normalizer))
        if values is not None and not _has_credit(record, values):
            yield f"{where}: its advantages are not those of {record.mapping} and {record.normalizer}"
        if record.optimizer_steps != len(record.steps) or len(record.grad_norms) != len(record.steps):
            yield f"{where}: it does not have one step for each of its groups"
        if abs(record.withheld_mean_change) > record.withheld_max_change:
            yield f"{where}: the mean withheld change is above the largest"


def _has_credit(record: UpdateRecord, values: Floats) -> bool:
    rows = [tuple(row) for row in values.tolist()]
    if len(record.steps) == len(rows):
        return all(map(agree, record.advantages, rows)) and len(record.advantages) == len(rows)
    return len(record.advantages) == len(record.steps) and all(
        any(agree(row, due) for due in rows) for row in record.advantages
    )


def _pair_problems(
    folder: Path, known: Mapping[Key, UpdateRecord], settings: Mapping[str, Any]
) -> Iterator[str]:
    pairs = list(read_records(folder / PAIRS, PairRecord))
    sides = couples(settings["mappings"], settings["normalizers"])
    plans = dict.fromkeys(key[:3] for key in known)
    due = [(*p, a, b) for p in plans for a, b in sides if (*p, a) in known and (*p, b) in known]
    if [(pair.run, pair.variant, pair.steps, pair.first, pair.second) for pair in pairs] != due:
        yield f"{PAIRS} does not hold every two updates that differ in one thing"
    for line, pair in enumerate(pairs, start=1):
        where = f"{PAIRS}:{line}"
        one = known.get((pair.run, pair.variant, pair.steps, pair.first))
        other = known.get((pair.run, pair.variant, pair.steps, pair.second))
        if one is None or other is None:
            yield f"{where}: one of its updates is not recorded"
            continue
        rows = zip(one.advantages, other.advantages, strict=True)
        gap = max(abs(a - b) for row in rows for a, b in zip(*row, strict=True))
        if not math.isclose(pair.advantage_difference, gap, rel_tol=1e-12):
            yield f"{where}: advantage_difference is {pair.advantage_difference}, its updates say {gap}"
        if (pair.problem, pair.model) != (one.problem, one.model):
            yield f"{where}: it has another problem or model than its updates"
        yield from (f"{where}: {problem}" for problem in _comparison_problems(pair, one, other))


def _comparison_problems(pair: PairRecord, one: UpdateRecord, other: UpdateRecord) -> Iterator[str]:
    equal = one.adapter_sha256 == other.adapter_sha256
    if (pair.relation == "equal") > equal:
        yield "equal credit led to different adapters"
    by_construction = pair.relation == "equal" or (pair.relation == "proportional" and len(pair.steps) == 1)
    if pair.by_construction != by_construction:
        yield "by_construction is not what its relation says"
    void = not any(map(any, one.advantages)) or not any(map(any, other.advantages))
    if void != (pair.relation == "without_credit"):
        yield f"relation is {pair.relation}, its credit says otherwise"
    if pair.norm_ratio is not None and not math.isclose(
        pair.norm_ratio, one.delta_norm / other.delta_norm, rel_tol=1e-6
    ):
        yield f"norm_ratio is {pair.norm_ratio}, its updates say {one.delta_norm / other.delta_norm}"
