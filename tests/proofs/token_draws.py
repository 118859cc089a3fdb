"""Measure what ``s2s verify --draws`` finds: honest tokens in two precisions, and forged ones.

    python -m tests.proofs.token_draws qwen2-2.1m --dtype bfloat16
    python -m tests.proofs.token_draws DIRECTORY --dtype bfloat16 --groups 12 --limit 192 --keep samples.jsonl
    python -m tests.proofs.token_draws DIRECTORY --groups 12 --limit 192 --keep samples.jsonl --behind-updates

Groups are sampled by our sampler in the given precision on a processor, a stand-in for a card, and read in
float32. Then the same tokens are claimed for another temperature, another seed, and a model of so many more
updates. One token of a completion is forged as a forger would: another draw of the model at that place, all
behind it drawn anew, so that nothing else differs; places where all others together have less than 1 % are
left out. Beside these counts stands an exact chance: by the shares of both precisions at every place, over
all numbers, that an honest token lies beyond the bound. With --behind-updates the bound is that of groups
which are read behind updates made again in other bits; the tokens are the same.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from tests.figures import print_figure

from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import encoded, end_ids, messages, request_seeds
from search_to_signal.models.device import prepare_processor
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer, open_base_model, open_for_reading
from search_to_signal.models.sampling import bounds, logits_by_slice, sample_group, uniform_numbers
from search_to_signal.models.settings import GenerationSettings, ModelLoading
from search_to_signal.problems import get_problem
from search_to_signal.search.host import HostSetup, begin
from search_to_signal.search.hosts import open_host
from search_to_signal.search.member import seed_member
from search_to_signal.verify.token_draws import BOUNDS, LEAST, Distances, Tally, bound, distances

Numbers = NDArray[np.float64]
HONEST, FORGED, MORE = "honest", "one token of each", "a model with more updates"
SEED, SIZE = 42, 4


class Group(NamedTuple):
    """A prompt and its completions, as tokens, with the seeds that they were drawn by."""

    prompt: list[int]
    completions: list[list[int]]
    seeds: tuple[int, ...]


def prompts(directory: Path, count: int) -> Iterator[list[int]]:
    """What the search asks first, by as many streams."""
    problem, tokenizer = get_problem("tsp"), load_tokenizer(directory)
    host = open_host(
        "reference", HostSetup(problem, search={"collapse_threshold": 25, "prompts": "released"})
    )
    state = begin(host, seed_member(problem.seed, -4.9358), ())
    for step in range(count):
        yield encoded(tokenizer, messages(host.propose(state, stream(SEED, "search", step)).prompt))[1]


def groups(
    directory: Path, dtype: str, settings: GenerationSettings, count: int, keep: Path | None
) -> list[Group]:
    """Sampled groups; those that ``keep`` holds are taken from there, and it gets the others."""
    kept = [json.loads(line) for line in keep.read_text().splitlines()] if keep and keep.exists() else []
    model = open_base_model(directory, ModelLoading(dtype=dtype))  # type: ignore[arg-type]
    ends = end_ids(load_tokenizer(directory), model.generation_config)
    found = []
    for step, prompt in enumerate(prompts(directory, count)):
        seeds = request_seeds(derive_seed(SEED, "sample", step), SIZE)
        if step < len(kept):
            found.append(Group(prompt, kept[step]["completion_ids"], seeds))
            continue
        sampled = sample_group(
            model,
            prompt,
            seeds=seeds,
            max_new_tokens=settings.max_completion_tokens,
            temperature=settings.temperature,
            end_ids=ends,
        )
        found.append(Group(prompt, [list(ids) for ids in sampled.completion_ids], seeds))
        if keep:
            with keep.open("a") as file:
                file.write(json.dumps({"prompt_ids": prompt, "completion_ids": found[-1].completions}) + "\n")
        print(f"sampled {step + 1}/{count}", file=sys.stderr, flush=True)
    return found


@torch.inference_mode()
def logits(model: Any, group: Group) -> list[torch.Tensor]:
    """Those before every token of each completion (tokens, vocabulary)."""
    texts = logits_by_slice(model, group.prompt, group.completions)
    return [torch.cat([part.float() for part in slices]) for slices in texts]


def placed(
    raw: torch.Tensor, tokens: Sequence[int], number: Numbers, settings: GenerationSettings
) -> Distances:
    below, above = bounds(raw, torch.tensor(list(tokens)), settings)
    return distances(below.numpy(), above.numpy(), number)


def numbers(seed: int, tokens: Sequence[int], settings: GenerationSettings) -> Numbers:
    found: Numbers = uniform_numbers([seed], settings.max_completion_tokens)[0, : len(tokens)].numpy()
    return found


def forged(
    raw: torch.Tensor,
    tokens: list[int],
    number: Numbers,
    settings: GenerationSettings,
    rng: np.random.Generator,
) -> Distances | None:
    """The completion with one token drawn otherwise; None where no place leaves a choice."""
    shares = torch.softmax(raw / settings.temperature, dim=-1).double()
    others = 1.0 - shares[torch.arange(len(tokens)), tokens]
    open_places = np.flatnonzero(others.numpy() >= 0.01)
    if not len(open_places):
        return None
    place = int(rng.choice(open_places))
    rest = shares[place].numpy().copy()
    rest[tokens[place]] = 0.0
    other = int(rng.choice(len(rest), p=rest / rest.sum()))
    return placed(raw, [*tokens[:place], other, *tokens[place + 1 :]], number, settings)


def chance_beyond(
    raw: torch.Tensor, sampled: torch.Tensor, settings: GenerationSettings, bound: float
) -> Numbers:
    """By place (tokens,): over all numbers, that what one precision draws lies beyond the other's bound."""
    ends = []
    for one in (raw, sampled):
        whole = torch.softmax(one / settings.temperature, dim=-1).double().cumsum(dim=-1)
        ends.append(torch.nn.functional.pad((whole / whole[:, -1:]).clamp(max=1.0), (1, 0)))
    read, drawn = ends
    # Beyond: further below its interval than the bound, or further above. At both ends of all, where
    # the package no longer tells log-odds apart, nothing is.
    low = torch.sigmoid(torch.logit(read[:, :-1]) - bound)
    high = torch.sigmoid(torch.logit(read[:, 1:]) + bound)
    low, high = torch.where(low < LEAST, 0.0, low), torch.where(high > 1.0 - LEAST, 1.0, high)
    start, end = drawn[:, :-1], drawn[:, 1:]
    below = (torch.minimum(end, low) - start).clamp(min=0.0).sum(-1)
    above = (end - torch.maximum(start, high)).clamp(min=0.0).sum(-1)
    chance: Numbers = (below + above).numpy()
    return chance


