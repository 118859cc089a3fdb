"""Adding a problem is one file and one line of registration."""

import importlib
import re
from pathlib import Path

from search_to_signal import problems
from search_to_signal.problems.inprocess import function_of, run_in_process

README = Path(problems.__file__).parent / "README.md"


def test_the_readme_example_adds_a_problem(tmp_path, monkeypatch):
    """The README's file, stored and registered with its one line, evaluates its seed."""
    file, line = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(file.strip().splitlines()) <= 20
    (tmp_path / "nearest_number.py").write_text(file)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("nearest_number")
    assert line.strip() == "_ALL: tuple[Problem, ...] = (Tsp(), Cvrp(), Op(), Obp(), NearestNumber())"
    problem = module.NearestNumber()
    monkeypatch.setitem(problems.PROBLEMS, problem.name, problem)
    scores = run_in_process(problems.get_problem("nearest_number"), function_of(problem.seed.code), "train")
    assert scores == [-0.0, -1.0]
