"""Prompts that are sampled again and again and teach nothing."""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.group_flags import GroupFlags
from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.normalizer_agreement import LogPlace, place_of
from search_to_signal.audit.steps import spans
from search_to_signal.numerics import added

# Different prompts that are followed; a longer list would grow with the log.
_FOLLOWED = 20_000
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


@dataclass
class PromptSums:
    """Of one prompt: groups, dead ones, completions in those, the sum of mean rewards, a place to look at."""

    prompt: str
    place: LogPlace
    groups: int = 0
    dead: int = 0
    wasted: int = 0
    reward: float = 0.0


@dataclass(frozen=True)
class LoneRepeats:
    """Groups of one whose prompt is that of another group of their step, and how many prompts these have."""

    groups: int = 0
    prompts: int = 0

    def __add__(self, more: "LoneRepeats") -> "LoneRepeats":
        return added(self, more)


def lone_repeats(groups: RewardGroups) -> LoneRepeats:
    """Count the groups of one that share a prompt within their step."""
    lone = (groups.sizes == 1) & (groups.prompt_id != 0)
    if not lone.any():
        return LoneRepeats()
    keys = np.stack([groups.step[lone].astype(np.uint64), groups.prompt_id[lone]])
    counts = np.unique(keys, axis=1, return_counts=True)[1]
    return LoneRepeats(int(counts[counts > 1].sum()), int((counts > 1).sum()))


def add_prompts(known: dict[Hashable, PromptSums], groups: RewardGroups, facts: GroupFlags) -> None:
    """Add the groups of a batch by prompt, or by name where no prompt is logged; only the first prompts.

    Names that count the groups of a step say where a group was, not what its prompt is: they are left out.
    """
    keys: Sequence[Hashable] = groups.prompt_id.tolist()
    texts: Sequence[str] = groups.prompt
    if not groups.prompt_id.any():
        keys = texts = _prompt_names(groups)
    finite = np.where(groups.scored, groups.reward, 0.0)
    mean = (np.add.reduceat(finite, groups.offsets[:-1]) / groups.sizes).tolist()
    dead, sizes = facts.flags["dead"].tolist(), groups.sizes.tolist()
    for at, (key, text) in enumerate(zip(keys, texts, strict=True)):
        sums = known.get(key)
        if sums is None:
            if not key or len(known) >= _FOLLOWED:
                continue
            sums = known[key] = PromptSums(text, place_of(groups, at))
        sums.groups += 1
        sums.reward += mean[at]
        if dead[at]:
            sums.dead += 1
            sums.wasted += sizes[at]


def _prompt_names(groups: RewardGroups) -> list[str]:
    """The name of each group; empty where those of its step count from 0 or 1."""
    names = list(groups.name)
    for first, end in spans(groups) if names else ():
        parts = [_NUMBERED.fullmatch(name) for name in names[first:end]]
        numbers = sorted(int(match[2]) for match in parts if match)
        counted = numbers in (list(range(end - first)), list(range(1, end - first + 1)))
        if counted and len({match[1] for match in parts if match}) == 1:
            names[first:end] = [""] * (end - first)
    return names


def hopeless(known: dict[Hashable, PromptSums]) -> PromptSums | None:
    """The sums of prompts with two groups or more, all of them dead; ``prompt`` says how many of how many."""
    tried = [sums for sums in known.values() if sums.groups > 1]
    lost = [sums for sums in tried if sums.dead == sums.groups]
    if not lost:
        return None
    return PromptSums(
        f"{len(lost)} of {len(tried)}",
        lost[0].place,
        groups=sum(sums.groups for sums in lost),
        dead=sum(sums.dead for sums in lost),
        wasted=sum(sums.wasted for sums in lost),
        reward=sum(sums.reward for sums in lost),
    )


def worst(known: dict[Hashable, PromptSums], count: int = 10) -> tuple[PromptSums, ...]:
    """The prompts on which most completions were spent for nothing, most first."""
    wasted = [sums for sums in known.values() if sums.wasted]
    return tuple(sorted(wasted, key=lambda sums: (-sums.wasted, sums.prompt))[:count])