def trained(directory: Path, dtype: str, given: Sequence[Group], updates: int, rate: float) -> Any:
    """The model after so many updates on these groups, half of each credited."""
    model = open_for_reading(directory, ModelLoading(dtype=dtype))  # type: ignore[arg-type]
    learning = LearnerSettings(lora_rank=16, lora_alpha=32, learning_rate=rate)
    learner = GrpoLearner(attach_adapter(model, learning, SEED), learning, 0)
    credit = np.array([1.0, -1.0] * (SIZE // 2))
    for group in given[:updates]:
        learner.step(TrainingGroup(group.prompt, group.completions, credit))
    return learner.model


class Measured:
    """What is found of one claim, by completion, by group, and of all groups together."""

    def __init__(self, bound: float) -> None:
        self.bound, self.whole = bound, Tally(bound)
        self.completions, self.groups = [0, 0], [0, 0]
        self.places = 0

    def add(self, group: Sequence[Distances]) -> None:
        tally = Tally(self.bound)
        beyond = [bool(tally.add(one)) for one in group]
        for one in group:
            self.places += len(self.whole.add(one))
        self.completions = [self.completions[0] + sum(beyond), self.completions[1] + len(beyond)]
        found = any(beyond) or tally.together > tally.allowed
        self.groups = [self.groups[0] + found, self.groups[1] + 1]

    def __str__(self) -> str:
        whole = self.whole
        found = self.places > 0 or whole.together > whole.allowed
        return (
            f"{whole.unequal} of {whole.tokens} tokens differ, at most {whole.farthest:.2g} in log-odds; "
            f"found: {self.completions[0]} of {self.completions[1]} completions, {self.groups[0]} of "
            f"{self.groups[1]} groups, {'the whole' if found else 'not the whole'}"
        )


def print_found(
    given: argparse.Namespace,
    model: str,
    measured: dict[str, Measured],
    chances: tuple[list[Numbers], list[Numbers]],
) -> None:
    """Print a line of each claim, and one of the exact chances: to differ, and to lie beyond the bound."""
    label = f"token_draws, {model} {given.dtype}"
    command = (
        f"python -m tests.proofs.token_draws {model} --dtype {given.dtype} --groups {given.groups} "
        f"--limit {given.limit} --updates {given.updates}"
    )
    if given.behind_updates:
        label, command = f"{label} behind updates", f"{command} --behind-updates"
    for name, one in measured.items():
        if one.groups[1]:
            print_figure(f"{label}, {name}", command, str(one))
    if all(chances):
        shares = [float(np.concatenate(parts).mean()) for parts in chances]
        printed = (
            f"{100 * shares[0]:.2g} % of honest tokens differ, {shares[1]:.1e} of all lie beyond the bound"
        )
        print_figure(f"{label}, exact", command, printed)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(BOUNDS))
    parser.add_argument("--groups", type=int, default=25)
    parser.add_argument("--limit", type=int, default=320)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--behind-updates", action="store_true")
    given = parser.parse_args()
    prepare_processor(2)
    directory = model_directory(given.model)
    allowed = bound(given.dtype, other_updates=given.behind_updates)
    honest = GenerationSettings(max_completion_tokens=given.limit)
    claims = {f"temperature {t}": msgspec.structs.replace(honest, temperature=t) for t in (0.8, 1.0)}
    sampled = groups(directory, given.dtype, honest, given.groups, given.keep)
    reader = open_for_reading(directory, ModelLoading(dtype=given.dtype))
    same = open_base_model(directory, ModelLoading(dtype=given.dtype)) if given.dtype != "float32" else None
    names = [HONEST, *claims, "another seed", MORE, FORGED]
    measured = {name: Measured(allowed) for name in names}
    differing: list[Numbers] = []
    beyond: list[Numbers] = []
    rng = stream(SEED, "forger")
    for number, group in enumerate(sampled):
        found: dict[str, list[Distances]] = {name: [] for name in names}
        sampled_by = logits(same, group) if same is not None else None
        for index, (tokens, raw) in enumerate(zip(group.completions, logits(reader, group), strict=True)):
            at = numbers(group.seeds[index], tokens, honest)
            found[HONEST].append(placed(raw, tokens, at, honest))
            for name, settings in claims.items():
                found[name].append(placed(raw, tokens, at, settings))
            other = numbers(derive_seed(group.seeds[index], "other"), tokens, honest)
            found["another seed"].append(placed(raw, tokens, other, honest))
            if (one := forged(raw, tokens, at, honest, rng)) is not None:
                found[FORGED].append(one)
            if sampled_by is not None:
                for chances, most in ((differing, 0.0), (beyond, allowed)):
                    chances.append(chance_beyond(raw, sampled_by[index], honest, most))
        for name, group_found in found.items():
            if group_found:
                measured[name].add(group_found)
        print(f"read {number + 1}/{len(sampled)}", file=sys.stderr, flush=True)
    if given.updates:
        model = trained(directory, given.dtype, sampled, given.updates, given.rate)
        for group in sampled:
            texts = zip(group.completions, group.seeds, strict=True)
            rows = [
                (raw, t, numbers(seed, t, honest))
                for raw, (t, seed) in zip(logits(model, group), texts, strict=True)
            ]
            measured[MORE].add([placed(raw, tokens, at, honest) for raw, tokens, at in rows])
    print_found(given, directory.name, measured, (differing, beyond))
    return 0


if __name__ == "__main__":
    sys.exit(main())
