"""The released host behind the common interface, for one problem, without a model."""

import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import HostError
from search_to_signal.records.schema import Operator, Outcome
from search_to_signal.sandbox.loading import function_of
from search_to_signal.sandbox.programs import program_sha256
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    OPERATORS,
    REPLACEMENT,
    SIMPLIFICATION,
)
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.hosts.released.checkout import NAMES, ReleasedCheckout
from search_to_signal.search.hosts.released.trainer import (
    bases_of,
    changed,
    content,
    heuristics_made,
    load,
    outcome_of,
    policy_of,
    score_of,
    settings_of,
    severities_of,
    shown_in,
    snapshot,
)
from search_to_signal.search.member import Member


def _leaves(value: Any, place: str, depth: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Numeric arrays within lists, mappings, tensors and plain objects; items of a list share a place."""
    if depth > 5 or isinstance(value, str | bytes | type):
        return
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iuf" and value.ndim:
            yield place, value
        return
    if isinstance(value, list | tuple) and value and all(isinstance(item, int | float) for item in value):
        yield place, np.array(value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, f"{place}[]", depth + 1)
    elif isinstance(value, dict) or hasattr(value, "__dict__"):
        named = value if isinstance(value, dict) else vars(value)
        for name, item in named.items():
            yield from _leaves(item, f"{place}.{name}", depth + 1)


# The text of a released prompt around its heuristics: enough to name its operator.
#
# Its words are not known here, so they are learned: one operator alone is given weight, and what the prompts
# then say is that operator's. Nothing of it is kept or printed.


@dataclass(frozen=True)
class Wording:
    """The operators of one parent, by what their prompts say; without it, all count as replacements."""

    known: dict[str, Operator] | None

    def operator(self, prompt: str, shown: Sequence[Member]) -> Operator:
        """The operator of a prompt; raises HostError for words that no operator was seen to use."""
        if len(shown) != 1:
            return CROSSOVER if shown else CREATION
        if self.known is None:
            return REPLACEMENT
        try:
            return self.known[words_of(prompt, shown)]
        except KeyError:
            raise HostError(
                "calm_trainer.py: a prompt with one parent has a wording that no known operator uses"
            ) from None


def words_of(prompt: str, shown: Sequence[Member]) -> str:
    """A prompt without the ideas, the codes and any number."""
    for member in shown:
        prompt = prompt.replace(member.code.strip(), "").replace(member.idea, "")
    return re.sub(r"[\d.]+", "", prompt)


def learn_wording(prompts: Mapping[Operator, Sequence[str]], shown: Member) -> Wording:
    """The words of each operator, from as many prompts of each that show one member.

    A host may keep weights of its own: words belong to the operator that says them most often. Raises
    HostError when two say them as often.
    """
    said = {name: Counter(words_of(text, [shown]) for text in texts) for name, texts in prompts.items()}
    known: dict[str, Operator] = {}
    for words in sorted({words for counted in said.values() for words in counted}):
        first, second, *_ = sorted(said, key=lambda operator: -said[operator][words])
        if said[first][words] == said[second][words]:
            raise HostError("calm_trainer.py: two operators have the same wording")
        known[words] = first
    return Wording(known)


class NotComparableError(HostError):
    """An answer of the released host says nothing about its rules, for instance one cut short by time."""


@dataclass(frozen=True)
class AskedPrompt:
    """A prompt: its operator, the positions of its bases in the listed archive, and its text.

    ``chat`` is what the released host asked, ``used`` are its own objects for the prompts of the round, among
    which its rewards look. ``shown`` are the positions of the heuristics as it shows them, repeats included.
    """

    operator: Operator
    bases: tuple[int, ...]
    prompt: str = ""
    chat: Any = None
    used: tuple[Any, ...] = ()
    shown: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlayedGroup:
    """What became of a group, completion by completion, and the state after it, listed best first.

    ``scores`` are higher-is-better and absent where the outcome is not valid; ``rewards`` are native. An
    outcome is None for a failure whose reward is no severity.
    """

    outcomes: tuple[Outcome | None, ...]
    scores: tuple[float | None, ...]
    rewards: tuple[float, ...]
    after: SearchState


TIME_LIMIT_S = 60.0
"""Wall time that the released host gives all instances of a heuristic (HOST.md, point 26)."""

_PATIENCE_S = 600.0
MOST_TRIES = 400
_WORDED = 60
"""Enough to see three equally likely wordings: one stays unseen in fewer than 1e-10 of all cases."""

ONE_PARENT = (SIMPLIFICATION, INJECTION, REPLACEMENT)


@dataclass
class ReleasedHost:
    """A released trainer that was never given a model: ``trainer`` has the attributes that search needs."""

    policy: type[Any]
    trainer: Any
    wordings: dict[tuple[str, ...], Wording] = field(default_factory=dict)

    def arrays(self) -> Sequence[NDArray[Any]]:
        """Every numeric array within the training instances, those of one place and shape also stacked."""
        by_place: dict[str, list[NDArray[Any]]] = {}
        for place, array in _leaves(self.trainer.instances, "", 0):
            by_place.setdefault(place, []).append(array)
        stacked = [
            np.stack(group) for group in by_place.values() if len({array.shape for array in group}) == 1
        ]
        return [*stacked, *(array for group in by_place.values() for array in group)]

    def scores(self, code: str) -> tuple[float, ...] | None:
        """Score on every instance where it reports them, then their mean; None for a failure.

        Raises NotComparableError when the program takes more than ten minutes.
        """
        try:
            return self.evaluated(code)
        except HostError:
            raise
        except Exception:  # noqa: BLE001 - whatever a heuristic raises is its failure
            return None

    def evaluated(self, code: str) -> tuple[float, ...] | None:
        """The same, but raises what the evaluation raises."""
        member = Member("", code, 0.0, None, 0, 0, program_sha256(code))
        policy = policy_of(self.policy, member, self.trainer.problem_name, function_of(code))
        try:
            with quiet():
                report = policy.run_one_episode_sync(self.trainer.instances, _PATIENCE_S)
        except Exception as error:
            if _is_timeout(error):
                raise NotComparableError(f"the host's evaluation took more than {_PATIENCE_S:g} s") from error
            raise
        if not isinstance(report, dict) or "performance" not in report:
            raise HostError("heuristic.py: run_one_episode_sync gave no dictionary with performance")
        perfs = np.atleast_1d(np.array(report["performance"], dtype=np.float64))
        if not np.isfinite(perfs).all():
            return None
        return (float(perfs[0]),) if len(perfs) == 1 else (*map(float, perfs), float(np.mean(perfs)))

    def asks(
        self, state: SearchState, wanted: Operator | None = None, named: bool = True
    ) -> Iterator[AskedPrompt]:
        """Draw prompts, each in this state, for ever; those of one operator alone where one is wanted.

        Unless ``named``, every prompt of one parent counts as a replacement. Raises HostError when operators
        cannot be distinguished, and when the wanted one does not come.
        """
        wording = self._wording(state) if named else Wording(None)
        load(self.trainer, self.policy, state)
        missed = 0
        while missed < MOST_TRIES:
            with self.weighing(wanted):
                (chat,) = self.rows(1)
            text = content(chat)
            kept = tuple(self.trainer.used_prompts)
            listed = state.listed()
            if len(self.trainer.algos) != len(state.archive):
                listed = snapshot(self.trainer)
                load(self.trainer, self.policy, state)
            shown = shown_in(text, listed.archive)
            operator = wording.operator(text, [listed.archive[position] for position in shown])
            asked = AskedPrompt(operator, tuple(sorted(set(shown))), text, chat, kept, shown)
            missed = 0 if wanted in (None, asked.operator) else missed + 1
            if not missed:
                yield asked
        raise HostError(f"calm_trainer.py: no {wanted or ''} prompt in {MOST_TRIES} draws")

    def creation(self, state: SearchState) -> AskedPrompt:
        """The prompt that it makes of a state in which crossover alone has weight, and no pair can be used.

        Raises HostError where that shows a member.
        """
        load(self.trainer, self.policy, state)
        with self.sized(1), self.weighing(CROSSOVER):
            (chat,) = self.rows(1)
        text = content(chat)
        if bases_of(text, state.archive):
            raise HostError(
                "calm_trainer.py: a prompt shows heuristics of the archive although no pair of them is usable"
            )
        return AskedPrompt(CREATION, (), text, chat, tuple(self.trainer.used_prompts))

    def play(self, state: SearchState, asked: AskedPrompt, texts: Sequence[str]) -> PlayedGroup:
        """Let its own reward function score the answers and update the population.

        Raises NotComparableError when its time limit cut an evaluation short.
        """
        load(self.trainer, self.policy, state)
        self.trainer.used_prompts = list(asked.used)
        prompts = [asked.chat for _ in texts]
        completions = [[{"role": "assistant", "content": text}] for text in texts]
        began = time.monotonic()
        with quiet(), heuristics_made(self.policy) as seen, _timeouts(self.policy) as late:
            given = self.trainer.reward_func(prompts=prompts, completions=completions)
        rewards = tuple(float(reward) for reward in given)
        severities = severities_of(self.trainer.calm_args)
        outcomes = tuple(outcome_of(reward, severities) for reward in rewards)
        waited = time.monotonic() - began
        if Outcome.RUNTIME_FAILURE in outcomes and (late or waited > 0.9 * TIME_LIMIT_S):
            raise NotComparableError(f"the host's time limit ended an evaluation ({waited:.0f} s in all)")
        after = snapshot(self.trainer)
        scores = tuple(
            score_of(text, seen, after.archive, lambda code: None) if outcome is Outcome.VALID else None
            for text, outcome in zip(texts, outcomes, strict=True)
        )
        return PlayedGroup(outcomes, scores, rewards, after)

    def collapsed(self, state: SearchState) -> SearchState:
        """The state in which it draws a prompt when the stagnation threshold is reached."""
        return self.drawn_at(state, settings_of(self.trainer.calm_args).collapse_threshold)

    def drawn_at(self, state: SearchState, stagnation: int) -> SearchState:
        """The state in which it draws a prompt at a value of its stagnation counter."""
        load(self.trainer, self.policy, state)
        self.trainer.age_stuck = stagnation
        self.rows(1)
        return snapshot(self.trainer)

    def rows(self, count: int, kept: bool = False) -> list[Any]:
        """The chats of a round of so many prompts, drawn in the state that the trainer is in.

        Prompts of earlier rounds are forgotten unless ``kept``.
        """
        if not kept:
            self.trainer.used_prompts = []
        self.trainer.n_prompts = self.trainer.calm_args.n_prompts = count
        with quiet():
            rows = self.trainer.prepare_dataset()
        rows = getattr(self.trainer, "train_dataset", None) if rows is None else rows
        if rows is None or len(rows) < count:
            raise HostError("calm_trainer.py: prepare_dataset gave no prompts")
        return [rows[i]["prompt"] for i in range(count)]

    def weighing(self, wanted: Operator | None) -> AbstractContextManager[None]:
        """Let one operator alone have weight meanwhile; a growing archive still gives injection as much."""
        weights = {f"ub_{operator}": float(operator == wanted) for operator in OPERATORS}
        return changed(self.trainer.calm_args, **weights) if wanted else nullcontext()

    def _wording(self, state: SearchState) -> Wording:
        if state.injected not in self.wordings:
            best = max(state.archive, key=lambda member: member.score)
            prompts = {wanted: self.worded(best, state.injected, wanted) for wanted in ONE_PARENT}
            self.wordings[state.injected] = learn_wording(prompts, best)
        return self.wordings[state.injected]

    def worded(
        self, member: Member, injected: tuple[str, ...], wanted: Operator, count: int = _WORDED
    ) -> list[str]:
        """Prompts of an operator that show this member.

        The member alone counts as a full population meanwhile, so injection gets no weight of its own.
        """
        load(self.trainer, self.policy, replace(state_of([member], [member]), injected=injected))
        with self.sized(1), self.weighing(wanted):
            return [content(self.rows(1)[0]) for _ in range(count)]

    @contextmanager
    def sized(self, size: int) -> Iterator[None]:
        """Let so many members be a full population meanwhile."""
        options = self.trainer.calm_args
        with changed(self.trainer, population_size=size), changed(options, population_size=size):
            yield


def released_host(checkout: ReleasedCheckout, problem: str) -> ReleasedHost:
    """A host for one of our problems; raises HostError where the checkout has another interface.

    Its log, which ``log_dir`` names as a file, and its algorithms go below the working directory, which is
    that of the open checkout.
    """
    module = checkout.module(f"problems.{NAMES[problem]}")
    kind = checkout.module("calm_trainer").Trainer
    options = checkout.options(problem)
    options.max_stuck_threshold = settings_of(options).collapse_threshold
    trainer = object.__new__(kind)
    environment = module.Environment()
    here = Path(tempfile.mkdtemp(prefix="written-", dir=Path.cwd()))
    fields = {
        "algos": [],
        "seed_algos": [],
        "used_prompts": [],
        "injected_components": [],
        "age_stuck": 0,
        "log_step": 0,
        "train_epoch": 0,
        "n_prompts": 1,
        "population_size": options.population_size,
        "problem_name": NAMES[problem],
        "algorithm_template": checkout.named(problem, options, "template_fp"),
        "calm_args": options,
        "problem": module,
        "env": environment,
        "instances": environment.training_dataset(),
        "log_dir": str(here / "output.log"),
        "save_dir": tempfile.mkdtemp(dir=here),
    }
    for name, value in fields.items():
        setattr(trainer, name, value)
    return ReleasedHost(checkout.module("heuristic").HeuristicPolicy, trainer)


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what the host prints meanwhile, which may be its prompts."""
    nowhere = _nowhere()
    with redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


@cache  # a comparison asks the host a hundred thousand times
def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that the released host draws from, which seeds nothing itself; then undo it."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def _timeouts(kind: type[Any]) -> Iterator[list[str]]:
    """Every time-out that an evaluation in this process raises meanwhile."""
    late: list[str] = []
    run = kind.run_one_episode_sync

    def remember(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return run(self, *arguments, **named)
        except Exception as error:
            if _is_timeout(error):
                late.append(type(error).__name__)
            raise

    with changed(kind, run_one_episode_sync=remember):
        yield late


def _is_timeout(error: BaseException) -> bool:
    return "timeout" in type(error).__name__.lower()
