"""What an embedded model does on prompts from combinations that its training never saw."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from search_to_signal.corpus.pairs import Parent, Source, draw_prompt
from search_to_signal.corpus.recipe import sources
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.experiments.group import Judged, judge
from search_to_signal.experiments.pretraining import Recipe
from search_to_signal.generators.base import GenerationSettings
from search_to_signal.generators.files import CHECKSUMS
from search_to_signal.generators.local import LocalGenerator, load_model, load_tokenizer
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.schema import Operator
from search_to_signal.seeding import derive_seed, stream

PROMPTS = 96
_SETTINGS = GenerationSettings(group_size=4, max_prompt_tokens=1024, max_completion_tokens=320)
_LIMITS = EvaluationSettings(timeout_s=5.0, memory_mb=256)


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shares are fractions of 1. ``improving`` is over all completions that had a parent; ``novel`` over
    valid ones, for a program equal to none of its parents; ``distinct`` is distinct programs per valid one.
    """

    name: str
    parameters: int
    prompts: int
    completions: int
    outcomes: dict[str, float]
    valid_by_operator: dict[str, float]
    improving: float
    novel: float
    distinct: float


@dataclass(frozen=True)
class _Sample:
    operator: Operator
    parents: tuple[Parent, ...]
    judged: Judged
    best_parent: float | None


def _samples(
    source: Source, generator: LocalGenerator, pool: EvaluationPool, seed: int, progress: Progress
) -> list[_Sample]:
    rng, samples = stream(seed, "card", source.problem.name), []
    for number in range(PROMPTS):
        prompt, operator, _, parents = draw_prompt(source, rng, wanted_held_out=True)
        generation = generator.generate(prompt, derive_seed(seed, "card", source.problem.name, number))
        scores = [e.score for e in pool.evaluate([parent.code for parent in parents])]
        best = max((score for score in scores if score is not None), default=None)
        judged = judge(generation.completions, pool)
        samples += [_Sample(operator, parents, item, best) for item in judged]
        progress.update(f"card {source.problem.name}", number + 1, PROMPTS)
    return samples


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _improves(sample: _Sample) -> bool:
    score, best = sample.judged.score, sample.best_parent
    return score is not None and best is not None and score > best


def _novel(sample: _Sample) -> bool:
    return sample.judged.program not in {program_sha256(parent.code) for parent in sample.parents}


def _card(name: str, parameters: int, samples: Sequence[_Sample]) -> Card:
    outcomes = Counter(sample.judged.outcome.value for sample in samples)
    by_operator: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        by_operator[sample.operator.value].append(sample.judged.score is not None)
    valid = [sample for sample in samples if sample.judged.score is not None]
    return Card(
        name=name,
        parameters=parameters,
        prompts=len(samples) // _SETTINGS.group_size,
        completions=len(samples),
        outcomes={name: count / len(samples) for name, count in sorted(outcomes.items())},
        valid_by_operator={operator: _share(flags) for operator, flags in sorted(by_operator.items())},
        improving=_share([_improves(sample) for sample in samples if sample.parents]),
        novel=_share([_novel(sample) for sample in valid]),
        distinct=len({sample.judged.program for sample in valid}) / max(1, len(valid)),
    )


def measure(recipe: Recipe, directory: Path, progress: Progress) -> Card:
    """Sample held-out prompts of every problem of the recipe and judge the answers."""
    torch.set_num_threads(recipe.threads)
    model = load_model(directory)
    generator = LocalGenerator(model, load_tokenizer(directory), _SETTINGS)
    samples = []
    for source in sources(recipe.problems):
        with EvaluationPool(source.problem, "embedded", _LIMITS) as pool:
            samples += _samples(source, generator, pool, recipe.seed, progress)
    return _card(recipe.name, model.num_parameters(), samples)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _page(card: Card, recipe: Recipe) -> str:
    rows = [("valid", card.outcomes.get("valid", 0.0))]
    rows += [(f"outcome {name}", share) for name, share in card.outcomes.items() if name != "valid"]
    rows += [(f"valid, {name}", share) for name, share in card.valid_by_operator.items()]
    rows += [
        ("better than the best parent, of all completions with a parent", card.improving),
        ("valid and equal to no parent, of valid ones", card.novel),
        ("distinct programs per valid completion", card.distinct),
    ]
    table = "".join(f"| {name} | {_percent(share)} |\n" for name, share in rows)
    return f"""# {card.name}

A small language model made for this artifact: {recipe.architecture.model_type} architecture,
{card.parameters:,} parameters, vocabulary {recipe.vocabulary_size}. It writes heuristics for
{", ".join(recipe.problems)} and nothing else, and plays the part of the paper's 7B models through the
same code. No result with it is a 7B result.

It was trained from nothing on {recipe.optimization.examples:,} prompt-response pairs that the grammar in
`search_to_signal/corpus` generates (`recipe.toml`, {recipe.threads} thread). A planted share of the answers
carries a defect, so that there is something to learn. One in ten combinations of terms was kept out of
training; the numbers below are measured on prompts whose parents are such combinations
({card.prompts} prompts, {card.completions} completions, temperature {_SETTINGS.temperature}).

| held-out prompts | share |
| :-- | --: |
{table}
Made by `s2s pretrain recipe.toml --out DIR`, measured by `s2s card DIR` (card.json).
Licence: that of the artifact. All training text is generated by the artifact itself.
"""


def write_card(recipe: Recipe, directory: Path, progress: Progress) -> Card:
    """Measure the model of a directory; write card.json, README.md and SHA256SUMS beside it."""
    card = measure(recipe, directory, progress)
    text = msgspec.json.format(msgspec.json.encode(card, order="sorted"), indent=2)
    (directory / "card.json").write_bytes(text + b"\n")
    (directory / "README.md").write_text(_page(card, recipe), encoding="utf-8")
    files = [p for p in sorted(directory.iterdir()) if p.is_file() and p.name not in (CHECKSUMS, "README.md")]
    (directory / CHECKSUMS).write_text("".join(f"{sha256_file(path)}  {path.name}\n" for path in files))
    return card
