"""Which format a log has: known by its columns, in a directory whatever stands beside it.

Files of one number per step, as trainers and trackers write them, are refused: no group can be audited there.
Met: trainer_state.json of transformers, wandb-summary.json, metrics.jsonl of prime-rl (monitors/file.py,
559b447), verl's file logger (utils/tracking.py), experiment_log.jsonl and generations.log of EasyR1
(verl/utils/logger/logger.py, b44b311), progress.csv, TensorBoard's event files.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from search_to_signal.audit.importers.base import PACKED, Format, in_order
from search_to_signal.audit.importers.containers import Sniffed, sniff
from search_to_signal.audit.importers.neutral import (
    NEUTRAL_CSV,
    NEUTRAL_JSON,
    NEUTRAL_JSONL,
    NEUTRAL_PARQUET,
    S2S,
)
from search_to_signal.audit.importers.prime_rl import PRIME_RL, PRIME_RL_TOKENS
from search_to_signal.audit.importers.rows import number
from search_to_signal.audit.importers.searches import CHECKPOINT, LLM4AD, SHINKA, TRACE, TRACE_JSON
from search_to_signal.audit.importers.streams import (
    LARGEST_DOCUMENT,
    SUFFIXES,
    parse_json,
    read_csv,
    read_lines,
    start_of,
)
from search_to_signal.audit.importers.trainers import (
    AREAL,
    NEMO_RL,
    PRIME_RL_ROLLOUTS,
    SKYRL_EVAL,
    SLIME,
    THETA_EVOLVE,
    TINKER,
    TTT_DISCOVER,
)
from search_to_signal.audit.importers.trl import MS_SWIFT, MS_SWIFT_RAY, ROLL, TRL, TRL_WANDB
from search_to_signal.audit.importers.verl import VERL
from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.records.conditions import FROZEN

_ROLLOUTS = (
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
            rows.append(flat := dict(_flat(row)))
            others = [name for name, value in flat.items() if value is not None and _number(value) is None]
            numbers = any(_number(value) is not None for value in flat.values())
            if not numbers or any(map(_GROUPS.fullmatch, flat)) or not all(map(_WORDS.search, others)):
                return None
    names = dict.fromkeys(name for row in rows for name in row if _last(name) not in _STEPS)
    places = [repr((row[name], *row)) for row in rows for name in row if _last(name) in _STEPS]
    # A step comes twice with the same names in few rows at most.
    if not names or 2 * len(set(places)) <= len(rows):
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
    held = _some(own, "; ")
    return RecordError(
        f"{place} holds {held} and no rollouts, so there are no groups to audit{seen}; {_ROLLOUTS}"
    )


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix in SUFFIXES:
        yield from (row for _, row in read_csv(path))
        return
    text = start_of(path, 4096).lstrip()
    if text.startswith(b"{") and text.split(b"\n", 1)[0].strip() != b"{":
        yield from (row for _, row in read_lines(path))
    elif text.startswith((b"{", b"[")):
        with suppress(ValueError, RecursionError):
            document = parse_json(start_of(path, LARGEST_DOCUMENT))
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


FORMATS: tuple[Format, ...] = (
    TRL,
    TRL_WANDB,
    VERL,
    NEMO_RL,
    SKYRL_EVAL,
    PRIME_RL,
    PRIME_RL_TOKENS,
    PRIME_RL_ROLLOUTS,
    AREAL,
    TINKER,
    TTT_DISCOVER,
    SLIME,
    THETA_EVOLVE,
    MS_SWIFT,
    MS_SWIFT_RAY,
    ROLL,
    S2S,
    TRACE,
    TRACE_JSON,
    CHECKPOINT,
    SHINKA,
    LLM4AD,
    NEUTRAL_JSONL,
    NEUTRAL_JSON,
    NEUTRAL_CSV,
    NEUTRAL_PARQUET,
)


USUAL = {form.name: form.usual for form in FORMATS if form.usual}
# What slime and ThetaEvolve call their dumps of samples.
_DUMPS = ("rollout_data/[0-9]*.pt", "[0-9]*.pt", "rollout_[0-9]*.pt")
# Files that may be a log of any format, by the end of their names.
_TABLES = (".jsonl", ".parquet", ".csv", ".tsv", ".json")
# So many levels of directories are looked through, and so many files of a directory that holds no log.
_DEPTH, _LOOKED_AT = 3, 500
# Directories of one log: of a version, a step, a rank or a task. Others are of several runs.
_COUNTED = re.compile(
    r"((global[_-]?)?step|iter(ation)?|epoch|v(ersion)?|rollouts?|batch|update|rank|worker|proc(ess)?|shard|part"
    r"|chunk|node|gpu|dp|task|split|replica)?[_=-]?\d+",
    re.IGNORECASE,
)
_NAMED = 3
# What columns of the neutral form are often called.
_CALLED = {
    "reward": ("reward", "score", "total_reward"),
    "group": (
        *("group", "group_id", "uid", "prompt_id", "problem_id", "question_id", "task_id", "example_id"),
        *("prompt", "question", "problem", "input"),
    ),
    "step": ("step", "global_step", "iteration", "update"),
    "advantage": ("advantage", "advantages", "adv"),
    "response": ("response", "completion", "output"),
}


@dataclass
class _Look:
    """What the files of a directory hold; each is opened once."""

    sniffed: dict[Path, Sniffed | None] = field(default_factory=dict)

    def of(self, file: Path) -> Sniffed | None:
        """Container and columns; None for a file that is empty, damaged or unknown."""
        if file not in self.sniffed:
            try:
                self.sniffed[file] = sniff(file)
            except RecordError:
                self.sniffed[file] = None
        return self.sniffed[file]

    def score(self, form: Format, file: Path) -> int:
        """How well a file fits."""
        known = self.of(file)
        return form.score(known) if known else 0

    def fitting(self, form: Format) -> Callable[[Path], bool]:
        """Which files are of a format."""
        return lambda file: self.score(form, file) > 0


def find(
    path: Path, format: str | None = None, columns: Mapping[str, str] = MappingProxyType({})
) -> tuple[Format, list[Path]]:
    """The format of a log and its files; ``columns`` where a caller names them. Errors as in read."""
    candidates = tuple(form for form in FORMATS if format in (None, form.name))
    if not candidates:
        known = ", ".join(form.name for form in FORMATS)
        raise ConfigError(f"no format is called {format}: choose one of {known}")
    if columns:
        able = tuple(form for form in candidates if "columns" in form.takes)
        if not able:
            names = ", ".join(form.name for form in FORMATS if "columns" in form.takes)
            raise ConfigError(f"the columns of {format} are known: --map is only for {names}")
        # Whatever the file's columns are called, the caller says which are which.
        named = {"group": "group", **columns}
        needed = tuple(dict.fromkeys(name.split(".")[0] for name in named.values()))
        candidates = tuple(replace(form, needs=needed if path.is_dir() else ()) for form in able)
    if not path.is_dir():
        return _of_file(path, candidates), [path]
    look = _Look()
    if found := _held(path, candidates, look):
        return found
    # Below a results directory or a layer of one; of runs one that was trained is named, if any was.
    own = (file for depth in ("*", "*/*") for file in sorted(path.glob(f"{depth}/{S2S.patterns[0]}")))
    runs = [file.parent for file in own if look.score(S2S, file)]
    if runs:
        run = min(runs, key=lambda run: run.name.startswith(FROZEN))
        raise RecordError(
            f"{path} holds runs of s2s, which are audited one at a time: give one, such as {run}"
        )
    if found := _below(path, candidates, look):
        return found
    raise _no_log(path, candidates, look)


def _of_file(path: Path, candidates: tuple[Format, ...]) -> Format:
    try:
        sniffed = sniff(path)
    except RecordError:
        if path.is_file() and (found := scalars_of(path)):
            raise refusal(path, {path: found}) from None
        raise
    best = max(candidates, key=lambda form: form.score(sniffed))
    if not best.score(sniffed):
        raise _unknown(path, sniffed, candidates)
    return best


def _held(directory: Path, candidates: tuple[Format, ...], look: _Look) -> tuple[Format, list[Path]] | None:
    """The format that knows most columns of its files there, and these files; others may stand beside them.

    Where no file is called as a format's are, files of any name are known by their columns.
    """
    held = {form: files for form in candidates if (files := form.files(directory, look.fitting(form)))}
    if not any(look.score(form, files[0]) for form, files in held.items()):
        tables = _tables(directory)
        held = {form: files for form in candidates if (files := [*filter(look.fitting(form), tables)])}
    best = max(held, key=lambda form: look.score(form, held[form][0]), default=None)
    return (best, held[best]) if best and look.score(best, held[best][0]) else None


def _below(directory: Path, candidates: tuple[Format, ...], look: _Look) -> tuple[Format, list[Path]] | None:
    """What directories in this one hold, as a writer makes one for each version, step or rank.

    Raises RecordError where they are of several runs.
    """
    for depth in range(1, _DEPTH + 1):
        held: dict[Path, list[Path]] = {}
        places = (path for path in directory.glob("/".join("*" * depth)) if path.is_dir())
        for place in in_order(directory, (path for path in places if not _is_hidden(directory, path))):
            if found := _held(place, candidates, look):
                candidates, held[place] = (found[0],), found[1]
        if held:
            levels = zip(*(place.relative_to(directory).parts for place in held), strict=True)
            if any(len(set(names)) > 1 and not all(map(_COUNTED.fullmatch, names)) for names in levels):
                raise RecordError(
                    f"{directory} holds logs in {len(held)} directories, which are audited one at a time: "
                    f"give one of {_some(held)}"
                )
            return candidates[0], [file for files in held.values() for file in files]
    return None


def _is_hidden(directory: Path, path: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(directory).parts)


def _tables(directory: Path, pattern: str = "*") -> list[Path]:
    names = [f"{pattern}{end}{packed}" for end in _TABLES for packed in ("", *PACKED)]
    found = {path for name in names for path in directory.glob(name)}
    kept = (path for path in found if path.suffix not in PACKED or path.with_suffix("") not in found)
    return in_order(directory, (path for path in kept if path.is_file() and not _is_hidden(directory, path)))


def beside(directory: Path, files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Tables that stand with the files of a log: those that hold rollouts by their columns, and others."""
    read = {*files, *(file.with_suffix("") for file in files if file.suffix in PACKED)}
    places = dict.fromkeys([directory, *(file.parent for file in files)])
    others = [path for place in places for path in _tables(place) if path not in read]
    look = _Look()
    rollouts = [path for path in others if any(look.score(form, path) for form in FORMATS)]
    return rollouts, [path for path in others if path not in rollouts]


