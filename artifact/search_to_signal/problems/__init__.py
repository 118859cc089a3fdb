"""The problems by name. To add one, write its file and add one line here."""

from search_to_signal.errors import ConfigError
from search_to_signal.problems.base import Problem
from search_to_signal.problems.cvrp import Cvrp
from search_to_signal.problems.obp import Obp
from search_to_signal.problems.op import Op
from search_to_signal.problems.tsp import Tsp

_ALL: tuple[Problem, ...] = (Tsp(), Cvrp(), Op(), Obp())
PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in _ALL}


def get_problem(name: str) -> Problem:
    """Return the named problem; raises ConfigError that lists the known names."""
    if name not in PROBLEMS:
        raise ConfigError(f"unknown problem {name!r}: choose one of {', '.join(sorted(PROBLEMS))}")
    return PROBLEMS[name]
