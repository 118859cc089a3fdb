"""Logs of other frameworks as reward-level groups, recognized by what a file holds.

Files with steps of their own are read one after the other. Those that share steps, as of ranks, workers or
tasks, or of a run resumed, are held, and given step by step.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path

import numpy as np

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups, joined, part, regrouped, spans
from search_to_signal.audit.importers.base import (
    Format,
    Read,
    ReadOptions,
    ScatteredGroupsError,
    sampled_again,
)
from search_to_signal.audit.importers.containers import is_cut
from search_to_signal.audit.importers.recognition import FORMATS, USUAL, beside, find
from search_to_signal.audit.importers.rows import noted
from search_to_signal.audit.importers.scalar_files import scalars_of
from search_to_signal.base.errors import ConfigError, RecordError

__all__ = ["FORMATS", "USUAL", "find", "read"]
Source = Callable[[], Iterator[RewardGroups]]
# Step and name of a group.
_Key = tuple[int, str]
_WRITERS = re.compile(
    r"(rank|worker|proc|process|shard|part|gpu|device|node|dp|actor|replica|host)[_=-]?\d+", re.IGNORECASE
)
_OTHERS = "other files of the directory hold rollouts too and are left out: give each by itself"
# GroupRecorder and live.write number the batches of a step, each of which was normalized by itself.
_BATCH = re.compile(r"rollouts_\d{8}_\d{4}\.jsonl(\.gz|\.zst)?")
_NO_ROLLOUTS = "files of the directory that hold no rollouts, or are damaged, are left out"
_CUT = "the end of the file was cut, as by a writer that was stopped: what is whole is read"
_REPEATED = "a file with the rows of the one before it is the same batch written again, and is left out"
_JOINED = "rows of one step in several files, such as one file per rank or task, are read as one step"


def in_turn(sources: Sequence[Source]) -> Iterator[RewardGroups]:
    """Batches of one file after the other; raises ScatteredGroupsError for a step that one before holds."""
    before: set[int] = set()
    for source in sources:
        own: set[int] = set()
        for batch in source():
            own |= _steps(batch)
            if before & own:
                raise ScatteredGroupsError(f"{batch.source}: holds a step that a file before it holds")
            yield batch
        before |= own


def by_step(sources: Sequence[Source], limit: int) -> Iterator[RewardGroups]:
    """Batches of files, in which a step that several hold comes whole; files are read twice."""
    steps = [set[int]().union(*map(_steps, source())) for source in sources]
    for meeting in _meeting(steps):
        if len(meeting) == 1:
            yield from sources[meeting[0]]()
        else:
            files = [joined(*sources[at]()) for at in sorted(meeting, key=lambda at: min(steps[at]))]
            groups, first = _merged(files), 0
            for start, end in spans(groups):
                if start > first and groups.offsets[end] - groups.offsets[first] > limit:
                    yield part(groups, first, start)
                    first = start
            yield part(groups, first, len(groups.step))


def _steps(batch: RewardGroups) -> set[int]:
    return set(np.unique(batch.step).tolist()) - {UNKNOWN}


def _meeting(steps: Sequence[set[int]]) -> list[list[int]]:
    """The numbers of files, those together that share steps, also by way of others."""
    found: list[tuple[list[int], set[int]]] = []
    for number, own in enumerate(steps):
        near = [entry for entry in found if entry[1] & own]
        files = sorted([number, *(at for others, _ in near for at in others)])
        place = found.index(near[0]) if near else len(found)
        found = [entry for entry in found if entry not in near]
        found.insert(place, (files, own.union(*(held for _, held in near))))
    return [files for files, _ in found]


@dataclass
class _Sampling:
    """Files that were written side by side: first and last step, and of each group its prompt and size."""

    path: Path
    first: int
    last: int
    groups: dict[_Key, tuple[int, int]]

    def has(self, other: "_Sampling") -> bool:
        """Whether another file is of the same sampling, as of another rank; else a run was resumed."""
        names = [_WRITERS.sub("", str(one.path)) for one in (self, other)]
        if names[0] == names[1]:
            return True
        shared = self.groups.keys() & other.groups.keys()
        sizes = [max(one.groups[key][1] for key in shared) for one in (self, other)] if shared else [1]
        prompts = ((self.groups[key][0], other.groups[key][0]) for key in shared)
        if 1 not in sizes and not any(0 not in pair and pair[0] != pair[1] for pair in prompts):
            return False
        # Without a group in common the other has to begin where this does, or to be a single task.
        begun = {key for key in other.groups if key[0] <= self.last}
        return bool(shared) or other.first == self.first or other.last <= self.last or len(begun) == 1

    def add(self, other: "_Sampling") -> None:
        """Take another's groups in."""
        self.groups = other.groups | self.groups
        self.last = max(self.last, other.last)


