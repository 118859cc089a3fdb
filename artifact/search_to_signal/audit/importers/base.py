"""What an importer is, what a caller may say about a log, and what readers of records share."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.containers import JSON, Sniffed, container_of
from search_to_signal.audit.importers.gathering import joined, runs_of, sampled_apart, until_damaged
from search_to_signal.audit.importers.rows import (
    Evidence,
    Group,
    Key,
    Prompts,
    RolloutRow,
    assumed,
    batches,
    consecutive,
    noted,
    numbers,
    rows_of,
)
from search_to_signal.audit.importers.streams import read_document, read_lines
from search_to_signal.base.errors import ConfigError, RecordError

BATCH = 65_536
PACKED = (".gz", ".zst")


@dataclass(frozen=True)
class ReadOptions:
    """What the log does not say and the caller may.

    ``label`` names the column that holds each row's class; ``a.b`` is column b within a. ``reward`` names the
    reward where a log holds several. ``components`` names the reward columns, and ``weights`` their weights.
    ``group_size`` splits runs of equal prompts. ``columns`` says what the columns of the neutral form are
    called in a file of anybody's own: ``{"reward": "score", "group": "prompt_id"}``. ``rows`` bounds a batch.
    ``prompts`` collects the prompts that are read.
    ``together`` says that the rows of each group stand together, and those of each step: the neutral form is
    then read once. ScatteredGroupsError is raised where they do not, after some batches were given.
    """

    label: str | None = None
    reward: str | None = None
    components: tuple[str, ...] | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    group_size: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: int = BATCH
    together: bool = False
    prompts: Prompts = field(default_factory=Prompts, compare=False)

    def __post_init__(self) -> None:
        if self.rows < 1 or (self.group_size is not None and self.group_size < 1):
            raise ConfigError("rows and group_size count things: give numbers of 1 or more")


Read = Callable[[Path, ReadOptions], Iterator[RewardGroups]]


@dataclass(frozen=True)
class Format:
    """One log format: how it is recognized and read, and what its reader was tried on.

    ``read`` gives the groups of one file; it raises RecordError where that is damaged or not of this format.
    ``needs`` are the columns without which a file is none of this format. ``patterns`` find the files below a
    directory, packed ones too: the first pattern with any wins, so that one rollout is not counted in two of
    them.
    ``usual`` is the entry of the atlas for a log without advantages: its framework's own, by default.
    ``takes`` are the ReadOptions that have a use: ``components``, where the reward is the weighted sum of
    columns; ``reward``, where a row has several; ``columns``, where they may have any name; ``group_size``,
    where a group is a run of rows. ``contents``: a digest of a file without its step, for a writer that may
    write a batch twice.
    ``of_run``: reads the files of a run after a look at them, where one by itself says too little.
    ``newest``: each file holds what those before it held, and the last is read. ``beside`` are names of other
    files that stand among them. ``run`` finds the run in a path: files of several are refused. ``nameless``:
    where no name is known, a file without a suffix may be one, by its container.
    ``joined`` reads the files of a directory as one log, instead of one after the other.
    ``writer`` is repository, path, commit and date of the writer; ``met`` says what files were read.
    """

    name: str
    container: str
    needs: tuple[str, ...]
    patterns: tuple[str, ...]
    read: Read
    writer: str
    met: str
    usual: str | None = None
    takes: tuple[str, ...] = ()
    contents: Callable[[Path], bytes] | None = None
    of_run: Callable[[Sequence[Path], ReadOptions], Read] | None = None
    newest: bool = False
    beside: tuple[str, ...] = ()
    run: str | None = None
    nameless: bool = False
    joined: Callable[[Sequence[Path], ReadOptions], Iterator[RewardGroups]] | None = None

    def score(self, sniffed: Sniffed) -> int:
        """How well a file fits, by how many columns are needed; 0 unless it has all of them."""
        fits = sniffed.container == self.container and not self.missing(sniffed)
        return 1 + len(self.needs) if fits else 0

    def missing(self, sniffed: Sniffed) -> tuple[str, ...]:
        """The needed columns that the file has not."""
        return tuple(name for name in self.needs if name not in sniffed.columns)

    def files(self, directory: Path, fits: Callable[[Path], bool] = lambda file: True) -> list[Path]:
        """The files of this format below a directory that fit, in the order in which they were written.

        Raises RecordError where they are of several runs.
        """
        for pattern in self.patterns:
            found = (path for end in ("", *PACKED) for path in directory.glob(pattern + end))
            known = {path for path in found if path.is_file() and path.name not in self.beside}
            # Of a file and its packed copy one is read.
            paths = [path for path in known if path.suffix not in PACKED or path.with_suffix("") not in known]
            if paths := in_order(directory, filter(fits, paths)):
                named = (re.search(self.run, path.as_posix()) for path in paths) if self.run else ()
                runs = sorted({match[0] for match in named if match})
                if len(runs) > 1:
                    raise RecordError(f"{directory} holds {len(runs)} runs: give one of {', '.join(runs)}")
                return paths[-1:] if self.newest else paths
        others = directory.iterdir() if self.nameless else ()
        return sorted(path for path in others if not path.suffix and path.is_file() and self._contains(path))

    def _contains(self, path: Path) -> bool:
        with suppress(RecordError, ConfigError):
            return container_of(path) == self.container
        return False


def in_order(directory: Path, paths: Iterable[Path]) -> list[Path]:
    """Paths below a directory as people order them: step_9 before step_10."""

    def key(path: Path) -> list[tuple[int, int, str]]:
        parts = re.split(r"(\d+)", path.relative_to(directory).as_posix())
        return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]

    return sorted(paths, key=key)


def read_json(
    path: Path,
    options: ReadOptions,
    row: Callable[[Path, ReadOptions, dict[str, Any], int], RolloutRow],
    grouped: Callable[[Iterable[RolloutRow]], Iterable[Group]] = consecutive,
    evidence: Evidence = lambda _: (),
    key: Callable[[dict[str, Any], int], Key] | None = None,
    rewards: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    by_prompt: bool = False,
) -> Iterator[RewardGroups]:
    """Batches of a log of JSON records, one per line or all in one list; ``row`` makes a row of each.

    ``grouped`` and ``evidence`` say which rows are a group, and what was assumed there; with ``by_prompt``
    runs of one prompt are. With ``key``, which reads step and group of a record, rows of one group may stand
    anywhere, and the log is read twice. ``rewards`` says which rewards a record has, where the caller may
    name one.
    Raises RecordError for a record that cannot be read, and where no record has what the caller names.
    """
    if rewards is not None and options.reward is not None:
        refuse_unknown_reward(path, options.reward, map(rewards, (record for _, record in _records(path))))
    records = _records(path)
    first = next(records, None)
    refuse_unknown_label(path, first[1] if first else {}, options.label)
    rows = rows_of(path, chain([first] if first else [], records), partial(row, path, options))
    said: tuple[Evidence, ...] = (evidence,)
    if by_prompt:
        grouped = partial(groups_by_prompt, path, options=options)
        said = (prompt_evidence(options), evidence)
    runs = None if key is None else runs_of(until_damaged(rows_of(path, _records(path), key)))
    groups = grouped(rows) if runs is None else sampled_apart(joined(runs, rows))
    found = batches(
        str(path),
        groups,
        options.rows,
        lambda groups: tuple(chain.from_iterable(one(groups) for one in said)),
        options.prompts,
    )
    yield from found if runs is None else noted(found, runs.notes())


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if container_of(path) == JSON:
        return enumerate(read_document(path))
    return read_lines(path)


def value_at(record: Mapping[str, Any], name: str | None) -> str:
    """The text of a column, or of a column within a column; empty where there is neither text nor number."""
    value: Any = record
    for part in name.split(".") if name else ():
        value = value.get(part) if isinstance(value, Mapping) else None
    return str(value) if name and isinstance(value, str | int | float) else ""


def refuse_unknown_reward(path: Path, name: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Raise RecordError where no record has a reward of that name: a slip is not a log without rewards."""
    seen: dict[str, float] = {}
    for given in records:
        if name in given:
            return
        seen |= numbers(given)
    raise RecordError(f"{path} has no reward {name}: choose one of {', '.join(seen) or 'those it has'}")


