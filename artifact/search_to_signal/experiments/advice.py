"""What a profile may do although it is probably not meant: told when a run begins, never refused."""

from collections.abc import Iterator

from search_to_signal.experiments.configuration import FROZEN, Profile
from search_to_signal.experiments.layers.settings import BreadthCell
from search_to_signal.package_data import MODELS

EMBEDDED_RATE = 8e-4
"""The learning rate that shipped profiles give embedded models; the default, 5e-5, is the paper's at 7B."""
_TOO_SLOW = EMBEDDED_RATE / 4


def warnings_of(profile: Profile) -> Iterator[str]:
    """One line per embedded model that the profile trains at a rate at which it hardly learns."""
    rate = profile.learner.learning_rate
    parts: list[Profile | BreadthCell] = [profile, *profile.breadth]
    trained = {part.model for part in parts if set(part.conditions) - {FROZEN}}
    for model in sorted(trained):
        if profile.learner.optimizer != "sgd" and rate < _TOO_SLOW and (MODELS / model).is_dir():
            yield (
                f"warning: {model} is trained at learner.learning_rate {rate:g}, too low for a model of its "
                f"size: runs will hardly differ from frozen ones; the shipped profiles use {EMBEDDED_RATE:g}"
            )
