"""CALM's prompts: the host's contents and markers, in words of our own (HOST.md, Prompts).

There are two forms (D36): the compact one, which the shipped models were trained on, and the released one,
laid out as the host does (HOST.md, point 28).
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.base import Problem, task_of
from search_to_signal.records.schema import CALM_OPERATORS, Operator
from search_to_signal.sandbox.programs import COMPONENT_AFTER, COMPONENT_BEFORE, OPENING
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.member import Prompt, PromptForm

# Which operator the next prompt uses (HOST.md, point 9).

SIMPLIFICATION, INJECTION, REPLACEMENT, CROSSOVER, CREATION = CALM_OPERATORS
OPERATORS = (SIMPLIFICATION, INJECTION, REPLACEMENT, CROSSOVER)


def operator_probabilities(archive_size: int, settings: SearchSettings) -> NDArray[np.float64]:
    """(4,) probabilities in the order of OPERATORS; all zero when no operator can be used.

    Crossover needs two members. While the archive is smaller than the population, the weight of injection is
    raised to the largest of those that then stand.
    """
    crossover = settings.crossover if archive_size >= 2 else 0.0
    weights = np.array([settings.simplification, settings.injection, settings.replacement, crossover])
    if archive_size < settings.population_size:
        weights[1] = weights.max()
    total = weights.sum()
    return weights / total if total > 0 else weights


REPLACEMENT_VARIANTS = 3
# Of an explored component, in characters. The host has no bound: a component may fill a completion, and ten
# such would push the parents out of every later injection prompt (D26).
LONGEST_COMPONENT = 200


class Shown(Protocol):
    """What a prompt shows of a heuristic; ``score`` is higher-is-better."""

    @property
    def idea(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def score(self) -> float: ...


_REPLACEMENTS = (
    "Write a new algorithm that turns one fixed rule of it into a rule that depends on the instance.",
    "Write a new algorithm that turns one key constant of it into a better justified one.",
    "Write a new algorithm that tells apart choices which it credits nearly equally.",
)
_TASKS = {
    SIMPLIFICATION: "Write a simpler and more elegant algorithm that keeps only its core.",
    INJECTION: (
        "Write a new algorithm that adds one meaningful component to it, of your own or from another field, "
        f'and end the idea with the sentence "{COMPONENT_BEFORE} ... {COMPONENT_AFTER}."'
    ),
    CROSSOVER: "Write a new algorithm motivated by both that does better on any instance.",
    CREATION: "Be inventive and write a new algorithm from this template.",
}

_LAYOUT = f"""Lay the answer out like this:
{{{{{OPENING} do one thing well.}}}}
```python
def name(inputs):
    return outputs
```"""


def truncated_score(value: float) -> float:
    """Absolute value cut, not rounded, to three decimals."""
    return math.floor(abs(value) * 1000) / 1000


def _compact_system(problem: Problem) -> str:
    return (
        f"{problem.title}. {problem.description}\n"
        "You are given algorithms and write a new one. Answer in exactly two parts and nothing else.\n"
        f'1. The idea, between double braces, starting with "{OPENING}": self-contained and original, '
        "without reference to earlier ideas or code.\n"
        "2. One Python function in one python code block, with the same name, inputs, outputs and types; "
        "deterministic, without usage examples and without needless tuned constants."
    )


def _released_system(problem: Problem) -> str:
    return (
        f"{problem.title}: {task_of(problem).statement}\n"
        "The user shows algorithms and asks for a new one. First state its idea, between double braces, "
        f'starting with "{OPENING}": it stands on its own, is original, and mentions no earlier idea or '
        "code. Then give one Python function in a python code block that keeps the names, inputs, outputs "
        "and types shown. It is deterministic and has no usage examples and no tuned constants without need. "
        "Answer nothing else.\n"
        f"{_LAYOUT}"
    )


def _shown(problem: Problem, rank: int, heuristic: Shown, form: PromptForm) -> str:
    score = truncated_score(heuristic.score)
    head = f"rank {rank}, {problem.unit} {score:.3f}"
    if form == "released":
        head = f"{score} {problem.unit}, rank {rank}"
    return f"Algorithm {rank}, {head}\n{{{{{heuristic.idea}}}}}\n```python\n{heuristic.code.strip()}\n```"


def _task(operator: Operator, variant: int, injected: Sequence[str]) -> str:
    if operator == REPLACEMENT:
        return _REPLACEMENTS[variant]
    if operator == INJECTION and injected:
        explored = ", ".join(phrase[:LONGEST_COMPONENT] for phrase in injected[-10:])
        return f"{_TASKS[operator]} Already explored: {explored}."
    return _TASKS[operator]


def build_prompt(
    problem: Problem,
    operator: Operator,
    parents: Sequence[Shown],
    *,
    variant: int = 0,
    injected: Sequence[str] = (),
    form: PromptForm = "compact",
) -> Prompt:
    """Render the prompt of one operator; parents are shown best first, whatever order they come in.

    Of equal ones the released form shows the later first (HOST.md, point 28).
    """
    ranked = sorted(parents, key=lambda heuristic: heuristic.score, reverse=form == "compact")
    ranked = ranked if form == "compact" else ranked[::-1]
    blocks = [_shown(problem, rank, heuristic, form) for rank, heuristic in enumerate(ranked, start=1)]
    if operator == CREATION:
        blocks = [f"```python\n{problem.template.strip()}\n```"]
    task = _task(operator, variant, injected)
    released = [f"Task, given what stands below: {task}", *blocks]
    user = "\n".join(released if form == "released" else [*blocks, f"Task: {task}"])
    return Prompt(_released_system(problem) if form == "released" else _compact_system(problem), user)
