"""Evidence layer "repeat": the cohort's Frozen runs once more, from the same seeds."""

from search_to_signal.profiles.run_config import FROZEN
from search_to_signal.scheduling.run_slots import Reproduction

KEY = "repeat"


def run(asked: Reproduction) -> None:
    """Run them; raises RunDirectoryError when the cohort is not finished."""
    asked.finished_cohort()
    runs = [asked.profile.run(FROZEN, seed, layer=KEY) for seed in asked.profile.seeds]
    asked.run_all({asked.results / KEY: runs})
