"""A cohort alone, without the other layers of its profile."""

from pathlib import Path

from search_to_signal.experiments.configuration import Profile
from search_to_signal.experiments.runs.execution import Execution
from search_to_signal.experiments.runs.run_slots import Reproduction
from search_to_signal.progress import Progress


def run_cohort(
    profile: Profile, out: Path, progress: Progress, *, resume: bool = False, ray: str | None = None
) -> list[Path]:
    """Run what is missing of a profile's cohort into ``out``; returns its run directories."""
    how = Execution(profile.jobs, profile.checkpoint_every, resume, ray)
    return Reproduction(profile, out.parent, how, progress).run_all({out: profile.runs()})
