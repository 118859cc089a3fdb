"""The key of an endpoint, which is no setting: an environment variable holds it."""

import os

from search_to_signal.errors import ConfigError
from search_to_signal.generators.settings import ApiSettings


def endpoint_key(settings: ApiSettings) -> str:
    """The key, ``none`` where no variable is named; raises ConfigError where the variable is not set."""
    if not settings.key_variable:
        return "none"
    key = os.environ.get(settings.key_variable, "")
    if not key:
        raise ConfigError(
            f"the environment variable {settings.key_variable} is not set: put the endpoint's key there, or "
            "name another variable in key_variable (an empty name where no key is needed), or leave the "
            "layer out, by --layer with the names of the others"
        )
    return key
