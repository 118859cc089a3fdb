"""The lineage of evidence layers: restarts, anchor, probe, held-out evaluation, updates, and their runs."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.numerics import Floats
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.credit import find_mapping, rewards_of
from search_to_signal.credit.assignment import agree
from search_to_signal.credit.normalizers import NORMALIZERS, advantages
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import heldout_splits
from search_to_signal.records.adapters import ADAPTER, CONFIG
from search_to_signal.records.anchor import budget, loop_seconds, read_contract, run_groups
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.conditions import FROZEN, run_name
from search_to_signal.records.differences import Finding, findings_of
from search_to_signal.records.files import files_named, is_component, read_json, read_regular
from search_to_signal.records.groups import batch_of
from search_to_signal.records.heldout import (
    BEHAVIOURS,
    HELDOUT_MANIFEST,
    SCORES,
    BehaviourRecord,
    HeldoutManifest,
    HeldoutRecord,
    final_heuristic,
    read_heldout,
)
from search_to_signal.records.layers import ANCHOR, COHORT, HELDOUT, PROBE
from search_to_signal.records.layers import UPDATES as FOLDER
from search_to_signal.records.manifest import (
    INTERRUPTED,
    ISOLATION_FACTS,
    ROSTER,
    Manifest,
    read_manifest,
    read_roster,
    run_directories,
    runs_below,
)
from search_to_signal.records.probe import (
    BANK,
    INITIAL,
    PROBE_MANIFEST,
    BankPrompt,
    ProbedCheckpoint,
    ProbeManifest,
    ProbeRecord,
    probed_config,
    read_probe,
)
from search_to_signal.records.reader import (
    COMPLETIONS,
    GENERATIONS,
    HEURISTICS,
    STEPS,
    TIMINGS,
    read_completions,
    read_groups,
    read_records,
)
from search_to_signal.records.schema import (
    ANY_FENCE,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    Outcome,
    StepRecord,
    given,
)
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, PairRecord, UpdateRecord, couples
from search_to_signal.run.texts import ParsedTexts, answer_problems
from search_to_signal.sandbox.programs import sha256_text

# Held-out scores and behaviours, compared with the programs of the cohort.


def heldout_problems(directory: Path) -> Iterator[str]:
    """Yield contradictions of the held-out layer; raises S2SError for a file that cannot be read."""
    folder = directory / HELDOUT
    if not (folder / HELDOUT_MANIFEST).is_file():
        return
    manifest = read_heldout(folder)
    cohort = directory / COHORT if (directory / COHORT).is_dir() else directory
    in_order = sorted(run_directories(cohort), key=lambda run: read_manifest(run).facts.rank)
    runs = {str(run.relative_to(directory)): run for run in in_order}
    if manifest.runs != {name: sha256_file(run / COMPLETIONS) for name, run in runs.items()}:
        yield "it was made of other completions than the cohort's"
        return
    if manifest.files != {name: sha256_file(folder / name) for name in (SCORES, BEHAVIOURS)}:
        yield "its files are not the recorded ones"
    yield from _setting_problems(manifest, runs)
    yield from _score_problems(folder, manifest, runs)
    yield from _behaviour_problems(folder, runs)


def _setting_problems(manifest: HeldoutManifest, runs: dict[str, Path]) -> Iterator[str]:
    for run in runs.values():
        facts = read_manifest(run).facts
        if (manifest.purpose, manifest.problem) != (facts.purpose, facts.problem):
            yield f"it has another purpose or problem than {run.name}"
    problem = PROBLEMS.get(manifest.problem)
    if problem is not None and (
        manifest.splits != heldout_splits(problem) or manifest.behaviour_split not in problem.splits
    ):
        yield f"its splits are not those of {problem.name}"
    if manifest.isolation.keys() != ISOLATION_FACTS:
        yield "isolation is not what a sandbox reports"


def _score_problems(folder: Path, manifest: HeldoutManifest, runs: dict[str, Path]) -> Iterator[str]:
    scores = list(read_records(folder / SCORES, HeldoutRecord))
    if [(s.split, s.run) for s in scores] != [(split, run) for split in manifest.splits for run in runs]:
        yield f"{SCORES} does not hold every run on every split"
        return
    final = {name: final_heuristic(run).id for name, run in runs.items()}
    known: dict[tuple[str, str], HeldoutRecord] = {}
    for line, record in enumerate(scores, start=1):
        where = f"{SCORES}:{line}"
        if record.heuristic != final[record.run]:
            yield f"{where}: the best heuristic of {record.run} is another one"
        if bool(record.scores) != (record.outcome is Outcome.VALID) or not record.outcome.evaluated:
            yield f"{where}: outcome {record.outcome.value} with {len(record.scores)} scores"
        if manifest.instances is not None and len(record.scores) not in (0, manifest.instances):
            yield f"{where}: {len(record.scores)} scores for {manifest.instances} instances"
        first = known.setdefault((record.split, record.heuristic), record)
        if (first.outcome, first.scores) != (record.outcome, record.scores):
            yield f"{where}: the same heuristic scored otherwise for {first.run}"


def _behaviour_problems(folder: Path, runs: dict[str, Path]) -> Iterator[str]:
    behaviours = list(read_records(folder / BEHAVIOURS, BehaviourRecord))
    valid = (
        record.program_sha256
        for run in runs.values()
        for record in read_completions(run)
        if record.score is not None
    )
    if [behaviour.program_sha256 for behaviour in behaviours] != list(dict.fromkeys(valid)):
        yield f"{BEHAVIOURS} does not hold the distinct valid programs of the cohort"
    for line, record in enumerate(behaviours, start=1):
        sound = record.behaviour_sha256 is None or len(record.behaviour_sha256) == 64
        if (record.behaviour_sha256 is not None) != (record.outcome is Outcome.VALID) or not sound:
            yield f"{BEHAVIOURS}:{line}: outcome {record.outcome.value} with {record.behaviour_sha256}"


# The probe, compared with the runs and adapters that it names; its records, compared with its texts.


def probe_problems(directory: Path, manifest: ProbeManifest, parsed: ParsedTexts) -> Iterator[str]:
    """Yield contradictions of a probe; raises S2SError or OSError for a file that cannot be read."""
    cohort = {run.name: read_manifest(run) for run in run_directories(directory / COHORT)}
    bank = list(read_records(directory / PROBE / BANK, BankPrompt))
    yield from _bank_problems(directory / COHORT, bank, manifest)
    names = [INITIAL, *(name for name, run in cohort.items() if run.final_adapter_sha256 is not None)]
    if sorted(checkpoint.name for checkpoint in manifest.checkpoints) != sorted(names):
        yield "its checkpoints are not those of the cohort"
    yield from _probe_setting_problems(manifest, cohort)
    # A probe has the settings of a frozen run; all runs of a cohort share this one.
    idea_end = next((run.facts.idea_end for run in cohort.values()), ANY_FENCE)
    for checkpoint in manifest.checkpoints:
        problems = _checkpoint_problems(checkpoint, cohort.get(checkpoint.name))
        yield from (f"{checkpoint.name}: {problem}" for problem in problems)
        problems = _answer_problems(directory / PROBE, manifest, checkpoint, parsed, idea_end)
        yield from (f"{checkpoint.name}: {problem}" for problem in problems)


def _probe_setting_problems(manifest: ProbeManifest, cohort: dict[str, Manifest]) -> Iterator[str]:
    settings = {
        canonical_sha256(probed_config(run, manifest.completions))
        for run in cohort.values()
        if run.facts.condition == FROZEN
    }
    if manifest.config_sha256 not in settings:
        yield "config_sha256 is of no frozen run with its number of completions"
    for run in cohort.values():
        if any(
            getattr(manifest, name) != getattr(run.facts, name)
            for name in ("purpose", "problem", "split", "model")
        ):
            yield "it has another purpose, problem, split or model than the cohort"
        # Runs of a plan may come from several versions of the source, and so may a probe of them.
        planned = run.plan_sha256 is not msgspec.UNSET
        if manifest.model_files != run.model_files or not (
            planned or manifest.source.sha256 == run.source.sha256
        ):
            yield "it has another source or model files than the cohort"
    if manifest.isolation.keys() != ISOLATION_FACTS:
        yield "isolation is not what a sandbox reports"


def _bank_problems(cohort: Path, bank: list[BankPrompt], manifest: ProbeManifest) -> Iterator[str]:
    if len(bank) != manifest.prompts or any(entry.prompt != at for at, entry in enumerate(bank)):
        yield f"{BANK} does not hold {manifest.prompts} prompts in order"
    for name in sorted({entry.run for entry in bank}):
        run = cohort / name
        if Path(name).name != name or not run.is_dir():
            yield f"{BANK} names {name}, which is no run of the cohort"
            continue
        groups = {group[0].step: group[0] for group in read_groups(run)}
        generations = read_records(run / GENERATIONS, GenerationRecord)
        prompts = {generation.step: generation.prompt for generation in generations}
        for entry in (entry for entry in bank if entry.run == name):
            recorded = groups.get(entry.step) if entry.step in prompts else None
            shared = ("operator", "prompt_sha256", "base_scores", "frontier")
            if recorded is None or any(getattr(entry, key) != getattr(recorded, key) for key in shared):
                yield f"{BANK}: prompt {entry.prompt} is not that of {name}, step {entry.step}"
            elif not _has_messages(prompts[entry.step], entry):
                yield f"{BANK}: the text of prompt {entry.prompt} is not that of {name}, step {entry.step}"


def _has_messages(prompt: str, entry: BankPrompt) -> bool:
    """Whether a prompt contains an entry's messages; some chat templates leave out the system message."""
    shows_system = entry.system[:20] in prompt
    return entry.user in prompt and (not shows_system or entry.system.strip() in prompt)


