"""Who taught what: a run's adapter made again with one class of credit left out, and how each then answers.

Every adapter answers the same prompts of runs of other seeds, from the same sampling seeds, and reads the
same recorded completions of those runs. What a class bought is the difference of the adapter of all credit to
the one without that class. The four classes of completions share all credit, so the interaction residual says
how far their single effects are from adding up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.progress import Progress
from search_to_signal.base.settings import canonical_json
from search_to_signal.layers.probe.layer import answers_writer, build_bank, spread
from search_to_signal.learner import get_rule
from search_to_signal.learner.base import reads_records
from search_to_signal.records.adapters import tensors_sha256
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.files import read_regular, write_atomically
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.probe import INITIAL, BankPrompt, Checkpoint, ProbeRecord
from search_to_signal.records.provenance import source
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, STEPS, read_groups, read_records
from search_to_signal.records.schema import StepRecord
from search_to_signal.report.tables.cells import (
    Cell,
    Line,
    Table,
    combined_cells,
    label,
    mean_cell,
    number_cell,
    table_of,
    to_markdown,
)
from search_to_signal.run.config import ADAPTER, RunConfig
from search_to_signal.run.execution import Execution, PlannedRun, execute
from search_to_signal.run.left_out import (
    CLASSES,
    FAILED,
    KINDS,
    NOTHING,
    advantages_without,
    credited_groups,
    programs_of,
)

PAGE, RESULT, _SETUP = "taught.md", "taught.json", "setup.json"
# The bank's prompts are of so many runs; each of them is replayed.
_BANK_RUNS = 4
_HEADINGS = {"copies": "Copies (%)", "constants": "Changed constants (%)", "forms": "Other forms (%)"}
VALID = "Valid (%)"
_CREDIT = "Positive credit (%)"
ALL, SINGLE, RESIDUAL = "all credit", "sum of the four classes", "interaction residual"

Behaviour = Mapping[str, Floats]
"""By column, a number of each prompt of the bank, or of each recorded completion that was read."""


@dataclass(frozen=True)
class Trial:
    """A run, its directory, and the runs of other seeds whose prompts and completions are the bank.

    ``variants`` are what is left out, ``nothing`` first. ``completions`` are drawn for each of ``prompts``,
    and as many recorded completions of each class are read.
    """

    name: str
    config: RunConfig
    recorded: Path
    bank: Mapping[Path, RunConfig]
    variants: tuple[str, ...]
    prompts: int
    completions: int
    out: Path

    def place(self, variant: str) -> Path:
        """Where an adapter is made."""
        return self.out / f"without-{variant}"

    def checkpoints(self) -> list[Checkpoint]:
        """The model without adapter, and the adapter of each variant."""
        base = Checkpoint(name=INITIAL, condition=FROZEN, seed=None, adapter_sha256=None)
        made = [
            Checkpoint(
                name=self.place(variant).name,
                condition=self.config.condition,
                seed=self.config.seed,
                adapter_sha256=tensors_sha256(self.place(variant) / ADAPTER / "adapter_model.safetensors"),
            )
            for variant in self.variants
        ]
        return [base, *made]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run, as JSON: rows of cells (value, standard error, n) by label and heading.

    ``as_recorded`` says whether the adapter of all credit is the recorded one, bit by bit. ``adapters`` are
    checksums by what was left out, ``bank`` the runs and steps whose prompts were answered.
    """

    model: str
    model_files: dict[str, str]
    weights: str
    groups: int
    as_recorded: bool
    adapters: dict[str, str]
    bank: dict[str, list[int]]
    completions: int
    classes: dict[str, str]
    levels: dict[str, dict[str, tuple[float | None, float | None, int]]]
    bought: dict[str, dict[str, tuple[float | None, float | None, int]]]


_WEIGHTS = (
    "Every adapter follows from the run's records and the model's files: the recorded tokens and advantages, "
    "some set to 0, through the run's learner. Nothing was sampled for training."
)


