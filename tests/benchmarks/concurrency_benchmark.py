"""What a run loses to a neighbour: the same two runs one after the other, then side by side.

    python -m tests.benchmarks.concurrency_benchmark --groups 20

Prints the ratio of their loop times, set-up excluded, which should be at most 1.15 on two idle cores.
"""

import argparse
import tempfile
from pathlib import Path

import msgspec
from tests.cohorts import run_cohort

from search_to_signal.base.progress import PlainProgress
from search_to_signal.records.manifest import Timing, read_manifest
from search_to_signal.run.profile import Profile, load_profile


def loops(profile: Profile, folder: Path, jobs: int) -> dict[str, Timing]:
    """Run the profile with so many runs at once; returns the timing of every run."""
    runs = run_cohort(msgspec.structs.replace(profile, jobs=jobs), folder, PlainProgress())
    timings = {run.name: read_manifest(run).timing for run in runs}
    return {name: timing for name, timing in timings.items() if timing is not None}


def main() -> None:
    """Measure alone, together, alone again, so that a machine that drifts shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--condition", default="native")
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    profile = msgspec.structs.replace(
        load_profile("embedded"), conditions=(options.condition,), seeds=(42, 3407), groups=options.groups
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        before = loops(profile, Path(folder) / "before", 1)
        together = loops(profile, Path(folder) / "together", 2)
        after = loops(profile, Path(folder) / "after", 1)
    for name, both in together.items():
        for phase in ("generation", "evaluation", "update", "other", "total"):
            first, second = getattr(before[name], phase), getattr(after[name], phase)
            alone = min(first, second)
            ratio = getattr(both, phase) / alone if alone else float("nan")
            print(
                f"{name:>12} {phase:>10}: alone {first:7.2f} s and {second:7.2f} s, "
                f"together {getattr(both, phase):7.2f} s, ratio {ratio:.2f}"
            )


if __name__ == "__main__":
    main()
