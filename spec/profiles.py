"""Hypothesis profiles: quick for every run, ci for a fixed and deeper one, thorough before a release."""

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
    settings.register_profile("quick", max_examples=60, **common)
    settings.register_profile("ci", max_examples=300, **fixed, **common)
    settings.register_profile("thorough", max_examples=5000, **common)
    settings.register_profile("meta", max_examples=300, phases=unshrunk, **fixed, **common)
