"""A recorded run, group by group: what it holds, and by a replay of its search what it has to hold.

Whatever goes on from a run, looks at its states or checks its records replays it here.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.seeding import stream
from search_to_signal.credit import RewardMapping
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.credit.normalizers import Normalizer
from search_to_signal.models.base import Completion, Generation
from search_to_signal.records.differences import Difference, record_differences
from search_to_signal.records.manifest import Manifest, RunFacts, read_manifest
from search_to_signal.records.reader import (
    COMPLETIONS,
    GENERATIONS,
    HEURISTICS,
    STEPS,
    Group,
    read_groups,
    read_records,
)
from search_to_signal.records.schema import (
    GIVEN,
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    StepRecord,
    as_given,
    given,
)
from search_to_signal.run.config import RunConfig
from search_to_signal.run.group import EvaluatedCompletion, completion_records, step_record
from search_to_signal.sandbox.programs import Failure, Proposal, parse
from search_to_signal.search.host import Host, Request, Transition, begin, exposures_of, update_search
from search_to_signal.search.hosts import host_errors
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, collapsed, state_of, transition
from search_to_signal.search.member import (
    Evaluated,
    Member,
    Prompt,
    given_member,
    heuristic_record,
    member_of,
)


@dataclass(frozen=True)
class RecordedGroup:
    """One recorded group: its completions, step and texts, and the heuristics that it admitted.

    ``lines`` are those of the first completion and of the first heuristic, None where there is none.
    """

    group: Group
    step: StepRecord
    generation: GenerationRecord
    heuristics: tuple[HeuristicRecord, ...] = ()
    lines: tuple[int, int | None] = (1, None)

    @cached_property
    def completions(self) -> tuple[Completion, ...]:
        """The completions as the generator returned them."""
        generation, size = self.generation, len(self.group)
        requests = generation.requests if len(generation.requests) == size else (None,) * size
        parts = zip(generation.completion_ids, generation.completions, self.group, requests, strict=True)
        return tuple(Completion(ids, text, record.truncated, request) for ids, text, record, request in parts)


def recorded_groups(directory: Path) -> Iterator[RecordedGroup]:
    """Yield the groups of a run in order; raises RecordError where its files do not hold the same ones."""
    steps = read_records(directory / STEPS, StepRecord)
    generations = read_records(directory / GENERATIONS, GenerationRecord)
    heuristics, line = _admitted_by_step(directory), 1
    for number, parts in enumerate(zip_longest(steps, read_groups(directory), generations)):
        step, group, generation = parts
        if step is None or group is None or generation is None or not _belong_together(number, *parts):
            raise RecordError(
                f"{directory}: {COMPLETIONS}, {STEPS} and {GENERATIONS} do not hold the same completions of "
                f"step {number}: restore them"
            )
        first, admitted = heuristics.pop(number, (None, ()))
        yield RecordedGroup(group, step, generation, admitted, (line, first))
        line += len(group)
    if heuristics:
        raise RecordError(
            f"{directory / HEURISTICS}: step {min(heuristics)} belongs to no recorded group; restore the file"
        )


def _belong_together(number: int, step: StepRecord, group: Group, generation: GenerationRecord) -> bool:
    sizes = {len(group), len(generation.completions), len(generation.completion_ids)}
    return len(sizes) == 1 and {step.step, group[0].step, generation.step} == {number}


def _admitted_by_step(directory: Path) -> dict[int, tuple[int | None, tuple[HeuristicRecord, ...]]]:
    """The heuristics that groups admitted, with the line of the first one of each group."""
    records = enumerate(read_records(directory / HEURISTICS, HeuristicRecord), start=1)
    admitted = ((line, h) for line, h in records if h.operator is not None and h.step != GIVEN)
    by_step: dict[int, tuple[int | None, tuple[HeuristicRecord, ...]]] = {}
    for step, numbered in groupby(admitted, key=lambda one: one[1].step):
        lines, heuristics = zip(*numbered, strict=True)
        if by_step and step <= max(by_step):
            raise RecordError(
                f"{directory / HEURISTICS}:{lines[0]}: step {step} after step {max(by_step)}: lines "
                "reordered; restore the file"
            )
        by_step[step] = lines[0], heuristics
    return by_step


# Who moves a recorded search on: its host, which draws again, or the records with what they tell of draws.
#
# ``undecided`` are fields of records of which a search tells nothing. ``decides`` are the facts in which it
# must not differ from the records of a run that goes on.

# What the learner gave, which no search tells.
CREDIT = frozenset({"components", "reward", "advantage"})
_LEARNER = frozenset(
    {
        *("loss", "kl", "grad_norm", "training_tokens", "adapter_sha256", "not_finite", "dropped"),
        "sampler_difference",
    }
)
_DRAWN = {"operator", "collapsed", "parents"}
# Chance and time limits make the first another one, and a tokenizer alone tells the second.
_ELSEWHERE = frozenset({"evaluation", "prompt_tokens_cut"})


@dataclass(frozen=True)
class DrawnAgain:
    """The search of a run's host, drawn again from its seed. ``name`` is that of the host."""

    host: Host
    name: str
    seed: int
    undecided: frozenset[str] = _LEARNER | _ELSEWHERE
    decides: Set[str] = frozenset({"operator", "collapsed", "archive_size", "stagnation", "archive_event"})

    def start(self, seeds: Sequence[Member], population: Sequence[HeuristicRecord]) -> Any:
        with host_errors(self.name):
            return begin(self.host, seeds[0], population)

    def request(self, state: Any, recorded: RecordedGroup) -> Request:
        with host_errors(self.name):
            return self.host.propose(state, stream(self.seed, "search", recorded.step.step))

    def move(self, request: Request, results: Sequence[Evaluated], recorded: RecordedGroup) -> Transition:
        with host_errors(self.name):
            return update_search(self.host, request, results, recorded.step.step)

    def exposures(self, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        with host_errors(self.name):
            return exposures_of(self.host, request, results)


@dataclass(frozen=True)
class AsRecorded:
    """CALM's search, moved on by the draws that the records tell; no code that they name is loaded."""

    settings: SearchSettings = field(default_factory=SearchSettings)
    undecided: frozenset[str] = _LEARNER | _ELSEWHERE | {"exposure"}
    decides: Set[str] = frozenset({"archive_event"})

    def start(self, seeds: Sequence[Member], population: Sequence[HeuristicRecord]) -> SearchState:
        return state_of((*seeds, *map(given_member, population)), tuple(seeds))

    def request(self, state: SearchState, recorded: RecordedGroup) -> Request:
        first, is_collapsed = recorded.group[0], recorded.step.collapsed
        before = (collapsed(state) if is_collapsed else state).listed()
        named = [member for member in before.archive if member.id in first.parents]
        by_id = {member.id: member for member in named}
        # Programs that differ in comments alone share an id, which leaves open which one the prompt showed.
        if len(named) > len(by_id) and set(first.base_scores) <= {base.score for base in named}:
            named = [base for base in named if base.score in first.base_scores]
        return Request(
            prompt=Prompt("", recorded.generation.prompt),
            operator=recorded.step.operator,
            parents=tuple(by_id[name] for name in first.parents if name in by_id),
            bases=tuple(named),
            archive=before.archive,
            state=before,
            collapsed=is_collapsed,
        )

    def move(self, request: Request, results: Sequence[Evaluated], recorded: RecordedGroup) -> Transition:
        before: SearchState = request.state
        after, events = transition(
            before, results, operator=request.operator, step=recorded.step.step, settings=self.settings
        )
        admitted = after.archive[len(before.archive) :]
        return Transition(after, events, admitted, after.archive, after.stagnation)

    def exposures(self, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        return (None,) * len(results)


def _admissions(results: Sequence[Evaluated], recorded: RecordedGroup) -> tuple[Member, ...]:
    """The members that the records say were admitted."""
    return tuple(
        member_of(result, record.operator, record.step, record.index)
        for record, result in zip(recorded.group, results, strict=True)
        if record.archive_event is ArchiveEvent.ADMITTED
    )


def _events(recorded: RecordedGroup) -> tuple[ArchiveEvent, ...]:
    return tuple(record.archive_event for record in recorded.group)


@dataclass(frozen=True)
class AdmittedAsRecorded(AsRecorded):
    """The archive of a host whose rule of admission is not known for certain (HOST.md, point 7)."""

    undecided: frozenset[str] = AsRecorded.undecided | {
        *("parents", "base_scores", "matches_base_code", "stagnation", "mapping", "zero_advantage"),
        *("prompt_tokens", "completion_tokens", "id", "idea", "code", "instance_scores"),
    }

    def move(self, request: Request, results: Sequence[Evaluated], recorded: RecordedGroup) -> Transition:
        admitted = _admissions(results, recorded)
        after = request.state.extended(admitted)
        return Transition(after, _events(recorded), admitted, after.archive)


@dataclass(frozen=True)
class OfAnyHost(AsRecorded):
    """What holds of every host: the best of an archive stays in it, and what was admitted is stored."""

    undecided: frozenset[str] = AsRecorded.undecided | {
        *("parents", "base_scores", "matches_base_code", "archive_gap", "archive_size", "stagnation")
    }

    def request(self, state: Any, recorded: RecordedGroup) -> Request:
        first, prompt = recorded.group[0], Prompt("", recorded.generation.prompt)
        best = () if first.frontier is None else (Member("", "", first.frontier, None, 0, 0, ""),)
        return Request(prompt, recorded.step.operator, (), (), best, None, recorded.step.collapsed)

    def move(self, request: Request, results: Sequence[Evaluated], recorded: RecordedGroup) -> Transition:
        admitted = _admissions(results, recorded)
        return Transition(None, _events(recorded), admitted, (*request.archive, *admitted))


Search = DrawnAgain | AsRecorded
Credit = tuple[RewardMapping, Normalizer]
Reading = Callable[[str], Proposal | Failure]


class Due(NamedTuple):
    """The records that a group has to have."""

    completions: Sequence[CompletionRecord]
    step: StepRecord
    heuristics: Sequence[HeuristicRecord]


@dataclass(frozen=True)
class Played:
    """One recorded group as its search plays it again."""

    recorded: RecordedGroup
    request: Request
    transition: Transition
    evaluated: Sequence[EvaluatedCompletion]
    results: Sequence[Evaluated]
    replay: "Replay"

    @cached_property
    def due(self) -> Due:
        """The records that the group has to have; raises MappingError as exposures and credit do."""
        recorded, number, replay = self.recorded, self.recorded.step.step, self.replay
        cut = recorded.step.prompt_tokens_cut or 0
        generation = Generation(
            recorded.generation.prompt, recorded.generation.prompt_ids, recorded.completions, cut
        )
        records = completion_records(
            *(self.request, number, replay.facts.problem, generation, self.evaluated),
            *(self.transition.events, replay.search.exposures(self.request, self.results)),
        )
        if replay.credit is not None:
            records = assign_credit(records, *replay.credit)
        mapping = replay.facts.mapping if replay.facts.trained else None
        step = step_record(self.request, self.transition, generation, records, mapping, None)
        if mapping is not None and replay.credit is None:
            zero = all(record.advantage == 0 for record in recorded.group)
            step = msgspec.structs.replace(step, zero_advantage=zero)
        return Due(records, step, [heuristic_record(member) for member in self.transition.admitted])

    @property
    def unequal_facts(self) -> set[str]:
        """The facts of the group that are recorded otherwise than they are played."""
        recorded, request, moved = self.recorded, self.request, self.transition
        facts = {
            "operator": (recorded.step.operator, request.operator),
            "collapsed": (recorded.step.collapsed, request.collapsed),
            "parents": (recorded.group[0].parents, tuple(parent.id for parent in request.parents)),
            "archive_size": (recorded.step.archive_size, len(moved.archive)),
            "stagnation": (recorded.step.stagnation, moved.stagnation),
            "archive_event": (_events(recorded), moved.events),
        }
        return {name for name, (told, played) in facts.items() if told != played}

    @property
    def asks_otherwise(self) -> bool:
        """Whether the search draws another operator, collapse or parents, so that nothing else compares."""
        return isinstance(self.replay.search, DrawnAgain) and bool(self.unequal_facts & _DRAWN)

    @cached_property
    def differences(self) -> list[Difference]:
        """The fields in which the recorded group is not what is due."""
        recorded, due, number = self.recorded, self.due, self.recorded.step.step
        left_out = self.replay.undecided
        step = record_differences(STEPS, number + 1, f"step {number}", recorded.step, due.step, left_out)
        found, (line, _) = list(step), recorded.lines
        for record, expected in zip(recorded.group, due.completions, strict=True):
            which = f"step {number}, completion {record.index}"
            found += record_differences(COMPLETIONS, line + record.index, which, record, expected, left_out)
        found += self._heuristic_differences(left_out)
        return [one for one in found if one.field in _DRAWN] if self.asks_otherwise else found

    def _heuristic_differences(self, left_out: Set[str]) -> Iterator[Difference]:
        number, first, stored = self.recorded.step.step, self.recorded.lines[1], self.recorded.heuristics
        if len(stored) != len(self.due.heuristics):
            sizes = len(stored), len(self.due.heuristics)
            yield Difference(HEURISTICS, first, f"step {number}", "number of heuristics", *sizes)
            return
        for place, (record, expected) in enumerate(zip(stored, self.due.heuristics, strict=True)):
            which = f"step {number}, completion {expected.index}"
            yield from record_differences(HEURISTICS, (first or 0) + place, which, record, expected, left_out)


class Replay:
    """Plays the groups of a recorded run again, one after the other.

    ``reading`` parses a text by the run's rule for where an idea ends (D37). ``credit`` makes rewards and
    advantages due as well.
    """

    def __init__(
        self,
        search: Search,
        state: Any,
        facts: RunFacts,
        credit: Credit | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.search, self.state, self.facts, self.credit = search, state, facts, credit
        self._reading: Reading = reading or (lambda text: parse(text, facts.idea_end))

    @property
    def undecided(self) -> Set[str]:
        """The fields of records of which the replay tells nothing."""
        fields = self.search.undecided | (CREDIT if self.credit is None else set())
        return fields if self.facts.trained else fields - _LEARNER

    def play(self, recorded: RecordedGroup) -> Played:
        """Play the next group; raises RecordError where its texts and records belong to different runs."""
        request = self.search.request(self.state, recorded)
        pairs = zip(recorded.group, recorded.completions, strict=True)
        evaluated = [self._evaluated(*pair) for pair in pairs]
        results = [item.evaluated for item in evaluated]
        transition = self.search.move(request, results, recorded)
        self.state = transition.state
        return Played(recorded, request, transition, evaluated, results, self)

    def _evaluated(self, record: CompletionRecord, completion: Completion) -> EvaluatedCompletion:
        parsing = self._reading(completion.text)
        if isinstance(parsing, Failure) and record.score is not None:
            raise RecordError(
                f"step {record.step}, completion {record.index} is recorded as {record.outcome.value}, but "
                f"its text is {parsing.outcome.value}: the texts belong to another run or were edited"
            )
        proposal = parsing if isinstance(parsing, Proposal) else None
        scores = () if record.instance_scores is msgspec.UNSET else record.instance_scores
        known = record.score, proposal, record.program_sha256, None, scores
        return EvaluatedCompletion(completion, record.outcome, record.detail, *known)


def replayed(directory: Path, search: Search) -> Iterator[Played]:
    """Yield the groups of a run as its search plays them again.

    Raises RecordError where records are missing, or where what the search decides differs from them.
    """
    replay = Replay(search, recorded_start(directory, search), read_manifest(directory).facts)
    for recorded in recorded_groups(directory):
        played = replay.play(recorded)
        if differing := sorted(played.unequal_facts & search.decides):
            raise RecordError(
                f"{directory}: {', '.join(differing)} of step {recorded.step.step} cannot be reproduced "
                "from the records: check that the records are complete and were made with these settings"
            )
        yield played


def host_search(host: Host, config: RunConfig) -> DrawnAgain:
    """The search of a run's host."""
    return DrawnAgain(host, config.host, config.seed)


def run_config(manifest: Manifest) -> RunConfig:
    """Return a manifest's configuration; raises ConfigError for settings of another version."""
    try:
        return msgspec.convert(manifest.config, RunConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"this version cannot read its configuration ({error}): use the version that made it"
        ) from error


def recorded_seeds(directory: Path) -> tuple[Member, ...]:
    """The seed heuristics as a run recorded them; raises RecordError where there is none."""
    records = read_records(directory / HEURISTICS, HeuristicRecord)
    seeds = tuple(given_member(record) for record in records if record.operator is None)
    if not seeds:
        raise RecordError(f"{directory} holds no seed heuristic: restore it")
    return seeds


def recorded_start(directory: Path, search: Search) -> Any:
    """The state of a search before the first group of a run directory."""
    return search.start(recorded_seeds(directory), recorded_population(directory))


def recorded_population(directory: Path) -> tuple[HeuristicRecord, ...]:
    """The population that a run was given, empty for one that began with the seed alone (D45)."""
    return given(read_records(directory / HEURISTICS, HeuristicRecord))


def final_population(directory: Path, settings: SearchSettings) -> tuple[HeuristicRecord, ...]:
    """The archive of a finished run as its records leave it, for another run to begin with (D45).

    In the order of its last listing, the seed left out. Raises RecordError as ``replayed`` does.
    """
    search = AsRecorded(settings)
    state = recorded_start(directory, search)
    for played in replayed(directory, search):
        state = played.transition.state
    return as_given(map(heuristic_record, state.listed().archive))