def bank_runs(directory: Path, name: str) -> list[str]:
    """Names of runs of other seeds beside a run, whose prompts are the bank: frozen ones where there are any.

    Raises ConfigError where there is none.
    """
    own = read_manifest(directory / name).facts
    beside = (directory / name).parent
    others = {run: read_manifest(run) for run in runs_below(beside) if run.parent == beside}
    fit = [
        (manifest.facts.condition != FROZEN, manifest.facts.seed, run)
        for run, manifest in others.items()
        if manifest.status == "complete"
        and manifest.facts.seed != own.seed
        and (manifest.facts.problem, manifest.facts.model) == (own.problem, own.model)
    ]
    if not fit:
        raise ConfigError(f"{name} has no run of another seed beside it, whose prompts it could answer")
    frozen = [item for item in sorted(fit) if item[0] == min(fit)[0]]
    return [run.relative_to(directory).as_posix() for _, _, run in frozen[:_BANK_RUNS]]


def refuse_other_rules(name: str, config: RunConfig) -> None:
    """Raise ConfigError for a run whose rule learns from more than advantages."""
    if reads_records(get_rule(config.learning_rule)):
        raise ConfigError(
            f"{name}: its learning rule {config.learning_rule} may read more of a completion than its "
            "advantage, so no credit can be left out: name runs of grpo"
        )


def who_taught(trials: Sequence[Trial], out: Path, jobs: int, progress: Progress) -> Path:
    """Make the adapters, have them answer, and write result and page; returns the page.

    What an interrupted command made is kept. Raises ConfigError where a trial's directory is of something
    else, and whatever retraining, sampling and reading raise.
    """
    for trial in trials:
        _begin(trial)
    planned = [
        PlannedRun(trial.config, trial.place(variant), recorded=trial.recorded, without=variant)
        for trial in trials
        for variant in trial.variants
        if not (trial.place(variant) / ADAPTER).is_dir()
    ]
    execute(planned, Execution(jobs=jobs, resume=True), progress)
    accounts: dict[str, Account] = {}
    levels: dict[str, list[Line]] = {}
    bought: dict[str, list[Line]] = {}
    for trial in trials:
        bank = build_bank(dict(trial.bank), trial.prompts)
        behaviours = _behaviours(trial, bank, progress)
        levels[trial.name] = [(name, _cells(behaviour)) for name, behaviour in behaviours.items()]
        bought[trial.name] = _bought(trial, behaviours)
        accounts[trial.name] = _account(trial, bank, levels[trial.name], bought[trial.name])
    write_atomically(out / RESULT, msgspec.json.format(msgspec.json.encode(accounts), indent=2) + b"\n")
    (out / PAGE).write_text(_page(trials, levels, bought), encoding="utf-8")
    return out / PAGE


def _begin(trial: Trial) -> None:
    """Claim a trial's directory, or find that it was begun with the same records, model and source."""
    files = {name: sha256_file(trial.recorded / name) for name in (COMPLETIONS, GENERATIONS)}
    facts = {
        "files": files,
        "bank": {run.name: sha256_file(run / GENERATIONS) for run in trial.bank},
        "model": read_manifest(trial.recorded).model_files,
        "source_sha256": source().sha256,
        "groups": trial.config.groups,
        "prompts": trial.prompts,
        "completions": trial.completions,
    }
    setup = canonical_json(facts)
    file = trial.out / _SETUP
    if file.is_file() and read_regular(file) == setup:
        return
    if trial.out.exists() and any(trial.out.iterdir()):
        raise ConfigError(f"{trial.out} holds something else: give another --out, or move it away")
    trial.out.mkdir(parents=True, exist_ok=True)
    write_atomically(file, setup)


