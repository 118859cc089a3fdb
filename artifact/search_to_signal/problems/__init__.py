"""The problems by name; a profile may also name one by entry point or import path."""

from typing import cast

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.problems.base import MatrixProblem, Problem, StreamProblem
from search_to_signal.problems.cvrp import Cvrp
from search_to_signal.problems.obp import Obp
from search_to_signal.problems.op import Op
from search_to_signal.problems.tsp import Tsp

_ALL: tuple[Problem, ...] = (Tsp(), Cvrp(), Op(), Obp())
PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in _ALL}

GROUP = "search_to_signal.problems"
_PROTOCOLS: dict[str, type] = {"tour": Problem, "stream": StreamProblem, "matrix": MatrixProblem}


def get_problem(name_or_path: str) -> Problem:
    """Return a problem by name, by entry point of group search_to_signal.problems, or by pkg.mod:obj.

    Raises ConfigError with the known names, or with what the object lacks to be a problem.
    """
    return _checked(name_or_path, plugins.load(name_or_path, PROBLEMS, GROUP))


def find_problem(name_or_path: str) -> Problem:
    """``get_problem`` for a name that a results directory gives: runs no code that was not allowed.

    Raises ConfigError as ``get_problem`` does, and for an import path that was not loaded before.
    """
    return _checked(name_or_path, plugins.find(name_or_path, PROBLEMS, GROUP, "--problem"))


def _checked(name_or_path: str, plugin: object) -> Problem:
    protocol = _PROTOCOLS.get(getattr(plugin, "dialogue", ""))
    if isinstance(plugin, type) or protocol is None:
        raise ConfigError(
            f"{name_or_path!r} is not a problem: give an object whose dialogue is one of "
            f"{', '.join(_PROTOCOLS)}; call a class first"
        )
    names = {name for part in (Problem, protocol) for name in (*part.__annotations__, *vars(part))}
    if missing := [name for name in sorted(names) if name[0] != "_" and not hasattr(plugin, name)]:
        raise ConfigError(f"the problem {name_or_path!r} lacks {', '.join(missing)}: see docs/extending.md")
    return cast(Problem, plugin)
