"""The released host with our rewards: its own evaluation and search, observed, then another number returned.

The subclass stands in for the released trainer before ``main`` is imported; everything else of the host is
used as it is. Native through the wrapper is the host's own list, untouched.
"""

import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal

from search_to_signal.errors import S2SError
from search_to_signal.hosts.base import HostError
from search_to_signal.hosts.credit import credited
from search_to_signal.hosts.released.asking import Count, asked_operator, count_with, only_prompt
from search_to_signal.hosts.released.checkout import Checkout, one_line
from search_to_signal.hosts.released.files import Clock, HostFiles, HostRecord
from search_to_signal.hosts.released.rounds import Rescore, Round, step_of, told
from search_to_signal.hosts.released.trainer import content, snapshot, witnessed
from search_to_signal.records.files import storage_errors
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import CompletionRecord, GenerationRecord, StepRecord, StepTiming
from search_to_signal.rewards import RewardMapping, get_mapping
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import SearchState

NATIVE = "native"
_LONGEST = 300


@dataclass
class Observer:
    """Turns what a trainer did with a group into records and into the mapping's rewards.

    ``rescore`` evaluates a program where the host does not say how well it did. ``count`` counts tokens where
    the trainer has no tokenizer, ``counted_by`` says whose. ``trained``: the rewards reach a learner.
    ``error`` is the first that came up in a call of the reward function: the host goes on after any, and is
    refused every further round then. ``missed`` is the first that the host met elsewhere in a round.
    ``agreeing`` counts the groups whose native rewards follow from our records to the bit.
    """

    problem: str
    mapping: RewardMapping
    settings: SearchSettings
    files: HostFiles
    clock: Clock
    directory: Path
    trained: bool = True
    rescore: Rescore = lambda code: None
    count: Count = lambda chat: 0
    counted_by: Literal["trainer", "model"] | None = None
    after_round: Callable[[int, SearchState], None] = lambda done, after: None
    step: int = 0
    agreeing: int = 0
    last: SearchState | None = field(default=None, repr=False)
    error: BaseException | None = None
    missed: BaseException | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it every error is the run's; raises the first again where there was one."""
        if self.error is not None:
            raise self.error
        try:
            yield
        except BaseException as error:
            self.error = error
            raise

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Within it an error is the host's own affair, unless it is one that was refused, or Ctrl-C."""
        if self.error is not None:
            raise self.error
        try:
            yield
        except Exception as error:
            self.missed = self.missed or error
            raise
        except BaseException as error:
            self.error = self.error or error
            raise

    def observe(self, played: Round) -> list[float]:
        """Write the records of a group, and return what the learner shall see."""
        found = told(played, self.problem, self.rescore)
        records = credited(found.records, self.mapping)
        again = get_mapping(NATIVE)(batch_of([records])).reward[0]
        native = tuple(float(reward) for reward in played.native)
        recomputed = tuple(float(one) for one in again)
        generation = GenerationRecord(
            step=played.step, prompt=played.prompt, prompt_ids=(), completion_ids=(), completions=played.texts
        )
        with storage_errors(self.directory):
            for record in records:
                self.files.completions.write(record)
            for heuristic in found.heuristics:
                self.files.heuristics.write(heuristic)
            self.files.generations.write(generation)
            self.files.host.write(HostRecord(step=played.step, native=native, recomputed=recomputed))
            self.files.steps.write(self._step(played, records))
            self.files.timings.write(StepTiming(step=played.step, seconds=self.clock.split()))
        self.agreeing += native == recomputed
        self.step, self.last = self.step + 1, played.after
        self.after_round(self.step, played.after)
        if self.mapping.name == NATIVE:
            return list(played.native)
        return [record.reward or 0.0 for record in records]

    def _step(self, played: Round, records: Sequence[CompletionRecord]) -> StepRecord:
        tokens = sum(record.completion_tokens for record in records) if self.trained else 0
        return step_of(played, records, self.last, self.mapping.name, tokens)