def _checkpoint_problems(checkpoint: ProbedCheckpoint, run: Manifest | None) -> Iterator[str]:
    recorded = (checkpoint.condition, checkpoint.seed, checkpoint.adapter_sha256)
    if run is None:
        if checkpoint.name != INITIAL or recorded != (FROZEN, None, None):
            yield "it is no checkpoint of the cohort"
        return
    if recorded != (run.facts.condition, run.facts.seed, run.final_adapter_sha256):
        yield f"it is not the final adapter of {run.facts.name}"


def _answer_problems(
    folder: Path,
    manifest: ProbeManifest,
    checkpoint: ProbedCheckpoint,
    parsed: ParsedTexts,
    idea_end: IdeaEnd,
) -> Iterator[str]:
    if not is_component(checkpoint.name):
        yield "its name is none of a file"
        return
    file = folder / f"{checkpoint.name}.jsonl"
    if checkpoint.bank_sha256 != manifest.bank_sha256:
        yield "it answered another bank"
    if sha256_file(file) != checkpoint.records_sha256:
        yield "its records are not the recorded ones"
    answers = list(read_records(file, ProbeRecord))
    positions = [divmod(number, max(1, manifest.completions)) for number in range(len(answers))]
    complete = len(answers) == manifest.prompts * manifest.completions
    if not complete or [(answer.prompt, answer.position) for answer in answers] != positions:
        yield f"it does not answer every prompt {manifest.completions} times"
    config = {"problem": manifest.problem, "split": manifest.split, "idea_end": idea_end}
    for line, answer in enumerate(answers, start=1):
        problems = [*answer_problems(answer, answer.text, config, parsed)]
        if answer.response_sha256 != sha256_text(answer.text):
            problems.append("response_sha256 is not that of its text")
        if answer.checkpoint != checkpoint.name:
            problems.append(f"it is an answer of {answer.checkpoint}")
        if (answer.score is not None) != (answer.outcome is Outcome.VALID):
            problems.append(f"outcome {answer.outcome.value} with score {answer.score}")
        yield from (f"line {line}: {problem}" for problem in problems)


