"""Groups that a log does not name: runs of rows with the same prompt."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.importers.rows import Evidence, Group, RolloutRow, assumed, consecutive
from search_to_signal.errors import RecordError

RUNS = (
    "a group is a run of rows with the same prompt: the log names no group, "
    "and two groups of one prompt in a row look like one without --group-size"
)
_SPLIT = "a group is a run of rows with the same prompt, split into the group size that the caller gave"


def groups_by_prompt(
    path: Path, rows: Iterable[RolloutRow], options: ReadOptions, guess: int | None = None
) -> Iterator[Group]:
    """Runs of rows with equal ``group``, split into groups of the size that the caller gave, else of a guess.

    Raises RecordError for a run that cannot be split evenly into the caller's size.
    """
    for run in consecutive(rows):
        size = options.group_size or guess or len(run)
        if len(run) % size:
            if not options.group_size:
                yield run
                continue
            raise RecordError(
                f"{path}: {len(run)} rows with one prompt from row {run[0].position} on are no multiple of "
                f"the group size {size}; give the size that the run was trained with, or none"
            )
        yield from (run[start : start + size] for start in range(0, len(run), size))


def prompt_evidence(options: ReadOptions, says: str = RUNS) -> Evidence:
    """How many runs of which length were taken for groups."""
    return assumed("consecutive_prompts", _SPLIT if options.group_size else says)
