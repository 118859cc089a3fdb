"""What an importer is, what a caller may say about a log, and what readers of records share.

Rows of one group that stand in several places of a log are gathered with no more held than has to be. A run
that was resumed into its own log samples steps again, which the order of what it wrote shows: its steps fall
back, and the groups or the number of rows of the step that comes again are those of a whole step. Writers in
turn fall back as well, and write what others left out.
"""

import math
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers.containers import JSON, Sniffed, container_of
from search_to_signal.audit.importers.rows import (
    Evidence,
    Group,
    Key,
    Prompts,
    RolloutRow,
    assumed,
    batches,
    consecutive,
    digest,
    noted,
    numbers,
    rows_of,
)
from search_to_signal.audit.importers.streams import read_document, read_lines
from search_to_signal.base.errors import ConfigError, RecordError

# Rows of each group of a step.
_Rows = Counter[int]


def restarts_of(groups: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """The runs of rows, by number, that sample a step again, with that step; given is group, step and size.

    A step that comes again is sampled again where most groups that it had come whole, or where it would have
    half as many rows again as a step has.
    """
    usual, step_rows = _usual(groups, sizes), _step_rows(steps, sizes)
    known = (step for step, _ in groupby(steps) if step != UNKNOWN)
    in_turn = sum(after < before for before, after in pairwise(known)) > len(set(steps))
    found: dict[int, int] = {}
    held: dict[int, _Rows] = {}
    last = UNKNOWN
    for step, runs in _of_steps(steps):
        if step < last and step in held and not in_turn:
            rows = Counter[int]()
            for number in runs:
                rows[groups[number]] += sizes[number]
            if _is_again(held[step], rows, usual, step_rows):
                found[runs[0]] = step
                held = {earlier: had for earlier, had in held.items() if earlier < step}
        last = step if step != UNKNOWN else last
        for number in runs:
            if sizes[number] == usual and groups[number] in held.get(step, ()):
                found[number] = step
                held.pop(step)
            held.setdefault(step, Counter())[groups[number]] += sizes[number]
    return found


def _is_again(before: _Rows, rows: _Rows, usual: int | None, step_rows: float | None) -> bool:
    shared = before.keys() & rows.keys()
    whole = [rows[one] == (usual or before[one]) > 1 for one in shared]
    if shared and 2 * sum(whole) >= len(shared):
        return True
    had, has = before.total(), rows.total()
    return step_rows is not None and 2 * has >= had and 2 * (had + has) > 3 * step_rows


def _usual(groups: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The size of most groups whose rows stand together; None where it is 1, or most have another."""
    runs = Counter(groups)
    together = Counter(size for group, size in zip(groups, sizes, strict=True) if runs[group] == 1)
    size, count = max(together.items(), key=lambda item: item[1], default=(1, 0))
    return size if size > 1 and 2 * count >= together.total() else None


def _step_rows(steps: Sequence[int], sizes: Sequence[int]) -> float | None:
    """How many rows a step has whose rows stand together; None where there is no such step."""
    rows: dict[int, list[int]] = {}
    for step, runs in _of_steps(steps):
        rows.setdefault(step, []).append(sum(sizes[number] for number in runs))
    together = [counts[0] for step, counts in rows.items() if len(counts) == 1 and step != UNKNOWN]
    return median(together) if together else None


def _of_steps(steps: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    for step, runs in groupby(range(len(steps)), key=steps.__getitem__):
        yield step, list(runs)


@dataclass(frozen=True)
class Runs:
    """Of a log: how often each group, by ``_stamp``, begins again, for those that do; and so each step.

    ``restarts`` are the runs of rows, by number, with which a run that was resumed samples a step again, and
    these steps.
    """

    groups: Counter[int]
    steps: Counter[int]
    restarts: dict[int, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Rows of one group stand together everywhere, and so do those of one step."""
        return not self.groups and not self.steps

    def notes(self) -> Iterator[Assumption]:
        """That a run was resumed, if one was; asked once there are rows."""
        if self.restarts:
            step = next(iter(self.restarts.values()))
            known = f"step {step} comes again after later ones"
            yield sampled_again(known if step != UNKNOWN else "a whole group comes again", len(self.restarts))


def sampled_again(says: str, times: int) -> Assumption:
    """That a run went back, as ``says`` tells of the first time."""
    says += ", as where a run was resumed: what it sampled again counts as a step of its own"
    return Assumption("sampled_again", says, {"times": times})


class ScatteredGroupsError(RecordError):
    """A group or step begins again in a log whose rows were declared to stand together."""


class Beginnings:
    """Groups and steps of a log as they begin, 8 bytes each."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._hashes = array("q")
        self._checked = 0
        self._step = UNKNOWN

    def add(self, keys: Sequence[Key]) -> None:
        """The next groups; raises ScatteredGroupsError once it is seen that one of them began before."""
        self._hashes.extend(map(hash, keys))
        for step, _ in groupby(step for step, _ in keys):
            if step not in (self._step, UNKNOWN):
                self._hashes.append(hash((step,)))
                self._step = step
        # Sorting whenever they have doubled takes no longer than sorting twice.
        if len(self._hashes) > 2 * self._checked:
            self.check()

    def check(self) -> None:
        """Raises ScatteredGroupsError where a group or a step began twice, or two hashes are equal."""
        ordered = np.sort(np.frombuffer(self._hashes, dtype=np.int64))
        self._checked = len(ordered)
        if (ordered[1:] == ordered[:-1]).any():
            raise ScatteredGroupsError(
                f"{self._source}: rows of a group or step are spread over several places: read it "
                "without `together`"
            )


def joined(runs: Runs, rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Rows of one group stand anywhere in the log, whose ``runs`` were counted before.

    A group is given when its last row has come, so what is held is the groups that are open, and 16 bytes
    for every run of rows of one group. Where rows of a step do not stand together either, all groups are
    held, and given step by step.
    """
    if runs.restarts:
        return _resumed(runs, rows)
    groups = _closed(rows, runs.groups)
    if runs.steps:
        order: dict[int, list[Group]] = {}
        for group in groups:
            order.setdefault(group[0].step, []).append(group)
        groups = (group for together in order.values() for group in together)
    return groups


def _closed(rows: Iterable[RolloutRow], left: Counter[int]) -> Iterator[Group]:
    """Groups as their last runs come; ``left`` counts the runs of those with several, by ``_stamp``."""
    waiting: dict[Hashable, list[RolloutRow]] = {}
    for key, members in groupby(rows, key=lambda row: row.group):
        stamp = _stamp(key)
        if stamp not in left:
            yield list(members)
            continue
        waiting.setdefault(key, []).extend(members)
        left[stamp] -= 1
        if not left[stamp]:
            yield waiting.pop(key)
    yield from waiting.values()


def _resumed(runs: Runs, rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Groups by sampling and step; a group whose rows all came before, responses too, was logged twice.

    Restarts that logged again without sampling are taken out of ``runs``.
    """
    order: dict[tuple[int, int], dict[Hashable, list[RolloutRow]]] = {}
    restarts = list(runs.restarts)
    for number, (key, members) in enumerate(groupby(rows, key=lambda row: row.group)):
        sampling = bisect_right(restarts, number)
        for row in members:
            groups = order.setdefault((sampling, row.step), {})
            groups.setdefault(key, []).append(structs.replace(row, sampling=sampling) if sampling else row)
    latest: dict[Hashable, list[RolloutRow]] = {}
    sampled: dict[int, set[int]] = {}
    for (sampling, step), groups in order.items():
        for key, group in groups.items():
            before = latest.setdefault(key, group)
            if before is not group and _told(before) == _told(group):
                before.extend(structs.replace(row, sampling=before[0].sampling) for row in group)
                group.clear()
            else:
                latest[key] = group
                sampled.setdefault(step, set()).add(sampling)
    again = set[int]().union(*(found - {min(found)} for found in sampled.values()))
    for sampling, start in enumerate(restarts, 1):
        if sampling not in again:
            runs.restarts.pop(start)
    yield from (group for groups in order.values() for group in groups.values() if group)


def _told(rows: Sequence[RolloutRow]) -> list[tuple[object, ...]]:
    """What is equal for rows that are logged twice; rows without a response are like no others."""
    return [(row.response or id(row), row.reward, repr(row.advantage), row.tokens) for row in rows]


def until_damaged(keys: Iterable[Key]) -> Iterator[Key]:
    """Keys up to a record that cannot be read, which the rows are going to name when it is its turn."""
    with suppress(RecordError):
        yield from keys


def sampled_apart(groups: Iterable[Group]) -> Iterator[Group]:
    """Groups in which no ``member`` stands twice: a second one is of another sampling of the group."""
    for group in groups:
        if group[0].member is None:
            yield group
            continue
        samplings: list[dict[Hashable, RolloutRow]] = []
        for row in group:
            free = next((sampling for sampling in samplings if row.member not in sampling), None)
            if free is None:
                samplings.append(free := {})
            free[row.member] = row
        yield from (list(sampling.values()) for sampling in samplings)


def runs_of(keys: Iterable[Key]) -> Runs:
    """What is read of a log before its rows: where groups and steps begin again."""
    stamps, steps, sizes = array("Q"), array("q"), array("q")
    for key, members in groupby(keys):
        stamps.append(_stamp(key))
        steps.append(key[0])
        sizes.append(len(list(members)))
    groups = _more_than_once(np.frombuffer(stamps, dtype=np.uint64))
    known = np.frombuffer(steps, dtype=np.int64)
    known = known[known != UNKNOWN]
    again = _more_than_once(known[np.append(True, np.diff(known) != 0)[: len(known)]])
    if not groups and not again:
        return Runs(groups, again)
    return Runs(groups, again, restarts_of(stamps, steps, sizes))


def _more_than_once(values: NDArray[Any]) -> Counter[int]:
    distinct, counts = np.unique(values, return_counts=True)
    several = counts > 1
    return Counter(dict(zip(distinct[several].tolist(), counts[several].tolist(), strict=True)))


def _stamp(key: Hashable) -> int:
    """64 bits for a key. Its text is hashed, since Python's hashes of small numbers are not spread."""
    return digest(repr(key))


def gathered(rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Rows of one group stand anywhere within their step: the numbers of one step are held, not its texts."""
    for _, members in groupby(rows, key=lambda row: row.step):
        groups: dict[Hashable, list[RolloutRow]] = {}
        for row in members:
            groups.setdefault(row.group, []).append(row)
        yield from groups.values()


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
            every = (path for end in ("", *PACKED) for path in directory.glob(pattern + end))
            known = {path for path in every if path.is_file() and path.name not in self.beside}
            # Of a file and its packed copy one is read.
            paths = [path for path in known if path.suffix not in PACKED or path.with_suffix("") not in known]
            if paths := in_order(directory, filter(fits, paths)):
                named = (re.search(self.run, path.as_posix()) for path in paths) if self.run else ()
                runs = sorted({match[0] for match in named if match})
                if len(runs) > 1:
                    raise RecordError(f"{directory} holds {len(runs)} runs: give one of {', '.join(runs)}")
                return paths[-1:] if self.newest else paths
        found = []
        for path in directory.iterdir() if self.nameless else ():
            with suppress(RecordError, ConfigError):
                if not path.suffix and path.is_file() and container_of(path) == self.container:
                    found.append(path)
        return sorted(found)


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
