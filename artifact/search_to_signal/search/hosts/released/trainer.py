"""The released trainer's state as ours, and back; what it saw of each completion."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Literal

import msgspec

from search_to_signal.base.errors import HostError
from search_to_signal.credit.base import SEVERITY
from search_to_signal.credit.mappings import COPY
from search_to_signal.records.schema import (
    CALM_OPERATORS,
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Operator,
    Outcome,
    RequestRecord,
    StepRecord,
)
from search_to_signal.sandbox import programs
from search_to_signal.sandbox.loading import function_of
from search_to_signal.search.hosts.calm.host import exposures
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    REPLACEMENT,
    SIMPLIFICATION,
)
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.member import (
    Evaluated,
    Member,
    archive_gap,
    event_of,
    frontier,
    heuristic_record,
)

_BLOCK = re.compile(r"```(?:python)?(.*?)```", re.DOTALL | re.IGNORECASE)
_FAILURES = {
    "idea": Outcome.MISSING_RATIONALE,
    "code": Outcome.MISSING_CODE,
    "function": Outcome.MISSING_FUNCTION,
    "bug": Outcome.RUNTIME_FAILURE,
    "runtime": Outcome.RUNTIME_FAILURE,
    "random": Outcome.RANDOMNESS,
}
"""The failures by the first word of the options that hold their rewards, after ``reward_``."""
_NEAR = 1e-9  # two rewards that lie closer are one


# A trainer is photographed before and after every group, and its archive hardly changes.
_program = lru_cache(maxsize=4096)(programs.program_sha256)
_function = lru_cache(maxsize=4096)(function_of)  # for members, which are never run again


THRESHOLD_SHARE = 20
"""With a negative collapse threshold the host takes this share of its steps (HOST.md, point 25)."""


def settings_of(options: Any) -> SearchSettings:
    """Our names for the released search options."""
    threshold = options.max_stuck_threshold
    return SearchSettings(
        population_size=options.population_size,
        simplification=options.ub_simplification,
        injection=options.ub_injection,
        replacement=options.ub_replacement,
        crossover=options.ub_crossover,
        collapse_threshold=options.max_steps // THRESHOLD_SHARE if threshold < 0 else threshold,
        collapse_speed=options.speed_collapse,
        prompts="released",
    )


def operator_named(kind: object) -> Operator | None:
    """The operator that a released prompt type names; None for a seed."""
    return next((operator for operator in CALM_OPERATORS if str(kind).lower().startswith(operator[:5])), None)


def member_of(algo: Any) -> Member:
    """An archived heuristic of the released host; a seed may lack what only children are given."""
    birth = getattr(algo, "birth", 0)
    operator = operator_named(getattr(algo, "parent_prompt_type", None))
    step = birth if isinstance(birth, int) else 0
    return Member(algo.idea, algo.code, float(algo.perf), operator, step, 0, _program(algo.code))


def snapshot(trainer: Any) -> SearchState:
    """The search state that a trainer is in, listed best first; shares nothing with the trainer."""
    members = sorted((member_of(algo) for algo in trainer.algos), key=lambda member: -member.score)
    state = state_of(members, [member_of(algo) for algo in trainer.seed_algos])
    injected = tuple(str(component) for component in trainer.injected_components)
    return replace(state, injected=injected, stagnation=int(trainer.age_stuck))


def policy_of(kind: type[Any], member: Member, problem: str, function: Callable[..., Any]) -> Any:
    """A released heuristic object for a member, as if the host had evaluated it.

    ``problem`` is the released host's name of the problem, ``function`` what the member's code defines.
    """
    policy = kind(function, f"step{member.step}", problem)
    fields = {
        "code": member.code,
        "idea": member.idea,
        "perf": member.score,
        "perfs": [member.score],
        "birth": member.step,
        "parent_prompt_type": member.operator,
    }
    for name, value in fields.items():
        setattr(policy, name, value)
    return policy


def load(trainer: Any, kind: type[Any], state: SearchState) -> None:
    """Put a trainer into a search state; its used prompts stay, as its rewards look prompts up there."""
    members = {member.id: member for member in (*state.seeds, *state.archive)}
    made = {
        name: policy_of(kind, member, trainer.problem_name, _function(member.code))
        for name, member in members.items()
    }
    trainer.algos = [made[member.id] for member in state.archive]
    trainer.seed_algos = [made[member.id] for member in state.seeds]
    trainer.injected_components = list(state.injected)
    trainer.age_stuck = state.stagnation


def content(message: Any) -> str:
    """The text of a chat, which is that of its last message, or of a plain text."""
    return message if isinstance(message, str) else str(message[-1]["content"])


def shown_in(prompt: str, archive: Sequence[Member]) -> tuple[int, ...]:
    """Positions of the members whose stripped codes are blocks of the prompt, block by block."""
    position = {member.code.strip(): i for i, member in reversed([*enumerate(archive)])}
    blocks = (block.strip() for block in _BLOCK.findall(prompt))
    return tuple(position[block] for block in blocks if block in position)


def bases_of(prompt: str, archive: Sequence[Member]) -> tuple[Member, ...]:
    """The members, as listed, whose stripped code is a code block of the prompt (HOST.md, Prompts)."""
    shown = {block.strip() for block in _BLOCK.findall(prompt)}
    return tuple(member for member in archive if member.code.strip() in shown)


def operator_of(prompt: str, bases: Sequence[Member]) -> Operator:
    """The operator that a prompt's own words show; simplification and replacement by one word alone."""
    if len(bases) != 1:
        return CROSSOVER if bases else CREATION
    words = prompt.replace(bases[0].idea, "").replace(bases[0].code.strip(), "")
    if programs.COMPONENT_BEFORE in words and programs.COMPONENT_AFTER in words:
        return INJECTION
    return SIMPLIFICATION if "simpl" in words.lower() else REPLACEMENT


