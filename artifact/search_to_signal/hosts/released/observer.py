"""Turns the rounds of the released host into records, and keeps the first error of any of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.hosts.released.asking import Count
from search_to_signal.hosts.released.lengths import CountedBy, Requests
from search_to_signal.hosts.released.plan import ReleasedPlan
from search_to_signal.hosts.released.rounds import ReleasedRound, Rescore, round_records, step_of
from search_to_signal.hosts.released.stopping import StopSignal
from search_to_signal.hosts.rewards_and_advantages import assign_credit
from search_to_signal.normalizer import group_advantages
from search_to_signal.records.files import storage_errors
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import CompletionRecord, GenerationRecord, StepRecord, StepTiming
from search_to_signal.records.writer import RecordWriter, RunFiles
from search_to_signal.rewards import RewardMapping, get_mapping

HOST = "host.jsonl"
NATIVE = "native"
AGAIN = "give the same command again, which sets this attempt aside"
PATIENCE = 10
"""Errors of the host between two recorded rounds, after which it would go on for ever."""


class HostRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Native rewards of one group: as the released host returned them, and as our records give them."""

    step: int
    native: tuple[float, ...]
    recomputed: tuple[float, ...]


class Clock(Protocol):
    """The time of steps, split by phase."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...
    def timing(self, step: int) -> StepTiming: ...


@dataclass
class Observer:
    """Turns what a trainer did with a group into records and into the mapping's rewards.

    ``host`` takes the host's own rewards.
    ``rescore`` evaluates a program where the host does not say how well it did. ``count`` counts tokens where
    neither trainer nor endpoint does (``requests``); ``counted_by`` says whose the last ones were.
    ``error`` is the first that came up in a call of the reward function: the host goes on after any, and is
    refused every further round then. ``missed`` is the first that the host met elsewhere in a round; with
    too many of these and no round between them, the last is ``error``. ``stop`` says that a signal asked for
    the end. ``agreeing`` counts the groups whose native rewards follow from our records to the bit.
    """

    plan: ReleasedPlan
    mapping: RewardMapping
    files: RunFiles
    host: RecordWriter
    clock: Clock
    rescore: Rescore
    count: Count | None = None
    requests: Requests = lambda texts: ()
    counted_by: CountedBy | None = None
    after_round: Callable[[int, SearchState], None] = lambda done, after: None
    step: int = 0
    agreeing: int = 0
    last: SearchState | None = field(default=None, repr=False)
    error: BaseException | None = None
    missed: BaseException | None = None
    missed_since: list[BaseException] = field(default_factory=list, repr=False)
    stop: StopSignal = field(default_factory=StopSignal)

    def refuse(self) -> None:
        """Raise again what ends the run, where there is such a thing."""
        self.stop.check()
        if self.error is not None:
            raise self.error

    @contextmanager
    def run_errors(self) -> Iterator[None]:
        """Within it every error is the run's; raises the first again where there was one."""
        self.refuse()
        try:
            yield
        except BaseException as error:
            self.error = error
            raise

    @contextmanager
    def host_errors(self) -> Iterator[None]:
        """Within it an error is the host's own affair; raises the first of the run where there was one."""
        self.refuse()
        try:
            yield
        except Exception as error:
            self.missed = self.missed or error
            if error not in self.missed_since:  # it may pass through here twice
                self.missed_since.append(error)
            if self.error is None and len(self.missed_since) >= PATIENCE:
                self.error = error
            raise

    def observe(self, played: ReleasedRound) -> list[float]:
        """Write the records of a group, and return what the learner shall see."""
        completions, heuristics = round_records(played, self.plan.problem, self.rescore)
        records = assign_credit(completions, self.mapping, group_advantages)
        again = get_mapping(NATIVE)(batch_of([records])).reward[0]
        native = tuple(float(reward) for reward in played.native)
        recomputed = tuple(float(reward) for reward in again)
        requests = tuple(length.request for length in played.lengths if length.request is not None)
        generation = GenerationRecord(
            step=played.step,
            prompt=played.sent,
            prompt_ids=(),
            completion_ids=tuple(length.ids for length in played.lengths),
            completions=played.texts,
            requests=requests,
        )
        with storage_errors(self.files.directory, AGAIN):
            for record in records:
                self.files.completions.write(record)
            for heuristic in heuristics:
                self.files.heuristics.write(heuristic)
            self.files.generations.write(generation)
            self.host.write(HostRecord(step=played.step, native=native, recomputed=recomputed))
            self.files.steps.write(self._step(played, records))
            self.files.timings.write(self.clock.timing(played.step))
        self.agreeing += native == recomputed
        self.step, self.last, self.missed_since = self.step + 1, played.after, []
        self.after_round(self.step, played.after)
        if self.mapping.name == NATIVE:
            return list(played.native)
        return [record.reward or 0.0 for record in records]

    def _step(self, played: ReleasedRound, records: Sequence[CompletionRecord]) -> StepRecord:
        # Behind an endpoint the rewards reach no learner.
        tokens = 0 if self.plan.served else sum(record.completion_tokens for record in records)
        return step_of(played, records, self.last, self.mapping.name, tokens)
