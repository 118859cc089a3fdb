"""What one line of each record file says. Scores are higher-is-better throughout."""

from enum import Enum
from typing import Annotated, Literal

import msgspec

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
    there, and true, where the gradient was not finite, so that nothing was trained.
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

    Step -1 is that of a population that the run was given to begin with (``population.py``).
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
