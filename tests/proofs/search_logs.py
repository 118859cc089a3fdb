"""Small logs of searches by the writers of others, as tests/unit/study/real keeps them.

    python tests/proofs/search_logs.py (openevolve | shinka | llm4ad) OUT

Runs under a Python that has the package, and calls its own writer with made-up programs and scores; no model
is asked. OpenEvolve writes its trace and a checkpoint. Directories there are named by the version that wrote
them; the database of ShinkaEvolve is packed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """A program of a made-up search; number 0 is the start, and a score of None a failure."""

    number: int
    parent: int | None
    code: str
    score: float | None


def answers() -> Iterator[Answer]:
    """Two answers to the start, one of which fails, one to the better of them, and the start with a number
    changed."""
    program = "def priority(item, bins):\n    return {}\n"
    made = (
        (None, "-(bins - 1.0 * item)", 0.5),
        (0, "bins / item", 0.6),
        (0, "bins.missing", None),
        (1, "bins / item ** 2", 0.8),
        (0, "-(bins - 2.0 * item)", 0.7),
    )
    for number, (parent, body, score) in enumerate(made):
        yield Answer(number, parent, program.format(body), score)


def openevolve(out: Path) -> None:
    """What a run does with a child: ``add`` and ``log_trace``; at the end ``save``."""
    from openevolve.config import DatabaseConfig
    from openevolve.database import Program, ProgramDatabase
    from openevolve.evolution_trace import EvolutionTracer

    database = ProgramDatabase(DatabaseConfig(num_islands=1, random_seed=3))
    programs: list[Any] = []
    with EvolutionTracer(str(out / "evolution_trace.jsonl"), include_code=True) as tracer:
        for one in answers():
            metrics = {"combined_score": one.score} if one.score is not None else {"error": 0.0}
            parent = None if one.parent is None else programs[one.parent]
            child = Program(
                id=f"program-{one.number}",
                code=one.code,
                parent_id=parent and parent.id,
                generation=0 if parent is None else parent.generation + 1,
                metrics=metrics,
                iteration_found=one.number,
            )
            programs.append(child)
            database.add(child, iteration=one.number)
            if parent is not None:
                prompt = {"system": "Improve it.", "user": parent.code}
                tracer.log_trace(one.number, parent, child, prompt, f"```python\n{one.code}```", island_id=0)
    database.save(str(out / "checkpoints" / "checkpoint_4"), iteration=4)


def shinka(out: Path) -> None:
    """Its database, as a run adds programs to it."""
    from shinka.database.dbase import DatabaseConfig, Program, ProgramDatabase

    database = ProgramDatabase(DatabaseConfig(db_path=str(out / "programs.sqlite"), num_islands=1))
    for one in answers():
        database.add(
            Program(
                id=f"program-{one.number}",
                code=one.code,
                parent_id=None if one.parent is None else f"program-{one.parent}",
                generation=one.number,
                combined_score=one.score or 0.0,
                correct=one.score is not None,
            )
        )
    database.close()


def llm4ad(out: Path) -> None:
    """Its profiler, which a method hands every function that was evaluated."""
    from llm4ad.base import TextFunctionProgramConverter
    from llm4ad.tools.profiler import ProfilerBase

    profiler = ProfilerBase(str(out), create_random_path=False, log_style="simple")
    profiler.record_parameters(*[SimpleNamespace()] * 3)
    for one in answers():
        function = TextFunctionProgramConverter.text_to_function(one.code)
        assert function is not None
        function.score, function.sample_time, function.evaluate_time = one.score, 1.0, 0.5
        profiler.register_function(function)


if __name__ == "__main__":
    made = {"openevolve": openevolve, "shinka": shinka, "llm4ad": llm4ad}
    place = Path(sys.argv[2])
    place.mkdir(parents=True)
    made[sys.argv[1]](place)
