"""Parts that every group passes: rewards and advantages, and the isolated evaluation of programs."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from spec import plain
from spec.in_process import evaluate_in_process

from search_to_signal.audit.atlas import RewardBatch, entries
from search_to_signal.audit.atlas.compute import advantages as atlas_advantages
from search_to_signal.credit import MAPPINGS
from search_to_signal.credit.normalizers import NORMALIZERS, advantages
from search_to_signal.problems import PROBLEMS
from search_to_signal.records.groups import GroupBatch
from search_to_signal.sandbox import wire_format
from search_to_signal.sandbox.dialogues import Channel, ProgramTask
from search_to_signal.sandbox.fork_server import SCORING, ForkServer
from search_to_signal.sandbox.loading import function_of
from search_to_signal.sandbox.pool import EvaluationPool, run_candidate
from search_to_signal.sandbox.settings import EvaluationSettings

ATLAS_GROUPS = 1 << 17
CHEAP = {
    "tsp": "def f(here, end, unvisited, matrix):\n    return min(unvisited, key=lambda v: matrix[here][v])",
    "obp": "def f(item, room):\n    return -room",
    "cvrp": "def f(distance, places, demands, capacity):\n    return 1 / distance",
    "op": "def f(prize, distance, limit):\n    return prize / distance",
}


def middle(
    work: Callable[[], object], clock: Callable[[], float] = time.process_time, times: int = 9
) -> float:
    """Seconds of a call, the median of so many after a first that warms up."""
    found = []
    for _ in range(times + 1):
        start = clock()
        work()
        found.append(clock() - start)
    return float(np.median(found[1:]))


def batch(number: int, size: int) -> GroupBatch:
    """Random groups: two thirds valid, scores near an archive of copies, some repeated responses."""
    stream, shape = np.random.default_rng(size), (number, size)
    outcome = np.where(stream.random(shape) < 2 / 3, 0, stream.integers(1, 6, shape))
    valid = outcome == 0
    archive = np.round(-6.0 - stream.random((number, 4)), 3)
    near = np.take_along_axis(archive, stream.integers(0, 4, shape), axis=1)
    score = np.where(stream.random(shape) < 0.3, near, np.round(-6.0 - stream.random(shape), 3))
    gap = np.abs(score[:, :, None] - archive[:, None, :]).min(axis=2)
    return GroupBatch(
        outcome=outcome.astype(np.int8),
        score=np.where(valid, score, np.nan),
        bases=archive[:, :2].copy(),
        frontier=archive.max(axis=1),
        archive_gap=np.where(valid, gap, np.nan),
        exposure=np.where(valid, stream.random(shape), np.nan),
        response=stream.integers(0, 2 * size, shape),
        matches_base_code=np.zeros(shape, dtype=np.bool_),
    )


def rewards(_: Sequence[str]) -> None:
    """Groups per second of 4,096 groups (plain Python: 32), which have the same rewards, and of the atlas."""
    for size in (4, 16):
        many, few = batch(4096, size), batch(32, size)
        for name, mapping in MAPPINGS.items():
            np.testing.assert_allclose(plain.rewards(name, few), mapping(few).reward, atol=1e-6)
            ours = 4096 / middle(partial(mapping, many))
            slow = 32 / middle(partial(plain.rewards, name, few))
            print(f"{name}, groups of {size}: {ours:,.0f} groups/s, plain Python {slow:,.0f}")
        given = MAPPINGS["factorized"](many)
        for name, normalizer in NORMALIZERS.items():
            seconds = middle(partial(advantages, normalizer, given.reward, given.components))
            print(f"{name}, groups of {size}: {4096 / seconds:,.0f} groups/s")
    stream = np.random.default_rng(8)
    drawn, lengths = stream.normal(size=8 * ATLAS_GROUPS), stream.integers(1, 2000, 8 * ATLAS_GROUPS)
    for name, entry in entries().items():
        values = (drawn > 0).astype(np.float64) if entry.domain == "binary" else drawn
        asked = RewardBatch(values, np.arange(0, len(values) + 1, 8), lengths)
        seconds = middle(partial(atlas_advantages, entry, asked))
        print(f"atlas, {name}: {ATLAS_GROUPS / seconds:,.0f} groups/s")


def server_seconds(server: ForkServer) -> float:
    """Processor seconds of a fork server so far."""
    return int(Path(f"/proc/{server.process.pid}/schedstat").read_text().split()[0]) / 1e9


def overhead(name: str, kind: str, code: str) -> None:
    """Processor time of caller, fork server and worker together, against the same program in process."""
    problem: Any = PROBLEMS[name]
    instances, settings = problem.instances("embedded"), EvaluationSettings(replay="off")
    server = ForkServer(SCORING)

    def isolated() -> float:
        before = server_seconds(server) + time.process_time()
        done = run_candidate(server, ProgramTask(problem, instances), code, settings)
        assert done.isolation.value == "ok", done
        return server_seconds(server) + time.process_time() - before + done.cpu_s

    ours = 1e3 * float(np.median([isolated() for _ in range(10)][1:]))
    server.close()
    host = 1e3 * middle(lambda: evaluate_in_process(problem, function_of(code), instances))
    print(f"{name}, {kind}: in process {host:.1f} ms, isolated {ours:.1f} ms, {ours - host:+.1f} ms")


def isolation(_: Sequence[str]) -> None:
    """A worker from spawn to reap, a question, programs of each problem, slots and replays."""
    server = ForkServer(SCORING)

    def once() -> float:
        with server.spawn(60.0, 60.0, 512 << 20) as data:
            Channel(data, 60.0).wait_until_ready()
            return server.reap().cpu_s

    before = server_seconds(server) + time.process_time()
    spent = sum(once() for _ in range(100)) + server_seconds(server) + time.process_time() - before
    print(f"a worker from spawn to reap: {10 * spent:.2f} ms")
    with server.spawn(60.0, 60.0, 512 << 20) as data:
        channel, room = Channel(data, 60.0), np.arange(50.0)
        channel.wait_until_ready()
        channel.ask(wire_format.LOAD, b"def f(item, room): return room")
        channel.value()

        def asked() -> None:
            channel.ask(wire_format.CHOICE, wire_format.pack_arguments((1.0, room)))
            channel.value()

        channel.ask(wire_format.BEGIN, wire_format.pack_arguments(()))
        channel.value()
        print(f"a question with 50 numbers, elapsed: {1e3 * middle(asked, time.perf_counter, 999):.3f} ms")
        server.reap()
    server.close()
    for name, code in CHEAP.items():
        overhead(name, "cheap", code)
        overhead(name, "its seed", PROBLEMS[name].seed.code)
    for slots, replay in ((1, "off"), (1, "spot"), (1, "full"), (2, "off"), (4, "off")):
        settings = EvaluationSettings(slots=slots, replay=replay)
        with EvaluationPool(PROBLEMS["tsp"], "embedded", settings) as pool:
            numbered = iter(f"{PROBLEMS['tsp'].seed.code}\nN = {number}" for number in range(10))
            seconds = middle(lambda: pool.evaluate([next(numbered)]), time.perf_counter, 8)  # noqa: B023
        print(f"the seed of tsp, {slots} slots, replay {replay}, elapsed: {1e3 * seconds:.1f} ms")
