"""The released host with our rewards: its own evaluation and search, observed, then another number returned.

The subclass stands in for the released trainer before ``main`` is imported; everything else of the host is
used as it is. Native through the wrapper is the host's own list, untouched.
"""

import traceback
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from search_to_signal.errors import HostError, S2SError
from search_to_signal.hosts.released.asking import asked_operator, only_prompt
from search_to_signal.hosts.released.checkout import ReleasedCheckout
from search_to_signal.hosts.released.lengths import lengths_of
from search_to_signal.hosts.released.observer import Observer
from search_to_signal.hosts.released.rounds import ReleasedRound
from search_to_signal.hosts.released.trainer import content, heuristics_made, snapshot
from search_to_signal.progress import one_line

_LONGEST = 300


def intervene(checkout: ReleasedCheckout, observer: Observer, seed: int) -> type[Any]:
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
            observer.stop.check()  # Ray has begun by now
            if not observer.step:
                observer.clock.timing(0)  # what came before is set-up

        @property
        def log_step(self) -> int:
            """Rounds so far. The host asks for them between two rounds, where no except is in the way."""
            observer.refuse()
            return int(self.__dict__.get("log_step", 0))

        @log_step.setter
        def log_step(self, rounds: int) -> None:
            self.__dict__["log_step"] = rounds

        def reward_func(self, prompts: Any, completions: Any, **others: Any) -> list[float]:
            """Evaluate and move the population as released; return the observer's rewards."""
            with observer.run_errors():
                before, chat = snapshot(self), only_prompt(prompts)
                asked = asked_operator(self.used_prompts, content(chat))
                with heuristics_made(policy) as seen, observer.clock.phase("evaluation"):
                    native = super().reward_func(prompts=prompts, completions=completions, **others)
                observer.stop.check()  # the host may have taken it for a failure of a heuristic
                texts = tuple(content(completion) for completion in completions)
                lengths = lengths_of(self, chat, texts, others, observer.requests, observer.count)
                observer.counted_by = lengths.counted_by
                played = ReleasedRound(
                    step=observer.step,
                    chat=chat,
                    texts=texts,
                    native=tuple(native),
                    seen=tuple(seen),
                    before=before,
                    after=snapshot(self),
                    settings=observer.plan.settings,
                    asked=asked,
                    lengths=lengths.each,
                )
                return observer.observe(played)

    for name in ("prepare_dataset", "train", "query_all"):
        if hasattr(released, name):
            setattr(ObservedTrainer, name, _noting_errors(getattr(released, name), observer))
    for name in ("__name__", "__qualname__", "__module__"):  # pickled by name, as the released one is
        setattr(ObservedTrainer, name, getattr(released, name))
    vars(module)["Trainer"] = ObservedTrainer
    return ObservedTrainer


def _noting_errors(method: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @wraps(method)
    def noted(*arguments: Any, **named: Any) -> Any:
        with observer.host_errors():
            return method(*arguments, **named)

    return noted


def play(checkout: ReleasedCheckout, options: Any, observer: Observer, rounds: int) -> None:
    """Start the released ``main.run``; the observer writes the records.

    Raises the first error of a call of the reward function, after which the host goes on; HostError also
    where the host itself stops, and where another number of rounds than ``rounds`` was recorded.
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
    observer.stop.check()
    first = observer.error or stopped
    if isinstance(first, S2SError | KeyboardInterrupt):
        raise first
    if first is not None:
        raise host_error(first, checkout.path, observer.step) from first
    if observer.step != rounds:
        missed = observer.missed
        why = host_error(missed, checkout.path, observer.step) if missed else "it goes on after any error"
        raise HostError(f"main.py ended with {observer.step} of {rounds} rounds recorded: {why}") from missed


def host_error(error: BaseException, directory: Path, step: int) -> HostError:
    """An error of the host, or within it, as one line that names the host's file and line."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if Path(frame.filename).is_relative_to(directory)]
    where = f"{Path(inside[-1].filename).relative_to(directory)}:{inside[-1].lineno}" if inside else "main.py"
    text = one_line(str(error), _LONGEST)
    return HostError(f"{where} raised {type(error).__name__} in round {step}{f': {text}' if text else ''}")
