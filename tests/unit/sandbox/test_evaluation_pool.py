"""What a user of the pool relies on: exact scores, typed outcomes, order, and no process left behind."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import search_to_signal.sandbox.pool as pool_module
from search_to_signal.base.errors import ConfigError
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Array, Instance, ScorePath
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.outcomes import OUTCOMES, Isolation
from search_to_signal.sandbox.pool import EvaluationPool, Slot
from search_to_signal.sandbox.programs import program_sha256
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

# Long enough for a slow machine to fill the memory.
SETTINGS = EvaluationSettings(timeout_s=2.0, memory_mb=128)
NEAREST = """def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    return min(unvisited_nodes, key=lambda v: distance_matrix[current_node][v])
"""
HEAD = "def f(current, destination, unvisited, matrix):\n    "
FAILURES = {
    "endless loop": (HEAD + "while True: pass", Isolation.TIMEOUT),
    "endless loop in C": (HEAD + "import itertools; sum(itertools.repeat(1))", Isolation.TIMEOUT),
    "exception": (HEAD + "return 1 / 0", Isolation.EXCEPTION),
    "no return": (HEAD + "pass", Isolation.EXCEPTION),
    "exit by exception": (HEAD + "import sys; sys.exit()", Isolation.EXCEPTION),
    "syntax error": ("def f(:", Isolation.NO_FUNCTION),
    "nul byte": ("def f():\0", Isolation.NO_FUNCTION),
    "exception at the top level": ("1 / 0\n" + NEAREST, Isolation.NO_FUNCTION),
    "exit at the top level": ("raise SystemExit\n" + NEAREST, Isolation.NO_FUNCTION),
    "two functions": (NEAREST + "def g(): pass", Isolation.NO_FUNCTION),
    "no function": ("x = 1", Isolation.NO_FUNCTION),
    "visited node": (HEAD + "return 0", Isolation.INVALID_DECISION),
    "node that does not exist": (HEAD + "return 10 ** 400", Isolation.INVALID_DECISION),
    "huge list": (HEAD + "x = [0] * 10 ** 10", Isolation.MEMORY),
    "growing list": (HEAD + "x = [0]\n    while True: x = x + x", Isolation.MEMORY),
    "huge array": (HEAD + "import numpy; numpy.ones(10 ** 9)", Isolation.MEMORY),
    "raw exit": (HEAD + "import os; os._exit(98)", Isolation.EXIT),
    "crash": (HEAD + "import ctypes; ctypes.string_at(0)", Isolation.CRASH),
    "file": (HEAD + "open('/tmp/s2s-forbidden', 'w')", Isolation.VIOLATION),
    "socket": (HEAD + "import socket; socket.socket()", Isolation.VIOLATION),
    "process": (HEAD + "import os; os.fork()", Isolation.VIOLATION),
    "signal": (HEAD + "import os; os.kill(1, 9)", Isolation.VIOLATION),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[EvaluationPool]:
    """A pool with the training instances of the travelling salesman."""
    with EvaluationPool(Tsp(), "train", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def strict() -> Iterator[EvaluationPool]:
    """The same, for programs that end at the limit."""
    with EvaluationPool(Tsp(), "train", msgspec.structs.replace(SETTINGS, timeout_s=0.5)) as running:
        yield running


def children() -> list[int]:
    """Process ids of the direct children of this process."""
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return sorted(int(pid) for pid in " ".join(lists).split())


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_typed(pool: EvaluationPool, strict: EvaluationPool, name: str) -> None:
    """Every way to fail has its own isolation outcome, no score, and the pool goes on."""
    code, expected = FAILURES[name]
    failed, honest = (strict if expected is Isolation.TIMEOUT else pool).evaluate([code, NEAREST])
    assert failed.isolation is expected
    assert failed.outcome is OUTCOMES[expected]
    assert (failed.score, failed.per_instance) == (None, ())
    assert honest.score == -7.0043697989867315


def test_mutated_arguments_do_not_disturb(pool: EvaluationPool) -> None:
    wreck = NEAREST.replace("return", "best =")
    wreck += "    distance_matrix[:] = 0\n    unvisited_nodes.clear()\n    return best\n"
    (result,) = pool.evaluate([wreck])
    assert result.score == -7.0043697989867315


def test_minus_one_is_the_last_unvisited_node(pool: EvaluationPool) -> None:
    """-1 stands for the last unvisited node in ascending order, as in the host."""
    minus, explicit = pool.evaluate([HEAD + "return -1", HEAD + "return max(unvisited)"])
    assert minus.score == explicit.score is not None


def test_the_word_random_is_decided_after_success(pool: EvaluationPool) -> None:
    """A running program that mentions randomness is typed so; a failing one stays a runtime failure."""
    running, failing = pool.evaluate([NEAREST + "# random", HEAD + "import random; return None"])
    assert (running.outcome, running.score) == (Outcome.RANDOMNESS, None)
    assert failing.outcome is Outcome.RUNTIME_FAILURE


def test_messages_are_short_and_printable(pool: EvaluationPool) -> None:
    (result,) = pool.evaluate([HEAD + r"raise ValueError('\x1b[31m\n' + 'x' * 10**5)"])
    assert len(result.detail) <= 200
    assert all(32 <= ord(c) < 127 for c in result.detail)


def test_warnings_are_no_errors(pool: EvaluationPool) -> None:
    """The mean of nothing warns and goes on, as on the host."""
    (result,) = pool.evaluate([HEAD + "import numpy as np; np.mean([]); return min(unvisited)"])
    assert result.outcome is Outcome.VALID


@pytest.mark.usefixtures("kept_servers")
def test_results_keep_the_input_order() -> None:
    slow = NEAREST.replace("return", "sum(range(2000))\n    return")
    settings = EvaluationSettings(slots=2, memory_mb=128)
    with EvaluationPool(Tsp(), "embedded", settings) as pool:
        results = pool.evaluate([slow, HEAD + "return 0", NEAREST, HEAD + "return 1 / 0"])
    kinds = [result.isolation.value for result in results]
    assert kinds == ["ok", "invalid_decision", "ok", "exception"]


@pytest.mark.usefixtures("kept_servers")
def test_what_was_begun_is_taken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was begun runs once, and its evaluation is no repeat; a known one is not begun."""
    ran: list[str] = []
    whole = pool_module.run_sharded

    def counted(take: Any, threads: Any, task: Any, code: str, settings: Any) -> Any:
        ran.append(code)
        return whole(take, threads, task, code, settings)

    monkeypatch.setattr(pool_module, "run_sharded", counted)
    failing = FAILURES["exception"][0]
    with EvaluationPool(Tsp(), "embedded", SETTINGS) as pool:
        pool.begin(failing)
        pool.begin(NEAREST)
        pool.begin(NEAREST)
        first = pool.evaluate([NEAREST, failing, NEAREST])
        pool.begin(NEAREST)
        (again,) = pool.evaluate([NEAREST])
    assert [one.isolation for one in first] == [Isolation.OK, Isolation.EXCEPTION, Isolation.OK]
    assert [one.repeat for one in (*first, again)] == [False, False, True, True]
    assert sorted(ran) == sorted([failing, NEAREST])


