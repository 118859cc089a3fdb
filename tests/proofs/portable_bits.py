"""Do records depend on the processor? Runs with kernels forced to lower instruction sets, file by file.

    python -m tests.proofs.portable_bits --groups 10

Every condition is run at every level, each in a process of its own. ``fixed`` is what every command chooses;
``maker`` has MKL see who made the processor; ``processor`` leaves every choice to the libraries; ``avx2`` and
``sse`` force them down to what an older processor has. Printed are, per condition and level, the record files
that differ from ``fixed``, where they begin to, and processor seconds per group in relation to ``processor``.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from tests.figures import print_figure

from search_to_signal.base.processes import KERNELS, MKL_PROCESSOR, command_line
from search_to_signal.base.settings import canonical_json
from search_to_signal.run.config import RunConfig
from search_to_signal.run.profile import load_profile

RECORDS = ("completions.jsonl", "steps.jsonl", "generations.jsonl", "heuristics.jsonl")
CONDITIONS = ("frozen", "native", "factorized")
AVX512 = KERNELS["NPY_DISABLE_CPU_FEATURES"]
# Empty values count as set, so that the command leaves them as they are.
PROCESSOR = {**dict.fromkeys(KERNELS, ""), "MKL_CBWR": "AUTO", "ONEDNN_MAX_CPU_ISA": "ALL"}
LEVELS: Mapping[str, Mapping[str, str]] = {
    "fixed": {},
    "maker": {MKL_PROCESSOR: "own"},
    "processor": PROCESSOR,
    "avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL"},
    "sse": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": f"AVX F16C FMA3 AVX2 {AVX512}",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-FMA",
    },
}


class Told(NamedTuple):
    """A condition at a level: whether its records are those of fixed kernels, and its price."""

    condition: str
    equal: bool
    price: float


def run(config: RunConfig, out: Path, level: str) -> float:
    """Run a configuration in a process with a level's kernels; processor seconds per group."""
    clean = {name: value for name, value in os.environ.items() if name not in KERNELS}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    subprocess.run(
        command_line("run-one", "--out", str(out)),
        input=canonical_json(config),
        env={**clean, **threads, **LEVELS[level]},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    steps = [json.loads(line) for line in (out / "timings.jsonl").read_text().splitlines()]
    return sum(step["processor_seconds"] or 0.0 for step in steps) / len(steps)


def differing(first: Path, second: Path) -> Iterator[str]:
    """Files of two runs that differ: with the first step, and the fields that do there."""
    for name in RECORDS:
        rows = [(run / name).read_text().splitlines() for run in (first, second)]
        pairs = [(json.loads(a), json.loads(b)) for a, b in zip(*rows, strict=False) if a != b]
        if pairs:
            one, other = pairs[0]
            fields = ", ".join(sorted(key for key in one if one[key] != other.get(key)))
            yield f"{name} from step {one['step']} ({fields}; {len(pairs)} of {len(rows[0])} lines)"


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS))
    arguments = parser.parse_args()
    profile = load_profile("evidence/main")
    told: dict[str, list[Told]] = {level: [] for level in LEVELS}
    with tempfile.TemporaryDirectory(prefix="s2s-") as scratch:
        for condition in arguments.conditions:
            config = msgspec.structs.replace(profile.run(condition, 42), groups=arguments.groups)
            places = {level: Path(scratch) / f"{condition}-{level}" for level in LEVELS}
            seconds = {level: run(config, place, level) for level, place in places.items()}
            for level in LEVELS:
                found = list(differing(places["fixed"], places[level]))
                told[level].append(Told(condition, not found, seconds[level] / seconds["processor"]))
                what = "differs: " + "; ".join(found) if found else "equal"
                print(f"{condition}, {level}: {what}; {told[level][-1].price:.2f} times", flush=True)
    command = f"python -m tests.proofs.portable_bits --groups {arguments.groups}"
    print_figure("records by kernels, against the fixed ones", command, "; ".join(map(summary, told.items())))


def summary(level: tuple[str, list[Told]]) -> str:
    """Which conditions differ at a level, and what it costs."""
    name, found = level
    otherwise = ", ".join(one.condition for one in found if not one.equal)
    prices = sorted(one.price for one in found)
    what = f"differs ({otherwise})" if otherwise else "equal"
    return f"{name} {what}, {prices[0]:.2f} to {prices[-1]:.2f} times the processor time"


if __name__ == "__main__":
    main()
