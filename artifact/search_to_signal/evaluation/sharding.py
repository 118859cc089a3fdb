"""One program on several slots at a time: how elapsed time is measured as the host measures it (D33)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

from search_to_signal.evaluation.candidates import Run
from search_to_signal.evaluation.dialogues import ProgramTask
from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.evaluation.slots import Slot


def run_sharded(slots: Sequence[Slot], threads: ThreadPoolExecutor, task: ProgramTask, code: str) -> Run:
    """Run a program on the instances of a task, dealt out to the slots, which run at the same time.

    Their clocks start together, so that one limit of elapsed time holds for all instances. Raises
    SandboxError for a fault of the sandbox, once every slot has ended.
    """
    used = slots[: len(task.instances)]
    if len(used) == 1:
        return used[0].run(task, code)
    shards = [replace(task, instances=task.instances[start :: len(used)]) for start in range(len(used))]
    running = [threads.submit(slot.run, shard, code) for slot, shard in zip(used, shards, strict=True)]
    wait(running)
    return merge_shards([future.result() for future in running])


def merge_shards(runs: Sequence[Run]) -> Run:
    """Merge the runs of shards into one: their results in the order of the instances, or the first failure.

    A kill from outside counts last, because it says nothing about the program. Processor seconds add up.
    """
    cpu_s, wall_s = sum(run.cpu_s for run in runs), max(run.wall_s for run in runs)
    failed = [run for run in runs if run.isolation is not Isolation.OK]
    if failed:
        outcome = min(failed, key=lambda run: run.isolation is Isolation.KILLED)
        return replace(outcome, cpu_s=cpu_s, wall_s=wall_s)
    order = sorted((place, shard) for shard, run in enumerate(runs) for place in range(len(run.scores)))
    scores = tuple(runs[shard].scores[place] for place, shard in order)
    decisions = tuple(runs[shard].decisions[place] for place, shard in order)
    return replace(runs[0], scores=scores, decisions=decisions, cpu_s=cpu_s, wall_s=wall_s)
