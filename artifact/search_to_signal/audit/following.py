"""A log that is still being written: each step in one line as it comes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from search_to_signal.audit import live
from search_to_signal.audit.applied_normalizers import apply, step_batches
from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.default_normalizers import USUAL
from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers import find, read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.steps import part, spans, whole_steps
from search_to_signal.errors import RecordError

# Size and time of last change of a file.
Stamp = tuple[int, int]


@dataclass
class Following:
    """A file or directory that grows, and which of its steps were printed.

    A file is read once it has not changed between two looks, so that none is met half-written; one that still
    cannot be read then is reported and left until it changes.
    """

    path: Path
    format: str | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    normalizer: str | None = None
    _seen: dict[Path, Stamp] = field(default_factory=dict)
    _read: dict[Path, Stamp] = field(default_factory=dict)
    # Rows of each step of a file that were printed, and of each time that a resumed run sampled it.
    _printed: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _complaint: str = ""

    def look(self) -> list[str]:
        """A line for each step that is new or has grown since the last look, in order."""
        try:
            log_format, files = find(self.path, self.format, self.options.columns)
        except RecordError as error:
            # Nothing is there yet, nothing whole, or nothing known: reported once.
            before, self._complaint = self._complaint, str(error)
            return [] if before == self._complaint else [f"not read yet: {error}"]
        lines: list[str] = []
        for file in files:
            try:
                stamp = _stamp(file)
            except OSError:
                # Gone since it was found.
                continue
            settled = self._seen.get(file) == stamp
            self._seen[file] = stamp
            if settled and self._read.get(file) != stamp:
                self._read[file] = stamp
                lines.extend(self._lines(file, log_format.name))
        return lines

    def _lines(self, file: Path, format: str) -> Iterator[str]:
        name = self.normalizer or USUAL.get(format, "group")
        try:
            for batch in whole_steps(read(file, format, self.options)):
                for first, end in spans(batch):
                    step = part(batch, first, end)
                    sampling = 0 if step.sampling is None else int(step.sampling[0])
                    key = (step.source, int(step.step[0]), sampling)
                    if self._printed.get(key) != len(step.reward):
                        self._printed[key] = len(step.reward)
                        yield line_of(step, name)
        except RecordError as error:
            yield f"not read yet: {error}"


def line_of(step: RewardGroups, normalizer: str) -> str:
    """A step in one line: its size, and the numbers of ``live``."""
    logged = bool(step.has_advantage.any())
    numbers = live.numbers_of(
        step, step.advantage if logged else apply(get_entry(normalizer), step_batches(step))
    )
    shares = [
        f"{name.removeprefix(live.SHARE)} {share:.0%}"
        for name, share in numbers.items()
        if name.startswith(live.SHARE) and len(step.weights) > 1
    ]
    nan = f", {numbers[live.NAN]:.1%} of advantages NaN" if numbers[live.NAN] else ""
    return (
        f"step {int(step.step[0])}: {len(step.step)} groups, {len(step.reward)} completions, "
        f"{numbers[live.DEAD]:.1%} of groups dead{nan}, effective batch {numbers[live.BATCH]:.0f}, "
        f"largest gain {numbers[live.GAIN]:.4g}{'; ' if shares else ''}{', '.join(shares)}"
    )


def _stamp(file: Path) -> Stamp:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
