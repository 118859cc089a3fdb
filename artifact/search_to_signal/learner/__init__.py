"""Learning rules by name; a profile may also name one by entry point or path. No model library loads here."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, cast

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import settings_of
from search_to_signal.learner.base import Learner, LearnerSetup, LearningRule
from search_to_signal.learner.settings import GrpoSettings
from search_to_signal.records.schema import FIRST_RULE, HOSTS, facts_of_rule

GRPO = FIRST_RULE
GROUP = "search_to_signal.learning_rules"


class Grpo:
    """GRPO with TRL 0.15.1's loss (paper, Learner): most of its knobs stand in ``[learner]``."""

    reads_records = False
    facts = partial(facts_of_rule, FIRST_RULE)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError for settings that are not its own."""
        settings_of(settings, GrpoSettings, "rule_settings")

    def learner(self, setup: LearnerSetup) -> Learner:
        """A learner with a fresh optimizer."""
        from search_to_signal.learner.grpo import GrpoLearner

        rule = settings_of(setup.settings, GrpoSettings, "rule_settings")
        return GrpoLearner(setup.model, setup.learner, setup.pad_id, rule)


RULES: dict[str, LearningRule] = {
    GRPO: Grpo(),
    **{host.rule.name: plugins.part(f"search/hosts/{host.key}", "rule").RULE for host in HOSTS if host.rule},
}
"""The built-in rules by name: the paper's, and those of hosts."""


def rule_errors(name: str) -> AbstractContextManager[None]:
    """Context in which a third-party rule runs: its errors become one line (MappingError)."""
    return plugins.third_party_errors(f"learning rule {name}", name in RULES)


def get_rule(name_or_path: str) -> LearningRule:
    """Return a rule by name, by entry point of group search_to_signal.learning_rules, or by pkg.mod:obj.

    Raises ConfigError with the known names, or with what the object lacks to be a rule.
    """
    rule = plugins.load(name_or_path, RULES, GROUP)
    missing = [name for name in ("check", "learner") if not callable(getattr(rule, name, None))]
    if isinstance(rule, type) or missing:
        what = f"lacks {', '.join(missing)}" if missing else "is a class: call it first"
        raise ConfigError(f"the learning rule {name_or_path!r} {what}; see learner/base.py")
    return cast(LearningRule, rule)
