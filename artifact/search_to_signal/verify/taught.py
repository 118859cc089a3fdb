"""Who taught what: a run's adapter made again with one class of credit left out, and how each then answers.

Every adapter answers the same prompts of runs of other seeds, from the same sampling seeds, and reads the
same recorded completions of those runs. What a class bought is the difference of the adapter of all credit to
the one without that class. The four classes of completions share all credit, so the interaction residual says
how far their single effects are from adding up.
"""

from collections.abc import Mapping, Sequence
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
from search_to_signal.records.probe import BANK, INITIAL, BankPrompt, Checkpoint, ProbeRecord
from search_to_signal.records.provenance import source
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, STEPS, read_groups, read_records
from search_to_signal.records.schema import StepRecord
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
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
    VALIDITY,
    classed_groups,
    left_out,
    programs_of,
)

PAGE, RESULT, _SETUP = "taught.md", "taught.json", "setup.json"
# The bank's prompts are of so many runs; each of them is replayed.
_BANK_RUNS = 4
VALID = "Valid (%)"
CREDIT = "Positive credit (%)"
ALL, SINGLE, RESIDUAL = "all credit", "sum of the four classes", "interaction residual"
WEIGHTS = (
    "Every adapter follows from the run's records and the model's files: the recorded tokens and advantages, "
    "some left out, through the run's learner. Nothing is sampled for training."
)

Behaviour = Mapping[str, Floats]
"""By column, a number of each prompt of the bank, or of each recorded completion that was read."""


@dataclass(frozen=True)
class Trial:
    """A run, and the runs of other seeds whose prompts and completions are the bank.

    ``variants`` are what is left out, ``nothing`` first. ``completions`` are drawn for each of ``prompts``,
    none where it is 0; so many recorded completions of each class as there are prompts are read.
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
        """Where the adapter without it is."""
        return self.out / f"without-{variant}"

    def checkpoints(self) -> list[Checkpoint]:
        """The model without adapter, and the adapter of each variant."""
        made: dict[str, str | None] = {INITIAL: None}
        for variant in self.variants:
            file = self.place(variant) / ADAPTER / "adapter_model.safetensors"
            made[self.place(variant).name] = tensors_sha256(file)
        condition, seed = self.config.condition, self.config.seed
        return [
            Checkpoint(name=name, condition=condition, seed=seed, adapter_sha256=sha256)
            for name, sha256 in made.items()
        ]


def bank_runs(directory: Path, name: str) -> list[str]:
    """Names of runs of other seeds beside a run, whose prompts are the bank: frozen ones where there are any.

    Raises ConfigError where there is none.
    """
    own, beside = read_manifest(directory / name).facts, (directory / name).parent
    found: dict[bool, list[tuple[int, Path]]] = {}
    for run in runs_below(beside):
        manifest = read_manifest(run)
        other = manifest.facts
        same = (other.problem, other.model) == (own.problem, own.model)
        if manifest.status == "complete" and same and other.seed != own.seed:
            found.setdefault(other.condition == FROZEN, []).append((other.seed, run))
    if not found:
        raise ConfigError(f"{name} has no run of another seed beside it, whose prompts it could answer")
    chosen = sorted(found[max(found)])[:_BANK_RUNS]
    return [run.relative_to(directory).as_posix() for _, run in chosen]


def who_taught(trials: Sequence[Trial], out: Path, jobs: int, progress: Progress) -> Path:
    """Make the adapters, have them answer, and write result and page; returns the page.

    What an interrupted command made is kept. Raises ConfigError for a run of another rule than one that reads
    advantages only, where a trial's directory is of something else, and what retraining and sampling raise.
    """
    for trial in trials:
        _begin(trial)
    planned = [
        PlannedRun(trial.config, trial.place(variant), recorded=trial.recorded, without=variant)
        for trial in trials
        for variant in trial.variants
        if not (trial.place(variant) / ADAPTER / "adapter_config.json").is_file()  # written last
    ]
    execute(planned, Execution(jobs=jobs, resume=True), progress)
    levels, bought = dict[str, list[Line]](), dict[str, list[Line]]()
    for trial in trials:
        answered, read = _answered(trial, progress), _read(trial, progress)
        found = {name: {**behaviour, **read[name]} for name, behaviour in answered.items()}
        levels[trial.name] = [(name, _cells(behaviour)) for name, behaviour in found.items()]
        bought[trial.name] = _bought(trial, found)
    tables = (
        _table("bought", "What each class of credit bought", "Class", bought),
        _table("levels", "How each adapter answers", "Adapter", levels),
    )
    facts = {
        "weights": WEIGHTS,
        "classes": CLASSES,
        "runs": {trial.name: _facts(trial) for trial in trials},
        "tables": {table.name: table for table in tables},
    }
    write_atomically(out / RESULT, msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    meanings = "\n".join(f"- {name}: {meaning}" for name, meaning in CLASSES.items())
    parts = [f"## {table.title}\n\n{table.note}\n\n{to_markdown(table.text_rows())}" for table in tables]
    page = "\n".join(["# Who taught what\n", f"{WEIGHTS}\n\n{meanings}\n", *parts])
    write_atomically(out / PAGE, page.encode())
    return out / PAGE


def _begin(trial: Trial) -> None:
    """Claim a trial's directory, or find that it was begun with the same records, model and source."""
    rule = trial.config.learning_rule
    if reads_records(get_rule(rule)):
        raise ConfigError(f"{trial.name}: rule {rule} may learn from more than advantages: name runs of grpo")
    runs = (trial.recorded, *trial.bank)
    setup = canonical_json(
        {
            "records": [[sha256_file(run / name) for name in (COMPLETIONS, GENERATIONS)] for run in runs],
            "model_files": read_manifest(trial.recorded).model_files,
            "source_sha256": source().sha256,
            "sizes": [trial.config.groups, trial.prompts, trial.completions],
        }
    )
    file = trial.out / _SETUP
    if file.is_file() and read_regular(file) == setup:
        return
    if trial.out.exists() and any(trial.out.iterdir()):
        raise ConfigError(f"{trial.out} holds something else: give another --out, or move it away")
    trial.out.mkdir(parents=True, exist_ok=True)
    if trial.completions:
        bank = build_bank(dict(trial.bank), trial.prompts)
        lines = [msgspec.json.encode(prompt) + b"\n" for prompt in bank]
        write_atomically(trial.out / BANK, b"".join(lines))
    write_atomically(file, setup)


