"""Show that a replay keeps its memory: write many groups, replay them in a process, print its peak.

    python -m tests.proofs.replay_memory --groups 10000000

writes about 360 bytes per group to a temporary file (--folder says where), or about 2.4 kB with
--form records, and removes it afterwards.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from spec.strategies import record

MAPPINGS = ["native", "factorized", "tail_weighted", "search_exposure"]
NORMALIZERS = ["group", "rloo", "rank"]

CHILD = """
import resource, sys
from pathlib import Path
from search_to_signal.layers.audit.layer import replay
source, out, mappings, normalizers = sys.argv[1:]
replay([Path(source)], Path(out), mappings.split(","), normalizers.split(","))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def outside_groups(stream: random.Random) -> Iterator[str]:
    """Endless lines of the outside form: G = 4, a third of the completions failed."""
    while True:
        archive = [round(-6.0 - stream.random(), 2) for _ in range(4)]
        candidates = [candidate(stream, archive) for _ in range(4)]
        yield json.dumps(
            {"problem": "tsp", "bases": archive[:2], "archive": archive, "candidates": candidates}
        )


def candidate(stream: random.Random, archive: list[float]) -> dict[str, object]:
    """One completion near the archive, or a failure."""
    if stream.random() < 1.0 / 3.0:
        return {"outcome": "runtime_failure"}
    score = stream.choice([*archive, round(-6.0 - stream.random(), 3)])
    response = stream.choice("abcdefgh")
    return {"outcome": "valid", "score": score, "response": response, "exposure": round(stream.random(), 2)}


def record_groups(stream: random.Random) -> Iterator[str]:
    """Endless groups of four completion records, as a run writes them."""
    step = 0
    while True:
        records = [
            record(
                step=step,
                index=i,
                score=round(-6.0 - stream.random(), 3),
                response_sha256=f"{stream.random()}",
            )
            for i in range(4)
        ]
        yield "\n".join(msgspec.json.encode(item).decode() for item in records)
        step += 1


def write(file: Path, number: int, form: str) -> None:
    """Write that many groups; outside groups repeat ten thousand distinct ones in random order."""
    stream = random.Random(42)
    if form == "external":
        source = outside_groups(stream)
        pool = [next(source) for _ in range(10_000)]
        lines: Iterator[str] = (stream.choice(pool) for _ in range(number))
    else:
        source = record_groups(stream)
        lines = (next(source) for _ in range(number))
    with file.open("w", encoding="utf-8") as out:
        for line in lines:
            out.write(line + "\n")


def main() -> None:
    """Write, replay, and print size, time and peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=200_000)
    parser.add_argument("--form", choices=["external", "records"], default="external")
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder) / "groups.jsonl"
        write(file, options.groups, options.form)
        size, start = file.stat().st_size, time.perf_counter()
        child = [sys.executable, "-c", CHILD, str(file), folder, ",".join(MAPPINGS), ",".join(NORMALIZERS)]
        result = subprocess.run(child, check=True, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        mib, peak = round(size / 2**20), round(int(result.stdout) / 1024)
        print(f"{options.groups:,} groups ({options.form} {mib:,} MiB): {seconds:.1f} s, peak {peak} MiB")


if __name__ == "__main__":
    main()
