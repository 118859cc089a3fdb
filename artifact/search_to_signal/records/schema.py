"""What one line of each record file says. Scores are higher-is-better throughout."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from search_to_signal.base.package_data import PACKAGE
from search_to_signal.base.settings import canonical_sha256, load_toml

IdeaEnd = Literal["any_fence", "bare_fence"]
"""What ends an idea without braces: a fence that begins a line (host), or one without a tag (D37)."""

ANY_FENCE: IdeaEnd = "any_fence"
BARE_FENCE: IdeaEnd = "bare_fence"
"""The reading of every run whose configuration names none: those recorded before there was another."""


class Outcome(str, Enum):
    """The five typed failures in the host's order of precedence (D04), and valid."""

    VALID = "valid"
    MISSING_RATIONALE = "missing_rationale"
    MISSING_CODE = "missing_code"
    MISSING_FUNCTION = "missing_function"
    RUNTIME_FAILURE = "runtime_failure"
    RANDOMNESS = "randomness"

    @property
    def evaluated(self) -> bool:
        """Whether the completion reached the evaluator: the host looks for the function first (D04)."""
        return self in (Outcome.VALID, Outcome.RUNTIME_FAILURE, Outcome.RANDOMNESS)


OPERATOR_FORM = r"^[a-z][a-z0-9_]{0,31}\Z"
Operator = Annotated[str, msgspec.Meta(pattern=OPERATOR_FORM)]
"""How a prompt asks for its heuristic: a name of the host's own, a short identifier."""

CREATION: Operator = "creation"
"""The one name with a meaning to readers: its prompts have no comparator (D05)."""


class ArchiveEvent(str, Enum):
    """What the search did with a completion; admission is neither credit nor discovery."""

    ADMITTED = "admitted"
    DUPLICATE_SCORE = "duplicate_score"
    INVALID = "invalid"


Dropped = Literal["no_advantage"]
"""Why a group is left out of its step: its advantages are all zero."""


class CompletionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One completion with everything a reward mapping may read; context is pre-generation (D22).

    ``base_scores`` are the scores of the prompt's base heuristics. ``frontier`` is the best score of
    the search state before the group, absent for an empty archive. ``archive_gap`` is the distance to
    the nearest archived score, ``exposure`` the one-step parent exposure (D13); both are absent for
    an invalid completion. ``evaluation`` is ``not_run``, or how the isolated run ended, with ``fallback``
    where compiled kernels could not promise the score's bits and ``repeat`` where the same text had
    been evaluated before. An isolated run may end with ``no_function``: what reached the evaluator is said
    by ``outcome.evaluated`` alone. ``components``, ``reward`` and ``advantage`` are absent in a frozen run.
    ``instance_scores`` are the scores whose mean ``score`` is, in order of the instances; they are there for
    a valid completion of a host that asks for them.
    """

    step: int
    index: int
    problem: str
    operator: Operator
    prompt_sha256: str
    parents: tuple[str, ...]
    base_scores: tuple[float, ...]
    frontier: float | None
    archive_size: int
    outcome: Outcome
    detail: str
    score: float | None
    evaluation: str
    response_sha256: str
    program_sha256: str | None
    matches_base_code: bool
    archive_gap: float | None
    exposure: float | None
    prompt_tokens: int
    completion_tokens: int
    truncated: bool
    archive_event: ArchiveEvent
    components: dict[str, float] | None
    reward: float | None
    advantage: float | None
    instance_scores: tuple[float, ...] | msgspec.UnsetType = msgspec.UNSET


class StepRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One group: the search state around it and the optimizer opportunity that followed.

    ``prompt_tokens_cut`` is how many tokens the prompt lost on its left to its limit, on top of the
    ``prompt_tokens`` of its completions (D26); absent where a trainer keeps that to itself. ``not_finite`` is
    there, and true, where the gradient was not finite, so that nothing was trained. ``sampler_difference`` is
    the mean distance per token, in nats, of a server's log-probabilities to those of the learner before its
    update; absent for any other sampler. ``dropped`` is there where the group was left out of its step, and
    the next group was drawn in its place.
    """

    step: int
    operator: Operator
    prompt_sha256: str
    collapsed: bool
    stagnation: int
    archive_size: int
    frontier_before: float | None
    frontier_after: float | None
    valid: int
    admitted: int
    mapping: str | None
    zero_advantage: bool | None
    loss: float | None
    kl: float | None
    grad_norm: float | None
    training_tokens: int
    adapter_sha256: str | None
    prompt_tokens_cut: int | None = 0
    not_finite: bool | msgspec.UnsetType = msgspec.UNSET
    sampler_difference: float | msgspec.UnsetType = msgspec.UNSET
    dropped: Dropped | msgspec.UnsetType = msgspec.UNSET


class RequestRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an endpoint reported of the one completion of a request, in its own words and its own tokens.

    ``model`` and ``fingerprint`` are the provider's unverified claim. ``id`` is the response's.
    ``seed`` is None where a released host asked, which gives none.
    """

    seed: int | None
    model: str
    fingerprint: str | None
    id: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


class GenerationRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The prompt of one group and the exact tokens that were sampled from it.

    ``prompt`` is the whole text, whose hash is ``prompt_sha256``; ``prompt_ids`` are the tokens that were
    read, by sampler and learner: all of it, less what its step record counts as cut.
    An endpoint shows neither its template nor token ids: ``prompt`` is then the JSON of the messages sent,
    ``prompt_ids`` and every entry of ``completion_ids`` are empty, and ``requests`` holds what it reported,
    one per completion. The released host shows its messages, too, and token ids where its trainer hands them
    on.
    """

    step: int
    prompt: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[tuple[int, ...], ...]
    completions: tuple[str, ...]
    requests: tuple[RequestRecord, ...] = ()


class HeuristicRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An admitted heuristic; ``id`` is the SHA-256 of its canonical code.

    Step -1 is that of a population that the run was given to begin with (``GIVEN``).
    ``instance_scores`` are there for a host that asks for them, as in completions.
    """

    id: str
    step: int
    index: int
    operator: Operator | None
    idea: str
    code: str
    score: float
    instance_scores: tuple[float, ...] | msgspec.UnsetType = msgspec.UNSET


class StepTiming(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Wall seconds of one step by phase, ``total`` among them; alone differs between equal runs.

    ``processor_seconds`` are those of the run's process tree over the same time; absent in records of earlier
    versions and where the kernel gives none.
    """

    step: int
    seconds: dict[str, float]
    processor_seconds: float | None = None


# What a rule that learns from pairs was shown: one line per group, in ``preferences.jsonl``.

PREFERENCES = "preferences.jsonl"


class PreferencePair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pair of completions of the line's group, by index; a failure has no score and is never chosen."""

    chosen: int
    rejected: int
    chosen_score: float
    rejected_score: float | None


class PreferenceRound(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A round of training after a group: of ``collected`` pairs, ``kept`` have a choice at the threshold.

    ``optimizer_steps`` were made on them; ``accuracy`` is the share of pairs, as they came, whose choice the
    policy already favoured over the reference, and ``margin`` by how much, times beta; means over steps.
    """

    threshold: float
    collected: int
    kept: int
    optimizer_steps: int
    accuracy: float
    margin: float


class PreferenceRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pairs of one group, and the round that followed it, if any."""

    step: int
    pairs: tuple[PreferencePair, ...]
    round: PreferenceRound | None = None


# The population that a run started from, in addition to the seed heuristic (D45).
#
# It stands in the heuristic store before anything that the run admitted: every member with its own operator
# and score, step ``GIVEN``, and numbered from 0. A run that begins with the seed alone has none.

GIVEN = -1


def given(heuristics: Iterable[HeuristicRecord]) -> tuple[HeuristicRecord, ...]:
    """The population that a store says the run was given, in order."""
    return tuple(heuristic for heuristic in heuristics if heuristic.step == GIVEN)


def as_given(members: Iterable[HeuristicRecord]) -> tuple[HeuristicRecord, ...]:
    """Members of an archive, seeds left out, as a run that is given them records them."""
    kept = [member for member in members if member.operator is not None]
    return tuple(
        msgspec.structs.replace(member, step=GIVEN, index=number) for number, member in enumerate(kept)
    )


def population_sha256(population: Sequence[HeuristicRecord]) -> str:
    """SHA-256 of a given population in its canonical JSON form."""
    return canonical_sha256(population)


# What the host and the learning rule of a run can, as far as a reader of its records has to know it.
#
# A manifest says it. Manifests of earlier versions name the two alone; what they could is here, by their
# names, and nowhere else.

FIRST_HOST, FIRST_RULE = "reference", "grpo"
"""Those of runs that name none."""

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
    ``redraws``: so many groups in a row are dropped where they have no advantage; absent where none is.
    """

    all_told: bool = False
    groups_per_step: int | None = None
    pairs: bool = False
    redraws: int | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True)
class HostRule:
    """A host's learning rule; ``groups_per_step`` is the setting that says them, with its default."""

    name: str
    all_told: bool = False
    pairs: bool = False
    groups_per_step: tuple[str, int] | None = None

    def facts(self, settings: Mapping[str, Any]) -> RuleFacts:
        """What the rule does with these ``[rule_settings]``, which are not checked."""
        groups = None if self.groups_per_step is None else settings.get(*self.groups_per_step)
        return RuleFacts(all_told=self.all_told, groups_per_step=groups, pairs=self.pairs)


@dataclass(frozen=True)
class FurtherHost:
    """A host beside CALM: a folder of ``search/hosts`` with a ``host.toml``, whose name is its ``key``.

    ``host.py`` has ``host``, which makes it of a HostSetup, ``rule.py`` its learning rule, ``RULE``, where it
    has one. Lists have hosts in the order of ``place``.
    """

    summary: str
    place: float
    facts: HostFacts
    rule: HostRule | None = None
    key: str = ""


def _read(file: Path) -> FurtherHost:
    return replace(load_toml(file, FurtherHost), key=file.parent.name)


HOSTS = tuple(sorted(map(_read, PACKAGE.glob("search/hosts/*/host.toml")), key=lambda host: host.place))

_HOSTS: Mapping[str, HostFacts] = {
    FIRST_HOST: HostFacts(calm=True, exposures=True, database="none"),
    "released": HostFacts(calm=True, own_loop=True, exposures=True, database="none"),
    **{host.key: host.facts for host in HOSTS},
}


def _grpo_facts(settings: Mapping[str, Any]) -> RuleFacts:
    prompts, redraws = settings.get("prompts_per_step", 1), settings.get("redraws") or msgspec.UNSET
    return RuleFacts(all_told=True, groups_per_step=prompts, redraws=redraws)


_RULES: Mapping[str, Callable[[Mapping[str, Any]], RuleFacts]] = {
    FIRST_RULE: _grpo_facts,
    **{host.rule.name: host.rule.facts for host in HOSTS if host.rule},
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
        yield f"host_facts do not describe host {host}"
    if host not in _HOSTS and host_facts.own_loop:
        yield f"host_facts say that {host} brings its own loop, but such runs are not recorded here"
    if rule in _RULES and rule_facts != facts_of_rule(rule, settings):
        yield f"rule_facts do not describe learning rule {rule}"
