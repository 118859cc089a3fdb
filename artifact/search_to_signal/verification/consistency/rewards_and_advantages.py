"""Recorded rewards and advantages, computed again from the outcomes and scores of their groups."""

import math
from collections.abc import Iterator, Sequence

from search_to_signal.errors import ConfigError, IllFormedGroupError, MappingError
from search_to_signal.normalizer import advantages_by_group, find_normalizer
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import RunFacts
from search_to_signal.records.reader import Group
from search_to_signal.rewards import find_mapping, rewards_of

TOLERANCE = 1e-12


def agree(recorded: Sequence[float | None], expected: Sequence[float | None]) -> bool:
    """Whether numbers are equal within ``TOLERANCE``, relative and absolute; None equals None alone.

    Processors whose numerical kernels were not fixed (D46) round numpy's exponentials and sums differently.
    """
    if list(recorded) == list(expected):
        return True
    pairs = zip(recorded, expected, strict=False)
    return len(recorded) == len(expected) and all(a == b or _is_close(a, b) for a, b in pairs)


def _is_close(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def missing_code(facts: RunFacts) -> Iterator[str]:
    """Yield why a trained run's mapping or normalizer is not available: one line for the run."""
    try:
        if facts.trained:
            find_mapping(facts.mapping)
            find_normalizer(facts.normalizer)
    except ConfigError as error:
        yield str(error)


def credit_problems(groups: Sequence[Group], facts: RunFacts) -> Iterator[str]:
    """Yield groups whose components, rewards or advantages are not those of the run's condition."""
    if not groups:
        return
    try:
        problems = list(_credit_differences(groups, facts))
    except (IllFormedGroupError, MappingError) as error:
        problems = [f"step {groups[0][0].step}: {error}"]
    if problems and len(groups) > 1:
        # A run computes credit group by group: only a group alone gives its exact problems.
        for group in groups:
            yield from credit_problems([group], facts)
    else:
        yield from problems


def _credit_differences(groups: Sequence[Group], facts: RunFacts) -> Iterator[str]:
    """Differences from the credit of mapping and normalizer; one call for all groups is faster."""
    if not facts.trained:
        for group in groups:
            if any(record.reward is not None or record.advantage is not None for record in group):
                yield f"step {group[0].step}: a frozen run has rewards"
        return
    credit = rewards_of(find_mapping(facts.mapping), batch_of(groups))
    normalizer = find_normalizer(facts.normalizer)
    advantages = advantages_by_group(normalizer, credit.reward, credit.components).tolist()
    components = {name: values.tolist() for name, values in credit.components.items()}
    for number, (group, rewards) in enumerate(zip(groups, credit.reward.tolist(), strict=True)):
        where = f"step {group[0].step}: recorded"
        if not _components_agree(group, {name: rows[number] for name, rows in components.items()}):
            yield f"{where} reward components are not those of {facts.mapping}"
        if not agree([record.reward for record in group], rewards):
            yield f"{where} rewards are not those of {facts.mapping}"
        if not agree([record.advantage for record in group], advantages[number]):
            yield f"{where} advantages are not those of normalizer {facts.normalizer}"


def _components_agree(group: Group, expected: dict[str, list[float]]) -> bool:
    recorded = [record.components for record in group if record.components is not None]
    if len(recorded) < len(group) or any(components.keys() != expected.keys() for components in recorded):
        return False
    return all(
        agree([components[name] for components in recorded], values) for name, values in expected.items()
    )
