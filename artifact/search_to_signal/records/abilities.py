"""What the host and the learning rule of a run can, as far as a reader of its records has to know it.

A manifest says it. Manifests of earlier versions name the two alone; what they could is here, by their names,
and nowhere else.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

FIRST_HOST, FIRST_RULE = "reference", "grpo"
"""Those of runs that name none."""
_BATCH = 8

CALM_OPERATORS = ("simplification", "injection", "replacement", "crossover", "creation")
"""The operators of CALM's prompts, whose names EvoTune's and TTT-Discover's hosts share."""


class HostFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a host can. By default unknown: only what holds of every host is asked of its records.

    ``calm``: archive, admission, stagnation and exposures are CALM's, so that they follow from the records.
    ``own_loop``: it samples, evaluates and learns by itself, and shows no tokens, texts or learner; CALM's
    admissions are then taken from the records. ``exposures``: every completion with a score has one, or none
    has. ``database`` is what its ``database.json`` holds: all programs of the last archive and no other, any
    heuristics of the run, or there is none. ``instance_scores``: it asks for the score of each instance, and
    these are recorded; absent where it does not.
    """

    calm: bool = False
    own_loop: bool = False
    exposures: bool | None = None
    database: Literal["archive", "heuristics", "none"] | None = None
    instance_scores: bool | msgspec.UnsetType = msgspec.UNSET


class RuleFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a learning rule does, by default unknown.

    ``all_told``: a step that trains has a finite loss, KL and gradient norm. ``groups_per_step``: so many
    groups wait for each other and are then trained on together, all tokens of their completions; none where
    that is not known. ``pairs``: it learns from EvoTune's preference pairs in rounds, and records both.
    """

    all_told: bool = False
    groups_per_step: int | None = None
    pairs: bool = False


_HOSTS: Mapping[str, HostFacts] = {
    FIRST_HOST: HostFacts(calm=True, exposures=True, database="none"),
    "released": HostFacts(calm=True, own_loop=True, exposures=True, database="none"),
    "evotune": HostFacts(exposures=True, database="archive"),
    "entropic": HostFacts(exposures=True, database="none"),
}
_RULES: Mapping[str, Callable[[Mapping[str, Any]], RuleFacts]] = {
    FIRST_RULE: lambda settings: RuleFacts(all_told=True, groups_per_step=1),
    "dpo": lambda settings: RuleFacts(pairs=True),
    "entropic": lambda settings: RuleFacts(groups_per_step=settings.get("groups_per_batch", _BATCH)),
}


def facts_of_host(name: str) -> HostFacts:
    """What a built-in host can, by its name; unknown for any other."""
    return _HOSTS.get(name, HostFacts())


def operators_of_host(name: str) -> tuple[str, ...] | None:
    """The operators that a host of ours knows; any other has names of its own, which nobody else knows."""
    return CALM_OPERATORS if name in _HOSTS else None


def facts_of_rule(name: str, settings: Mapping[str, Any]) -> RuleFacts:
    """The same for a learning rule with its ``[rule_settings]``, unchecked."""
    return _RULES[name](settings) if name in _RULES else RuleFacts()


def ability_problems(
    host: str, host_facts: HostFacts, rule: str, rule_facts: RuleFacts, settings: Mapping[str, Any]
) -> Iterator[str]:
    """Where a manifest contradicts this package about a built-in host or rule, or spares a run its checks."""
    if host in _HOSTS and host_facts != facts_of_host(host):
        yield f"host_facts are not those of host {host}"
    if host not in _HOSTS and host_facts.own_loop:
        yield f"host_facts give {host} a loop of its own, and no such run is recorded here"
    if rule in _RULES and rule_facts != facts_of_rule(rule, settings):
        yield f"rule_facts are not those of learning rule {rule}"
