"""Files of one number per step, as trainers and trackers write them: no group can be audited there.

Met: trainer_state.json of transformers, wandb-summary.json, metrics.jsonl of prime-rl (monitors/file.py,
559b447), verl's file logger (utils/tracking.py), experiment_log.jsonl and generations.log of EasyR1
(verl/utils/logger/logger.py, b44b311), progress.csv, TensorBoard's event files.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from search_to_signal.audit.importers.documents import LARGEST
from search_to_signal.audit.importers.lines import parse_json, read_lines
from search_to_signal.audit.importers.rows import number
from search_to_signal.audit.importers.spreadsheets import SUFFIXES, read_csv
from search_to_signal.audit.importers.streams import start_of
from search_to_signal.errors import RecordError

ROLLOUTS = (
    "rollouts are written with log_completions=True (TRL, ms-swift), trainer.rollout_data_dir=DIR (verl), "
    "monitors.file (prime-rl), rollout.dump_to_file=true (AReaL), rollout_dump_dir (ROLL), or from any "
    "trainer by GroupRecorder or live.write: give what is written then"
)
# Files that are scalars by their name: their text or bytes are not read.
_NAMES = {
    "events.out.tfevents": "TensorBoard's numbers per step",
    "generations.log": "a few validation answers of EasyR1 as text",
    ".wandb": "the run file of Weights & Biases",
}
_STEPS = ("step", "_step", "global_step", "iteration", "iter", "epoch", "update", "timesteps")
_GROUPS = re.compile(
    r"(group|prompt|problem|question|task|sample|traj|trajectory|completion|response|rollout)?"
    r"_?(id|ids|idx|index|uid|name)?"
)
_WORDS = re.compile(r"time|date|mode|split|run|phase|stage|type|event", re.IGNORECASE)
_FIRST = re.compile(r"grad_?norm|loss")
_NAMED = 3
_READ = 100_000


class Scalars(NamedTuple):
    """What a file of numbers has: their names, and in how many steps some are NaN or infinite."""

    says: str
    broken: tuple[str, ...] = ()


def scalars_of(path: Path) -> Scalars | None:
    """What a file of one number per step holds; None for any other."""
    if known := by_name(path):
        return known
    rows: list[dict[str, Any]] = []
    with suppress(RecordError):
        for row in islice(_rows(path), _READ):
            rows.append(dict(_flat(row)))
            if not _is_scalars(rows[-1]):
                return None
    names = dict.fromkeys(name for row in rows for name in row if _last(name) not in _STEPS)
    if not names or not _one_a_step(rows):
        return None
    return Scalars(f"one number per step ({_some(list(names))})", tuple(_broken(rows, list(names))))


def by_name(path: Path) -> Scalars | None:
    """What a file holds whose name says that it has no rollouts."""
    return next((Scalars(says) for name, says in _NAMES.items() if name in path.name), None)


def refusal(place: Path, found: Mapping[Path, Scalars]) -> RecordError:
    """The error for a file or directory that holds nothing but scalars: one line with what to switch on."""
    own = [one.says if path == place else f"{path.name}: {one.says}" for path, one in found.items()]
    broken = dict.fromkeys(text for scalars in found.values() for text in scalars.broken)
    seen = f"; {', '.join([*broken][:_NAMED])}" if broken else ""
    return RecordError(
        f"{place} holds {_some(own, '; ')} and no rollouts, so there are no groups to audit{seen}; {ROLLOUTS}"
    )


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a file, or those of the list that a document holds."""
    if path.suffix in SUFFIXES:
        yield from (row for _, row in read_csv(path))
        return
    text = start_of(path, 4096).lstrip()
    if text.startswith(b"{") and text.split(b"\n", 1)[0].strip() != b"{":
        yield from (row for _, row in read_lines(path))
    elif text.startswith((b"{", b"[")):
        with suppress(ValueError, RecursionError):
            document = parse_json(start_of(path, LARGEST))
            held = document.get("log_history", [document]) if isinstance(document, dict) else document
            yield from (row if isinstance(row, dict) else {"": row} for row in held)


def _flat(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and texts of a row with their names, which join those of the mappings around them."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            # Histograms and tables of a tracker are named, and held elsewhere.
            yield from () if "_type" in value else _flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def _is_scalars(row: Mapping[str, Any]) -> bool:
    numbers = sum(_number(value) is not None for value in row.values())
    others = [name for name, value in row.items() if value is not None and _number(value) is None]
    grouped = any(_GROUPS.fullmatch(name) for name in row)
    return bool(numbers) and not grouped and all(map(_WORDS.search, others))


def _one_a_step(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows have steps, of which few come twice with the same names."""
    places = [(row[name], *row) for row in rows for name in row if _last(name) in _STEPS]
    return bool(places) and 2 * len({repr(place) for place in places}) > len(rows)


def _broken(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    """Numbers that are NaN or infinite in some steps, the norm of the gradient and losses first."""
    given, nan, infinite = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        for name in names:
            value = _number(row.get(name))
            if value is not None:
                given[name] += 1
                nan[name] += math.isnan(value)
                infinite[name] += math.isinf(value)
    for name in sorted(names, key=lambda name: not _FIRST.search(name)):
        for what, counts in (("NaN", nan), ("infinite", infinite)):
            if counts[name]:
                yield f"{name} is {what} in {counts[name]} of {given[name]} steps"


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return number(value) if isinstance(value, int | float) else None


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _some(names: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{between.join(names[:_NAMED])}{more}"
