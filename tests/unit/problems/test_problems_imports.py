"""What an import of the problems costs, and where compiled code may be kept."""

import subprocess
import sys

import pytest

from search_to_signal.problems.ant_colony.kernels import compiled

pytestmark = pytest.mark.slow


def test_problems_import_neither_torch_nor_numba():
    """Descriptions and instances are there without the second that numba takes, or torch."""
    code = (
        "import sys; from search_to_signal.problems import PROBLEMS;"
        "[p.instances('embedded') for p in PROBLEMS.values()];"
        "print(sorted({'torch', 'numba'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_kernels_compile_where_nothing_can_be_cached():
    namespace = {}
    exec("def divide(a, b):\n    return a / b\n", namespace)
    assert compiled(namespace["divide"])(1.0, 0.0) == float("inf")
