"""A released host that answers from a file: how to prepare one, run it with us and without, and read it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search_to_signal.base.progress import PlainProgress
from search_to_signal.problems import get_problem
from search_to_signal.records.manifest import Manifest
from search_to_signal.run.released import Order, run_released
from search_to_signal.search.hosts.released.checkout import opened
from search_to_signal.search.hosts.released.host import seeded
from search_to_signal.verify.conformance.pair import groups, odd_answers, programs

CONFIG = "configs/obp/local.yaml"
OBP = get_problem("obp")


def with_answers(
    calm: Path, answers: Sequence[Sequence[str]], rounds: int | None = None, **more: float
) -> Path:
    """Have a checkout's local model give these answers, group by group, in as many rounds.

    ``more`` are further options of its configuration.
    """
    (calm / "answers.json").write_text(json.dumps(list(answers)))
    options = {
        "max_steps": rounds or len(answers),
        "n_generations": len(answers[0]),
        "max_stuck_threshold": 25,
        **more,
    }
    config = calm / CONFIG
    lines = [line for line in config.read_text().splitlines() if line.split(":")[0] not in options]
    config.write_text("\n".join([*lines, *(f"{name}: {value}" for name, value in options.items())]) + "\n")
    return calm


def some_answers() -> list[tuple[str, ...]]:
    """Three groups of four, and one of odd ones."""
    codes = programs(OBP, 4)
    odd = [text for name, text in odd_answers(OBP, codes[0]).items() if not name.startswith("loose")]
    return [*groups(OBP, codes, OBP.seed.code)[:3], tuple(odd[1:5])]


def with_us(calm: Path, out: Path, mapping: str = "native", **more: Any) -> Manifest:
    """Run it under one of our mappings."""
    return run_released(Order(calm, CONFIG, out, mapping, **more), PlainProgress())


def without_us(calm: Path, place: Path) -> Path:
    """Run it as it is, with the same seed; gives the directory that it wrote into."""
    with opened(calm, place) as checkout, seeded(42):
        checkout.module("main").run(checkout.module("args").Args.from_yaml(CONFIG))
    return place


def rewards(place: Path) -> list[list[float]]:
    """The rewards that the host's own log has, group by group."""
    (log,) = place.glob("logs/**/rounds.jsonl")
    return [json.loads(line)["rewards"] for line in log.read_text().splitlines()]


def archive(place: Path) -> list[tuple[str, float]]:
    """Codes and performances of the host's own list, in order."""
    (listed,) = place.glob("algorithms/**/algorithms.json")
    return [(code, performance) for code, performance in json.loads(listed.read_text())]