# Matched updates, compared with the runs that they name: files, credit and pairs, without gradients.

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


def update_problems(directory: Path) -> Iterator[str]:
    """Yield contradictions of the matched update layer; raises S2SError for a file that cannot be read."""
    folder = directory / FOLDER
    if not (folder / SETUP).is_file():
        if (folder / UPDATES).is_file():
            yield f"there is no {SETUP}: they have not ended, or it went away"
        return
    setup = read_json(folder / SETUP, _Setup, f"{SETUP} went away")
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
            yield f"they were made of other files than those of {source.run}"
        credit[source.run] = _credit(run, setup.settings)
        if manifest.source.sha256 != setup.source_sha256:
            yield f"{SETUP} names another source than {source.run}"
    updates = list(read_records(folder / UPDATES, UpdateRecord))
    updates_by_key = {_key(record): record for record in updates}
    if len(updates_by_key) != len(updates):
        yield f"{UPDATES} holds an update twice"
    yield from _update_problems(updates, manifests, credit)
    yield from _pair_problems(folder, updates_by_key, setup.settings)


def _key(record: UpdateRecord) -> Key:
    return record.run, record.variant, record.steps, (record.mapping, record.normalizer)


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


def lineage_findings(directory: Path, parsed: ParsedTexts) -> list[Finding]:
    """Return the contradictions between the layers of a results directory.

    An unreadable file is a finding, and ends the checks of its layer.
    """
    layers = (
        ("", _shared_facts(directory)),
        ("", _rosters(directory)),
        ("", _restarts(directory)),
        ("", _anchor(directory)),
        ("probe", _probe(directory, parsed)),
        ("heldout", heldout_problems(directory)),
        ("updates", update_problems(directory)),
    )
    return [finding for where, problems in layers for finding in findings_of(where, problems, "a manifest")]


