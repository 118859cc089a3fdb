"""The record files of one run directory while it is written."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from search_to_signal.evaluation.candidate_run import Run
from search_to_signal.loop.checkpoints import CHECKPOINTS
from search_to_signal.records.files import sync_directory
from search_to_signal.records.manifest import Timing, sum_timings
from search_to_signal.records.preferences import PREFERENCES
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS, read_records
from search_to_signal.records.schema import StepTiming
from search_to_signal.records.writer import Mark, RecordWriter, RunFiles

# Where each kind of record goes, within the run directory.
NAMES = {
    "completions": COMPLETIONS,
    "steps": STEPS,
    "generations": GENERATIONS,
    "heuristics": HEURISTICS,
    "timings": TIMINGS,
    "evaluations": f"{CHECKPOINTS}/evaluations.jsonl",
}
# Of a rule that learns from pairs.
PAIRED_NAMES = {**NAMES, "preferences": PREFERENCES}


class EvaluationNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the evaluation pool knows of one program, by the pool's key; the last note of a key holds."""

    key: str
    run: Run


@contextmanager
def run_files(
    directory: Path, marks: Mapping[str, Mark] | None = None, paired: bool = False
) -> Iterator[RunFiles]:
    """Open every record file, that of pairs where asked: of a fresh directory, or where its ``marks`` say.

    Raises RecordError, before a byte changes, when a file is there already or is not as marked.
    """
    (directory / CHECKPOINTS).mkdir(exist_ok=True)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(RecordWriter(directory / file, marks[name] if marks else None))
            for name, file in (PAIRED_NAMES if paired else NAMES).items()
        }
        for writer in writers.values():
            writer.cut()
        sync_directory(directory)
        yield RunFiles(directory, **writers)


def read_timing(directory: Path) -> Timing:
    """The timing of a run directory, summed over its steps."""
    return sum_timings(list(read_records(directory / TIMINGS, StepTiming)))
