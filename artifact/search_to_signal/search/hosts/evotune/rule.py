"""EvoTune's learning rule as a profile knows it: settings, and what makes a learner."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from search_to_signal.base import plugins
from search_to_signal.base.settings import Range, settings_of
from search_to_signal.credit.mappings import RoundSettings
from search_to_signal.learner.base import Learner, LearnerSetup
from search_to_signal.records.schema import facts_of_rule


class DpoSettings(RoundSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of DPO in rounds: when rounds are, and TRL's loss on their pairs (D54).

    The defaults are EvoTune's (CLAIRE-Labo/EvoTune, configs/train/dpo.yaml).
    """

    beta: Annotated[float, Range(0, 1000, above=True)] = 0.4
    f_divergence_type: Literal["reverse_kl", "js_divergence", "alpha_divergence"] = "alpha_divergence"
    f_alpha_divergence_coef: Annotated[float, Range(0, 1000, above=True)] = 1.0
    lr_scheduler_type: Literal["cosine", "constant"] = "cosine"


class Dpo:
    """DPO in rounds on pairs of the groups' completions, as EvoTune learns; TRL 0.15.1's loss (D53, D54)."""

    facts = partial(facts_of_rule, "dpo")

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError for settings that are not its own."""
        settings_of(settings, DpoSettings, "rule_settings")

    def learner(self, setup: LearnerSetup) -> Learner:
        """A learner without a pair."""
        # By its name: the module loads torch, and reads the settings above.
        learner: Learner = plugins.part("search/hosts/evotune", "learner").DpoLearner(setup)
        return learner


RULE = Dpo()
