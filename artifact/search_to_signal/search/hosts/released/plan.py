"""What a configuration of the released host asks for; refused, by file and fact, before any of it runs."""

import ast
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

from search_to_signal.base.errors import ConfigError, GenerationError, HostError
from search_to_signal.base.progress import one_line
from search_to_signal.credit.base import SEVERITY
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.released.checkout import BRINGS, NAMES, NVML, ReleasedCheckout, remedy
from search_to_signal.search.hosts.released.trainer import settings_of

# A model behind an endpoint, as the released host has it: what decides it, what is asked, how many rounds.
#
# The host decides by the model's name alone; ``base_url`` is where it asks then (HOST.md, point 17).

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
            f"{config}: {' and '.join(empty)} may not be empty when model_name begins with {_ONLINE}; "
            "give any word as the key when the endpoint needs none"
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
        return {
            name: re.sub("//[^/@]*@", "//", value) if isinstance(value, str) else value
            for name, value in options.items()
            if isinstance(value, plain)
        }


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
    # Records recognize failures by their rewards, so these have to be the released ones.
    given = {name: value for name, value in vars(options).items() if name.startswith("reward_")}
    strange = [f"{name} {value}" for name, value in given.items() if value not in SEVERITY.values()]
    if strange:
        raise HostError(
            f"{config}: {', '.join(strange)} is not a reward of failures in the released host: remove it"
        )
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


def _problem(config: str, named: str, wanted: str | None) -> str:
    problem = next((ours for ours, theirs in NAMES.items() if theirs == named), None)
    if problem is None:
        known = ", ".join(NAMES.values())
        raise HostError(f"{config}: problem_name is {named!r}, the released host has {known}")
    if wanted not in (None, problem):
        raise HostError(
            f"{config}: problem_name is {named!r}, which is not what the released host calls {wanted}"
        )
    return problem


def require_model(plan: ReleasedPlan, list_models: ListModels) -> None:
    """Raise HostError where the model of a plan cannot be had; one that would be downloaded passes."""
    if not plan.model:
        raise HostError(f"{plan.config}: model_name is empty")
    if plan.served:
        name = served_name(plan.config, plan.options)
        try:
            names = list_models(plan.options.base_url, plan.options.api_key)
        except GenerationError as error:
            raise HostError(f"{plan.config}: {error}") from error
        if names is not None and name not in names:
            raise HostError(
                f"{plan.config}: model_name is {plan.options.model_name}, so the host asks for {name}; "
                f"the endpoint has {', '.join(names) or 'no model'}"
            )
    elif _is_path(plan.model):
        if not (Path(plan.model) / "config.json").is_file():
            raise HostError(f"{plan.config}: model_name is {plan.model}, which has no config.json")
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


# The packages that a checkout imports: all have to be there before it runs.

_MODULES = ("main", "args", "calm_trainer", "heuristic", "utils")


class _Import(NamedTuple):
    """A package that a file names; ``later`` where a function or a condition has to be reached first."""

    package: str
    file: str
    line: int
    later: bool

    def __str__(self) -> str:
        missing = f"{self.file}:{self.line} imports {self.package}, which is not installed"
        return f"{missing}: {remedy(self.package)}"


def require_packages(checkout: ReleasedCheckout, plan: ReleasedPlan) -> None:
    """Raise HostError, naming file and line, for every package that is needed and not here."""
    missing = [imported for imported in _needed(checkout, plan) if not _is_here(imported.package)]
    lines = [str(imported) for imported in missing]
    if any((imported.package, imported.file) == (NVML, "main.py") for imported in missing):
        lines.append(_nvml_needs(checkout.path / "main.py"))
    if lines:
        raise HostError("; ".join(lines))


def import_later(checkout: ReleasedCheckout, plan: ReleasedPlan) -> None:
    """Import now what the host imports later: Unsloth refuses a machine without a GPU, and comes before TRL.

    Raises HostError, naming file and line, where one does not import.
    """
    for needed in _needed(checkout, plan):
        if not needed.later:
            continue
        try:
            importlib.import_module(needed.package)
        except Exception as error:  # a package may refuse a machine with any error
            raise HostError(
                f"{needed.file}:{needed.line} imports {needed.package}, which does not import here "
                f"({type(error).__name__}: {one_line(str(error))})"
            ) from error


def import_main(checkout: ReleasedCheckout) -> None:
    """Import ``main.py``, which asks NVML for the graphics cards meanwhile, whatever the configuration.

    Raises HostError where it does not import; where NVML is missing, with what a stand-in for it needs.
    """
    try:
        checkout.module("main")
    except HostError as error:
        main = checkout.path / "main.py"
        lines = {
            frame.lineno
            for frame in extract_tb(getattr(error.__cause__, "__traceback__", None))
            if Path(frame.filename) == main
        }
        if lines.isdisjoint(node.lineno for node in _nvml_calls(main)):
            raise
        raise HostError(f"{error}; {_nvml_needs(main)}") from error


def _nvml_calls(main: Path) -> list[ast.Attribute]:
    named = (
        node
        for node in ast.walk(ast.parse(main.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    )
    calls = [node for node in named if isinstance(node.value, ast.Name) and node.value.id == NVML]
    return sorted(calls, key=lambda node: (node.lineno, node.col_offset))


def _nvml_needs(main: Path) -> str:
    names = ", ".join(dict.fromkeys(node.attr for node in _nvml_calls(main)))
    return (
        "main.py asks NVML for the graphics cards while it is imported; for a model behind an endpoint, a "
        f"module {NVML} on PYTHONPATH with {names} replaces it"
    )


def _needed(checkout: ReleasedCheckout, plan: ReleasedPlan) -> list[_Import]:
    """What a plan imports for certain; of what is imported later, what a local model is known to need."""
    later = set() if plan.served else set(BRINGS)
    imports = _imports(checkout.path, plan.problem)
    return [imported for imported in imports if not imported.later or imported.package in later]


def _is_here(package: str) -> bool:
    try:
        return sys.modules.get(package) is not None or find_spec(package) is not None
    except ValueError:  # in place of a module, something without a specification
        return False


def _imports(path: Path, problem: str) -> Iterator[_Import]:
    """What the modules of a run import from elsewhere, each package once per file."""
    own = {entry.stem for entry in path.iterdir()}
    for name in (*_MODULES, f"problems/{NAMES[problem]}"):
        file = f"{name}.py"
        by_package: dict[str, _Import] = {}
        for imported in _named(ast.parse((path / file).read_text(encoding="utf-8")), file):
            known = by_package.get(imported.package)
            if imported.package in own or imported.package in sys.stdlib_module_names:
                continue
            if known is None or (known.later and not imported.later):
                by_package[imported.package] = imported
        yield from by_package.values()


def _named(node: ast.AST, file: str, later: bool = False) -> Iterator[_Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield _Import(alias.name.split(".")[0], file, child.lineno, later)
        elif isinstance(child, ast.ImportFrom):
            if not child.level:
                yield _Import(str(child.module).split(".")[0], file, child.lineno, later)
        elif not isinstance(child, ast.Try):  # which is how an optional one is written
            yield from _named(child, file, True)