def severities_of(options: Any) -> dict[Outcome, float]:
    """What the released options give each failure; the paper's value where no option names it."""
    severities = dict(SEVERITY)
    for name, value in vars(options).items():
        kind, _, rest = name.partition("_")
        if kind == "reward" and (failure := _FAILURES.get(rest.split("_")[0])):
            severities[failure] = float(value)
    return severities


def outcome_of(reward: float, severities: Mapping[Outcome, float] = SEVERITY) -> Outcome | None:
    """The typed outcome that a native reward stands for; no valid reward equals a severity.

    None for a reward below every valid one that is no severity either: a failure of unknown kind.
    """
    near = (outcome for outcome, value in severities.items() if abs(value - reward) < _NEAR)
    return next(near, Outcome.VALID if reward >= COPY - _NEAR else None)


@contextmanager
def changed(target: Any, **values: Any) -> Iterator[None]:
    """Within it these attributes of the host's own object or class have these values."""
    before = {name: getattr(target, name) for name in values}
    try:
        for name, value in values.items():
            setattr(target, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)


@contextmanager
def heuristics_made(kind: type[Any]) -> Iterator[list[Any]]:
    """Every heuristic object that the host makes meanwhile, in order."""
    seen: list[Any] = []
    make = kind.__init__

    def remember(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        seen.append(self)

    with changed(kind, __init__=remember):
        yield seen


def score_of(
    text: str, seen: Sequence[Any], archive: Sequence[Member], otherwise: Callable[[str], float | None]
) -> float | None:
    """The performance that the host found for a completion that it calls valid.

    Taken from the heuristics it made, then from its archive; ``otherwise`` evaluates the code where both
    are silent. None where it is unknown.
    """
    proposal = programs.parse(text)
    code = proposal.code if isinstance(proposal, programs.Proposal) else None

    def proposed(other: str) -> bool:
        return other.strip() == code if code is not None else other.strip() in text

    written = [algo for algo in seen if getattr(algo, "perf", None) is not None]
    made = [algo.perf for algo in written if proposed(algo.code)]
    kept = [member.score for member in archive if proposed(member.code)]
    score = next(iter([*made, *kept]), None)
    if score is None and code is not None:
        score = otherwise(code)
    return None if score is None else float(score)


# What a round of the released host asks: its one prompt, the operator that it names, and tokens.

Count = Callable[[Any], int]
"""Number of tokens of a chat, given as its messages, or of a text."""


def only_prompt(prompts: Iterable[Any]) -> Any:
    """The one prompt of a group; raises HostError where there are several."""
    asked = {content(prompt): prompt for prompt in prompts}
    if len(asked) != 1:
        raise HostError(f"a call with {len(asked)} prompts: a group is one prompt, set n_prompts to 1")
    return next(iter(asked.values()))


def asked_operator(used_prompts: Iterable[Any], text: str) -> Operator | None:
    """The operator that the host's own object of a prompt names; None where it names none.

    Raises HostError where the host keeps texts instead, in which its reward function finds nothing.
    """
    for used in used_prompts:
        if type(used) is str:
            raise HostError(
                "calm_trainer.py: used_prompts holds texts, but the released host keeps prompt objects there"
            )
        values = list(getattr(used, "__dict__", {}).values())
        if any(isinstance(value, str) and value == text for value in values):
            return next(filter(None, map(operator_named, _words(values))), None)
    return None


def _words(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        word = value.name if isinstance(value, Enum) else value
        if isinstance(word, str) and word.isidentifier():
            yield word


def sent(chat: Any) -> str:
    """A prompt as a record shows it: the JSON of its messages, as one to an endpoint, or its text."""
    if isinstance(chat, str):
        return chat
    messages = [
        {name: str(message[name]) for name in ("role", "content") if name in message} for message in chat
    ]
    return json.dumps(messages, ensure_ascii=False)


def asked_text(prompt: str) -> str:
    """What the last message of a recorded prompt says; a text that is no list of messages is that itself."""
    try:
        return content(msgspec.json.decode(prompt, type=list[dict[str, str]]))
    except (msgspec.MsgspecError, UnicodeError, LookupError):
        return prompt


def count_with(tokenizer: Any) -> Count:
    """Count by a tokenizer: a text as it is, a chat as its template renders it."""

    def count(asked: Any) -> int:
        if isinstance(asked, str):
            return len(tokenizer(asked, add_special_tokens=False)["input_ids"])
        if getattr(tokenizer, "chat_template", None) is None:
            return sum(count(str(message["content"])) for message in asked)
        return len(tokenizer.apply_chat_template(asked, add_generation_prompt=True))

    return count


# How long prompt and completions of a round were, and which were cut: as far as it is known.

CountedBy = Literal["trainer", "model", "endpoint"]
Requests = Callable[[Sequence[str]], tuple[RequestRecord, ...]]
"""What an endpoint reported of these texts, one each; empty where it did not of all."""


@dataclass(frozen=True)
class Length:
    """Of one completion. ``ids`` are its tokens where the trainer shows them, ``request`` what was reported.

    Unknown counts are 0, and no completion counts as truncated.
    """

    prompt: int = 0
    completion: int = 0
    truncated: bool = False
    ids: tuple[int, ...] = ()
    request: RequestRecord | None = None


@dataclass(frozen=True)
class Lengths:
    """Of the completions of a round, and whose tokens they are; None where none were counted."""

    each: tuple[Length, ...]
    counted_by: CountedBy | None


def lengths_of(
    trainer: Any,
    chat: Any,
    texts: Sequence[str],
    named: Mapping[str, Any],
    requests: Requests,
    count: Count | None,
) -> Lengths:
    """By the trainer's tokenizer, else as the endpoint reports, else by ``count``, the model's own tokenizer.

    ``named`` are the further arguments of the reward call, among which TRL hands on ``completion_ids``.
    """
    tokenizer = getattr(trainer, "processing_class", None)
    if tokenizer is not None:
        return Lengths(_by_trainer(trainer, tokenizer, chat, texts, named.get("completion_ids")), "trainer")
    if reported := requests(texts):
        return Lengths(tuple(map(_by_endpoint, reported)), "endpoint")
    if count is not None:
        prompt = count(chat)
        return Lengths(tuple(Length(prompt, count(text)) for text in texts), "model")
    return Lengths((Length(),) * len(texts), None)


def _by_endpoint(request: RequestRecord) -> Length:
    cut = request.finish_reason == "length"
    return Length(request.prompt_tokens, request.completion_tokens, cut, request=request)


def _by_trainer(
    trainer: Any, tokenizer: Any, chat: Any, texts: Sequence[str], shown: Any
) -> tuple[Length, ...]:
    # The most tokens that the trainer samples, its own or its arguments' limit; None where there is none.
    places = (trainer, getattr(trainer, "args", None))
    limits = (getattr(place, "max_completion_length", None) for place in places)
    limit = next((limit for limit in limits if isinstance(limit, int)), None)
    count, end = count_with(tokenizer), getattr(tokenizer, "eos_token_id", None)
    prompt = count(chat)
    each = shown if shown is not None and len(shown) == len(texts) else [()] * len(texts)
    lengths = []
    for text, tokens in zip(texts, each, strict=True):
        ids = tuple(int(token) for token in tokens)
        length = len(ids) or count(text)
        # Without its tokens a text is as long as it is when it is tokenized again, and lacks its end token.
        cut = limit is not None and length >= limit and (not ids or ids[-1] != end)
        lengths.append(Length(prompt, length, cut, ids))
    return tuple(lengths)


Rescore = Callable[[str], float | None]


@dataclass(frozen=True)
class ReleasedRound:
    """One call of the released reward function; ``native`` is what it returned, ``seen`` what it made.

    ``chat`` holds the messages of the prompt. ``asked`` is the operator that the host's own prompt names,
    ``lengths`` is of each completion.
    """

    step: int
    chat: Any
    texts: tuple[str, ...]
    native: tuple[float, ...]
    seen: tuple[Any, ...]
    before: SearchState
    after: SearchState
    settings: SearchSettings
    asked: Operator | None
    lengths: tuple[Length, ...]

    @property
    def prompt(self) -> str:
        """What the last message says."""
        return content(self.chat)

    @cached_property
    def sent(self) -> str:
        """The whole prompt, as records hold it."""
        return sent(self.chat)

    @cached_property
    def bases(self) -> tuple[Member, ...]:
        """The archived members that the prompt shows."""
        return bases_of(self.prompt, self.before.archive)

    @cached_property
    def operator(self) -> Operator:
        """As the host names it on its prompt or on what it made, else as the prompt's words show it."""
        named = (operator_named(getattr(algo, "parent_prompt_type", None)) for algo in self.seen)
        return next((name for name in (self.asked, *named) if name), operator_of(self.prompt, self.bases))


def _evaluated(played: ReleasedRound, rescore: Rescore) -> Iterator[Evaluated]:
    for text, reward in zip(played.texts, played.native, strict=True):
        outcome, proposal = outcome_of(reward), programs.parse(text)
        idea, code = (proposal.idea, proposal.code) if isinstance(proposal, programs.Proposal) else ("", "")
        score = None
        if outcome is None:
            raise HostError(
                f"the released host gave {reward} to a completion, which is below every reward of a valid "
                "completion and is no failure reward of the paper: see s2s conformance --check rewards"
            )
        if outcome is Outcome.VALID:
            score = score_of(text, played.seen, played.after.archive, rescore)
            if score is None:
                raise HostError(
                    f"the released host gave {reward} to a completion whose performance is unknown: "
                    "its rewards differ from the paper's, or it ran a program that s2s did not see"
                )
            if not math.isfinite(score):  # never a valid score here (D17), whatever the host does with it
                outcome, score = Outcome.RUNTIME_FAILURE, None
        yield Evaluated(outcome, idea, code, score, programs.program_sha256(code) if code else None)


def _admitted(played: ReleasedRound, results: Sequence[Evaluated]) -> dict[int, Member]:
    """What stands in the archive afterwards and did not before, by the completion that it came from.

    By its code, then by its score alone: a host may keep the code in another form. Raises HostError for a
    new member that no completion holds.
    """
    known = Counter((member.id, member.score) for member in played.before.archive)
    waiting, admitted = list[Member](), dict[int, Member]()
    for kept in played.after.archive:
        if known[kept.id, kept.score]:
            known[kept.id, kept.score] -= 1
        else:
            waiting.append(kept)
    for by_code in (True, False):
        for index, result in enumerate(results):
            alike = (m for m in waiting if (m.id == result.program if by_code else m.score == result.score))
            if result.score is not None and index not in admitted and (member := next(alike, None)):
                admitted[index] = member
                waiting.remove(member)
    if waiting:
        raise HostError("calm_trainer.py: the archive has a new heuristic that is in no completion")
    return admitted


def round_records(
    played: ReleasedRound, problem: str, rescore: Rescore
) -> tuple[list[CompletionRecord], list[HeuristicRecord]]:
    """What a group leaves: its completions before any reward, and the heuristics that the archive took.

    Contexts are those before the group (D22). The heuristics of the first group begin with those that stood
    in the archive before it.
    """
    results = list(_evaluated(played, rescore))
    admitted = _admitted(played, results)
    first = [] if played.step else [replace(m, step=0, index=0) for m in played.before.archive]
    new = [replace(m, index=i, step=played.step, operator=played.operator) for i, m in admitted.items()]
    kept = [*first, *sorted(new, key=lambda member: member.index)]
    archive, bases = played.before.archive, played.bases
    reach = exposures(played.before, results, played.settings)
    prompt, shown = programs.sha256_text(played.sent), {base.id for base in bases}
    records = [
        CompletionRecord(
            step=played.step,
            index=index,
            problem=problem,
            operator=played.operator,
            prompt_sha256=prompt,
            parents=tuple(base.id for base in bases),
            base_scores=tuple(base.score for base in bases),
            frontier=frontier(archive),
            archive_size=len(archive),
            outcome=result.outcome,
            detail="",
            score=result.score,
            evaluation="released" if result.outcome.evaluated else "not_run",
            response_sha256=programs.sha256_text(text),
            program_sha256=result.program,
            matches_base_code=result.program in shown,
            archive_gap=None if result.score is None else archive_gap(archive, result.score),
            exposure=reach[index],
            prompt_tokens=length.prompt,
            completion_tokens=length.completion,
            truncated=length.truncated,
            archive_event=event_of(result, index in admitted),
            components=None,
            reward=None,
            advantage=None,
        )
        for index, (text, result, length) in enumerate(
            zip(played.texts, results, played.lengths, strict=True)
        )
    ]
    return records, [heuristic_record(member) for member in kept]


def step_of(
    played: ReleasedRound,
    records: Sequence[CompletionRecord],
    last: SearchState | None,
    mapping: str,
    tokens: int,
) -> StepRecord:
    """The record of the group; what the released trainer keeps to itself (loss, adapter, cut) is absent.

    ``last`` is the state after the group before: a collapse shows in the members that went in between.
    ``tokens`` is how many were trained on.
    """
    here = Counter(member.id for member in played.before.archive)
    lost = last is not None and bool(Counter(member.id for member in last.archive) - here)
    return StepRecord(
        step=played.step,
        operator=played.operator,
        prompt_sha256=records[0].prompt_sha256,
        collapsed=lost,
        stagnation=played.after.stagnation,
        archive_size=len(played.after.archive),
        frontier_before=frontier(played.before.archive),
        frontier_after=frontier(played.after.archive),
        valid=sum(record.score is not None for record in records),
        admitted=sum(record.archive_event is ArchiveEvent.ADMITTED for record in records),
        mapping=mapping,
        zero_advantage=all(record.advantage == 0 for record in records),
        loss=None,
        kl=None,
        grad_norm=None,
        training_tokens=tokens,
        adapter_sha256=None,
        prompt_tokens_cut=None,
    )
