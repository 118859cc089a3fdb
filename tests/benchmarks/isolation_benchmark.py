"""What isolation costs on this machine.

    PYTHONPATH=artifact python tests/benchmarks/isolation_benchmark.py [--quick]

Prints spawn to reap, cost per call, processor time against in-process per problem for a cheap and an
expensive heuristic, candidates per second and the time of one program by slots, and the cost of replays.
All times are processor or elapsed milliseconds, named per line; run it alone.
"""

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.sandbox import wire_format
from search_to_signal.sandbox.dialogues import Channel, ProgramTask
from search_to_signal.sandbox.fork_server import SCORING, ForkServer
from search_to_signal.sandbox.locks import ALL, Barrier
from search_to_signal.sandbox.pool import EvaluationPool, Slot, run_candidate
from search_to_signal.sandbox.settings import EvaluationSettings

QUICK = "--quick" in sys.argv
ROUNDS = 30 if QUICK else 300
SETTINGS = EvaluationSettings(replay="off")
TSP = "def f(current, destination, unvisited, matrix):\n    "
CHEAP = {
    "tsp": TSP + "return min(unvisited, key=lambda v: matrix[current][v])",
    "obp": "def f(item, room):\n    return -room",
    "cvrp": "def f(distance, places, demands, capacity):\n    return 1 / distance",
    "op": "def f(prize, distance, limit):\n    return prize / distance",
}
EXPENSIVE = {
    "tsp": None,
    "obp": "import numpy as np\ndef f(item, room):\n    gap = room - item\n    best = np.min(gap)\n"
    "    for power in (1, 2, 3, 4, 5, 6, 7, 8):\n        best = best + np.exp(-gap) * gap ** (power / 2)\n"
    "    return best",
    "cvrp": "import numpy as np\ndef f(d, p, q, c):\n    for _ in range(400):\n"
    "        d = np.linalg.inv(np.linalg.inv(d))\n    return np.abs(1 / d)",
    "op": "import numpy as np\ndef f(q, d, c):\n    out = 1 / d\n    for _ in range(4000):\n"
    "        out = out + np.sqrt(q[None, :]) / d\n    return out",
}


