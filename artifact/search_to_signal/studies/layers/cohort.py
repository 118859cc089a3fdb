"""Evidence layer "formal live cohort": conditions x seeds, search and learner side by side."""

from search_to_signal.records.layers import COHORT
from search_to_signal.scheduling.run_slots import Reproduction
from search_to_signal.studies.layers.anchor import fix_contract


def run(asked: Reproduction) -> None:
    """Run the cohort; raises RunDirectoryError where its directory holds anything else."""
    profile, results = asked.profile, asked.results
    asked.run_all({results / COHORT: profile.runs()})
    if profile.anchor is not None and asked.has_cohort:
        # Now, before anything reads what the runs achieved.
        fix_contract(profile, profile.anchor, results, asked.how.plan)
