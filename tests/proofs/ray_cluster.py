"""Show that a Ray cluster gives the same files: nodes join during a cohort, and one of them is lost.

    python -m tests.proofs.ray_cluster --groups 3

Runs the smoke profile's cohort here, then on a real Ray cluster on this machine, where a second node joins,
is killed while it has a run, and a third joins. Prints what each run went through.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.figures import print_figure

from search_to_signal.base.package_data import PROFILES
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import read_manifest, run_directories
from search_to_signal.verify.directory import verify

SAME = ("completions.jsonl", "steps.jsonl", "generations.jsonl", "heuristics.jsonl", "config.json", "adapter")
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


def records(directory: Path) -> dict[str, bytes]:
    """The files that have to be the same, with their bytes."""
    files = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name.startswith(SAME)}


def memory_mib() -> int:
    """Resident memory of every Ray process of this user, the runs themselves left out."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            pages = int((folder / "statm").read_text().split()[1])
        except OSError:
            continue
        total += pages if b"ray" in command and b"search_to_signal" not in command else 0
    return total * os.sysconf("SC_PAGESIZE") >> 20


def wait_for(files: list[Path], number: int, cohort: "subprocess.Popen[bytes]") -> None:
    """Wait until so many runs have a recorded group; raises SystemExit when the cohort ends before."""
    while sum(file.exists() and file.stat().st_size > 0 for file in files) < number:
        if cohort.poll() is not None:
            raise SystemExit(f"the cohort on Ray ended with {cohort.returncode} before a node was lost")
        time.sleep(0.05)


def s2s_run(profile: Path, out: Path, *more: str) -> "subprocess.Popen[bytes]":
    """Start the command as a user would."""
    command = [sys.executable, "-m", "search_to_signal.cli", "run", "--profile", str(profile)]
    with out.with_name(f"{out.name}.log").open("wb") as log:
        return subprocess.Popen([*command, "--out", str(out), "--layer", "cohort", *more], stdout=log)


def on_ray(profile: Path, there: Path, names: list[str]) -> None:
    """Run the cohort on two nodes, of which one is lost."""
    from ray.cluster_utils import Cluster

    steps = [there / COHORT / name / "steps.jsonl" for name in names]
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        cohort = s2s_run(profile, there, "--ray", cluster.address)
        # A cohort ends with the node of the command itself, which is the first one.
        wait_for(steps, 1, cohort)
        lost = cluster.add_node(**NODE)
        print("a second node joined when the first run had a group", flush=True)
        wait_for(steps, 2, cohort)
        print(f"Ray's own processes take {memory_mib()} MiB", flush=True)
        cluster.remove_node(lost, allow_graceful=False)
        print("it was killed when the second run had a group", flush=True)
        cluster.add_node(**NODE)
        print("a third node joined", flush=True)
        if cohort.wait():
            raise SystemExit(f"the cohort on Ray ended with {cohort.returncode}")
    finally:
        cluster.shutdown()


def main() -> None:
    """Run here, run there, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        profile, here, there = (Path(folder) / name for name in ("tiny.toml", "here", "there"))
        text = re.sub(
            r"(?m)^groups = .*$", f"groups = {options.groups}", (PROFILES / "smoke.toml").read_text()
        )
        profile.write_text(f"checkpoint_every = 1\n{text}")
        if s2s_run(profile, here).wait():
            raise SystemExit("the cohort on this machine failed")
        local, start = run_directories(here / COHORT), time.monotonic()
        on_ray(profile, there, [run.name for run in local])
        print(f"{time.monotonic() - start:.0f} s on the cluster")
        equal, interrupted = 0, 0
        for run in local:
            same = records(there / COHORT / run.name) == records(run)
            stops = read_manifest(there / COHORT / run.name).interruptions
            equal, interrupted = equal + same, interrupted + stops
            print(f"{run.name}: {stops} interruptions, {'identical' if same else 'DIFFERENT'}")
        whole = not verify(there).problems
    printed = f"{equal}/{len(local)} runs identical to local ones, {interrupted} resumed after the loss"
    print_figure("ray_cluster", f"python -m tests.proofs.ray_cluster --groups {options.groups}", printed)
    if equal < len(local) or not whole or not interrupted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
