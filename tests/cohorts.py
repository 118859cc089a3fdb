"""A cohort alone, a run of it, and a stop in its middle."""

from pathlib import Path

from tests.profiles import plain_profile

from search_to_signal.base.progress import PlainProgress, Progress
from search_to_signal.run.config import RunConfig
from search_to_signal.run.execution import Execution
from search_to_signal.run.planned_runs import Reproduction
from search_to_signal.run.profile import Profile
from search_to_signal.verify.directory import verify


def run_cohort(
    profile: Profile, out: Path, progress: Progress, *, resume: bool = False, ray: str | None = None
) -> list[Path]:
    """Run what is missing of a profile's cohort into ``out``; returns its run directories."""
    every = profile.checkpoint_every
    how = Execution(profile.jobs, every, resume, ray, check=lambda run: verify(run).problems)
    return Reproduction(profile, out.parent, how, progress).run_all({out: profile.runs()})


class Told:
    """Progress that is kept: the lines that were said, and every update."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.updates: list[tuple[str, int, int, str]] = []

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Keep it."""
        self.updates.append((task, done, total, note))

    def say(self, line: str) -> None:
        """Keep it."""
        self.lines.append(line)


class StoppingAfter(PlainProgress):
    """Stops a run after a group, as Ctrl-C does."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self._groups = groups

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Pass progress on, and stop at the group."""
        super().update(task, done, total, note)
        if done == self._groups:
            raise KeyboardInterrupt


def nine_groups() -> RunConfig:
    """A frozen run of nine groups by a model that is not there: for stubs of runs."""
    return plain_profile(conditions=("frozen",), groups=9).runs()[0]
