"""What a configuration of the released host asks for; refused, by file and fact, before any of it runs."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_to_signal.errors import ConfigError, HostError
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.released.checkout import NAMES, ReleasedCheckout
from search_to_signal.hosts.released.endpoint import (
    ListModels,
    is_served,
    remarks,
    require_served,
    served_name,
)
from search_to_signal.hosts.released.trainer import settings_of
from search_to_signal.progress import one_line
from search_to_signal.rewards.base import SEVERITY

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_SECRET = re.compile("key|token|secret|password", re.IGNORECASE)


@dataclass(frozen=True)
class ReleasedPlan:
    """A configuration: ``options`` is the host's own object, ``problem`` our name of its problem.

    It has ``groups`` rounds of ``group_size`` completions. ``model`` is a name or path as the host, or the
    endpoint, knows it. ``served`` says that an endpoint answers, and nothing is trained here: one completion
    a round, and ``n_generations`` times as many rounds. ``remarks`` are what a user may not expect.
    """

    config: str
    options: Any
    problem: str
    settings: SearchSettings
    groups: int
    group_size: int
    model: str
    served: bool
    remarks: tuple[str, ...] = ()

    def recorded(self) -> dict[str, str | int | float | bool | None]:
        """The host's plain options by name, without what might be a secret."""
        plain = (str | int | float, type(None))
        options = {name: value for name, value in vars(self.options).items() if not _SECRET.search(name)}
        return {name: _without_login(value) for name, value in options.items() if isinstance(value, plain)}


def _without_login(value: Any) -> Any:
    return re.sub("//[^/@]*@", "//", value) if isinstance(value, str) else value


def planned(checkout: ReleasedCheckout, config: str, problem: str | None) -> ReleasedPlan:
    """The plan of a configuration file; raises HostError, naming it, for what cannot run or be recorded.

    ``problem`` is the one that the caller expects, None for whichever it is.
    """
    if not (checkout.path / config).is_file():
        raise HostError(f"{config} is missing: give a configuration of the checkout, or a file of yours")
    try:
        options = checkout.module("args").Args.from_yaml(config)
        settings = settings_of(options)
    except (ConfigError, TypeError, ValueError, AttributeError, OSError) as error:
        raise HostError(f"{config} is no configuration of this host: {one_line(str(error))}") from error
    for name in ("max_steps", "n_generations", "n_prompts"):
        value = getattr(options, name)
        if not isinstance(value, int) or value < 1:
            raise HostError(f"{config}: {name} is {value!r}, give a whole number of at least 1")
    if options.n_prompts != 1:
        raise HostError(f"{config}: n_prompts is {options.n_prompts}, but a group is one prompt: set it to 1")
    _require_released_failures(config, options)
    ours = _problem(config, options.problem_name, problem)
    _require_files(checkout, config, options)
    served = is_served(options)
    return ReleasedPlan(
        config,
        options,
        ours,
        settings,
        groups=options.max_steps * (options.n_generations if served else 1),
        group_size=1 if served else options.n_generations,
        model=served_name(config, options) if served else str(options.model_name),
        served=served,
        remarks=remarks(config, options),
    )


def _require_files(checkout: ReleasedCheckout, config: str, options: Any) -> None:
    """Seed and template have to be there; an empty path is the host's own file (HOST.md, point 27)."""
    for name, file in (("seed_algo_fp", "seed.py"), ("template_fp", "template.py")):
        given = getattr(options, name)
        if not isinstance(given, str):
            raise HostError(f"{config}: {name} is {given!r}, give a path, or '' for the host's own {file}")
        path = given or f"configs/{options.problem_name}/{file}"
        if not (checkout.path / path).is_file():
            raise HostError(f"{config}: {name} names {path}, which is not there")


def _require_released_failures(config: str, options: Any) -> None:
    """Records recognize failures by their rewards, so these have to be the released ones."""
    given = {name: value for name, value in vars(options).items() if name.startswith("reward_")}
    strange = [f"{name} {value}" for name, value in given.items() if value not in SEVERITY.values()]
    if strange:
        raise HostError(f"{config}: {', '.join(strange)} is no released reward of a failure: leave it out")


def _problem(config: str, named: str, wanted: str | None) -> str:
    problem = next((ours for ours, theirs in NAMES.items() if theirs == named), None)
    if problem is None:
        known = ", ".join(NAMES.values())
        raise HostError(f"{config}: problem_name is {named!r}, the released host has {known}")
    if wanted not in (None, problem):
        raise HostError(f"{config}: problem_name is {named!r}, not the released name of {wanted}")
    return problem


def require_model(plan: ReleasedPlan, list_models: ListModels) -> None:
    """Raise HostError where the model of a plan cannot be had; one that would be downloaded passes."""
    if not plan.model:
        raise HostError(f"{plan.config}: model_name is empty")
    if plan.served:
        require_served(plan.config, plan.options, list_models)
    elif _is_path(plan.model):
        if not (Path(plan.model) / "config.json").is_file():
            raise HostError(f"{plan.config}: model_name is {plan.model}, where no config.json lies")
    elif _offline() and not _cached(plan.model):
        raise HostError(
            f"{plan.config}: model_name is {plan.model}, which is not in the cache, and HF_HUB_OFFLINE keeps "
            "it from being downloaded: give the path of a directory"
        )


def _is_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.count("/") > 1 or Path(model).is_dir()


def _offline() -> bool:
    return any(os.environ.get(name, "0").lower() not in ("", "0", "false", "no") for name in _OFFLINE)


def _cached(model: str) -> bool:
    """Whether the cache holds this model, or another form of it: Unsloth loads its own quantized ones."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    wanted = model.split("/")[-1].lower()
    return any(wanted in path.name.lower() for path in cache.glob("models--*"))
