"""TTT-Discover's learning rule as a profile knows it: settings, and what makes a learner."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from search_to_signal.base import plugins
from search_to_signal.base.settings import Range, Settings, settings_of
from search_to_signal.learner.base import Learner, LearnerSetup
from search_to_signal.records.schema import facts_of_rule


class EntropicSettings(Settings, frozen=True, kw_only=True):
    """Of TTT-Discover's rule: a step every ``groups_per_batch`` groups.

    ``kl_penalty_coef`` weighs the distance to the base (D57).
    """

    TABLE = "rule_settings"
    groups_per_batch: Annotated[int, Range(1, 1_000_000)] = 8
    kl_penalty_coef: Annotated[float, Range(0, 1000)] = 0.1


class Entropic:
    """TTT-Discover's policy gradient over batches of groups, with a KL penalty in the advantage (D57)."""

    facts = partial(facts_of_rule, "entropic")

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError for settings that are not its own."""
        settings_of(settings, EntropicSettings, "rule_settings")

    def learner(self, setup: LearnerSetup) -> Learner:
        """A learner with a fresh optimizer and no group."""
        # By its name: the module loads torch, and reads the settings above.
        learner: Learner = plugins.part("search/hosts/entropic", "learner").EntropicLearner(setup)
        return learner


RULE = Entropic()
