"""Reading records: verification, tables and report, and audits of long logs."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from spec.synthetic_runs import write_synthetic_run

from search_to_signal.base.processes import command_line
from search_to_signal.records.checksums import SUMS, sum_problems
from search_to_signal.verify.directory import verify as verified

SEEDS, CONDITIONS = (42, 3407, 1926000, 7, 11), ("frozen", "native", "factorized", "tail_weighted")
TABLES = """
import sys
from pathlib import Path
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables.catalogue import BUILDERS, build
from search_to_signal.report.tables.cells import write_table
results, out = Results(Path(sys.argv[1])), Path(sys.argv[2])
out.mkdir()
for name in BUILDERS:
    try:
        write_table(build(results, name), out)
    except NoTableError:
        pass
"""
PANDAS = """
import sys, time
import pandas
begun = time.process_time()
frame = pandas.read_json(sys.argv[1], lines=True)
read = time.process_time()
groups = frame.groupby(["step", "group"], sort=False)["reward"]
found = groups.agg(["mean", "std", "min", "max"])
advantage = (frame["reward"] - groups.transform("mean")) / (groups.transform("std") + 1e-4)
dead = int((found["min"] == found["max"]).sum())
print(f"pandas: {read - begun:.1f} s to read, {time.process_time() - read:.1f} s for the group statistics")
"""


def used(work: Callable[[], object]) -> float:
    """Processor seconds of a call and of the processes that it started, user and system."""
    before = os.times()
    work()
    return sum(os.times()[:4]) - sum(before[:4])


def of_process(*command: str) -> tuple[str, float, int]:
    """Output, processor seconds and MB of memory of a process on one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    process = subprocess.Popen(command, env={**os.environ, **threads}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, spent = os.wait4(process.pid, 0)
    assert status == 0, command
    return output, spent.ru_utime + spent.ru_stime, spent.ru_maxrss // 1024


def verify(given: Sequence[str]) -> None:
    """The checksum part is what sha256sum does; the rest reads every record; the command starts Python."""
    directory = Path(given[0])
    plain, whole = ["sha256sum", "-c", "--strict", "--quiet", SUMS], command_line("verify", str(directory))
    ways: dict[str, Callable[[], object]] = {
        "sha256sum -c": lambda: subprocess.run(plain, cwd=directory, check=True),
        "checksum part of s2s verify": lambda: sum_problems(directory),
        "verify in process, records too": lambda: verified(directory),
        "s2s verify, the whole command": lambda: subprocess.run(whole, check=True, capture_output=True),
    }
    times = {name: min(used(way) for _ in range(10)) for name, way in ways.items()}
    for name, seconds in times.items():
        print(f"{name:32} {seconds:8.3f} s  {seconds / times['sha256sum -c']:5.2f} of sha256sum's")


def analysis(_: Sequence[str]) -> None:
    """A cohort of four conditions and five seeds, and five restarts, each in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        results = Path(place) / "results"
        for seed in SEEDS:
            for name in CONDITIONS:
                adapter = None if name == "frozen" else f"{name} {seed}"
                run = results / "cohort" / f"{name}-s{seed}"
                write_synthetic_run(run, name, seed, groups=500, final_adapter_sha256=adapter)
            name = CONDITIONS[-1]
            write_synthetic_run(
                results / "restart" / f"{name}-s{seed}",
                name,
                seed,
                groups=500,
                layer="restart",
                config={"parent": {"run": f"../../cohort/{name}-s{seed}"}},
                initial_adapter_sha256=f"{name} {seed}",
            )
        _, seconds, memory = of_process(sys.executable, "-c", TABLES, str(results), f"{place}/tables")
        print(f"tables: {seconds:.1f} s, {memory} MB")
        _, seconds, memory = of_process(*command_line("report", str(results), "--out", f"{place}/page"))
        print(f"report: {seconds:.1f} s, {memory} MB")


def written(path: Path, groups: int, whole: bool) -> Path:
    """A log of random rewards, 64 groups of 8 a step, one group in four dead; whole rows have texts too."""
    stream = np.random.default_rng(8)
    with path.open("w", encoding="utf-8") as file:
        for group in range(groups):
            right = np.full(8, 1.0) if group % 4 == 0 else stream.integers(0, 2, 8).astype(float)
            style = np.zeros(8) if group % 4 == 0 else stream.uniform(0, 0.1, 8)
            reward = right + style
            advantage = (reward - reward.mean()) / (reward.std(ddof=1) + 1e-4)
            for at in range(8):
                name, step = f"{group // 64}-{group}", group // 64
                row = {"group": name, "step": step, "reward": reward[at], "advantage": advantage[at]}
                if whole:
                    row |= {
                        "id": f"{name}-{at}",
                        "tokens": int(stream.integers(50, 900)),
                        "status": "finished",
                        "components": {"right": right[at], "style": style[at]},
                        "weights": {"right": 1.0, "style": 1.0},
                        "prompt": f"What is {group} plus {at}? Answer with one number.",
                        "response": f"The answer is {group + at}. " * 6,
                    }
                file.write(json.dumps(row) + "\n")
    return path


def audit(given: Sequence[str]) -> None:
    """The whole command, and pandas on the group statistics alone, where pandas is installed."""
    groups = int(given[0]) if given else 1 << 17
    for whole in (False, True):
        with tempfile.TemporaryDirectory() as place:
            log = str(written(Path(place) / "rollouts.jsonl", groups, whole))
            _, seconds, memory = of_process(*command_line("audit", "--out", f"{place}/out", log))
            rows = "whole" if whole else "short"
            print(f"{rows} rows: {groups / seconds:,.0f} groups/s in {seconds:.1f} s, {memory} MB")
            if find_spec("pandas"):
                output, _, memory = of_process(sys.executable, "-c", PANDAS, log)
                print(f"{output.strip()}, {memory} MB")
