"""A model behind an endpoint, as the released host has it: what decides it, what is asked, how many rounds.

The host decides by the model's name alone; ``base_url`` is where it asks then (HOST.md, point 17).
"""

from collections.abc import Callable
from typing import Any

from search_to_signal.errors import GenerationError, HostError

ListModels = Callable[[str, str], tuple[str, ...] | None]
"""The names of the models at an endpoint, by its address and key; None where it does not list them."""

_ONLINE = "online"


def is_served(options: Any) -> bool:
    """Whether the host asks an endpoint, and trains nothing."""
    return str(options.model_name).lower().startswith(_ONLINE)


def served_name(config: str, options: Any) -> str:
    """The name that the host asks an endpoint for: what stands between the first two slashes.

    Raises HostError where there is none, and for an empty option without which the host stops.
    """
    name = str(options.model_name).partition("/")[2].partition("/")[0]
    if not name:
        raise HostError(
            f"{config}: model_name is {options.model_name}, give {_ONLINE}/NAME for the model NAME of an "
            "endpoint"
        )
    empty = [option for option in ("base_url", "api_key") if not getattr(options, option)]
    if empty:
        raise HostError(
            f"{config}: {' and '.join(empty)} may not be empty where model_name begins with {_ONLINE}; "
            "the key may be any word where the endpoint asks for none"
        )
    return name


def remarks(config: str, options: Any) -> tuple[str, ...]:
    """What a user may not expect of a configuration, a line each."""
    if is_served(options):
        steps, size = options.max_steps, options.n_generations
        return (
            f"{config}: model_name begins with {_ONLINE}, so an endpoint answers, one completion a round: "
            f"max_steps {steps} times n_generations {size} are {steps * size} rounds. Groups are single "
            "answers, so every advantage is zero and nothing is trained, whatever the mapping",
        )
    if options.base_url:
        return (
            f"{config}: base_url is not used, as model_name does not begin with {_ONLINE}: the host loads "
            f"{options.model_name} here; give {_ONLINE}/NAME for the model NAME of the endpoint",
        )
    return ()


def require_served(config: str, options: Any, list_models: ListModels) -> None:
    """Raise HostError where the endpoint does not answer, or has another model."""
    name = served_name(config, options)
    try:
        names = list_models(options.base_url, options.api_key)
    except GenerationError as error:
        raise HostError(f"{config}: {error}") from error
    if names is not None and name not in names:
        raise HostError(
            f"{config}: model_name is {options.model_name}, so the host asks for {name}; "
            f"the endpoint has {', '.join(names) or 'no model'}"
        )