def _answered(trial: Trial, progress: Progress) -> dict[str, Behaviour]:
    """By checkpoint, percent of each prompt's answers (prompts,) that are valid, and of each class."""
    if not trial.completions:
        return {one.name: {} for one in trial.checkpoints()}
    # It loads torch.
    from search_to_signal.layers.probe.answers import ProbeTask

    settings = msgspec.structs.replace(trial.config.generation, group_size=trial.completions)
    config = msgspec.structs.replace(trial.config, generation=settings)
    bank = list(read_records(trial.out / BANK, BankPrompt))
    programs = {run.name: programs_of(run) for run in trial.bank}
    parents = {
        (run.name, group[0].step): group[0].parents for run in trial.bank for group in read_groups(run)
    }
    found: dict[str, Behaviour] = {}
    for checkpoint in trial.checkpoints():
        file = trial.out / f"{checkpoint.name}.jsonl"
        if not file.is_file():
            answers_writer(config)(ProbeTask(config, checkpoint, trial.out, bank, file), progress)
        counts = np.zeros((len(KINDS), len(bank)))
        for record in read_records(file, ProbeRecord):
            asked = bank[record.prompt]
            kind = programs[asked.run].kind(record, record.text, parents[asked.run, asked.step])
            counts[KINDS.index(kind), record.prompt] += 1
        percent = dict(zip(KINDS, 100.0 * counts / counts.sum(axis=0), strict=True))
        valid = {f"{kind.capitalize()} (%)": percent[kind] for kind in KINDS if kind != FAILED}
        found[checkpoint.name] = {VALID: sum(valid.values(), np.zeros(len(bank))), **valid}
    return found


