"""The program that a search begins with, with random numbers: what needs no language model."""

import ast
import os

import numpy as np

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import stream
from search_to_signal.problems import get_problem
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.study.search_runs import SearchRun

# A try adds normal steps of so many times each number.
_STEP = 0.25


def tuned_runs(run: SearchRun, climbs: int, tries: int, progress: Progress) -> tuple[SearchRun, ...]:
    """Climbs from a run's start: a try adds normal steps to its best numbers so far, and stays if better.

    Raises ConfigError for a start that is not known, has no decimal number, or whose problem is not ours;
    SandboxError where isolation cannot be had.
    """
    first = np.array([node.value for node in _numbers(ast.parse(run.seed))])
    if not run.problem or not len(first):
        raise ConfigError(
            f"--tune needs a problem of s2s and a start with decimal numbers, unlike {run.name}"
        )
    best, reached = np.tile(first, (climbs, 1)), np.full(climbs, run.start)
    steps = stream(0, "tuning").normal(0.0, _STEP * np.abs(first), (tries, climbs, len(first)))
    scores = np.full((climbs, tries), -np.inf)
    settings = EvaluationSettings(replay="off", slots=min(climbs, os.cpu_count() or 1))
    with EvaluationPool(get_problem(run.problem), "train", settings) as pool:
        for at in range(tries):
            tried = best + steps[at]
            found = pool.evaluate([_program(run.seed, numbers.tolist()) for numbers in tried])
            scores[:, at] = [-np.inf if one.score is None else one.score for one in found]
            ahead = scores[:, at] > reached
            best[ahead], reached[ahead] = tried[ahead], scores[ahead, at]
            progress.update("random numbers", at + 1, tries)
    ones, none = np.ones(tries), np.zeros(tries, dtype=np.bool_)
    cost = {"calls": ones, "answers": ones}
    return tuple(SearchRun("tuned", run.start, own, np.arange(tries), cost, none, ~none) for own in scores)


def _numbers(tree: ast.AST) -> list[ast.Constant]:
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, float)
    ]


def _program(code: str, numbers: list[float]) -> str:
    tree = ast.parse(code)
    for node, number in zip(_numbers(tree), numbers, strict=True):
        node.value = number
    return ast.unparse(tree)
