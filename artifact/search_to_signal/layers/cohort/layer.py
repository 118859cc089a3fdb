"""Evidence layer "formal live cohort": conditions x seeds, with search and learner."""

from search_to_signal.base.progress import Task
from search_to_signal.layers.anchor.layer import fix_contract
from search_to_signal.records.layers import COHORT
from search_to_signal.run.planned_runs import Reproduction, tasks_of
from search_to_signal.run.profile import Profile


def tasks(profile: Profile) -> list[Task]:
    return tasks_of(profile.runs())


def run(reproduction: Reproduction) -> None:
    """Run the cohort; raises RunDirectoryError where its directory contains another run."""
    profile, results = reproduction.profile, reproduction.results
    reproduction.run_all({results / COHORT: profile.runs()})
    if profile.anchor is not None and reproduction.has_cohort:
        # Before anything reads the scores of the runs.
        fix_contract(profile, profile.anchor, results, reproduction.execution.plan)
