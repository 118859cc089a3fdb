"""Show that a Ray cluster gives the same files: two nodes, one lost during a cohort, another one joining.

    python -m tests.proofs.ray_cluster --groups 3

Runs the smoke profile's conditions here, then on a real Ray cluster of two nodes on this machine. Once each
node has recorded a group, one of them is killed; a third joins. Prints what each run went through.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.experiments.cohort import run_cohort
from search_to_signal.experiments.configuration import load_profile
from search_to_signal.progress import PlainProgress
from search_to_signal.provenance.verify import verify
from search_to_signal.records.manifest import read_manifest

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


def lose_a_node(cluster: Any, node: Any, runs: list[Path], said: list[str], cohort: "Future[Any]") -> None:
    """Wait until every run has a recorded group, kill a node, and let another one join."""
    steps = [run / "steps.jsonl" for run in runs]
    while not all(file.exists() and file.stat().st_size for file in steps) and not cohort.done():
        time.sleep(0.05)
    said.append(f"Ray's own processes take {memory_mib()} MiB")
    cluster.remove_node(node, allow_graceful=False)
    said.append("one of two nodes killed after the first groups")
    cluster.add_node(**NODE)
    said.append("a third node joined")


def main() -> None:
    """Run here, run there, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    from ray.cluster_utils import Cluster

    profile = msgspec.structs.replace(load_profile("smoke"), groups=options.groups, checkpoint_every=1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        here, there = Path(folder) / "here", Path(folder) / "there"
        local = run_cohort(profile, here, PlainProgress())
        start = time.monotonic()
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        said: list[str] = []
        try:
            lost = cluster.add_node(**NODE)
            # Nodes come and go on the main thread, because Ray sets signal handlers with them.
            with ThreadPoolExecutor(1) as thread:
                cohort = thread.submit(run_cohort, profile, there, PlainProgress(), ray=cluster.address)
                lose_a_node(cluster, lost, [there / run.name for run in local], said, cohort)
                cohort.result()
        finally:
            cluster.shutdown()
        print(*said, f"{time.monotonic() - start:.0f} s on the cluster", sep="\n")
        equal = [records(there / run.name) == records(run) for run in local]
        for run, same in zip(local, equal, strict=True):
            stops = read_manifest(there / run.name).interruptions
            print(f"{run.name}: {stops} interruptions, {'identical' if same else 'DIFFERENT'}")
        interrupted = sum(read_manifest(there / run.name).interruptions for run in local)
        whole = not verify(there).problems
        print(f"{sum(equal)}/{len(equal)} runs identical to local ones, {interrupted} resumed after the loss")
    if not (all(equal) and whole and interrupted):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