def _no_log(directory: Path, candidates: tuple[Format, ...], look: _Look) -> RecordError:
    """One line: the nearest to a log that is there, or what is there at all."""
    for dump in (path for name in _DUMPS for path in in_order(directory, directory.glob(name))):
        sniff(dump)
    if arrow := next((path for depth in ("", "*/") for path in directory.glob(f"{depth}*.arrow")), None):
        return RecordError(
            f"{directory} is a data set of Hugging Face: write it by datasets.load_from_disk({arrow.parent})"
            ".to_parquet(FILE), and give that file"
        )
    below = (_tables(directory, "*/" * depth + "*") for depth in range(_DEPTH + 1))
    # Of one depth JSON comes last, which may be settings.
    json_last = (sorted(ones, key=lambda path: ".json" in path.suffixes[-2:]) for ones in below)
    tables = [*islice(chain.from_iterable(json_last), _LOOKED_AT)]
    known = {path: sniffed for path in tables if (sniffed := look.of(path)) and sniffed.columns}
    numbers = {path: found for path in tables if (found := scalars_of(path))}
    if stranger := next((path for path in known if path not in numbers), None):
        return _unknown(stranger, known[stranger], candidates)
    numbers |= {path: found for path in in_order(directory, directory.iterdir()) if (found := by_name(path))}
    if numbers:
        return refusal(directory, numbers)
    for damaged in (path for path in tables if path.suffix == ".parquet"):
        sniff(damaged)
    kinds = Counter(path.suffix or path.name for path in directory.iterdir() if path.is_file())
    there = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(_NAMED)) or "no file"
    return RecordError(
        f"{directory} holds no log of rollouts, only {there}: give the file or directory that the trainer "
        "writes rollouts into; give --format if the format is not recognized"
    )


