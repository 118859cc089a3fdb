"""Time matched updates on two threads while other processes use the cores, spinning against sleeping.

    python tests/benchmarks/shared_cores_benchmark.py results/smoke/cohort/frozen-s42

OpenMP's idle threads spin by default. Both ways give the same records, which is checked; ``s2s`` lets them
sleep. A ratio to the undisturbed time well above what the load takes is time lost by spinning.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POLICIES: dict[str, dict[str, str]] = {"spinning": {}, "sleeping": {"OMP_WAIT_POLICY": "PASSIVE"}}
LOAD = "while True: pass"
WORK = """
import sys
from pathlib import Path
from search_to_signal.run.config import UpdateSettings
from search_to_signal.layers.updates import matched_updates
from search_to_signal.base.progress import PlainProgress
mappings, normalizers = ("native", "factorized"), ("group",)
settings = UpdateSettings(groups=1, threads=2, mappings=mappings, normalizers=normalizers)
matched_updates([Path(sys.argv[1])], Path(sys.argv[2]), settings, PlainProgress())
"""


def seconds(run: Path, out: Path, policy: str, load: int) -> float:
    """Wall seconds of matched updates whose idle threads spin or sleep, beside ``load`` busy processes."""
    others = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(load)]
    start = time.perf_counter()
    try:
        subprocess.run(
            [sys.executable, "-c", WORK, str(run), str(out)],
            env={**os.environ, **POLICIES[policy]},
            check=True,
            stdout=subprocess.DEVNULL,
        )
    finally:
        for other in others:
            other.kill()
            other.wait()
    return time.perf_counter() - start


def main() -> None:
    """Print a row per policy: seconds alone and under load, and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a recorded frozen run")
    parser.add_argument("--load", type=int, default=2, help="busy processes beside (default: 2)")
    arguments = parser.parse_args()
    written = set()
    with tempfile.TemporaryDirectory() as place:
        for policy in POLICIES:
            times = []
            for load in (0, arguments.load):
                out = Path(place) / f"{policy}-{load}"
                times.append(seconds(arguments.run, out, policy, load))
                written.add((out / "updates.jsonl").read_bytes())
            alone, loaded = times
            ratio = loaded / alone
            print(
                f"{policy:8} alone {alone:6.1f} s, beside {arguments.load} {loaded:6.1f} s: {ratio:.1f} times"
            )
    print("records equal" if len(written) == 1 else "RECORDS DIFFER")
    sys.exit(len(written) != 1)


if __name__ == "__main__":
    main()
