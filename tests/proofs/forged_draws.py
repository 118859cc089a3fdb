"""Forge a recorded run in three ways, and see whether ``s2s verify --draws`` names each.

    python -m tests.proofs.forged_draws results/pretrained/cohort/frozen-s42 --other OTHER_RUN
    python -m tests.proofs.forged_draws RUN --other OTHER_RUN --model mounts/NAME --groups 3

The run is copied, and the first groups of the copy alone are read. One token in the middle of an answer
becomes another; an answer becomes that of another run, of another model for instance; the temperature becomes
0.7. The tokens of the untouched copy have to be what the run's random numbers draw.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.figures import print_figure

from search_to_signal.base.progress import PlainProgress
from search_to_signal.records.manifest import MANIFEST
from search_to_signal.records.reader import GENERATIONS
from search_to_signal.verify.token_draws import RunDraws, TokenDrawOptions, check_draws


@dataclass(frozen=True)
class FirstGroups:
    """A sample of the first ``count`` groups: a trained run's later ones would need its updates."""

    count: int

    def chosen(self, name: str, total: int) -> frozenset[int]:
        """Their numbers."""
        return frozenset(range(min(self.count, total)))


def records(run: Path) -> list[dict[str, Any]]:
    """The generation records of a run."""
    return [json.loads(line) for line in (run / GENERATIONS).read_text().splitlines()]


def write(run: Path, lines: list[dict[str, Any]]) -> None:
    """Put them back."""
    (run / GENERATIONS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def forge_token(run: Path) -> None:
    """Another token in the middle of the first answer."""
    lines = records(run)
    ids = lines[0]["completion_ids"][0]
    middle = len(ids) // 2
    ids[middle] = ids[middle - 1] if ids[middle - 1] != ids[middle] else ids[0]
    write(run, lines)


def forge_answer(run: Path, other: Path) -> None:
    """The other run's first answer in place of the first one."""
    lines, others = records(run), records(other)
    lines[0]["completion_ids"][0] = others[0]["completion_ids"][0]
    write(run, lines)


def forge_temperature(run: Path) -> None:
    """A manifest that claims another temperature."""
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["config"]["generation"]["temperature"] = 0.7
    (run / MANIFEST).write_text(json.dumps(manifest))


def read(run: Path, model: tuple[Path, ...], groups: int) -> RunDraws:
    """What ``--draws`` says of a run."""
    (found,) = check_draws(run, TokenDrawOptions(FirstGroups(groups), model), PlainProgress())  # type: ignore[arg-type]
    return found


def main() -> int:
    """Print a line of each forgery."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--other", type=Path, required=True, help="a run whose first answer is put in")
    parser.add_argument("--model", type=Path, action="append", default=[])
    parser.add_argument("--groups", type=int, default=2)
    given = parser.parse_args()
    forgeries: dict[str, Callable[[Path], None]] = {
        "none": lambda _: None,
        "a token": forge_token,
        "an answer of the other run": lambda run: forge_answer(run, given.other),
        "temperature 0.7": forge_temperature,
    }
    right = True
    for name, forge in forgeries.items():
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(shutil.copytree(given.run, Path(scratch) / given.run.name))
            forge(copy)
            found = read(copy, tuple(given.model), given.groups)
        right &= bool(found.tally.tokens) and bool(found.problems) == (name != "none")
        said = found.problems[0] if found.problems else "no problem"
        print_figure(
            f"forged_draws, {given.run.name} of {label(given.run)}, {name}",
            f"python -m tests.proofs.forged_draws {given.run.name} --other {given.other.name} "
            f"--groups {given.groups}",
            f"{found.tally.unequal} of {found.tally.tokens} tokens of {found.groups} groups differ: {said}",
        )
    return 0 if right else 1


def label(run: Path) -> str:
    """The model of a run, without its directory."""
    return Path(json.loads((run / MANIFEST).read_text())["config"]["model"]).name


if __name__ == "__main__":
    raise SystemExit(main())
