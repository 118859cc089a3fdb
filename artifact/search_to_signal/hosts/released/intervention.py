"""The released host with our rewards: its own evaluation and search, observed, then another number returned.

The subclass stands in for the released trainer before ``main`` is imported; everything else of the host is
used as it is. Native through the wrapper is the host's own list, untouched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_to_signal.hosts.base import HostError
from search_to_signal.hosts.credit import credited
from search_to_signal.hosts.released.checkout import Checkout, opened
from search_to_signal.hosts.released.files import HostFiles, HostRecord, host_files
from search_to_signal.hosts.released.rounds import Round, heuristics_of, records_of, step_of
from search_to_signal.hosts.released.trainer import content, settings_of, snapshot, witnessed
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.rewards import RewardMapping, get_mapping
from search_to_signal.search.state import SearchState

NATIVE = "native"
Rescore = Callable[[str], float | None]


@dataclass
class Observer:
    """Turns what a trainer did with a group into records and into the mapping's rewards.

    ``rescore`` evaluates a program where the host does not say how well it did.
    """

    problem: str
    mapping: RewardMapping
    files: HostFiles
    rescore: Rescore = lambda code: None
    step: int = 0
    last: SearchState | None = field(default=None, repr=False)

    def observe(self, played: Round) -> list[float]:
        """Write the records of a group, and return what the learner shall see."""
        records = credited(records_of(played, self.problem, self.rescore), self.mapping)
        again = get_mapping(NATIVE)(batch_of([records])).reward[0]
        native = tuple(float(reward) for reward in played.native)
        for record in records:
            self.files.completions.write(record)
        for heuristic in heuristics_of(played):
            self.files.heuristics.write(heuristic)
        texts = tuple(played.texts)
        self.files.generations.write(
            GenerationRecord(
                step=played.step, prompt=played.prompt, prompt_ids=(), completion_ids=(), completions=texts
            )
        )
        self.files.host.write(
            HostRecord(step=played.step, native=native, recomputed=tuple(float(one) for one in again))
        )
        self.files.steps.write(step_of(played, records, self.last, self.mapping.name))
        self.step, self.last = self.step + 1, played.after
        if self.mapping.name == NATIVE:
            return list(played.native)
        return [record.reward or 0.0 for record in records]


def intervene(checkout: Checkout, observer: Observer) -> type[Any]:
    """Put the observed trainer in the place of the released one, and return it."""
    module = checkout.module("calm_trainer")
    policy = checkout.module("heuristic").HeuristicPolicy
    released = module.Trainer

    class ObservedTrainer(released):  # type: ignore[misc, valid-type]
        """The released trainer, whose rewards go by the observer."""

        def reward_func(self, prompts: Any, completions: Any, **others: Any) -> list[float]:
            """Evaluate and move the population as released; return the observer's rewards."""
            before = snapshot(self)
            with witnessed(policy) as seen:
                native = super().reward_func(prompts=prompts, completions=completions, **others)
            asked = {content(prompt) for prompt in prompts}
            if len(asked) != 1:
                raise HostError(
                    f"a call with {len(asked)} prompts: a group is one prompt, set n_prompts to 1"
                )
            played = Round(
                step=observer.step,
                prompt=asked.pop(),
                texts=tuple(content(completion) for completion in completions),
                native=tuple(native),
                seen=tuple(seen),
                before=before,
                after=snapshot(self),
                settings=settings_of(self.calm_args),
                tokenizer=getattr(self, "processing_class", None),
            )
            return observer.observe(played)

    vars(module)["Trainer"] = ObservedTrainer
    return ObservedTrainer


def run_released(path: Path, config: str, problem: str, mapping: str, out: Path, rescore: Rescore) -> Any:
    """Start the released ``main.run`` on a configuration of its own, with our rewards; records go to ``out``.

    ``rescore`` evaluates a program whose performance the host does not tell. Raises HostError.
    """
    with opened(path) as checkout, host_files(out) as files:
        intervene(checkout, Observer(problem, get_mapping(mapping), files, rescore))
        options = checkout.module("args").Args.from_yaml(config)
        return checkout.module("main").run(options)
