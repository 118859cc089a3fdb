"""What an embedded model does on prompts from combinations that its training never saw."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recipe.pairs import PairSource, ShownParent, draw_prompt, sources
from recipe.training import Recipe, TrainingFacts, read_training_facts
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.models.base import GenerationSettings
from search_to_signal.models.device import prepare_processor
from search_to_signal.models.files import CHECKSUMS
from search_to_signal.models.local import LocalGenerator, load_model, load_tokenizer
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.schema import ANY_FENCE, Operator, Outcome
from search_to_signal.report.tables.cells import to_markdown
from search_to_signal.run.group import EvaluatedCompletion, evaluate_group
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import program_sha256
from search_to_signal.sandbox.settings import EvaluationSettings

PROMPTS = 96
_SETTINGS = GenerationSettings(group_size=4, max_prompt_tokens=1024, max_completion_tokens=320)
_LIMITS = EvaluationSettings(timeout_s=5.0, memory_mb=256)


class ProblemCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Answers for one problem, as fractions of 1. ``improving`` is over all completions that had a parent;
    ``novel`` over valid ones, for a program equal to none of its parents; ``distinct`` is distinct programs
    per valid one.
    """

    outcomes: dict[str, float]
    valid_by_operator: dict[str, float]
    improving: float
    novel: float
    distinct: float


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model's size and its answers; ``prompts`` and ``completions`` are per problem."""

    name: str
    parameters: int
    prompts: int
    completions: int
    problems: dict[str, ProblemCard]


@dataclass(frozen=True)
class _Sample:
    operator: Operator
    parents: tuple[ShownParent, ...]
    evaluated: EvaluatedCompletion
    best_parent: float | None

    @property
    def improves(self) -> bool:
        score, best = self.evaluated.score, self.best_parent
        return score is not None and best is not None and score > best

    @property
    def novel(self) -> bool:
        return self.evaluated.program not in {program_sha256(parent.code) for parent in self.parents}


def _samples(
    source: PairSource,
    generator: LocalGenerator,
    pool: EvaluationPool,
    seed: int,
    prompts: int,
    progress: Progress,
) -> list[_Sample]:
    rng, samples = stream(seed, "card", source.problem.name), []
    for number in range(prompts):
        prompt, operator, _, parents = draw_prompt(source, rng, wanted_held_out=True)
        generation = generator.generate(prompt, derive_seed(seed, "card", source.problem.name, number))
        scores = [e.score for e in pool.evaluate([parent.code for parent in parents])]
        best = max((score for score in scores if score is not None), default=None)
        evaluated = evaluate_group(generation.completions, pool, ANY_FENCE)
        samples += [_Sample(operator, parents, item, best) for item in evaluated]
        progress.update(f"card {source.problem.name}", number + 1, prompts)
    return samples


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _problem_card(samples: Sequence[_Sample]) -> ProblemCard:
    outcomes = Counter(sample.evaluated.outcome.value for sample in samples)
    by_operator: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        by_operator[sample.operator].append(sample.evaluated.score is not None)
    valid = [sample for sample in samples if sample.evaluated.score is not None]
    return ProblemCard(
        outcomes={name: count / len(samples) for name, count in sorted(outcomes.items())},
        valid_by_operator={operator: _share(flags) for operator, flags in sorted(by_operator.items())},
        improving=_share([sample.improves for sample in samples if sample.parents]),
        novel=_share([sample.novel for sample in valid]),
        distinct=len({sample.evaluated.program for sample in valid}) / max(1, len(valid)),
    )


def measure(recipe: Recipe, directory: Path, progress: Progress, prompts: int = PROMPTS) -> Card:
    """Sample held-out prompts of every problem of the recipe and evaluate the answers."""
    prepare_processor(recipe.threads)
    model = load_model(directory)
    generator = LocalGenerator(model, load_tokenizer(directory), _SETTINGS)
    cards = {}
    for source in sources(list(recipe.problems)):
        with EvaluationPool(source.problem, "embedded", _LIMITS) as pool:
            samples = _samples(source, generator, pool, recipe.seed, prompts, progress)
        cards[source.problem.name] = _problem_card(samples)
    return Card(
        name=recipe.name,
        parameters=model.num_parameters(),
        prompts=prompts,
        completions=prompts * _SETTINGS.group_size,
        problems=cards,
    )


def _rows(card: ProblemCard) -> dict[str, float]:
    outcomes = {outcome.value: card.outcomes.get(outcome.value, 0.0) for outcome in Outcome}
    return {
        "valid": outcomes.pop(Outcome.VALID.value),
        **{f"outcome {name}": share for name, share in outcomes.items()},
        **{f"valid, {name}": share for name, share in card.valid_by_operator.items()},
        "better than the best parent, of all completions with a parent": card.improving,
        "valid and equal to no parent, of valid ones": card.novel,
        "distinct programs per valid completion": card.distinct,
    }


def _table(cards: Mapping[str, ProblemCard]) -> str:
    columns = [_rows(card) for card in cards.values()]
    lines = [["held-out prompts", *cards]]
    for name in dict.fromkeys(name for rows in columns for name in rows):
        lines.append([name, *(f"{100 * rows[name]:.1f} %" if name in rows else "" for rows in columns)])
    return to_markdown(lines)


def _training(made: TrainingFacts) -> str:
    return (
        f"{made.processor}, torch {made.torch}, {made.seconds / 60:.1f} minutes, "
        f"{made.examples / made.seconds:,.0f} pairs per second"
    )


def _page(card: Card, recipe: Recipe, made: TrainingFacts) -> str:
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in recipe.problems.items())
    return f"""# {card.name}

A small language model made for this artifact: {recipe.architecture.model_type} architecture,
{card.parameters:,} parameters, vocabulary {recipe.vocabulary_size}. It writes heuristics for
{", ".join(recipe.problems)} and nothing else, and plays the part of the paper's 7B models through the
same code. No result with it is a 7B result.

It was trained from nothing on {made.examples:,} prompt-response pairs that the grammar in
`search_to_signal/problems/grammar.py` generates ({shares}).
Where: {_training(made)}.
Training again by `recipe.toml` with another device or torch gives a model of the same recipe, not the same
bytes. A planted share of the answers carries a defect, so that there is something to learn.

One in ten combinations of terms was kept out of training; these numbers are measured on prompts whose
parents are such combinations ({card.prompts} prompts and {card.completions} completions per problem,
temperature {_SETTINGS.temperature}).

{_table(card.problems)}
Made by `s2s pretrain recipe.toml --out DIR`, measured by `s2s card DIR` (card.json).
Licence: that of the artifact. All training text is generated by the artifact itself.
"""


def write_card(recipe: Recipe, directory: Path, progress: Progress, prompts: int = PROMPTS) -> Card:
    """Measure the model of a directory; write card.json, README.md and SHA256SUMS next to it."""
    card = measure(recipe, directory, progress, prompts)
    text = msgspec.json.format(msgspec.json.encode(card, order="sorted"), indent=2)
    (directory / "card.json").write_bytes(text + b"\n")
    (directory / "README.md").write_text(
        _page(card, recipe, read_training_facts(directory)), encoding="utf-8"
    )
    files = [p for p in sorted(directory.iterdir()) if p.is_file() and p.name not in (CHECKSUMS, "README.md")]
    (directory / CHECKSUMS).write_text("".join(f"{sha256_file(path)}  {path.name}\n" for path in files))
    return card
