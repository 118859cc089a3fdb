"""Does a program decide the same where only chance differs? Recorded with its outcome (D20)."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from search_to_signal.evaluation.candidate_run import Run
from search_to_signal.evaluation.dialogues import ProgramTask
from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.evaluation.slots import Slot

# A second run that is cut off says nothing when the first had used so much of the time limit itself.
_BORDERLINE = 0.5


def spot_indices(code: str, instances: int, count: int) -> tuple[int, ...]:
    """Which instances a spot check asks: some that depend on the program alone, last one first."""
    start = int.from_bytes(hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    chosen = {(start + step) % instances for step in range(min(count, instances))}
    return tuple(sorted(chosen, reverse=True))


def confirm_by_replay(slot: Slot, task: ProgramTask, code: str, run: Run, indices: Sequence[int]) -> Run:
    """Replay an OK run on some instances; it comes back as NONDETERMINISTIC when the decisions differ.

    The instances are asked in reverse, so that state that modules carry from one to the next shows as well.
    Where the slot's settings give a replay 0 s (``replay_s``), one that is cut off says nothing.
    """
    instances = [task.instances[index] for index in indices]
    again = slot.replay(replace(task, instances=instances, scored=False), code)
    if again.isolation is Isolation.KILLED:
        return run
    if again.isolation is Isolation.TIMEOUT and run.cpu_s > _BORDERLINE * slot.settings.replay_s:
        return run
    if again.isolation is not Isolation.OK:
        return replace(run, isolation=Isolation.NONDETERMINISTIC, detail=f"replay: {again.isolation.value}")
    changed = [i for i, new in zip(indices, again.decisions, strict=True) if new != run.decisions[i]]
    if changed:
        detail = f"replay: other decisions on instance {changed[0]}"
        return replace(run, isolation=Isolation.NONDETERMINISTIC, detail=detail)
    return run
