"""Strict mode gives readable reasons and leaves ordinary heuristics alone."""

import ast

import pytest

from search_to_signal.problems.tsp import Tsp
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.sandbox.static_gate import allowed_attributes, refusal

HEAD = "import numpy as np\ndef f(c, d, u, m):\n    "
ORDINARY = [
    Tsp.seed.code,
    HEAD + "return int(min(u, key=lambda v: m[c][v] - 0.1 * m[d][v]))",
    HEAD + "nodes = np.array(sorted(u)); return int(nodes[np.argmin(m[c, nodes])])",
    HEAD + "s = {v: m[c, v] for v in u}\n    return sorted(s.items(), key=lambda p: p[1])[0][0]",
    HEAD + "try:\n        x = np.linalg.norm(m)\n    except ValueError:\n        x = 0.0\n    return min(u)",
    "import math\nfrom collections import defaultdict\nfrom typing import List\nWEIGHT = 0.4\n"
    + HEAD
    + "return min(u)",
]


def _error_of_a_null_byte() -> str:
    try:
        ast.parse("\0")
    except (SyntaxError, ValueError) as error:  # which of them depends on Python's release
        return type(error).__name__
    return "none"


REFUSED = {
    "line 1: the module os is not available": "import os",
    "line 3: the attribute rand is not available": HEAD + "return np.random.rand()",
    "line 3: the name getattr is not available": HEAD + "return getattr(np, 'x')",
    "line 3: attributes may not be changed (sum)": HEAD + "np.sum = 1",
    "line 3: the attribute __class__ is not available": HEAD + "return ().__class__",
    "line 3: ClassDef is not part of the language of heuristics": HEAD + "class A: pass",
    "line 1: only imports, functions and constants at the top level": "x = []",
    "line 2: a default may not be mutable": "\ndef f(a=[]): pass",
    "line 2: decorators are not available": "@print\ndef f(a): pass",
    "line 1: save cannot be imported from numpy": "from numpy import save",
    "the source does not parse: SyntaxError": "def",
    f"the source does not parse: {_error_of_a_null_byte()}": "\0",
    "the source is longer than 20000 characters": "#" * 20001,
}


@pytest.mark.parametrize("code", ORDINARY)
def test_ordinary_heuristics_pass(code: str) -> None:
    assert refusal(code) is None


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals_name_line_and_reason(reason: str) -> None:
    """A model can read what to change."""
    assert refusal(REFUSED[reason]) == reason


@pytest.mark.slow
def test_only_strict_mode_refuses() -> None:
    """Paper mode runs what the host would run; strict mode types the same program as gate."""
    code = HEAD + "import os; os.environ; return min(u)"
    endings = {}
    for mode in ("paper", "strict"):
        settings = EvaluationSettings(mode=mode, replay="off")  # type: ignore[arg-type]
        with EvaluationPool(Tsp(), "embedded", settings) as pool:
            (result,) = pool.evaluate([code])
        endings[mode] = result.isolation
    assert endings == {"paper": Isolation.OK, "strict": Isolation.GATE}


def test_no_allowed_attribute_is_a_module() -> None:
    """From no module that may be imported does an allowed public name lead to another module."""
    import importlib
    from types import ModuleType

    from search_to_signal.sandbox.static_gate import MODULES

    seen, todo, found = set(), [importlib.import_module(name) for name in MODULES], set()
    while todo:
        module = todo.pop()
        for name in allowed_attributes() & set(dir(module)):
            value = getattr(module, name)
            if isinstance(value, ModuleType) and id(value) not in seen:
                seen.add(id(value))
                found.add(value.__name__)
                todo.append(value)
    assert found <= {"numpy.linalg", "numpy.fft", "numpy.linalg.linalg", "math", "collections.abc"}