def _read(trial: Trial, progress: Progress) -> dict[str, Behaviour]:
    """By checkpoint and class, the mean log-probability per token of recorded completions, in nats."""
    from search_to_signal.models.device import prepare_processor
    from search_to_signal.models.sampling import Drawing, Exchange, read_completions, read_lora
    from search_to_signal.run.learning import model_of_files

    texts: dict[str, list[tuple[Sequence[int], Sequence[Sequence[int]]]]] = {kind: [] for kind in KINDS}
    for run in trial.bank:
        for _, generation, kinds in classed_groups(run):
            for kind, ids in zip(kinds, generation.completion_ids, strict=True):
                texts[kind].append((generation.prompt_ids, [ids]))
    prepare_processor(trial.config.threads)
    exchange = Exchange(model_of_files(trial.config))
    places = [trial.place(variant) for variant in trial.variants]
    adapters = {place.name: read_lora(place / ADAPTER) for place in places}
    exchange.add(adapters.values())
    drawing = [Drawing(trial.config.generation.temperature)]
    found: dict[str, dict[str, Floats]] = {name: {} for name in (INITIAL, *adapters)}
    for done, (name, means) in enumerate(found.items(), start=1):
        exchange.use(adapters.get(name))
        for kind, every in texts.items():
            chosen = [every[at] for at in spread(len(every), min(len(every), trial.prompts))]
            reads = [next(read_completions(exchange.model, *text, drawing)) for text in chosen]
            of_each = [float(read[0].log_probability.mean()) for read in reads]
            means[f"Nats per token of {kind}"] = np.array(of_each)
        progress.update(f"{trial.name}: recorded completions", done, len(found))
    return dict(found)


def _cells(behaviour: Behaviour) -> Cells:
    cells = {}
    for heading, values in behaviour.items():
        n, decimals = len(values), 1 if heading.endswith("(%)") else 3
        mean = float(values.mean()) if n else None
        error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None
        cells[heading] = Cell(mean, n, f"mean of {heading}", (), decimals, error)
    return cells


def _minus(first: Behaviour, second: Behaviour) -> Behaviour:
    return {heading: values - second[heading] for heading, values in first.items()}


def _bought(trial: Trial, found: Mapping[str, Behaviour]) -> list[Line]:
    """What each class bought, with all credit's effect and what single effects leave of it."""
    whole = found[trial.place(NOTHING).name]
    left_out = [variant for variant in trial.variants if variant != NOTHING]
    effects = {variant: _minus(whole, found[trial.place(variant).name]) for variant in left_out}
    effects[ALL] = residual = _minus(whole, found[INITIAL])
    if set(KINDS) <= set(left_out):
        for kind in KINDS:
            residual = _minus(residual, effects[kind])
        effects[SINGLE], effects[RESIDUAL] = _minus(effects[ALL], residual), residual
    credit = _credit(trial)
    formula = "positive advantage of these completions / of all, in percent"
    return [
        (name, {CREDIT: number_cell(credit.get(name), formula, decimals=1), **_cells(effect)})
        for name, effect in effects.items()
    ]


def _credit(trial: Trial) -> dict[str, float | None]:
    """By variant, the share of the run's positive advantage that its completions have, in percent.

    None for what no completions have of their own, such as the contrast of valid and failed ones.
    """
    of_variant, total = dict.fromkeys(trial.variants, 0.0), 0.0
    for group, _, kinds in classed_groups(trial.recorded):
        if group[0].step < trial.config.groups:
            positive = np.maximum(np.array([record.advantage for record in group], dtype=np.float64), 0.0)
            total += float(positive.sum())
            for variant in of_variant:
                of_variant[variant] += float(positive[left_out(kinds, variant)].sum())
    return {
        variant: 100.0 * part / total if total and variant != VALIDITY else None
        for variant, part in of_variant.items()
    }


def _facts(trial: Trial) -> dict[str, Any]:
    """What the adapters of a trial are, and whether that of all credit is the recorded one, bit by bit."""
    steps = list(read_records(trial.recorded / STEPS, StepRecord))[: trial.config.groups]
    made = {one.name: one.adapter_sha256 for one in trial.checkpoints()}
    return {
        "model": trial.config.model,
        "model_files": read_manifest(trial.recorded).model_files,
        "groups": len(steps),
        "as_recorded": steps[-1].adapter_sha256 == made[trial.place(NOTHING).name],
        "adapters": made,
        "bank": [run.name for run in trial.bank],
    }


def _table(name: str, title: str, head: str, lines: Mapping[str, list[Line]]) -> Table:
    rows = [(label(run, part), cells) for run, own in lines.items() for part, cells in own]
    note = "± is the standard error over prompts, or over the recorded completions that were read."
    if len(lines) > 1:
        parts = [part for part, _ in next(iter(lines.values()))]
        over = [
            (part, combined_cells([dict(own)[part] for own in lines.values()], mean_cell)) for part in parts
        ]
        rows, note = over + rows, f"{note} Rows of no run: mean ± standard deviation of {len(lines)} runs."
    return table_of(name, title, head, rows, note)
