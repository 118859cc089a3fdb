"""Groups of completions that a trainer of others sampled: run in our sandbox, rewarded by our mapping."""

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.seeding import stream
from search_to_signal.credit import RewardMapping, get_mapping, reads_exposure, rewards_of
from search_to_signal.models.base import Completion, Message, messages
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Heuristic
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.schema import ANY_FENCE, CREATION, Outcome
from search_to_signal.run.group import EvaluatedCompletion, evaluate_group
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.host import HostSetup, begin
from search_to_signal.search.hosts import open_host
from search_to_signal.search.member import heuristic_record, seed_member


@dataclass(frozen=True)
class Context:
    """What the completions of one prompt are compared with; a trainer carries it as columns of its data set.

    ``bases`` are the scores of the heuristics that the prompt shows, higher is better, ``programs`` their
    ids, and ``archive`` the scores that count as known. A prompt that asks for something new has no base.
    """

    bases: tuple[float, ...] = ()
    programs: tuple[str, ...] = ()
    archive: tuple[float, ...] = ()

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> "Context":
        """From the three columns of one row, lists or arrays. Raises ConfigError where one is missing."""
        missing = [name for name in ("bases", "programs", "archive") if columns.get(name) is None]
        if missing:
            raise ConfigError(
                f"a row of the data set has no {', '.join(missing)}, which a mapping compares with: take "
                "rows of prompt_rows, or give empty lists where a prompt shows no heuristic; TRL passes "
                "columns on where remove_unused_columns is false"
            )
        bases, archive = (tuple(map(float, columns[name])) for name in ("bases", "archive"))
        return cls(bases, tuple(map(str, columns["programs"])), archive)


@dataclass(frozen=True)
class Scored:
    """What became of one completion; higher is better, and ``score`` is None where it is not valid."""

    reward: float
    components: Mapping[str, float]
    outcome: Outcome
    score: float | None


class GroupScorer:
    """Rewards groups by one mapping on one split of one problem.

    The pool starts with the first group in each process that asks, and ends with it: a copy of this object
    in a spawned or forked process starts its own. Threads may ask at once; they take turns.
    """

    def __init__(
        self, problem: str, mapping: str | RewardMapping, split: str, settings: EvaluationSettings | None
    ) -> None:
        """Raises ConfigError for a name that is unknown, and for a mapping that a trainer cannot serve."""
        self.problem = get_problem(problem)
        self.mapping = get_mapping(mapping) if isinstance(mapping, str) else mapping
        if split not in self.problem.splits:
            raise ConfigError(f"{problem} has no split {split!r}: use {', '.join(self.problem.splits)}")
        if reads_exposure(self.mapping):
            raise ConfigError(
                f"mapping {self.mapping.name} reads exposures, which only a search has: take another, or "
                "train with s2s run"
            )
        self._split = split
        # By default the paper's limits, with this process's share of the machine's cores as slots.
        share = len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._settings = settings or EvaluationSettings(slots=max(1, share))
        self._started: tuple[int, EvaluationPool] | None = None
        self._turn = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: kept for name, kept in vars(self).items() if name not in ("_started", "_turn")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _started=None, _turn=threading.Lock())

    def __call__(self, groups: Sequence[tuple[Context, Sequence[str]]]) -> list[list[Scored]]:
        """Reward groups, each a context with the texts of its completions; all programs run at once.

        Returns:
            One list per group, in the order of its texts.

        Raises:
            SandboxError, MappingError: The isolation or the mapping failed, not a program.
        """
        texts = [Completion((), text, False) for _, group in groups for text in group]
        with self._turn:
            evaluated = iter(evaluate_group(texts, self._pool(), ANY_FENCE))
        return [self._rewarded(context, [next(evaluated) for _ in group]) for context, group in groups]

    def prompt_rows(
        self, count: int, parents: Sequence[Heuristic] = (), host: str = "reference", seed: int = 0
    ) -> list[dict[str, Any]]:
        """Draw prompts as a search would ask first, with what their completions are compared with.

        Args:
            count: Rows to draw; few parents make few different prompts.
            parents: Heuristics beside the problem's own, each of them valid.
            host: The search that draws and words them.
            seed: Of the draws.

        Returns:
            Rows with ``prompt``, chat messages; ``row``, its number; and the three columns of a context.

        Raises:
            ConfigError: A parent is not valid, or the host takes none.
        """
        known = [self.problem.seed, *parents]
        with self._turn:
            evaluations = self._pool().evaluate([heuristic.code for heuristic in known])
        members = []
        for heuristic, evaluation in zip(known, evaluations, strict=True):
            if evaluation.score is None:
                raise ConfigError(
                    f"a parent is not valid ({evaluation.outcome.value}: {evaluation.detail}): give "
                    "heuristics that run on every instance"
                )
            members.append(seed_member(heuristic, evaluation.score))
        search = open_host(host, HostSetup(self.problem))
        state = begin(search, members[0], [heuristic_record(member) for member in members[1:]])
        rows = []
        for row in range(count):
            request = search.propose(state, stream(seed, "search", row))
            context = Context(
                () if request.operator == CREATION else tuple(base.score for base in request.bases),
                tuple(base.id for base in request.bases),
                tuple(member.score for member in request.archive),
            )
            asked: list[Message] = messages(request.prompt)
            columns = {name: list(values) for name, values in asdict(context).items()}
            rows.append({"prompt": asked, "row": row, **columns})
        return rows

    def close(self) -> None:
        """End the programs of this process; a further group starts the pool again."""
        with self._turn:
            if self._started is not None:
                _end(*self._started)
                self._started = None

    def _pool(self) -> EvaluationPool:
        if self._started is None or self._started[0] != os.getpid():
            pool = EvaluationPool(self.problem, self._split, self._settings).__enter__()
            self._started = (os.getpid(), pool)
            weakref.finalize(self, _end, *self._started)
        return self._started[1]

    def _rewarded(self, context: Context, evaluated: Sequence[EvaluatedCompletion]) -> list[Scored]:
        candidates = tuple(
            Candidate(
                outcome=item.outcome,
                score=item.score,
                response=item.completion.text,
                matches_base_code=item.program in context.programs,
            )
            for item in evaluated
        )
        group = ExternalGroup(candidates, bases=context.bases, archive=context.archive)
        given = rewards_of(self.mapping, external_batch([group]))
        return [
            Scored(
                float(given.reward[0, place]),
                {name: float(values[0, place]) for name, values in given.components.items()},
                item.outcome,
                item.score,
            )
            for place, item in enumerate(evaluated)
        ]


def _end(process: int, pool: EvaluationPool) -> None:
    """Close a pool in the process that started it: a forked copy shares its sockets."""
    if process == os.getpid():
        pool.__exit__()
