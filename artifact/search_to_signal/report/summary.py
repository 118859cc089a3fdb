"""The summary on top of a page, the facts of its runs, and pictures within it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.package_data import MODELS
from search_to_signal.base.progress import counted
from search_to_signal.credit import OURS, OURS_NOTE
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.conditions import Condition
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import Manifest, read_manifest, runs_below
from search_to_signal.records.schema import HeuristicRecord
from search_to_signal.report.tables.catalogue import Evidence
from search_to_signal.report.tables.cells import Cell, Table
from search_to_signal.report.tables.credit import CHANGED

# The summary on top of the page: answers to three questions, each with its n, and the best lineage.

FIGURE = "learner_path"
_ENDPOINT = "Final best"
_BETTER = " minus frozen/better"


@dataclass(frozen=True)
class PageFinding:
    """An answer as text, the commands that trace it to records, and what would falsify it."""

    question: str
    answer: str
    commands: tuple[str, ...]
    falsifier: str


def build_findings(evidence: Evidence) -> list[PageFinding]:
    """Return the questions that the directory's tables answer; none for a smoke run."""
    if evidence.results.smoke:
        return []
    return [*_answer_signal(evidence), *_answer_normalizer(evidence), *_answer_search(evidence)]


def _answer_signal(evidence: Evidence) -> Iterator[PageFinding]:
    parts = [*_describe_separation(evidence), *_describe_updates(evidence)]
    if parts:
        yield PageFinding(
            "Does the choice of reward reach the learner?",
            " ".join(answer for answer, _ in parts),
            tuple(command for _, command in parts),
            "More groups that the mappings do not tell apart, or cosines near 1.",
        )


