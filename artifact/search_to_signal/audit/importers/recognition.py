"""Which format a log has: known by its columns, in a directory whatever stands beside it.

Files of one number per step (``scalar_files``) are refused: no group can be audited there.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType

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
from search_to_signal.audit.importers.scalar_files import by_name, refusal, scalars_of, some
from search_to_signal.audit.importers.searches import CHECKPOINT, LLM4AD, SHINKA, TRACE, TRACE_JSON
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
                    f"give one of {some(held)}"
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
