"""What prime-rl trained of what it sampled: by its ``effective`` files, or by annotations beside a stream."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from search_to_signal.audit.groups import UNKNOWN
from search_to_signal.audit.importers.base import PACKED
from search_to_signal.audit.importers.lines import read_lines
from search_to_signal.audit.importers.prime_rl_episodes import credit, of_tokens, traces
from search_to_signal.audit.importers.rows import NAN, advantage, count, rows_of

_STEP = re.compile(r"step_(\d+)")


class Shipped(NamedTuple):
    """What became of a trace: the step that trained it, its advantage; ``idle``: no token of it counted.

    ``rewards`` are those that came after it had arrived.
    """

    step: int
    advantage: float | None
    idle: bool = False
    trained: bool = True
    rewards: Mapping[str, Any] = MappingProxyType({})


class Source(NamedTuple):
    """A file of episodes, and the step of its folder; ``again`` where its traces stand in others too."""

    path: Path
    step: int = UNKNOWN
    again: bool = False


@dataclass(frozen=True)
class Cohorts:
    """Files of a run in the order of arrival, and what was shipped, by step of the file and id of the trace.

    ``known``: it is known of every trace whether it was trained. ``survivors``: where traces have advantages,
    others may be missing. ``steps`` are those that were asked for, all if None.
    """

    place: Path
    sources: Sequence[Source]
    shipped: Mapping[tuple[int, str], Shipped]
    known: bool = False
    survivors: bool = False
    steps: frozenset[int] | None = None


def of_files(files: Sequence[Path], whole: bool) -> Cohorts:
    """What files of one kind hold; ``whole`` looks for the other files of their run."""
    first = files[0]
    if whole and first.parent.name == "effective" and first.parent.parent.name == "train":
        return _of_steps(files)
    chunked = first.parent.name == "stream"
    one = first if len(files) == 1 else None
    if chunked or first.name.startswith("stream"):
        shipped = _annotated((first.parent if chunked else first).parent / "annotations")
        known = any(trace.trained for trace in shipped.values())
        return Cohorts(one or first.parent, [Source(path) for path in files], shipped, known)
    sources = [Source(path, step_of(path)) for path in files]
    return Cohorts(one or _above(first), sources, {}, survivors=True)


def step_of(path: Path) -> int:
    """The step of the folder that a file is in; -1 where there is none."""
    named = (_STEP.fullmatch(folder.name) for folder in path.absolute().parents)
    return next((count(match[1]) for match in named if match), UNKNOWN)


def _above(file: Path) -> Path:
    """The folder of all steps, or that of the one step."""
    step = next((folder for folder in file.parents if _STEP.fullmatch(folder.name)), file.parent)
    return step.parent


def _of_steps(files: Sequence[Path]) -> Cohorts:
    """``all`` and ``effective`` of every step: what arrives in one may be trained in the next."""
    root = _above(files[0])
    trained = _in_order(root, "step_*/train/effective")
    sampled = _in_order(root, "step_*/train/all")
    if not trained:
        trained, sampled = list(files), _in_order(files[0].parent.parent, "all")
    sources = [Source(path, step_of(path)) for path in sampled]
    sources += [Source(path, step_of(path), again=bool(sampled)) for path in trained]
    steps = None if set(files) >= set(trained) else frozenset(map(step_of, files))
    told = (ones for path in trained for ones in rows_of(path, read_lines(path), _trained(path)))
    return Cohorts(
        root,
        sorted(sources, key=lambda source: (source.step, source.again)),
        dict(chain.from_iterable(told)),
        known=bool(sampled),
        survivors=not sampled,
        steps=steps,
    )


def _trained(path: Path) -> Callable[[dict[str, Any], int], list[tuple[tuple[int, str], Shipped]]]:
    """What each episode of an ``effective`` file says of its traces."""
    step = step_of(path)
    return lambda episode, at: [
        ((step, one.id), Shipped(step, _given(one.trace.get("info") or {}, credit(one.trace))))
        for one in traces(episode, at, step)
    ]


def _in_order(root: Path, below: str) -> list[Path]:
    found = root.glob(f"{below}/traces.jsonl*")
    return sorted(_plain_first(found), key=lambda path: (step_of(path), path))


def _plain_first(files: Iterable[Path]) -> list[Path]:
    """Files of lines, packed or not; of a file and its packed copy the plain one."""
    found = set(files)
    kept = {path for path in found if path.suffix in (".jsonl", *PACKED)}
    return sorted(path for path in kept if path.suffix == ".jsonl" or path.with_suffix("") not in found)


def _annotated(folder: Path) -> dict[tuple[int, str], Shipped]:
    """What annotations say of traces, the newest winning."""
    notes: dict[str, _Notes] = {}
    for path in _producers(folder):
        for at, update in read_lines(path):
            ((name, note),) = rows_of(path, [(at, update)], lambda record, _: _note(record))
            before = notes.get(name, _Notes())
            notes[name] = _Notes(*({**old, **new} for old, new in zip(before, note, strict=True)))
    return {(UNKNOWN, name): _shipped(note) for name, note in notes.items()}


class _Notes(NamedTuple):
    """Of a trace: what was said of it, and by branch the advantage, and whether every token was masked."""

    info: Mapping[str, Any] = MappingProxyType({})
    credits: Mapping[Any, float | None] = MappingProxyType({})
    masks: Mapping[Any, bool] = MappingProxyType({})


def _note(update: Mapping[str, Any]) -> tuple[str, _Notes]:
    branches = {branch.get("index"): branch for branch in update.get("branches") or ()}
    credits = {index: branch.get("advantages") for index, branch in branches.items()}
    masks = {index: _known(branch.get("is_masked")) for index, branch in branches.items()}
    note = _Notes(
        {**(update.get("info") or {}), **{key: update[key] for key in ("rewards",) if key in update}},
        {index: of_tokens(values) for index, values in credits.items() if values},
        {index: all(mask) for index, mask in masks.items() if mask},
    )
    # What cannot be read is told of this line, not of the trace.
    _shipped(note)
    return str(update["trace_id"]), note


def _given(info: Mapping[str, Any], known: float | None) -> float | None:
    """The advantage of what was trained: the writer has null for NaN, and no key where there is none."""
    return NAN if known is None and "advantage" in info else known


def _known(values: Iterable[Any] | None) -> list[Any]:
    return [value for value in values or () if value is not None]


def _shipped(note: _Notes) -> Shipped:
    logged = advantage(note.info.get("advantage"))
    given = _given(note.info, of_tokens(note.credits.values()) if logged is None else logged)
    step = count((note.info.get("ship") or {}).get("step"))
    trained = bool(note.info.get("effective")) or "ship" in note.info
    idle = bool(note.masks) and all(note.masks.values())
    return Shipped(step, given, idle, trained, note.info.get("rewards") or {})


def _producers(folder: Path) -> list[Path]:
    """The files of annotations: one or several numbered ones of each producer, packed or not, no index."""
    found = [path for pattern in ("*.jsonl*", "*/*.jsonl*") for path in folder.glob(pattern)]
    return _plain_first(path for path in found if ".index." not in path.name)
