"""The problems by name. To add one, write its file and add one line here."""

from search_to_signal.errors import ConfigError
from search_to_signal.problems.base import Problem
from search_to_signal.problems.tsp import Tsp

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in (Tsp(),)}


def get_problem(name: str) -> Problem:
    """Return the named problem; raises ConfigError that lists the known names."""
    if name not in PROBLEMS:
        raise ConfigError(f"unknown problem {name!r}: choose one of {', '.join(sorted(PROBLEMS))}")
    return PROBLEMS[name]
