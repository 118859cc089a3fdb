"""Groups per second of a whole audit, from JSON Lines to the page, and of pandas on the group statistics.

    uv run --with pandas==2.2.3 python -m pytest tests/benchmarks/audit_benchmark.py -s

One core: each command is a process of its own, held to one thread, whose processor time and greatest memory
are printed; modules are compiled before, as they are once installed. A log of 8 completions a group and 64
groups a step is written first: ``lean`` rows have group, step, reward and advantage, ``whole`` ones all that
GroupRecorder writes, with a prompt and a response. pandas
is handed a frame that is in memory and counts means, deviations, advantages and dead groups; reading the file
into that frame is timed on its own. Wanted: 100,000 groups a second. Nothing fails on a slow machine.
S2S_GROUPS sets how many groups there are (131,072). The name keeps the file out of an ordinary test run.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

GROUPS, SIZE, STEP = int(os.environ.get("S2S_GROUPS", 1 << 17)), 8, 64
WANTED = 100_000
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
print(read - begun, time.process_time() - read, dead)
"""


def written(path: Path, whole: bool) -> Path:
    """A log of random rewards, one group in four of which is dead."""
    stream = np.random.default_rng(8)
    with path.open("w", encoding="utf-8") as file:
        for group in range(GROUPS):
            right = np.full(SIZE, 1.0) if group % 4 == 0 else stream.integers(0, 2, SIZE).astype(float)
            style = np.zeros(SIZE) if group % 4 == 0 else stream.uniform(0, 0.1, SIZE)
            reward = right + style
            advantage = (reward - reward.mean()) / (reward.std(ddof=1) + 1e-4)
            for at in range(SIZE):
                name, step = f"{group // STEP}-{group}", group // STEP
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


def timed(*command: str) -> tuple[str, float, int]:
    """Output, seconds of processor time and MB of memory of a process on one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    variables = {**os.environ, **threads}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    return output, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


@pytest.mark.parametrize("whole", [False, True], ids=["lean", "whole"])
def test_audit(whole: bool, tmp_path: Path) -> None:
    """One log through the command, then through pandas where it is there."""
    log = written(tmp_path / "rollouts.jsonl", whole)
    size = log.stat().st_size / 2**20
    command = (sys.executable, "-m", "search_to_signal.cli", "audit", "--out", str(tmp_path / "out"))
    short = tmp_path / "short.jsonl"
    with log.open("rb") as lines:
        short.write_bytes(b"".join(islice(lines, SIZE * STEP)))
    timed(*command, str(short))
    _, seconds, memory = timed(*command, str(log))
    assert (tmp_path / "out" / "audit.html").exists()
    rate = GROUPS / seconds
    mark = "reached" if rate >= WANTED else "BELOW"
    print(f"\n{'whole' if whole else 'lean'} rows, {GROUPS:,} groups of {SIZE}, {size:,.0f} MB")
    print(f"s2s audit --out: {rate:,.0f} groups/s in {seconds:.1f} s, {memory} MB; {mark} {WANTED:,}")
    if find_spec("pandas") is None:
        print("pandas is not here: uv run --with pandas==2.2.3 brings it")
        return
    output, _, memory = timed(sys.executable, "-c", PANDAS, str(log))
    read, counted, _ = map(float, output.split())
    print(
        f"pandas, statistics alone: {GROUPS / counted:,.0f} groups/s in {counted:.1f} s "
        f"(after {read:.1f} s of reading), {memory} MB"
    )
