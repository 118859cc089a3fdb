"""Nondeterminism is found by a replay elsewhere, recorded, and never changes outcome or score."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest
from tests.command import Patch

import search_to_signal.sandbox.pool as pool_module
from search_to_signal.base.errors import ConfigError
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.dialogues import ProgramTask
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool, Run, confirm_by_replay, spot_indices
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

HEAD = "def f(current, destination, unvisited, matrix):\n    "
HONEST = HEAD + "return min(unvisited)"
# Each needs another variation between the two fork servers to be seen.
CHANGING = {
    "hash seed": HEAD + "return sorted(unvisited)[hash('key' + str(current)) % len(unvisited)]",
    "order of a set of words": HEAD + "return int(next(iter({str(v) for v in unvisited})))",
    "addresses": HEAD + "return sorted(unvisited)[(id(object()) >> 4) % len(unvisited)]",
    "fresh memory": HEAD
    + "import numpy as np\n    dirt = np.empty(3000).view('u1').sum()"
    + "\n    return sorted(unvisited)[int(dirt) % len(unvisited)]",
    "generator": "import numpy as np\n"
    + HEAD
    + "return sorted(unvisited)[getattr(np, 'ran' + 'dom').randint(len(unvisited))]",
}


def pool(replay: str) -> EvaluationPool:
    """A pool on the small split with a replay policy."""
    settings = EvaluationSettings(timeout_s=2.0, memory_mb=128, replay=replay)  # type: ignore[arg-type]
    return EvaluationPool(Tsp(), "embedded", settings)


@pytest.fixture(scope="module")
def off() -> Iterator[EvaluationPool]:
    """Replays only when asked."""
    with pool("off") as running:
        yield running


@pytest.mark.parametrize("name", CHANGING)
def test_changing_programs_are_recorded(off: EvaluationPool, name: str) -> None:
    """The evaluation keeps outcome and score of the scoring run and says that it may differ."""
    (before,) = off.evaluate([CHANGING[name]])
    (after,) = off.replay([CHANGING[name]])
    assert (before.isolation, after.isolation) == (Isolation.OK, Isolation.NONDETERMINISTIC)
    assert (after.outcome, after.score) == (Outcome.VALID, before.score)


@pytest.mark.parametrize(
    "call",
    [
        "random.random()",
        "random.seed()",
        "random.Random().random()",
        "random.Random('words').random()",
        "np.random.seed()",
        "np.random.RandomState(0).rand()",
        "np.random.default_rng().random()",
        "np.random.Generator(np.random.PCG64()).random()",
    ],
)
def test_every_generator_can_be_used(off: EvaluationPool, call: str) -> None:
    """As on the host such a program succeeds and is then typed by its text."""
    (result,) = off.evaluate([f"import random\nimport numpy as np\n{HEAD}{call}; return min(unvisited)"])
    assert (result.isolation, result.outcome) == (Isolation.OK, Outcome.RANDOMNESS)


@pytest.mark.parametrize("module", ["random", "numpy.random"])
def test_unseeded_draws_are_the_same_every_time(module: str) -> None:
    """A hidden draw decides the same in another pool, so that a run can be repeated."""
    module = module.replace("random", "' + 'ran' + 'dom")
    draw = f"getattr(__import__('{module}', fromlist=['x']), 'ran' + 'dom')()"
    code = f"{HEAD}return sorted(unvisited)[int({draw} * len(unvisited))]"
    scores = []
    for _ in range(2):
        with pool("off") as running:
            scores.append(running.evaluate([code])[0].score)
    assert scores[0] == scores[1] is not None


def test_honest_programs_are_confirmed(off: EvaluationPool) -> None:
    """A program that depends on its arguments alone is confirmed, the seed too."""
    results = off.replay([HONEST, Tsp.seed.code])
    assert [result.isolation for result in results] == [Isolation.OK, Isolation.OK]


def test_failures_are_not_replayed(off: EvaluationPool) -> None:
    (result,) = off.replay([HEAD + "return 0"])
    assert result.isolation is Isolation.INVALID_DECISION


@pytest.mark.parametrize(("instances", "count", "asked"), [(16, 3, 3), (2, 5, 2), (7, 7, 7), (5, 1, 1)])
def test_a_spot_check_asks_a_few_instances_that_the_program_alone_chooses(
    instances: int, count: int, asked: int
) -> None:
    """As many as were asked for and there are, each once, the last first; other programs, other instances."""
    chosen = {code: spot_indices(code, instances, count) for code in CHANGING.values()}
    for code, indices in chosen.items():
        assert len(set(indices)) == len(indices) == asked
        assert list(indices) == sorted(indices, reverse=True)
        assert set(indices) <= set(range(instances))
        assert spot_indices(code, instances, count) == indices
    assert (len(set(chosen.values())) > 1) == (asked < instances)


def test_the_policy_spot_replays_without_being_asked() -> None:
    """With the default policy a hash-dependent program is recorded by evaluate itself."""
    with pool("spot") as running:
        results = running.evaluate([CHANGING["hash seed"], HONEST])
    assert [result.isolation for result in results] == [Isolation.NONDETERMINISTIC, Isolation.OK]


def test_a_known_program_is_not_run_again(off: EvaluationPool) -> None:
    fresh = HONEST.replace("min", "max")
    first, second = off.evaluate([fresh, fresh])
    (third,) = off.evaluate([fresh])
    assert [first.repeat, second.repeat, third.repeat] == [False, True, True]
    assert first.score == second.score == third.score


def test_a_pool_goes_on_with_what_another_knew(off: EvaluationPool) -> None:
    """What is news to a pool, remembered by another, is a repeat there with the same result and ending."""
    off.new_runs()
    changing = CHANGING["hash seed"].replace("'key'", "'another key'")
    codes = [HEAD + "return sorted(unvisited)[0]", changing, HEAD + "return 1 / 0"]
    off.evaluate(codes)
    expected = off.replay(codes[:2]) + off.evaluate(codes[2:])
    news = msgspec.json.decode(msgspec.json.encode(off.new_runs()), type=dict[str, Run])
    assert (len(news), off.new_runs()) == (3, {})
    fresh = pool("off")
    fresh.remember(news)
    assert fresh.new_runs() == {}
    known = fresh.evaluate(codes)
    assert [item.repeat for item in known] == [True] * 3
    assert [replace(item, repeat=True) for item in expected] == known


@pytest.mark.parametrize(
    ("clock", "share", "isolation"),
    [
        ("processor", 0.1, Isolation.NONDETERMINISTIC),
        ("processor", 0.9, Isolation.OK),
        ("wall", 0.1, Isolation.OK),
    ],
)
def test_a_replay_that_is_cut_off_speaks_against_quick_programs_alone(
    clock: Literal["processor", "wall"], share: float, isolation: Isolation
) -> None:
    """A program near its limit may meet it by chance, and elapsed time does not compare with a replay."""
    settings = EvaluationSettings(timeout_s=10.0, clock=clock)
    cut_off = Run(Isolation.TIMEOUT, "", (), (), cpu_s=10.0, wall_s=10.0)
    slot: Any = SimpleNamespace(settings=settings, replay=lambda *_: cut_off)
    first = Run(Isolation.OK, "", (-1.0,), ("decided",), cpu_s=10.0 * share, wall_s=10.0)
    assert confirm_by_replay(slot, ProgramTask(None, [{}]), HONEST, first, [0]).isolation is isolation


def test_a_replay_does_not_take_back_what_another_found(monkeypatch: Patch) -> None:
    """Two replay one program at once; the one that ends later found nothing."""
    both, told = threading.Barrier(2), threading.Event()

    def confirm(slot: Any, task: Any, code: str, run: Run, indices: Any) -> Run:
        if both.wait(30) == 0:
            return replace(run, isolation=Isolation.NONDETERMINISTIC)
        assert told.wait(30)
        return run

    monkeypatch.setattr(pool_module, "confirm_by_replay", confirm)
    settings = EvaluationSettings(timeout_s=2.0, memory_mb=128, replay="off", slots=4)
    with EvaluationPool(Tsp(), "embedded", settings) as running, ThreadPoolExecutor(2) as threads:
        running.evaluate([HONEST])
        replays = [threads.submit(running.replay, [HONEST]) for _ in range(2)]
        while not any(each.done() for each in replays):
            told.wait(0.01)
        told.set()
        ends = [each.result()[0].isolation for each in replays]
        assert set(ends) == {Isolation.OK, Isolation.NONDETERMINISTIC}
        assert running.evaluate([HONEST])[0].isolation is Isolation.NONDETERMINISTIC


def test_replays_leave_half_of_the_slots_to_programs_that_a_group_waits_for(monkeypatch: Patch) -> None:
    """However many replays are asked for, a new program is evaluated while they go on."""
    going, over = threading.Semaphore(0), threading.Event()

    def confirm(slot: Any, task: Any, code: str, run: Run, indices: Any) -> Run:
        going.release()
        assert over.wait(30)
        return run

    monkeypatch.setattr(pool_module, "confirm_by_replay", confirm)
    settings = EvaluationSettings(timeout_s=2.0, memory_mb=128, replay="off", slots=4)
    known = [f"{HONEST}  # {number}" for number in range(6)]
    with EvaluationPool(Tsp(), "embedded", settings) as running, ThreadPoolExecutor(7) as threads:
        running.evaluate(known)
        replays = [threads.submit(running.replay, [code]) for code in known]
        assert all(going.acquire(timeout=30) for _ in range(2))
        try:
            (new,) = threads.submit(running.evaluate, [HONEST]).result(30)
            assert (new.isolation, any(each.done() for each in replays)) == (Isolation.OK, False)
        finally:
            over.set()
        assert [each.result()[0].isolation for each in replays] == [Isolation.OK] * 6


def test_by_elapsed_time_a_program_has_the_machine_to_itself(monkeypatch: Patch) -> None:
    """A program waits while another one is replayed, however many slots are free."""
    going, over = threading.Event(), threading.Event()

    def confirm(slot: Any, task: Any, code: str, run: Run, indices: Any) -> Run:
        going.set()
        assert over.wait(30)
        return run

    monkeypatch.setattr(pool_module, "confirm_by_replay", confirm)
    settings = EvaluationSettings(timeout_s=2.0, memory_mb=128, replay="off", slots=4, clock="wall")
    with EvaluationPool(Tsp(), "embedded", settings) as running, ThreadPoolExecutor(2) as threads:
        running.evaluate([HONEST])
        replay = threads.submit(running.replay, [HONEST])
        assert going.wait(30)
        new = threads.submit(running.evaluate, [HONEST + "  # another"])
        try:
            with pytest.raises(TimeoutError):
                new.result(0.5)
        finally:
            over.set()
        assert replay.result()[0].isolation is new.result()[0].isolation is Isolation.OK


def test_the_text_rule_asks_every_text(off: EvaluationPool) -> None:
    """A text that mentions randomness in a comment is typed so, though the program is the same without it."""
    plain, commented = off.evaluate([HONEST, HONEST + "  # random"])
    assert (plain.outcome, commented.outcome) == (Outcome.VALID, Outcome.RANDOMNESS)
    assert commented.score is None


def test_the_key_depends_on_program_and_limits(off: EvaluationPool) -> None:
    """Other code or another time limit is another evaluation; the number of slots is not."""
    assert off.key(HONEST) != off.key(HONEST.replace("min", "max"))
    slots = EvaluationPool(Tsp(), "embedded", EvaluationSettings(slots=3, replay="off"))
    limits = EvaluationPool(Tsp(), "embedded", EvaluationSettings(timeout_s=5.0, replay="off"))
    reference = EvaluationPool(Tsp(), "embedded", EvaluationSettings(replay="off"))
    assert slots.key(HONEST) == reference.key(HONEST) != limits.key(HONEST)


def test_behaviour_may_decide_instead_of_the_text() -> None:
    """Under the other rule of D20 chance is what decides otherwise; a word in the code is nothing."""
    seeded = f"import random\n{HEAD}random.seed(1); return min(unvisited)"
    settings = EvaluationSettings(timeout_s=2.0, memory_mb=128, replay="full", randomness="behaviour")
    with EvaluationPool(Tsp(), "embedded", settings) as running:
        changing, named, honest = running.evaluate([CHANGING["hash seed"], seeded, HONEST])
    assert (changing.outcome, changing.score) == (Outcome.RANDOMNESS, None)
    assert named.outcome is honest.outcome is Outcome.VALID
    assert named.score == honest.score


@pytest.mark.parametrize("replay", ["off", "spot"])
def test_behaviour_decides_only_where_all_are_replayed(replay: str) -> None:
    """A rule that judges some programs and not others is refused before anything runs."""
    with pytest.raises(ConfigError, match=r"evaluation\.randomness.*full"):
        EvaluationSettings(replay=replay, randomness="behaviour")  # type: ignore[arg-type]
