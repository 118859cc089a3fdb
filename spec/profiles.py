"""Hypothesis profiles: quick for every run, ci for a fixed and deeper one, thorough before a release."""

from hypothesis import HealthCheck, Phase, settings


def register() -> None:
    """Register the profiles of the specification; registering twice changes nothing."""
    slow = [HealthCheck.too_slow]
    settings.register_profile("quick", max_examples=60, deadline=None, suppress_health_check=slow)
    settings.register_profile(
        "ci", max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=slow
    )
    settings.register_profile("thorough", max_examples=5000, deadline=None, suppress_health_check=slow)
    # Faults are only to be found here, not explained, so nothing is shrunk.
    settings.register_profile(
        "meta",
        max_examples=200,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=slow,
    )
