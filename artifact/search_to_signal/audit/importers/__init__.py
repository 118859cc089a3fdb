"""Logs of other frameworks as reward-level groups, recognized by what a file holds.

Files with steps of their own are read one after the other. Those that share steps, as of ranks, workers or
tasks, or of a run resumed, are held, and given step by step. A format is known by its columns, in a
directory whatever stands beside it; files of one number per step (``scalar_files``) are refused: no group
can be audited there.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from types import MappingProxyType

import numpy as np

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups, joined, part, regrouped, spans
from search_to_signal.audit.importers import neutral, prime_rl, searches, trainers, trl
from search_to_signal.audit.importers.base import (
    PACKED,
    Format,
    Read,
    ReadOptions,
    ScatteredGroupsError,
    in_order,
    sampled_again,
)
from search_to_signal.audit.importers.containers import Sniffed, is_cut, sniff
from search_to_signal.audit.importers.rows import noted
from search_to_signal.audit.importers.scalar_files import by_name, refusal, scalars_of, some, writers_below
from search_to_signal.audit.importers.verl import VERL
from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.records.conditions import FROZEN

FORMATS: tuple[Format, ...] = (
    *(trl.TRL, trl.TRL_WANDB, VERL, trainers.NEMO_RL, trainers.SKYRL_EVAL),
    *(prime_rl.PRIME_RL, prime_rl.PRIME_RL_TOKENS, trainers.PRIME_RL_ROLLOUTS),
    *(trainers.AREAL, trainers.TINKER, trainers.TTT_DISCOVER, trainers.SLIME, trainers.THETA_EVOLVE),
    *(trl.MS_SWIFT, trl.MS_SWIFT_RAY, trl.ROLL, neutral.S2S),
    *(searches.TRACE, searches.TRACE_JSON, searches.CHECKPOINT, searches.SHINKA, searches.LLM4AD),
    *(neutral.NEUTRAL_JSONL, neutral.NEUTRAL_JSON, neutral.NEUTRAL_CSV, neutral.NEUTRAL_PARQUET),
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
    own = (file for depth in ("*", "*/*") for file in sorted(path.glob(f"{depth}/{neutral.S2S.patterns[0]}")))
    runs = [file.parent for file in own if look.score(neutral.S2S, file)]
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
    writers = writers_below(directory)
    # JSON beside the files of a tracker is settings.
    strangers = (path for path in known if path not in numbers and not (writers and ".json" in path.suffixes))
    if stranger := next(strangers, None):
        return _unknown(stranger, known[stranger], candidates)
    numbers |= {path: found for path in in_order(directory, directory.iterdir()) if (found := by_name(path))}
    if numbers or writers:
        return refusal(directory, numbers | writers)
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

    def contents(file: Path) -> bytes:
        # Equal for files that hold one batch; a file that cannot be read is like no other.
        with suppress(RecordError):
            return chosen.contents(file) if chosen.contents else bytes(file)
        return bytes(file)

    sources = [
        partial(_read, read_file, list(run), options, () if number else notes)
        for number, (_, run) in enumerate(groupby(files, key=contents))
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
