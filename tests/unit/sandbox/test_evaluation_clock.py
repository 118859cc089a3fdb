"""The time limit by processor or by elapsed time: the same scores, and shares that add up to one run."""

import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from search_to_signal.base.errors import SandboxError
from search_to_signal.problems import PROBLEMS
from search_to_signal.sandbox.dialogues import ProgramTask
from search_to_signal.sandbox.locks import ALL
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool, Run, Slot, merge_shards, run_sharded
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

HEAD = "def f(here, destination, unvisited, distance):\n    "
NEAREST = HEAD + "return min(unvisited, key=lambda v: distance[here][v])"
ENDLESS = HEAD + "while True: pass"


def evaluated(
    clock: Literal["processor", "wall"], slots: int, codes: list[str], timeout_s: float = 5.0
) -> list[Any]:
    """What a pool makes of programs, without the seconds."""
    # Of elapsed time a limit by the processor's has plenty, whatever else the machine does.
    limits: Any = {"timeout_s": timeout_s, "wall_factor": 60.0, "memory_mb": 128}
    settings = EvaluationSettings(clock=clock, slots=slots, **limits)
    with EvaluationPool(PROBLEMS["tsp"], "embedded", settings) as pool:
        found = pool.replay(codes)
    return [
        (one.isolation, one.outcome, one.score, one.per_instance, one.repeat, one.detail) for one in found
    ]


def test_both_clocks_give_the_same_scores() -> None:
    """However many slots share the 16 instances, results come back in their order."""
    codes = [NEAREST, PROBLEMS["tsp"].seed.code, "def f(a, b, c, d):\n    return 1 / 0", "x = 1", NEAREST]
    assert evaluated("wall", 3, codes) == evaluated("processor", 1, codes)


FAILING = """def f(here, destination, unvisited, distance):
    if round(float(distance[0][1]), 6) in {marked}:
        raise ValueError(f"at {{distance[0][1]:.6f}}")
    return min(unvisited)"""


def test_how_a_program_ends_does_not_depend_on_the_slots() -> None:
    """The first instance that fails is named, one limit holds for all, and scores keep their order."""
    marks = [round(float(one["distance"][0][1]), 6) for one in PROBLEMS["tsp"].instances("embedded")]
    codes = [NEAREST, FAILING.format(marked={marks[6], marks[5], marks[14]}), ENDLESS, "x = 1"]
    alone = evaluated("processor", 1, codes, 0.3)
    assert [one[0].value for one in alone] == ["ok", "exception", "timeout", "no_function"]
    for slots in (4, 6):
        assert evaluated("processor", slots, codes, 0.3) == alone


def test_elapsed_time_is_a_limit_of_its_own() -> None:
    """A factor is granted to processor time alone; an endless loop ends on every slot."""
    assert EvaluationSettings(timeout_s=2.0, wall_factor=3.0).wall_s == 6.0
    settings = EvaluationSettings(timeout_s=0.3, wall_factor=9.0, clock="wall", slots=2, memory_mb=128)
    assert settings.wall_s == 0.3
    with EvaluationPool(PROBLEMS["tsp"], "embedded", settings) as pool:
        (result,) = pool.evaluate([ENDLESS])
    assert result.isolation is Isolation.TIMEOUT


def test_the_clock_is_part_of_an_evaluation() -> None:
    keys = {
        EvaluationPool(PROBLEMS["tsp"], "embedded", EvaluationSettings(clock=clock)).key(NEAREST)
        for clock in ("processor", "wall")
    }
    assert len(keys) == 2


def run(isolation: Isolation, *scores: float) -> Run:
    """A share that took one second of each kind."""
    return Run(isolation, isolation.value, scores, tuple(map(str, scores)), 1.0, 1.0)


def test_shares_join_in_the_order_of_the_instances() -> None:
    """Processor seconds add up, elapsed ones do not; a kill from outside gives way to a failure."""
    whole = merge_shards([run(Isolation.OK, 0.0, 3.0), run(Isolation.OK, 1.0, 4.0), run(Isolation.OK, 2.0)])
    assert (whole.scores, whole.decisions[1]) == ((0.0, 1.0, 2.0, 3.0, 4.0), "1.0")
    assert (whole.cpu_s, whole.wall_s) == (3.0, 1.0)
    failed = merge_shards([run(Isolation.KILLED), run(Isolation.OK, 1.0), run(Isolation.EXCEPTION)])
    assert (failed.isolation, failed.scores) == (Isolation.EXCEPTION, ())


