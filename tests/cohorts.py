"""A cohort alone, without the other layers of its profile."""

from pathlib import Path

from search_to_signal.profiles.profile import Profile
from search_to_signal.progress import Progress
from search_to_signal.scheduling.execution import Execution
from search_to_signal.scheduling.run_slots import Reproduction
from search_to_signal.verification.consistency.verify import verify


def run_cohort(
    profile: Profile, out: Path, progress: Progress, *, resume: bool = False, ray: str | None = None
) -> list[Path]:
    """Run what is missing of a profile's cohort into ``out``; returns its run directories."""
    every = profile.checkpoint_every
    how = Execution(profile.jobs, every, resume, ray, check=lambda run: verify(run).problems)
    return Reproduction(profile, out.parent, how, progress).run_all({out: profile.runs()})