def _some(things: Iterable[object], between: str = ", ") -> str:
    names = list(map(str, things))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{between.join(names[:_NAMED])}{more}"


def _unknown(path: Path, sniffed: Sniffed, candidates: tuple[Format, ...]) -> RecordError:
    """One line: the columns that were found, and those that the nearest format misses."""
    if found := scalars_of(path):
        return refusal(path, {path: found})
    if not sniffed.columns:
        return RecordError(f"{path} ({sniffed.container}) holds no groups: it has no complete record")
    alike = [form for form in candidates if form.container == sniffed.container]
    described = f"{path} ({sniffed.container}) has the columns {', '.join(sniffed.columns) or 'none'}"
    if not alike:
        expected = " or ".join(sorted({form.container for form in candidates}))
        return RecordError(
            f"{described}; this format is {expected}: give such a file, or leave the format out"
        )
    near = min(alike, key=lambda form: (len(form.missing(sniffed)), -len(form.needs)))
    known = {
        name: next((one for one in called if one in sniffed.columns), "") for name, called in _CALLED.items()
    }
    meant = ",".join(
        f"{name}={column or 'COLUMN'}"
        for name, column in known.items()
        if column or name in ("reward", "group")
    )
    return RecordError(
        f"{described}; {near.name} also needs {', '.join(near.missing(sniffed))}: "
        f"give another --format, or say by --map {meant} what its columns mean"
    )