def test_a_killed_server_is_replaced(pool: EvaluationPool) -> None:
    """Killing every child process costs time, not results."""
    killed = children()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    (result,) = pool.evaluate([NEAREST + "ONCE_MORE = True"])
    assert killed
    assert (result.score, result.repeat) == (-7.0043697989867315, False)


def test_nothing_is_left_after_the_pool() -> None:
    before = children()
    with EvaluationPool(Tsp(), "embedded", SETTINGS) as pool:
        pool.evaluate([NEAREST])
        assert len(children()) > len(before)
    end = time.monotonic() + 30.0
    while children() != before and time.monotonic() < end:
        time.sleep(0.01)
    assert children() == before


def test_kernels_are_compiled_before_a_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the first scoring has to compile is no part of the first candidate's time."""
    order: list[str] = []
    cvrp = get_problem("cvrp")
    monkeypatch.setattr(type(cvrp), "score", lambda self, instance, answer: order.append("score") or 0.0)
    monkeypatch.setattr(Slot, "start", lambda self: order.append("start"))
    with EvaluationPool(cvrp, "embedded", EvaluationSettings()):
        pass
    assert order == ["score", "start"]


def test_every_ending_has_a_typed_outcome() -> None:
    """The visible table covers the whole enumeration but our own fault."""
    assert set(Isolation) - set(OUTCOMES) == {Isolation.SANDBOX_ERROR}


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.slots"):
        EvaluationSettings(slots=0)


class _Detour(Tsp):
    """The travelling salesman, claiming that this machine's scores take the slow exact way."""

    def score_path(self, instance: Instance, answer: Array) -> ScorePath:
        return "fallback"


@pytest.mark.usefixtures("kept_servers")
def test_a_score_by_the_fallback_says_so() -> None:
    """An evaluation tells a score of the slow exact way from one of the direct way."""
    paths = []
    for problem in (_Detour(), Tsp()):
        with EvaluationPool(problem, "embedded", SETTINGS) as running:
            (evaluation,) = running.evaluate([NEAREST])
        paths.append(evaluation.score_path)
    assert paths == ["fallback", "direct"]


READERS = {
    "docstring": ('    "near"\n', '    "far"\n', "f.__doc__ == 'near'"),
    "line number": ("", "\n\n", "f.__code__.co_firstlineno == 1"),
    "comment": ("    # near\n\n", "    # far\n", "max(line or 0 for *_, line in f.__code__.co_lines()) == 4"),
}


@pytest.mark.usefixtures("kept_servers")
@pytest.mark.parametrize("kind", READERS)
def test_a_program_that_reads_itself_gets_its_own_score(kind: str) -> None:
    """Texts with one canonical form may decide differently; each is executed, in one batch or in two."""
    near, far, question = READERS[kind]
    body = (
        f"    sign = 1 if {question} else -1\n"
        "    return min(unvisited, key=lambda v: sign * matrix[current][v])\n"
    )
    head = "def f(current, destination, unvisited, matrix):\n"
    texts = [near + head + body if kind == "line number" else head + near + body]
    texts += [far + head + body if kind == "line number" else head + far + body]
    assert program_sha256(texts[0]) == program_sha256(texts[1])
    with (
        EvaluationPool(Tsp(), "embedded", SETTINGS) as first,
        EvaluationPool(Tsp(), "embedded", SETTINGS) as other,
    ):
        together = [result.score for result in first.evaluate(texts)]
        apart = [other.evaluate([text])[0].score for text in texts]
    assert together == apart
    assert together[0] != together[1]