def intervene(checkout: Checkout, observer: Observer, seed: int) -> type[Any]:
    """Put the observed trainer in the place of the released one, and return it.

    ``seed`` goes into training arguments that the trainer is made with, as TRL draws from theirs.
    """
    module = checkout.module("calm_trainer")
    policy = checkout.module("heuristic").HeuristicPolicy
    released = module.Trainer

    class ObservedTrainer(released):  # type: ignore[misc, valid-type]
        """The released trainer, whose rewards go by the observer."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            for value in (*arguments, *named.values()):
                if hasattr(value, "seed") and hasattr(value, "learning_rate"):
                    value.seed = seed
            super().__init__(*arguments, **named)
            if not observer.step:
                observer.clock.split()  # what came before is set-up

        def reward_func(self, prompts: Any, completions: Any, **others: Any) -> list[float]:
            """Evaluate and move the population as released; return the observer's rewards."""
            with observer.watching():
                released_rewards = partial(super().reward_func, prompts=prompts, completions=completions, **others)
                return observer.observe(_played(self, policy, prompts, completions, released_rewards, observer))

    for name in ("prepare_dataset", "train"):
        if hasattr(released, name):
            setattr(ObservedTrainer, name, _noted(getattr(released, name), observer))
    for name in ("__name__", "__qualname__", "__module__"):  # pickled by name, as the released one is
        setattr(ObservedTrainer, name, getattr(released, name))
    vars(module)["Trainer"] = ObservedTrainer
    return ObservedTrainer


def _noted(method: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @wraps(method)
    def noted(*arguments: Any, **named: Any) -> Any:
        with observer.noting():
            return method(*arguments, **named)

    return noted


def _played(
    trainer: Any,
    policy: type[Any],
    prompts: Any,
    completions: Any,
    released_rewards: Callable[[], Any],
    observer: Observer,
) -> Round:
    before, chat = snapshot(trainer), only_prompt(prompts)
    asked = asked_operator(trainer.used_prompts, content(chat))
    with witnessed(policy) as seen, observer.clock.phase("evaluation"):
        native = released_rewards()
    tokenizer = getattr(trainer, "processing_class", None)
    if tokenizer is not None:
        observer.count, observer.counted_by = count_with(tokenizer), "trainer"
    return Round(
        step=observer.step,
        chat=chat,
        texts=tuple(content(completion) for completion in completions),
        native=tuple(native),
        seen=tuple(seen),
        before=before,
        after=snapshot(trainer),
        settings=observer.settings,
        asked=asked,
        count=observer.count,
    )


def play(checkout: Checkout, options: Any, observer: Observer, rounds: int) -> None:
    """Start the released ``main.run``; the observer writes the records.

    Raises the first error of a reward function, which the host goes on after; HostError also where the host
    itself stops, and where another number of rounds than ``rounds`` was recorded.
    """
    stopped: BaseException | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the seed of TSP takes a mean of nothing
            checkout.module("main").run(options)
    except SystemExit as end:
        stopped = end if end.code else None
    except Exception as error:  # noqa: BLE001 - code of others: whatever stops it is what we report
        stopped = error
    first = observer.error or stopped
    if first is not None:
        raise as_ours(first, checkout.path, observer.step) from first
    if observer.step != rounds:
        missed = observer.missed
        why = f": {as_ours(missed, checkout.path, observer.step)}" if missed else ""
        raise HostError(
            f"main.py ended with {observer.step} of {rounds} rounds recorded, and goes on after any error{why}"
        ) from missed


def as_ours(error: BaseException, directory: Path, step: int) -> BaseException:
    """An error of the host, or within it, as one line that names the host's file and line."""
    if isinstance(error, S2SError | KeyboardInterrupt):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if Path(frame.filename).is_relative_to(directory)]
    where = f"{Path(inside[-1].filename).relative_to(directory)}:{inside[-1].lineno}" if inside else "main.py"
    text = one_line(error)[:_LONGEST]
    return HostError(f"{where} raised {type(error).__name__} in round {step}{f': {text}' if text else ''}")
