"""One program on several slots at a time: how elapsed time is measured as the host measures it (D33)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

from search_to_signal.evaluation.candidates import Run
from search_to_signal.evaluation.dialogues import Task
from search_to_signal.evaluation.lanes import Lane
from search_to_signal.evaluation.outcomes import Isolation


def run_spread(lanes: Sequence[Lane], threads: ThreadPoolExecutor, task: Task, code: str) -> Run:
    """Run a program on the instances of a task, dealt out to the slots, which run at the same time.

    Their clocks start together, so that one limit of elapsed time holds for all instances. Raises
    SandboxError for a fault of ours, when every slot has come to its end.
    """
    used = lanes[: len(task.instances)]
    if len(used) == 1:
        return used[0].run(task, code)
    shares = [replace(task, instances=task.instances[start :: len(used)]) for start in range(len(used))]
    running = [threads.submit(lane.run, share, code) for lane, share in zip(used, shares, strict=True)]
    wait(running)
    return joined([future.result() for future in running])


def joined(runs: Sequence[Run]) -> Run:
    """The run that these shares are: their results in the order of the instances, or the first failure.

    A kill from outside counts last, because it says nothing about the program. Processor seconds add up.
    """
    cpu_s, wall_s = sum(run.cpu_s for run in runs), max(run.wall_s for run in runs)
    failed = [run for run in runs if run.isolation is not Isolation.OK]
    if failed:
        told = min(failed, key=lambda run: run.isolation is Isolation.KILLED)
        return replace(told, cpu_s=cpu_s, wall_s=wall_s)
    order = sorted((place, share) for share, run in enumerate(runs) for place in range(len(run.scores)))
    scores = tuple(runs[share].scores[place] for place, share in order)
    decisions = tuple(runs[share].decisions[place] for place, share in order)
    return replace(runs[0], scores=scores, decisions=decisions, cpu_s=cpu_s, wall_s=wall_s)