def _describe_separation(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """How often and how nearly two mappings give a group the same advantages, and the command."""
    table = evidence.tables.get("replay_pairs")
    if table is None:
        return
    trained = {run.facts.mapping for run in evidence.results.cohort if run.trained}
    rows = {}
    for row in table.rows:
        place, _, pair = row.label.partition("/")
        first, _, second = pair.partition(", ")
        if place == "cohort" and {first, second} <= trained:
            rows[f"{first} and {second}"] = row.label
    if not rows:
        return

    def across(column: str) -> list[tuple[str, Cell]]:
        cells = ((name, table.cell(row, column)) for name, row in rows.items())
        return [(name, replace(cell, decimals=min(cell.decimals, 3))) for name, cell in cells]

    equal_shares = across("Equivalent (%)")
    groups = " or ".join(sorted({str(cell.n) for _, cell in equal_shares}))
    built, equal = (
        sum(int(cell.number or 0) for _, cell in across(column))
        for column in ("By construction", "Equivalent")
    )
    yield (
        f"Two mappings give equal advantages (to 0.001) in {_format_range(equal_shares)} of the same "
        f"{groups} groups. Equal by construction, as shifted and scaled images or flat, are "
        f"{built} of {equal} over all pairs. "
        f"Within 0.05 are {_format_range(across('Within 0.05 (%)'))}, in another order or with other ties "
        f"{_format_range(across('Order changes (%)'))}; the median of a group's largest difference is "
        f"{_format_range(across('Median difference'), '')}.",
        _trace_command(table),
    )


def _describe_updates(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """The cosines between updates by two mappings, and the command."""
    table = evidence.tables.get("matched_mappings")
    cells = [] if table is None else [table.cell(row.label, "Cosine") for row in table.rows]
    known = [(cell.number, cell.n) for cell in cells if cell.number is not None]
    if table is not None and known:
        low, high = min(value for value, _ in known), max(value for value, _ in known)
        yield (
            f"Matched updates by two mappings, from one adapter on the same tokens: mean cosines from "
            f"{low:.2f} to {high:.2f} in {len(known)} cells and kinds of update, "
            f"{sum(n for _, n in known)} comparisons in all. A cosine of 1 is the same direction.",
            _trace_command(table),
        )


def _answer_normalizer(evidence: Evidence) -> Iterator[PageFinding]:
    table = evidence.tables.get("reward_changes")
    if table is None:
        return
    trained = dict.fromkeys(run.condition for run in evidence.results.cohort if run.trained)
    changes = (
        f"{name}: {_format_range([(condition, table.cell(condition, column)) for condition in trained])}"
        for name, column in CHANGED.items()
    )
    seeds = max(cell.n for row in table.rows for cell in row.cells)
    yield PageFinding(
        "What of a reward does the normalizer erase?",
        f"Groups whose advantages move when their rewards are changed, by reward, over "
        f"{counted(seeds, 'seed')}: {'; '.join(changes)}. A shift adds the group's frontier.",
        (_trace_command(table),),
        "Groups that move under a shift.",
    )


def _answer_search(evidence: Evidence) -> Iterator[PageFinding]:
    table = evidence.tables.get("paired_signs")
    better = [row.label for row in table.rows if row.label.endswith(_BETTER)] if table else []
    if table is None or not better:
        return
    gap = evidence.results.partial.gaps.get(COHORT)
    if gap is not None and not gap.closed:
        # Then none are counted yet.
        answer = f"Seeds are awaited, so this is not counted yet: {COHORT} {gap.words}."
    else:
        cells = [(name.removesuffix(_BETTER), table.cell(name, _ENDPOINT)) for name in better]
        counts = (f"{name} in {cell.text()} of {counted(cell.n, 'seed')}" for name, cell in cells)
        answer = f"After equally many groups, ended above frozen: {', '.join(counts)}."
        answer += _describe_anchor(evidence)
        if (least := 2.0 ** (1 - max(cell.n for _, cell in cells))) > 0.05:
            answer += f" A sign test over these seeds cannot go below p = {min(1.0, least):.2g}."
    yield PageFinding(
        "Did search get better than without training?",
        answer,
        (_trace_command(table),),
        "More seeds, and the same comparison at equal time.",
    )


def _describe_anchor(evidence: Evidence) -> str:
    table = evidence.tables.get("anchor")
    conditions = {run.condition for run in evidence.results.cohort}
    labels = [row.label for row in table.rows if row.label in conditions] if table else []
    if table is None or not labels:
        return ""
    cells = ((name, table.cell(name, "Final difference")) for name in labels)
    gains = ", ".join(f"{name} {cell.text()} (n = {cell.n})" for name, cell in cells)
    return f" Given the time that training took, the difference to frozen is {gains}."


def _format_range(cells: list[tuple[str, Cell]], unit: str = " %") -> str:
    """Format the smallest and the largest share, each with its name; without names where all are equal."""
    known = sorted(
        (cell.number, f"{cell.text()}{unit}", name) for name, cell in cells if cell.number is not None
    )
    if not known:
        return "none that is known"
    (_, least, first), (_, most, last) = known[0], known[-1]
    if len(known) == 1:
        return f"{least} ({first})"
    return least if least == most else f"{least} ({first}) to {most} ({last})"


def _trace_command(table: Table) -> str:
    return f"s2s trace . {table.name}"


@dataclass(frozen=True)
class Lineage:
    """The chain from the seed heuristic to the best one of a run, in that order.

    Each ancestor is a parent of the next: of several parents the one with the best score, the first of
    equal ones.
    """

    run: str
    ancestors: tuple[HeuristicRecord, ...]

    @property
    def seed(self) -> HeuristicRecord:
        """The seed heuristic."""
        return self.ancestors[0]

    @property
    def best(self) -> HeuristicRecord:
        """The best heuristic of the run."""
        return self.ancestors[-1]


def find_best_lineage(evidence: Evidence) -> Lineage | None:
    """Return the lineage of the cohort's best heuristic, the first of equal ones.

    None where the runs keep no heuristics.
    """
    kept = [run for run in evidence.results.cohort if run.heuristics]
    best = [max(run.heuristics, key=lambda record: record.score) for run in kept]
    if not best:
        return None
    run, last = max(zip(kept, best, strict=True), key=lambda pair: pair[1].score)
    parents = {(record.step, record.index): record.parents for group in run.groups for record in group}
    known: dict[str, HeuristicRecord] = {}
    for record in run.heuristics:
        known.setdefault(record.id, record)
    chain = [last]
    while chain[-1].operator is not None:
        child = chain[-1]
        stored_parents = [known[name] for name in parents.get((child.step, child.index), ()) if name in known]
        # Without this check a forged parent of a later step would make an endless loop.
        earlier = [record for record in stored_parents if record.operator is None or record.step < child.step]
        if not earlier:
            break
        chain.append(max(earlier, key=lambda record: record.score))
    return Lineage(run.path, tuple(reversed(chain)))


# Facts of the runs from their manifests: models, machine, software and time; no results.

CARD = "card.json"
_TIMES = (
    *("Run", "Groups", "Seconds", "Groups/min"),
    *("Generation (%)", "Evaluation (%)", "Update (%)", "Else (%)"),
)
_PACKAGES = ("torch", "transformers", "trl", "peft", "unsloth", "vllm", "bitsandbytes", "numpy", "numba")


class ProblemOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of outcomes of an embedded model on one problem, as fractions of 1."""

    outcomes: dict[str, float]


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an embedded model's card that the page shows; ``completions`` are per problem."""

    parameters: int
    completions: int
    problems: dict[str, ProblemOutcomes]


@dataclass(frozen=True)
class Facts:
    """The manifests of a results directory by run path, and the cards of the runs' models."""

    runs: Mapping[str, Manifest]
    cards: Mapping[str, ModelCard | None]

    @property
    def embedded(self) -> bool:
        """Whether every model is one of the small ones that this artifact ships."""
        return all(card is not None for card in self.cards.values())


def read_facts(directory: Path) -> Facts:
    """Read the manifests of all layers; raises RunDirectoryError or ModelFileError for an unreadable file."""
    runs = {run.relative_to(directory).as_posix(): read_manifest(run) for run in runs_below(directory)}
    models = {manifest.facts.model: manifest for manifest in runs.values()}
    cards: dict[str, ModelCard | None] = {}
    for name, manifest in sorted(models.items()):
        # The card that the run recorded, where that is here.
        path, recorded = MODELS / name / CARD, manifest.model_files.get(CARD)
        cards[name] = None
        if recorded is not None and path.is_file() and sha256_file(path) == recorded:
            try:
                cards[name] = msgspec.json.decode(path.read_bytes(), type=ModelCard)
            except msgspec.MsgspecError as error:
                raise ModelFileError(f"cannot read {path}: {error}; make it again with s2s card") from error
    return Facts(runs, cards)


def describe(facts: Facts) -> list[tuple[str, str]]:
    """Return (heading, text) of the facts of the runs; values that differ are listed."""
    manifests = list(facts.runs.values())
    conditions = [Condition.parse(str(manifest.config["condition"])) for manifest in manifests]

    def listed(text_of: Callable[[Manifest], str]) -> str:
        return "; ".join(dict.fromkeys(map(text_of, manifests)))

    return [
        ("Runs", f"{len(manifests)}, all of them complete"),
        ("Models", "; ".join(dict.fromkeys(_model(name, card) for name, card in facts.cards.items()))),
        *([("Own mapping", OURS_NOTE)] if any(one.mapping in OURS for one in conditions) else []),
        ("Host", listed(_host)),
        ("Source", listed(_source)),
        ("Machine", listed(_machine)),
        ("Software", listed(_software)),
        ("Isolation of candidates", listed(_isolation)),
        ("Time", f"{_loops(manifests)} in the loops of the runs, set-up excluded"),
        ("Interruptions", str(sum(m.interruptions for m in manifests))),
    ]


def layer_times(manifests: Iterable[Manifest]) -> dict[str, tuple[int, str]]:
    """Return the number of runs and the time of their loops, by layer."""
    by_layer: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_layer.setdefault(manifest.facts.layer, []).append(manifest)
    return {name: (len(same), _loops(same)) for name, same in by_layer.items()}


def time_rows(runs: Mapping[str, Manifest]) -> list[list[str]]:
    """Return run, groups, seconds, groups per minute and shares of phases; the first row is the heading."""
    rows = [list(_TIMES)]
    for path, manifest in runs.items():
        timing = manifest.timing
        if timing is not None and timing.total > 0:
            parts = (timing.generation, timing.evaluation, timing.update, timing.other)
            shares = [f"{100 * part / timing.total:.1f}" for part in parts]
            speed = [f"{timing.total:.1f}", f"{timing.groups_per_minute:.1f}"]
            rows.append([path, str(manifest.facts.groups), *speed, *shares])
    return rows


def format_duration(seconds: float) -> str:
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _loops(manifests: Sequence[Manifest]) -> str:
    known = [manifest.timing.total for manifest in manifests if manifest.timing is not None]
    missing = "" if len(known) == len(manifests) else f" ({len(manifests) - len(known)} without timing)"
    return f"{format_duration(sum(known))}{missing}" if known else "not recorded"


def _model(name: str, card: ModelCard | None) -> str:
    if card is None:
        return f"{name} (no card of these files is here)"
    valid = [f"{100 * c.outcomes.get('valid', 0.0):.1f} % {p}" for p, c in sorted(card.problems.items())]
    return (
        f"{name}, {card.parameters:,} parameters, made for this artifact; before any update, valid of "
        f"{card.completions} held-out completions: {', '.join(valid)}"
    )


def _host(manifest: Manifest) -> str:
    if manifest.checkout is None:
        return manifest.host
    at = manifest.checkout.revision
    return f"{manifest.host} ({f'revision {at[:12]}' if at else 'of unknown revision'})"


def _source(manifest: Manifest) -> str:
    state = {True: "", False: ", changed since", None: ""}[manifest.source.clean]
    commit = f" (commit {manifest.source.commit[:12]}{state})" if manifest.source.commit else ""
    return f"SHA-256 {manifest.source.sha256}{commit}"


def _machine(manifest: Manifest) -> str:
    environment = manifest.environment
    memory = f"{environment.memory_mib / 1024:.0f} GiB"
    system = f"{environment.system} {environment.kernel}, {environment.libc}"
    parts = [environment.cpu, f"{environment.cpu_count} cores", memory, system]
    if (card := environment.accelerator) is not msgspec.UNSET:
        parts.append(f"{card.kind}, {card.memory_mib / 1024:.0f} GiB, driver {card.driver}")
    return ", ".join(parts)


def _software(manifest: Manifest) -> str:
    environment = manifest.environment
    packages = [
        f"{name} {environment.packages[name]}" for name in _PACKAGES if environment.packages.get(name)
    ]
    return ", ".join([f"Python {environment.python}", *packages])


def _isolation(manifest: Manifest) -> str:
    held = [name.replace("_", " ") for name, value in sorted(manifest.isolation.items()) if value is True]
    return ", ".join(held) or "not recorded"
