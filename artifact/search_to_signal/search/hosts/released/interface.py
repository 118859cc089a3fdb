"""Does a checkout have the released interface? Read off its files; none of its code runs here."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from search_to_signal.base.errors import HostError
from search_to_signal.search.hosts.released.checkout import NAMES

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Signature:
    """A function that this package calls, or is called through.

    ``parameters`` stand in this order, without ``self``. Where ``exact`` they are given by name, else only
    their number counts. The host may have more of them, if those have defaults. Where ``inherited`` the class
    may have it from another one.
    """

    file: str
    owner: str | None
    name: str
    parameters: tuple[str, ...]
    exact: bool = False
    inherited: bool = False

    def __str__(self) -> str:
        called = f"{self.owner}.{self.name}" if self.owner else self.name
        return called.removesuffix(".__init__")


_FILES = ("args.py", "calm_trainer.py", "heuristic.py", "main.py", "utils.py")
_FIELDS = (
    *("problem_name", "log_name", "max_steps", "api_key", "base_url", "n_prompts", "population_size"),
    *("ub_simplification", "ub_injection", "ub_replacement", "ub_crossover", "model_name", "n_generations"),
    *("seed_algo_fp", "template_fp", "speed_collapse", "max_stuck_threshold", "lr"),
)
_SIGNATURES = (
    Signature("args.py", "Args", "from_yaml", ("path",)),
    Signature("calm_trainer.py", "Trainer", "prepare_dataset", ()),
    Signature("calm_trainer.py", "Trainer", "reward_func", ("prompts", "completions"), True),
    Signature("heuristic.py", "HeuristicPolicy", "__init__", ("step_func", "name", "problem_name"), True),
    Signature("heuristic.py", "HeuristicPolicy", "run_one_episode_sync", ("instances", "timeout")),
    Signature("main.py", None, "run", ("calm_args",)),
)
_PROBLEM = (("training_dataset", ()), ("run_async", ("policy", "instances")))


def require_interface(path: Path, problems: Iterable[str]) -> None:
    """Raise HostError, naming file and fact, for the first thing in which a checkout is another host.

    ``problems`` are our names. See HOST.md, point 27.
    """
    names = [NAMES[problem] for problem in problems]
    files = [*_FILES, *(f"problems/{name}.py" for name in names)]
    files += [f"configs/{name}/{file}" for name in names for file in ("seed.py", "template.py", "local.yaml")]
    for file in files:
        if not (path / file).is_file():
            raise HostError(f"{path / file} is missing: give a complete checkout of the released host")
    calls = [
        Signature(f"problems/{name}.py", "Environment", called, parameters, inherited=True)
        for name in names
        for called, parameters in _PROBLEM
    ]
    for signature in (*_SIGNATURES, *calls):
        _require(path, signature)
    _require_fields(path / "args.py")


def offered(path: Path) -> list[str]:
    """Those of our problems of which a checkout has anything (D41)."""
    return [
        problem
        for problem, name in NAMES.items()
        if (path / "problems" / f"{name}.py").exists() or (path / "configs" / name).exists()
    ]


def _require(path: Path, wanted: Signature) -> None:
    file = path / wanted.file
    tree = _tree(file)
    if wanted.owner in _imported(tree):
        return  # defined elsewhere, and seen when it is used
    owner = next((node for node in _classes(tree) if node.name == wanted.owner), None)
    if wanted.owner and owner is None:
        raise HostError(f"{file} defines no class {wanted.owner}: the released host does")
    body = owner.body if owner else tree.body
    definition = next(
        (node for node in body if isinstance(node, Function) and node.name == wanted.name), None
    )
    if definition is None and wanted.inherited and owner and owner.bases:
        return
    if definition is None:
        raise HostError(f"{file} defines no {wanted}: the released host does")
    fault = _fault(definition, wanted)
    if fault:
        raise HostError(f"{file}:{definition.lineno}: {wanted} {fault}")


def _fault(definition: Function, wanted: Signature) -> str | None:
    given = [argument.arg for argument in (*definition.args.posonlyargs, *definition.args.args)]
    static = any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in definition.decorator_list
    )
    given = given[1:] if wanted.owner and not static else given
    count = len(wanted.parameters)
    needed = len(given) - len(definition.args.defaults)
    missing = [default for default in definition.args.kw_defaults if default is None]
    enough = len(given) >= count or (definition.args.vararg is not None and not wanted.exact)
    same = tuple(given[:count]) == wanted.parameters or not wanted.exact
    if enough and same and needed <= count and not missing:
        return None
    ours, theirs = ", ".join(wanted.parameters), ", ".join(given)
    return f"takes ({theirs}), the released host's takes ({ours})"


def _require_fields(file: Path) -> None:
    tree = _tree(file)
    if "Args" in _imported(tree):
        return
    body = next(node.body for node in _classes(tree) if node.name == "Args")
    targets = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    fields = {target.id for target in targets if isinstance(target, ast.Name)}
    missing = [name for name in _FIELDS if name not in fields]
    if missing:
        raise HostError(f"{file}: Args has no field {', '.join(missing)}: the released host's has")


def _tree(file: Path) -> ast.Module:
    try:
        return _parsed(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise HostError(f"{file} cannot be read as Python ({error}): give a whole checkout") from error


# Of each file several things are required.
_parsed = lru_cache(maxsize=32)(ast.parse)


@lru_cache(maxsize=32)
def _classes(tree: ast.Module) -> tuple[ast.ClassDef, ...]:
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


@lru_cache(maxsize=32)
def _imported(tree: ast.Module) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for node in nodes for alias in node.names}