def percentiles(samples: Sequence[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    middle, high = np.percentile(samples, [50, 99]) * 1e3
    return f"p50 {middle:.3f} ms, p99 {high:.3f} ms"


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call."""
    start = clock()
    work()
    return clock() - start


def spawn_to_reap(wanted: Barrier) -> str:
    """A worker that becomes ready and is killed; elapsed, and processor time of all three processes."""
    server, used = ForkServer(SCORING, wanted), 0.0

    def once() -> None:
        with server.spawn(60.0, 60.0, 512 << 20) as data:
            Channel(data, 60.0).wait_until_ready()
            nonlocal used
            used += server.reap().cpu_s

    before = _server_cpu(server) + time.process_time()
    samples = [timed(once) for _ in range(ROUNDS)]
    used += _server_cpu(server) + time.process_time() - before
    server.close()
    return f"{percentiles(samples)}; processor {1e3 * used / ROUNDS:.2f} ms"


def per_call() -> str:
    """A question with 50 numbers and its answer."""
    server = ForkServer(SCORING)
    with server.spawn(60.0, 60.0, 512 << 20) as data:
        channel = Channel(data, 60.0)
        channel.wait_until_ready()
        channel.ask(wire_format.LOAD, b"def f(item, room): return room")
        channel.value()
        room = np.arange(50.0)

        def once(kind: int = wire_format.CHOICE, arguments: Sequence[Any] = (1.0, room)) -> None:
            channel.ask(kind, wire_format.pack_arguments(arguments))
            channel.value()

        fresh = [timed(lambda: once(wire_format.BEGIN, ())) for _ in range(20 * ROUNDS)]
        samples = [timed(once) for _ in range(20 * ROUNDS)]
        server.reap()
    server.close()
    return f"{percentiles(samples)}; a fresh heuristic {percentiles(fresh)}"


def in_process(problem: Any, instances: Sequence[Any], code: str) -> list[float]:
    """The scores that the host's way of calling gives, without isolation."""
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    (function,) = (value for value in namespace.values() if hasattr(value, "__code__"))
    return [problem.score(instance, _answer(problem, instance, function)) for instance in instances]


def _answer(problem: Any, instance: Any, function: Any) -> Any:
    if problem.dialogue == "matrix":
        return function(*problem.arguments(instance, function.__code__.co_argcount))
    if problem.dialogue == "tour":
        return _tour(instance["distance"], function)
    bins, choices = np.full(len(instance["items"]), float(instance["capacity"])), []
    for item in instance["items"].tolist():
        fitting = np.flatnonzero(bins - item >= 0)
        choices.append(int(np.argmax(function(item, bins[fitting]))))
        bins[fitting[choices[-1]]] -= item
    return np.array(choices)


def _tour(distance: Any, function: Any) -> Any:
    unvisited, tour = list(range(1, len(distance))), [0]
    while unvisited:
        tour.append(int(function(tour[-1], 0, set(unvisited), distance.copy())))
        unvisited.remove(tour[-1])
    return np.array(tour)


def overhead(name: str, kind: str, code: str) -> str:
    """Processor time of parent, fork server and worker together, against in-process."""
    problem = getattr(importlib.import_module(f"search_to_signal.problems.{name}"), name.capitalize())()
    instances = problem.instances("train")
    server = ForkServer(SCORING)

    def isolated() -> float:
        before = _server_cpu(server)
        start = time.process_time()
        run = run_candidate(server, ProgramTask(problem, instances), code, SETTINGS)
        assert run.isolation.value == "ok", run
        return time.process_time() - start + run.cpu_s + _server_cpu(server) - before

    def directly() -> float:
        return timed(lambda: in_process(problem, instances, code), time.process_time)

    directly()
    isolated()
    pairs = [(isolated(), directly()) for _ in range(5 if QUICK else 15)]
    server.close()
    ours, host = (1e3 * float(np.median(column)) for column in zip(*pairs, strict=True))
    extra = ours - host
    aim = "within" if extra <= 5 + 0.05 * host else "beyond"
    return (
        f"{name} {kind}: in-process {host:.1f} ms, isolated {ours:.1f} ms, +{extra:.1f} ms ({aim} 5 ms + 5 %)"
    )


def _server_cpu(server: ForkServer) -> float:
    return int(Path(f"/proc/{server.process.pid}/schedstat").read_text().split()[0]) / 1e9


def throughput(slots: int) -> str:
    """Cheap and medium programs on the small split, elapsed."""
    from search_to_signal.problems.tsp import Tsp

    codes = [(Tsp.seed.code if i % 4 == 0 else CHEAP["tsp"]) + f"\nN = {i}" for i in range(ROUNDS)]
    settings = EvaluationSettings(slots=slots, replay="off")
    with EvaluationPool(Tsp(), "embedded", settings) as pool:
        pool.evaluate([CHEAP["tsp"]] * slots)
        seconds = timed(lambda: pool.evaluate(codes))
    return f"{slots} slots: {len(codes) / seconds:.0f} candidates/s"


def one_program(slots: int) -> str:
    """Elapsed time of the seed alone on tsp/train, whose instances half of the slots share."""
    from search_to_signal.problems.tsp import Tsp

    with EvaluationPool(Tsp(), "train", EvaluationSettings(slots=slots, replay="off")) as pool:
        pool.evaluate([Tsp.seed.code])
        samples = [
            timed(lambda i=i: pool.evaluate([f"{Tsp.seed.code}\nN = {i}"])) for i in range(5 if QUICK else 9)
        ]
    return f"{slots} slots: one program {1e3 * float(np.median(samples)):.1f} ms"


def replay_cost(code: str) -> str:
    """Elapsed time of one candidate on tsp/train by replay policy."""
    from search_to_signal.problems.tsp import Tsp

    parts = []
    for policy in ("off", "spot", "full"):
        settings = EvaluationSettings(replay=policy)  # type: ignore[arg-type]
        with EvaluationPool(Tsp(), "train", settings) as pool:
            pool.evaluate([code])
            samples = [
                timed(lambda i=i: pool.evaluate([code + f"\nN = {i}"])) for i in range(5 if QUICK else 9)
            ]
        parts.append(f"{policy} {1e3 * float(np.median(samples)):.1f} ms")
    return ", ".join(parts)


def start_of_a_server() -> float:
    """Seconds until a fork server has imported everything and its canaries ended."""
    slot = Slot(SETTINGS, ALL)
    seconds = timed(slot.start)
    slot.close()
    return seconds


def main() -> None:
    """Print every measurement."""
    print(
        f"fork server start with canaries: {start_of_a_server():.2f} s, once per slot and again for replays"
    )
    print(f"spawn to reap, all layers: {spawn_to_reap(ALL)}")
    print(f"spawn to reap, no layers: {spawn_to_reap(Barrier(0))}")
    print(f"one call: {per_call()}")
    for name in ("tsp", "obp", "cvrp", "op"):
        if importlib.util.find_spec(f"search_to_signal.problems.{name}") is None:
            print(f"{name}: not in this checkout")
            continue
        seed = getattr(importlib.import_module(f"search_to_signal.problems.{name}"), name.capitalize()).seed
        print(overhead(name, "cheap", CHEAP[name]))
        print(overhead(name, "expensive", EXPENSIVE[name] or seed.code))
    for slots in (1, 2, 4):
        print(throughput(slots))
        print(one_program(slots))
    print(f"replay of a cheap program: {replay_cost(CHEAP['tsp'])}")
    from search_to_signal.problems.tsp import Tsp

    print(f"replay of the seed: {replay_cost(Tsp.seed.code)}")


if __name__ == "__main__":
    main()