def _behaviours(trial: Trial, bank: Sequence[BankPrompt], progress: Progress) -> dict[str, Behaviour]:
    """By checkpoint what it answered, and how likely it finds what others answered."""
    # It loads torch.
    from search_to_signal.layers.probe.answers import ProbeTask

    settings = msgspec.structs.replace(trial.config.generation, group_size=trial.completions)
    config = msgspec.structs.replace(trial.config, generation=settings)
    parents = {
        (run.name, group[0].step): group[0].parents for run in trial.bank for group in read_groups(run)
    }
    programs = {run.name: programs_of(run) for run in trial.bank}

    def kind(record: ProbeRecord) -> str:
        asked = bank[record.prompt]
        return programs[asked.run].kind(record, record.text, parents[asked.run, asked.step])

    found: dict[str, Behaviour] = {}
    for checkpoint in trial.checkpoints():
        file = trial.out / f"{checkpoint.name}.jsonl"
        if not file.is_file():
            answers_writer(config)(ProbeTask(config, checkpoint, trial.out, bank, file), progress)
        answers = list(read_records(file, ProbeRecord))
        found[checkpoint.name] = _shares([(record.prompt, kind(record)) for record in answers], len(bank))
    for name, likely in _likelihoods(trial, progress).items():
        found[name] = {**found[name], **likely}
    return found


def _shares(answers: Iterable[tuple[int, str]], prompts: int) -> Behaviour:
    """In percent of a prompt's answers (prompts,), those that are valid, and those of each class."""
    counts = np.zeros((len(KINDS), prompts))
    for prompt, kind in answers:
        counts[KINDS.index(kind), prompt] += 1
    percent = 100.0 * counts / counts.sum(axis=0)
    of_kind = {heading: percent[KINDS.index(kind)] for kind, heading in _HEADINGS.items()}
    return {VALID: 100.0 - percent[KINDS.index(FAILED)], **of_kind}


def _likelihoods(trial: Trial, progress: Progress) -> dict[str, Behaviour]:
    """By checkpoint and class, the mean log-probability per token of recorded completions, in nats."""
    from search_to_signal.models.device import prepare_processor
    from search_to_signal.models.likelihood import Drawing, Exchange, read_completions, read_lora
    from search_to_signal.run.learning import model_of_files

    prepare_processor(trial.config.threads)
    read = _recorded(trial)
    checkpoints = trial.checkpoints()
    loras = {
        one.name: None if one.adapter_sha256 is None else read_lora(trial.out / one.name / ADAPTER)
        for one in checkpoints
    }
    exchange = Exchange(model_of_files(trial.config))
    exchange.add(lora for lora in loras.values() if lora is not None)
    drawing = [Drawing(trial.config.generation.temperature)]
    found: dict[str, Behaviour] = {}
    for done, (name, lora) in enumerate(loras.items(), start=1):
        exchange.use(lora)
        found[name] = {
            f"Nats per token of {kind}": np.array(
                [
                    float(next(read_completions(exchange.model, prompt, [ids], drawing))[0][0].mean())
                    for prompt, ids in pairs
                ]
            )
            for kind, pairs in read.items()
        }
        progress.update(f"{trial.name}: recorded completions", done, len(loras))
    return found


def _recorded(trial: Trial) -> dict[str, list[tuple[Sequence[int], Sequence[int]]]]:
    """Prompt and completion of as many recorded completions of each class as the bank has prompts, spread."""
    found: dict[str, list[tuple[Sequence[int], Sequence[int]]]] = {kind: [] for kind in KINDS}
    for run in trial.bank:
        for group in credited_groups(run):
            for kind, ids in zip(group.kinds, group.texts.completion_ids, strict=True):
                found[kind].append((group.texts.prompt_ids, ids))
    return {
        kind: [every[at] for at in spread(len(every), min(len(every), trial.prompts))]
        for kind, every in found.items()
        if every
    }


# From behaviours to tables.


def _cells(behaviour: Behaviour) -> dict[str, Cell]:
    return {heading: _cell(values, heading) for heading, values in behaviour.items()}


def _cell(values: Floats, heading: str) -> Cell:
    """The mean with its standard error over prompts, or over completions that were read."""
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    decimals = 1 if heading.endswith("(%)") else 3
    return Cell(float(values.mean()), n, f"mean of {heading}", (), decimals, error)


def _minus(first: Behaviour, second: Behaviour) -> Behaviour:
    return {heading: values - second[heading] for heading, values in first.items()}