def _restart_problems(run: Path, parent: dict[str, Any], live_run: Path) -> Iterator[str]:
    manifest, live = read_manifest(run), read_manifest(live_run)
    recorded = {manifest.initial_adapter_sha256, live.final_adapter_sha256, parent.get("adapter_sha256")}
    initial = parent.get("adapter_sha256") is None and manifest.initial_adapter_sha256 is None
    if len(recorded) != 1 and not (initial and parent.get("archive_sha256")):
        yield f"it did not begin with the final adapter of {live_run.name}"
    yield from _population_problems(run, live_run)
    if sha256_file(live_run / COMPLETIONS) != parent.get("completions_sha256"):
        yield f"{live_run.name} has other completions than when it was restarted"
    if any(s.training_tokens or s.adapter_sha256 for s in read_records(run / STEPS, StepRecord)):
        yield "a restart was trained"


def _population_problems(run: Path, parent: Path) -> Iterator[str]:
    """Whether a given first archive holds heuristics of the run's parent alone (D45)."""
    population = given(read_records(run / HEURISTICS, HeuristicRecord))
    known = {_content(record) for record in read_records(parent / HEURISTICS, HeuristicRecord)}
    if any(_content(record) not in known for record in population):
        yield f"it was given a heuristic that {parent.name} does not hold"


def _content(record: HeuristicRecord) -> tuple[Any, ...]:
    return record.id, record.operator, record.idea, record.code, record.score


def _restarts(directory: Path) -> Iterator[str]:
    for run in runs_below(directory):
        parent = read_manifest(run).config.get("parent")
        # A run that is verified by itself has its parent outside of the directory.
        live_run = (run / parent["run"]).resolve() if parent else directory
        if parent and live_run.is_relative_to(directory.resolve()):
            missing = ["its parent is missing"]
            problems = _restart_problems(run, parent, live_run) if live_run.is_dir() else missing
            yield from (f"restart {run.name}: {problem}" for problem in problems)


