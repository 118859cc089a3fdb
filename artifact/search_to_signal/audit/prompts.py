"""Prompts that are sampled again and again and teach nothing."""

from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.agreement import LogPlace, place_of
from search_to_signal.audit.distinctions import GroupFacts
from search_to_signal.audit.groups import RewardGroups

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


def add_prompts(known: dict[str, PromptSums], groups: RewardGroups, facts: GroupFacts) -> None:
    """Add the groups of a batch by prompt, or by name where no prompt is logged; only the first prompts."""
    texts = groups.prompt if any(groups.prompt) else groups.name
    if not texts:
        return
    finite = np.where(groups.scored, groups.reward, 0.0)
    mean = (np.add.reduceat(finite, groups.offsets[:-1]) / groups.sizes).tolist()
    dead, sizes = facts.flags["dead"].tolist(), groups.sizes.tolist()
    for at, text in enumerate(texts):
        one = known.get(text)
        if one is None:
            if not text or len(known) >= _FOLLOWED:
                continue
            one = known[text] = PromptSums(text, place_of(groups, at))
        one.groups += 1
        one.reward += mean[at]
        if dead[at]:
            one.dead += 1
            one.wasted += sizes[at]


def hopeless(known: dict[str, PromptSums]) -> PromptSums | None:
    """The sums of prompts with two groups or more, all of them dead; ``prompt`` says how many of how many."""
    tried = [one for one in known.values() if one.groups > 1]
    lost = [one for one in tried if one.dead == one.groups]
    if not lost:
        return None
    return PromptSums(
        f"{len(lost)} of {len(tried)}",
        lost[0].place,
        groups=sum(one.groups for one in lost),
        dead=sum(one.dead for one in lost),
        wasted=sum(one.wasted for one in lost),
        reward=sum(one.reward for one in lost),
    )


def worst(known: dict[str, PromptSums], count: int = 10) -> tuple[PromptSums, ...]:
    """The prompts on which most completions were spent for nothing, most first."""
    wasted = [one for one in known.values() if one.wasted]
    return tuple(sorted(wasted, key=lambda one: (-one.wasted, one.prompt))[:count])
