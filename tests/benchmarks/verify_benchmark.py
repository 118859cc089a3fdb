"""Processor time of ``s2s verify`` beside that of ``sha256sum -c`` on the same directory.

    python tests/benchmarks/verify_benchmark.py results/embedded

The checksum part is what sha256sum does; the whole command also reads every record again and recomputes
rewards, advantages and archive, and starts an interpreter. Seconds are those of user and system, so that
others at work on the machine change them little.
"""

import argparse
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

from search_to_signal.base.processes import command_line
from search_to_signal.records.checksums import SUMS, sum_problems
from search_to_signal.verify.directory import verify


def processor_seconds() -> float:
    """What this process and its children that have ended have used, user and system."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def best(work: Callable[[], object], repeat: int) -> float:
    """The least of several processor times, in seconds."""
    times = []
    for _ in range(repeat):
        start = processor_seconds()
        work()
        times.append(processor_seconds() - start)
    return min(times)


def main() -> None:
    """Print a table of processor seconds, and how many times those of sha256sum they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--repeat", type=int, default=10)
    arguments = parser.parse_args()
    directory = arguments.directory
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    plain = ["sha256sum", "-c", "--strict", "--quiet", SUMS]
    ours = command_line("verify", str(directory))
    rows: dict[str, Callable[[], object]] = {
        "sha256sum -c": lambda: subprocess.run(plain, cwd=directory, check=True),
        "checksum part of s2s verify": lambda: sum_problems(directory),
        "verify in process, records too": lambda: verify(directory),
        "s2s verify, the whole command": lambda: subprocess.run(ours, check=True, capture_output=True),
    }
    times = {name: best(work, arguments.repeat) for name, work in rows.items()}
    print(f"{size / 1e6:.1f} MB, best of {arguments.repeat}")
    for name, seconds in times.items():
        ratio = seconds / times["sha256sum -c"]
        print(f"{name:32} {seconds:8.3f} s  {size / 1e6 / seconds:8.1f} MB/s  {ratio:5.2f} of sha256sum's")


if __name__ == "__main__":
    main()
