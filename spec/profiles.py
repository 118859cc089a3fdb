"""Hypothesis profiles: quick for every run, few for other Pythons, ci fixed and deeper, thorough."""

from typing import Any

from hypothesis import HealthCheck, Phase, settings


def register() -> None:
    """Register the profiles of the specification; registering twice changes nothing."""
    common: dict[str, Any] = {
        "deadline": None,
        "report_multiple_bugs": False,
        "suppress_health_check": [HealthCheck.too_slow],
    }
    fixed: dict[str, Any] = {"derandomize": True, "database": None}
    # Faults are only to be found in the meta profile, not explained, so nothing is shrunk.
    unshrunk = (Phase.explicit, Phase.generate)
    settings.register_profile("quick", max_examples=16, **common)
    # Where the same properties hold under the locked Python: what another one breaks, it breaks at once.
    settings.register_profile("few", max_examples=15, **common)
    settings.register_profile("ci", max_examples=300, **fixed, **common)
    settings.register_profile("thorough", max_examples=5000, **common)
    settings.register_profile("meta", max_examples=300, phases=unshrunk, **fixed, **common)


def many(examples: int) -> int:
    """So many examples of a property that is cheap to try; a quarter of them under the profile few."""
    return examples if settings().max_examples > 15 else examples // 4