def _anchor(directory: Path) -> Iterator[str]:
    runs = run_directories(directory / ANCHOR)
    if not runs:
        return
    contract = read_contract(directory / ANCHOR)
    for name, sha256 in contract.timings_sha256.items():
        if sha256_file(directory / COHORT / name / TIMINGS) != sha256:
            yield f"anchor: the contract follows from other timings than those of {name}"
    for recorded in contract.budgets:
        condition, seed = recorded.condition, recorded.seed
        online, frozen = (
            loop_seconds(directory / COHORT / run_name(name, seed), contract.clock)
            for name in (condition, FROZEN)
        )
        if recorded != budget(seed, condition, online, frozen):
            yield f"anchor: the budget of {condition}, seed {seed}, does not follow from timings"
    if contract.run_groups != run_groups(contract.budgets, contract.margin):
        yield "anchor: run_groups do not follow from the budgets"
    for run in runs:
        facts = read_manifest(run).facts
        if contract.run_groups.get(str(facts.seed)) != facts.groups:
            yield f"anchor {run.name}: {facts.groups} groups are not what the contract says"


def _probe(directory: Path, parsed: ParsedTexts) -> Iterator[str]:
    folder = directory / PROBE
    if not (folder / PROBE_MANIFEST).is_file():
        return
    manifest = read_probe(folder)
    if manifest.status != "complete":
        yield "it is not complete"
    if sha256_file(folder / BANK) != manifest.bank_sha256:
        yield f"{BANK} is not the recorded one"
    yield from probe_problems(directory, manifest, parsed)


def _shared_facts(directory: Path) -> Iterator[str]:
    """Facts that runs of a results directory have to share, and the folder of each run's layer."""
    shared: dict[str, set[str]] = {"purpose": set(), "source": set()}
    models: dict[str, dict[str, str]] = {}
    initial: dict[str, str | None] = {}
    configs: dict[str, bytes] = {}
    for run in runs_below(directory):
        manifest = read_manifest(run)
        facts, parts = manifest.facts, run.relative_to(directory).parts
        learner = manifest.config.get("learner")
        shared["purpose"].add(facts.purpose)
        shared["source"].add(manifest.made_by)
        if parts and (directory / COHORT).is_dir() and facts.layer != parts[0]:
            yield f"{run.name} is of layer {facts.layer} and lies in {parts[0]}"
        if manifest.model_files and models.setdefault(facts.model, manifest.model_files) != (
            manifest.model_files
        ):
            yield f"{run.name} has other files of model {facts.model} than another run"
        adapter_config = run / ADAPTER / CONFIG
        if adapter_config.is_file():
            content = read_regular(adapter_config)
            if configs.setdefault(repr(learner), content) != content:
                yield f"{run.name} has another {CONFIG} than other adapters of these settings"
        if manifest.final_adapter_sha256 is not None:
            start = repr((facts.model, facts.seed, learner))
            if initial.setdefault(start, manifest.initial_adapter_sha256) != manifest.initial_adapter_sha256:
                yield f"{run.name} began with another adapter than other runs of its seed"
    yield from (f"runs differ in {name}" for name, values in shared.items() if len(values) > 1)


def _rosters(directory: Path) -> Iterator[str]:
    for path in files_named(directory, ROSTER):
        names = [run.name for run in run_directories(path.parent)]
        if INTERRUPTED in path.relative_to(directory).parts:
            continue
        if read_roster(path.parent) != names:
            yield f"{path.relative_to(directory)} names other runs than there are"
        for name in names:
            if name != (expected := read_manifest(path.parent / name).facts.name):
                yield f"{(path.parent / name).relative_to(directory)} has the configuration of {expected}"