def _merged(files: Sequence[RewardGroups]) -> RewardGroups:
    """The groups of files by sampling and step; rows of one group of one sampling are put together."""
    samplings: list[_Sampling] = []
    numbers = list[int]()
    notes = list[Assumption]()
    for file in files:
        steps = file.step.tolist()
        names = file.name or [""] * len(steps)
        known = zip(steps, names, file.prompt_id.tolist(), file.sizes.tolist(), strict=True)
        groups = {(step, name): (prompt, size) for step, name, prompt, size in known if name}
        own = _Sampling(Path(file.source), min(steps), max(steps), groups)
        at = next((at for at, one in enumerate(samplings) if one.has(own)), len(samplings))
        if at == len(samplings):
            samplings.append(own)
            if at:
                notes.append(sampled_again(f"{file.source} goes back to step {own.first}", 1))
        else:
            samplings[at].add(own)
        numbers.append(at)
    if len(samplings) < len(files):
        notes.append(Assumption("joined_files", _JOINED, {"files": len(files)}))
    whole = joined(*files)
    sampling = np.repeat(numbers, [len(file.step) for file in files])
    before = np.zeros_like(whole.step) if whole.sampling is None else whole.sampling
    sampling = sampling * (int(before.max()) + 1) + before
    whole = replace(whole, sampling=sampling, assumptions=(*whole.assumptions, *notes))
    members: dict[tuple[int, int, str, int], list[int]] = {}
    places = _places(files)
    for group in np.lexsort((whole.step, sampling)).tolist():
        key = (int(sampling[group]), int(whole.step[group]), *places[group])
        members.setdefault(key, []).append(group)
    return regrouped(whole, list(members.values()))


def _places(files: Sequence[RewardGroups]) -> list[tuple[str, int]]:
    """What is equal for groups that are one: name and prompt; a file that numbers them has its own."""
    found = list[tuple[str, int]]()
    for number, file in enumerate(files):
        names = file.name or [""] * len(file.step)
        local = all(name.isdecimal() for name in names) or not all(names)
        for at, (name, prompt) in enumerate(zip(names, file.prompt_id.tolist(), strict=True)):
            own = not name or (local and not prompt)
            found.append((f"{number}:{at}", 0) if own else (name, prompt))
    return found


def read(path: Path, format: str | None = None, options: ReadOptions | None = None) -> Iterator[RewardGroups]:
    """Batches of the groups of a log file, or of every file of a log directory, in order.

    The format is recognized unless it is named. What was assumed is with each batch (``groups.summed``).
    Raises RecordError for a path that holds no log, ConfigError for a format that does not exist or that has
    no use for named components, for a named reward, or for a group size.
    """
    options = options or ReadOptions()
    chosen, files = find(path, format, options.columns)
    asked = {
        "components": (options.components or options.weights, "what the reward is: components are named"),
        "reward": (options.reward is not None, "what the reward is: one of several is named"),
        "group_size": (options.group_size is not None, "what a group is: a group size is given"),
    }
    for option, (given, says) in asked.items():
        if given and option not in chosen.takes:
            names = ", ".join(form.name for form in FORMATS if option in form.takes)
            raise ConfigError(f"{chosen.name} already says {says} only for {names}")
    notes = list[Assumption]()
    if path.is_dir():
        rollouts, tables = beside(path, files)
        others = [file for file in tables if not scalars_of(file)]
        names = f"{', '.join(file.name for file in others[:3])}{' and others' if len(others) > 3 else ''}"
        left = ((_OTHERS, "other_files", rollouts), (f"{_NO_ROLLOUTS}: {names}", "no_rollouts", others))
        notes = [Assumption(key, says, {"files": len(ones)}) for says, key, ones in left if ones]
    if chosen.joined and path.is_dir():
        yield from noted(chosen.joined(files, options), notes)
        return
    read_file = chosen.of_run(files, options) if chosen.of_run else chosen.read
    sources = [
        partial(_read, read_file, list(run), options, () if number else notes)
        for number, (_, run) in enumerate(groupby(files, key=lambda file: _contents(chosen, file)))
    ]
    apart = len(files) == 1 or all(map(_BATCH.fullmatch, (file.name for file in files)))
    try:
        if apart:
            yield from chain.from_iterable(source() for source in sources)
        else:
            yield from in_turn(sources) if options.together else by_step(sources, options.rows)
    except RecursionError as error:
        raise RecordError(
            f"{path}: lists or objects are nested too deeply to be read; remove them"
        ) from error


def _read(
    read_file: Read, same: Sequence[Path], options: ReadOptions, notes: Sequence[Assumption]
) -> Iterator[RewardGroups]:
    again = [Assumption("repeated_files", _REPEATED, {"files": len(same) - 1})] if len(same) > 1 else []
    cut = [Assumption("cut_end", _CUT, {"files": 1})] if is_cut(same[0]) else []
    yield from noted(read_file(same[0], options), [*notes, *again, *cut])


def _contents(format: Format, file: Path) -> bytes:
    """Equal for files that hold one batch; a file that cannot be read is like no other."""
    try:
        return format.contents(file) if format.contents else bytes(file)
    except RecordError:
        return bytes(file)