class StubSlot:
    """A slot that scores an instance with itself, or has a fault of ours."""

    def __init__(self, faulty: bool = False) -> None:
        self.faulty = faulty
        self.asked: list[Sequence[Any]] = []

    def run(self, task: ProgramTask, code: str, shards: int = 1) -> Run:
        self.asked.append(task.instances)
        if self.faulty:
            raise SandboxError("broken")
        return run(Isolation.OK, *task.instances)  # type: ignore[arg-type]


def run_on(slots: Sequence[Any], task: ProgramTask, clock: Literal["processor", "wall"] = "wall") -> Run:
    """Run a program on as many shards as there are slots, each on the first one that is free."""
    free: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for slot in slots:
        free.put(slot)

    @contextmanager
    def take() -> Iterator[Any]:
        slot = free.get()
        try:
            yield slot
        finally:
            free.put(slot)

    with ThreadPoolExecutor(len(slots)) as threads:
        return run_sharded(take, threads, task, "", EvaluationSettings(clock=clock, slots=len(slots)))


def test_instances_are_dealt_out_and_no_shard_is_empty() -> None:
    """Four slots share three instances, one each; a fault of ours is raised when all have ended."""
    slots = [StubSlot() for _ in range(4)]
    task = ProgramTask(None, [0.0, 1.0, 2.0])  # type: ignore[list-item]
    assert run_on(slots, task).scores == (0.0, 1.0, 2.0)
    assert sorted(asked for slot in slots for asked in slot.asked) == [[0.0], [1.0], [2.0]]
    mixed = [StubSlot(faulty=True), StubSlot(), StubSlot()]
    with pytest.raises(SandboxError):
        run_on(mixed, task)
    assert sum(len(slot.asked) for slot in mixed) == 3


class StrictSlot(StubSlot):
    """A slot whose programs need more than a shard's share of the time."""

    def run(self, task: ProgramTask, code: str, shards: int = 1) -> Run:
        return super().run(task, code) if shards == 1 else run(Isolation.TIMEOUT)


def test_what_ends_a_program_is_said_by_a_run_of_all_instances() -> None:
    """A shard that needs more than its share ends no program; by elapsed time the limit is one for all."""
    task = ProgramTask(None, [0.0, 1.0, 2.0])  # type: ignore[list-item]
    slots = [StrictSlot(), StrictSlot()]
    assert run_on(slots, task, "processor").isolation is Isolation.OK
    assert run_on(slots, task, "wall").isolation is Isolation.TIMEOUT


def test_a_shard_has_its_share_of_the_processor_time() -> None:
    """So that all shards together have no more than the limit."""
    task = ProgramTask(PROBLEMS["tsp"], PROBLEMS["tsp"].instances("embedded")[:1])
    slot = Slot(EvaluationSettings(timeout_s=4.0, wall_factor=9.0, memory_mb=128), ALL)
    try:
        ended = slot.run(task, ENDLESS, 8)
    finally:
        slot.close()
    assert (ended.isolation, 0.4 < ended.cpu_s < 2.0) == (Isolation.TIMEOUT, True)


class PausedOnce(list[Any]):
    """Instances of a caller that stands still once, before the second part."""

    def __init__(self, instances: Any, seconds: float) -> None:
        super().__init__([*instances] * 2)
        self.seconds, self.asked = seconds, 0

    def __getitem__(self, place: Any) -> Any:
        self.asked += 1
        if self.asked == 2:
            time.sleep(self.seconds)
        return super().__getitem__(place)


@pytest.mark.parametrize("clock", ["processor", "wall"])
def test_a_pause_of_the_machine_fails_no_program(clock: Literal["processor", "wall"]) -> None:
    """What elapsed time ended is run once more by processor time; elapsed time itself counts the pause."""
    task = ProgramTask(PROBLEMS["tsp"], PausedOnce(PROBLEMS["tsp"].instances("embedded"), 1.5))
    slot = Slot(EvaluationSettings(timeout_s=1.0, wall_factor=1.0, memory_mb=128, clock=clock), ALL)
    try:
        ended = slot.run(task, NEAREST)
    finally:
        slot.close()
    assert ended.isolation is (Isolation.OK if clock == "processor" else Isolation.TIMEOUT)


def test_programs_that_share_the_slots_do_not_wait_for_each_other() -> None:
    """While some of the slots are held, another that needs several is served when they are free."""
    settings = EvaluationSettings(timeout_s=5.0, slots=4, memory_mb=128)
    codes = [f"{NEAREST}  # {number}" for number in range(12)]
    with EvaluationPool(PROBLEMS["tsp"], "embedded", settings) as pool, ThreadPoolExecutor(1) as threads:
        replays = threads.submit(pool.replay, codes[:6])
        assert all(one.isolation is Isolation.OK for one in pool.evaluate(codes))
        assert all(one.isolation is Isolation.OK for one in replays.result())