def refuse_unknown_label(path: Path, record: Mapping[str, Any], label: str | None) -> None:
    """Raise RecordError where the first record has no column of that name: a slip is not a missing class."""
    if label is not None and label.split(".")[0] not in record:
        raise RecordError(f"{path} has no column {label}: choose one of {', '.join(map(str, record))}")


RUNS = (
    "a group is a run of rows with the same prompt: the log names no group, "
    "and two groups of one prompt in a row look like one without --group-size"
)
_SPLIT = "a group is a run of rows with the same prompt, split into the group size that the caller gave"
_USUAL = (
    "a group is a run of rows with the same prompt, and a run that is a multiple of most others is several "
    "groups: --group-size says otherwise"
)
# Runs of one prompt that are looked at before they are split.
_RUNS = 256


def usual_run(sizes: Sequence[int]) -> int | None:
    """The length of most runs of rows of one prompt, of which all are multiples: a longer run is of several
    groups. None where there is no such length, or all runs have it."""
    common = math.gcd(*sizes)
    often = sizes.count(common)
    return common if common > 1 and len(sizes) < 2 * often < 2 * len(sizes) else None


def groups_by_prompt(
    path: Path, rows: Iterable[RolloutRow], options: ReadOptions, guess: int | None = None
) -> Iterator[Group]:
    """Runs of rows with equal ``group``, split into groups of the size that the caller gave, else of a guess,
    0 for none; without a guess of the ``usual_run``.

    Raises RecordError for a run that cannot be split evenly into the caller's size.
    """
    runs = iter(consecutive(rows))
    first = list(islice(runs, _RUNS))
    if guess is None:
        sizes = [len(run) for run in first]
        # The last group of a log may be incomplete.
        guess = usual_run(sizes) or usual_run(sizes[:-1])
    for run in chain(first, runs):
        size = options.group_size or guess or len(run)
        if len(run) % size:
            if not options.group_size:
                yield run
                continue
            raise RecordError(
                f"{path}: {len(run)} rows with one prompt from row {run[0].position} on are not a "
                f"multiple of the group size {size}; give the group size of the run, or leave it out"
            )
        yield from (run[start : start + size] for start in range(0, len(run), size))


def prompt_evidence(options: ReadOptions, says: str = "") -> Evidence:
    """How many runs of which length were taken for groups, in words of a format's own or these."""

    def evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
        split = any(one[0].group == other[0].group for one, other in pairwise(groups))
        said = _SPLIT if options.group_size else says or (_USUAL if split else RUNS)
        return assumed("consecutive_prompts", said)(groups)

    return evidence
