"""Prompts that are sampled again and again and teach nothing."""

from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.group_flags import GroupFlags
from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.normalizer_agreement import LogPlace, place_of

# Different prompts that are followed; a longer list would grow with the log.
_FOLLOWED = 20_000


@dataclass
class PromptSums:
    """Of one prompt: groups, dead ones, completions in those, the sum of mean rewards, a place to look at."""

    prompt: str
    place: LogPlace
    groups: int = 0
    dead: int = 0
    wasted: int = 0
    reward: float = 0.0


def add_prompts(known: dict[str, PromptSums], groups: RewardGroups, facts: GroupFlags) -> None:
    """Add the groups of a batch by prompt, or by name where no prompt is logged; only the first prompts."""
    texts = groups.prompt if any(groups.prompt) else groups.name
    if not texts:
        return
    finite = np.where(groups.scored, groups.reward, 0.0)
    mean = (np.add.reduceat(finite, groups.offsets[:-1]) / groups.sizes).tolist()
    dead, sizes = facts.flags["dead"].tolist(), groups.sizes.tolist()
    for at, text in enumerate(texts):
        sums = known.get(text)
        if sums is None:
            if not text or len(known) >= _FOLLOWED:
                continue
            sums = known[text] = PromptSums(text, place_of(groups, at))
        sums.groups += 1
        sums.reward += mean[at]
        if dead[at]:
            sums.dead += 1
            sums.wasted += sizes[at]


def hopeless(known: dict[str, PromptSums]) -> PromptSums | None:
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


def worst(known: dict[str, PromptSums], count: int = 10) -> tuple[PromptSums, ...]:
    """The prompts on which most completions were spent for nothing, most first."""
    wasted = [sums for sums in known.values() if sums.wasted]
    return tuple(sorted(wasted, key=lambda sums: (-sums.wasted, sums.prompt))[:count])
