"""Evidence layer "repeat": the cohort's Frozen runs once more, from the same seeds."""

from search_to_signal.records.conditions import FROZEN
from search_to_signal.run.planned_runs import Reproduction

KEY = "repeat"


def run(reproduction: Reproduction) -> None:
    """Run them; raises RunDirectoryError when the cohort is not finished."""
    reproduction.finished_cohort()
    runs = [reproduction.profile.run(FROZEN, seed, layer=KEY) for seed in reproduction.profile.seeds]
    reproduction.run_all({reproduction.results / KEY: runs})
