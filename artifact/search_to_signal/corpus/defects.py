"""Realistic defects: how a small model's answers go wrong, one family per typed failure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from search_to_signal.programs.markers import OPENING
from search_to_signal.records.schema import Outcome


@dataclass(frozen=True)
class Answer:
    """The two parts of an answer before it is written down."""

    idea: str
    code: str


Defect = Callable[[Answer], str]


def write(answer: Answer) -> str:
    """The answer in the form that prompts ask for."""
    return f"{{{{{answer.idea}}}}}\n```python\n{answer.code}\n```"


def _edit_code(answer: Answer, old: str, new: str) -> str:
    return write(Answer(answer.idea, answer.code.replace(old, new, 1)))


def _other_opening(answer: Answer) -> str:
    return write(Answer(answer.idea.replace(OPENING, "This algorithm aims to"), answer.code))


def _no_idea(answer: Answer) -> str:
    return f"```python\n{answer.code}\n```"


def _idea_as_comment(answer: Answer) -> str:
    words = answer.idea.removeprefix(OPENING).strip()
    return f"```python\n# {words}\n{answer.code}\n```"


def _idea_only(answer: Answer) -> str:
    return f"{{{{{answer.idea}}}}}"


def _untagged_fence(answer: Answer) -> str:
    return f"{{{{{answer.idea}}}}}\n```\n{answer.code}\n```"


def _unclosed_bracket(answer: Answer) -> str:
    return _edit_code(answer, "np.argmin(score)])", "np.argmin(score)]")


def _missing_colon(answer: Answer) -> str:
    return _edit_code(answer, "distance_matrix):\n", "distance_matrix)\n")


def _usage_example(answer: Answer) -> str:
    call = "print(select_next_node(0, 0, unvisited_nodes, distance_matrix))"
    return write(Answer(answer.idea, f"{answer.code}\n\n{call}"))


def _two_functions(answer: Answer) -> str:
    helper = "def normalize(values):\n    return values / values.max()\n\n"
    return _edit_code(answer, "def select", f"{helper}def select")


def _undefined_name(answer: Answer) -> str:
    return _edit_code(answer, "    score =", "    score = bias +")


def _position_for_node(answer: Answer) -> str:
    return _edit_code(answer, "int(nodes[np.argmin(score)])", "int(np.argmin(score))")


def _set_as_index(answer: Answer) -> str:
    return _edit_code(answer, "np.array(sorted(unvisited_nodes))", "unvisited_nodes")


def _no_such_function(answer: Answer) -> str:
    return _edit_code(answer, "np.argmin(score)", "np.min_index(score)")


def _random_noise(answer: Answer) -> str:
    noise = "    score += 0.01 * np.random.rand(len(nodes))\n"
    return _edit_code(answer, "    return", f"{noise}    return")


def _random_choice(answer: Answer) -> str:
    return _edit_code(answer, "int(nodes[np.argmin(score)])", "int(np.random.choice(nodes))")


DEFECTS: Mapping[Outcome, tuple[Defect, ...]] = {
    Outcome.MISSING_RATIONALE: (_other_opening, _no_idea, _idea_as_comment),
    Outcome.MISSING_CODE: (_idea_only, _untagged_fence),
    Outcome.MISSING_FUNCTION: (_unclosed_bracket, _missing_colon, _usage_example, _two_functions),
    Outcome.RUNTIME_FAILURE: (_undefined_name, _position_for_node, _set_as_index, _no_such_function),
    Outcome.RANDOMNESS: (_random_noise, _random_choice),
}

FAMILY_SHARES: Mapping[Outcome, float] = {
    Outcome.MISSING_RATIONALE: 0.15,
    Outcome.MISSING_CODE: 0.10,
    Outcome.MISSING_FUNCTION: 0.25,
    Outcome.RUNTIME_FAILURE: 0.35,
    Outcome.RANDOMNESS: 0.15,
}


def spoil(answer: Answer, rng: np.random.Generator) -> str:
    """Write the answer down with one defect, its family drawn by FAMILY_SHARES."""
    families = list(FAMILY_SHARES)
    family = DEFECTS[families[int(rng.choice(len(families), p=list(FAMILY_SHARES.values())))]]
    return family[int(rng.integers(len(family)))](answer)