def _bought(trial: Trial, behaviours: Mapping[str, Behaviour]) -> list[Line]:
    """What each class bought, with all credit's effect and what single effects leave of it."""
    whole = behaviours[trial.place(NOTHING).name]
    effects = {
        variant: _minus(whole, behaviours[trial.place(variant).name])
        for variant in trial.variants
        if variant != NOTHING
    }
    shares = _credit_shares(trial)
    effects[ALL] = _minus(whole, behaviours[INITIAL])
    if set(KINDS) <= set(effects):
        effects[SINGLE] = {
            heading: sum((effects[kind][heading] for kind in KINDS), np.zeros(1)) for heading in whole
        }
        effects[RESIDUAL] = _minus(effects[ALL], effects[SINGLE])
    formula = "positive advantage that leaving it out takes away / positive advantage, in percent"
    return [
        (name, {_CREDIT: number_cell(shares.get(name), formula, decimals=1), **_cells(effect)})
        for name, effect in effects.items()
    ]


def _credit_shares(trial: Trial) -> dict[str, float | None]:
    """By variant, how much of the run's positive advantage leaving it out takes, in percent."""
    total, taken = 0.0, dict.fromkeys(trial.variants, 0.0)
    for group in credited_groups(trial.recorded):
        if group.group[0].step >= trial.config.groups:
            break
        positive = np.maximum(group.advantages, 0.0).sum()
        total += positive
        for variant in trial.variants:
            left = advantages_without(group.advantages, group.kinds, variant)
            taken[variant] += positive - np.maximum(left, 0.0).sum()
    return {variant: 100.0 * part / total if total else None for variant, part in taken.items()}


def _account(
    trial: Trial, bank: Sequence[BankPrompt], levels: Sequence[Line], bought: Sequence[Line]
) -> Account:
    steps = list(read_records(trial.recorded / STEPS, StepRecord))[: trial.config.groups]
    made = {one.name: one.adapter_sha256 for one in trial.checkpoints() if one.adapter_sha256}
    of_run: dict[str, list[int]] = {}
    for prompt in bank:
        of_run.setdefault(prompt.run, []).append(prompt.step)

    def plain(lines: Sequence[Line]) -> dict[str, Any]:
        return {
            name: {heading: (cell.number, cell.spread, cell.n) for heading, cell in cells.items()}
            for name, cells in lines
        }

    return Account(
        model=trial.config.model,
        model_files=read_manifest(trial.recorded).model_files,
        weights=_WEIGHTS,
        groups=len(steps),
        as_recorded=made[trial.place(NOTHING).name] == steps[-1].adapter_sha256,
        adapters=made,
        bank=of_run,
        completions=trial.completions,
        classes=dict(CLASSES),
        levels=plain(levels),
        bought=plain(bought),
    )


def _table(name: str, title: str, head: str, lines: Mapping[str, list[Line]], note: str) -> Table:
    """Rows over runs, where there are several, then those of each run."""
    rows = [(label(run, part), cells) for run, own in lines.items() for part, cells in own]
    if len(lines) > 1:
        by_part = {
            part: [dict(own)[part] for own in lines.values()] for part, _ in next(iter(lines.values()))
        }
        rows = [(part, combined_cells(cells, mean_cell)) for part, cells in by_part.items()] + rows
        note += f" Rows without a run's name are means over {len(lines)} runs ± their standard deviation."
    return table_of(name, title, head, rows, note)


def _page(trials: Sequence[Trial], levels: Mapping[str, list[Line]], bought: Mapping[str, list[Line]]) -> str:
    first = trials[0]
    note = (
        f"{first.prompts} prompts of runs of other seeds, {first.completions} answers to each; ± is the "
        "standard error over prompts, or over the recorded completions that were read."
    )
    tables = (
        _table("bought", "What each class of credit bought", "Class", bought, note),
        _table("levels", "How each adapter answers", "Adapter", levels, note),
    )
    meanings = "\n".join(f"- {name}: {meaning}" for name, meaning in CLASSES.items())
    parts = [f"## {table.title}\n\n{table.note}\n\n{to_markdown(table.text_rows())}" for table in tables]
    return "\n".join(["# Who taught what\n", f"{_WEIGHTS}\n\n{meanings}\n", *parts])
