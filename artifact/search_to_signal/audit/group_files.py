"""Every group of a log: a row of ``groups.csv``, and files beside the page, which opens it from them.

A page on a disk may run a script beside it and read no other file. So each file is a script that hands over
data: an index of all groups, then their numbers and their texts in pieces, which the page loads as it needs
them.
"""

import csv
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from search_to_signal.audit.agreement import apply, step_batches
from search_to_signal.audit.atlas import get_entry, source_of
from search_to_signal.audit.flags import OF_GROUPS, GroupFlags
from search_to_signal.audit.frameworks import options_of
from search_to_signal.audit.groups import Floats, Integers, Names, RewardGroups
from search_to_signal.audit.importers.rollouts import shown_texts
from search_to_signal.base.errors import RecordError

# Groups that are written unless more are asked for: a million of them are no table to read.
MOST = 20_000
FLAGS = ("singleton", "unscored", "flat", "silenced", "dead", "merged", "reversed", "repeated", "amplified")
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_COLUMNS = ("number", "group", "prompt", "source", "step", "position", "size", "flags", "rewards", "logged")

# The directory of the scripts; groups of a piece of numbers, and characters of a piece of texts.
DIRECTORY = "groups"
_GROUPS, _CHARACTERS = 500, 1_000_000
_PIECE = re.compile(r"(index|[nt]\d+)\.js")
# Formulas that the page offers besides the log's own.
_PLAIN = ("dr_grpo", "rloo", "rank")
_OF_PAGE = {**OF_GROUPS, "masked": "groups with a completion that the trainer left out of the loss"}


def compared(name: str | None) -> tuple[str, ...]:
    """Entries whose advantages are written: the one that a log is compared with, and its alternatives."""
    known = name or "trl-grpo"
    return known, *options_of(source_of(get_entry(known)).framework).scales.values()


class GroupFiles:
    """Writes the scripts: numbers of groups as they are audited, then texts, then the index.

    Held in memory are the index, a piece, and 16 bytes for every completion.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._columns: dict[str, list[Any]] = defaultdict(list)
        self._prompts: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._under: tuple[str, ...] = ()
        self._held: list[dict[str, Any]] = []
        # By file, positions of completions and the numbers of their groups.
        self._places: dict[int, list[tuple[Integers, Integers]]] = defaultdict(list)
        self._pieces = 0

    def add(
        self,
        groups: RewardGroups,
        facts: GroupFlags,
        count: int,
        cells: Mapping[str, list[str]],
        under: Mapping[str, list[str]],
    ) -> None:
        """The first ``count`` groups of a batch, with cells of their rewards and advantages."""
        columns: dict[str, Sequence[Any]] = {
            **cells,
            "tokens": _cells(groups, np.where(groups.tokens >= 0, groups.tokens, np.nan), count, digits=12),
            "masked": _cells(groups, np.where(groups.masked, 1.0, np.nan), count),
            "taught": _cells(groups, np.where(facts.taught, 1.0, np.nan), count),
            "file": _cells(groups, self._note_places(groups, count).astype(np.float64), count, digits=12),
            "position": _cells(groups, groups.position.astype(np.float64), count, digits=16),
            "status": _names(groups, groups.status, count),
            "label": _names(groups, groups.label, count),
        }
        parts = {name: _cells(groups, values, count) for name, values in groups.components.items()}
        self._under = tuple(under)
        for at in range(count):
            one: dict[str, Any] = {name: column[at] for name, column in columns.items() if column}
            one["under"] = [column[at] for column in under.values()]
            one["parts"] = [(name, column[at]) for name, column in parts.items() if column[at]]
            self._held.append(one)
        self._add_to_index(groups, facts, count)
        while len(self._held) >= _GROUPS:
            self._write_numbers()

    def _note_places(self, groups: RewardGroups, count: int) -> Integers:
        """(R,): the number of the file of each row, whose place is kept: its text is read there."""
        names = (groups.source,) if groups.file is None else groups.file.names
        numbers = np.array([self._files.setdefault(name, len(self._files)) for name in names])
        files: Integers = numbers[0 * groups.group if groups.file is None else groups.file.code]
        here = files[: groups.offsets[count]]
        for file in np.unique(here).tolist():
            rows = np.flatnonzero(here == file)
            place = (groups.position[rows], groups.group[rows] + len(self._columns["step"]))
            self._places[file].append(place)
        return files

    def _add_to_index(self, groups: RewardGroups, facts: GroupFlags, count: int) -> None:
        starts = groups.offsets[:-1]
        masked = np.logical_or.reduceat(groups.masked, starts)
        given = np.array([*(facts.flags[name] for name in OF_GROUPS), masked])
        means = np.add.reduceat(groups.reward, starts) / groups.sizes
        prompts = groups.prompt[:count] or [""] * count
        index = self._columns
        index["step"] += [step if step >= 0 else "–" for step in groups.step[:count].tolist()]
        index["size"] += groups.sizes[:count].tolist()
        index["mean"] += [f"{mean:.4g}" for mean in means[:count].tolist()]
        index["marks"] += ((1 << np.arange(len(given))) @ given)[:count].tolist()
        index["name"] += groups.name[:count] or [""] * count
        index["prompt"] += [self._prompts.setdefault(prompt, len(self._prompts)) for prompt in prompts]

    def _write_numbers(self) -> None:
        self._write(f"n{self._pieces}", self._held[:_GROUPS])
        self._held = self._held[_GROUPS:]
        self._pieces += 1

    def finish(self, met: int) -> None:
        """Write what is held, the texts, for which the log is read again, and the index; ``met`` groups are
        in the log."""
        if self._held:
            self._write_numbers()
        rows, prompts, held = list[Any](), dict[str, int](), 0
        spans = list[tuple[int, int]]()

        def write_texts() -> None:
            owners = [row[0] for row in rows]
            self._write(f"t{len(spans)}", {"prompts": list(prompts), "rows": rows})
            spans.append((min(owners), max(owners)))

        for group, file, place, prompt, completions in self._texts():
            held += len(prompt) * (prompt not in prompts) + sum(map(len, completions))
            rows.append((group, file, place, prompts.setdefault(prompt, len(prompts)), completions))
            if held >= _CHARACTERS:
                write_texts()
                rows, prompts, held = [], {}, 0
        if rows:
            write_texts()
        index = {"met": met, "groups": _GROUPS, "flags": list(_OF_PAGE.items()), "under": self._under}
        texts = {"files": list(self._files), "prompts": list(self._prompts), "texts": spans}
        self._write("index", index | texts | self._columns)

    def _texts(self) -> Iterator[tuple[int, int, int, str, tuple[str, ...]]]:
        """Group, file, position, prompt and completions of the records that hold the groups."""
        for name, file in self._files.items():
            places, owners = map(np.concatenate, zip(*self._places[file], strict=True))
            places, first = np.unique(places, return_index=True)
            # A file without texts, or of another kind than lines and tables, has numbers only.
            with suppress(RecordError):
                for place, prompt, completions in shown_texts(Path(name)):
                    if place > places[-1]:
                        break
                    at = int(places.searchsorted(place))
                    if places[at] == place:
                        yield int(owners[first[at]]), file, place, prompt, completions

    def _write(self, name: str, data: object) -> None:
        # In ASCII no text of a log ends a line, and without < none ends a script.
        text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        (self._directory / f"{name}.js").write_text(f's2sPut("{name}",{text});\n', encoding="ascii")


class GroupTable:
    """Collects groups as they are audited; ``names`` are the entries whose advantages get a column each.

    Rewards and advantages of a group are in one cell, in order, with a space between. A last row without a
    number says how many groups were left out, of which ``most`` are written. The same goes to ``files``.
    """

    def __init__(self, names: Sequence[str], most: int = MOST, files: GroupFiles | None = None) -> None:
        self._names, self._most, self._files = tuple(names), most, files
        self._out = io.StringIO()
        self._rows = csv.writer(self._out, lineterminator="\n")
        self._rows.writerow([*_COLUMNS, *self._names])
        self._seen = self.met = 0

    def add(self, groups: RewardGroups, audited: Floats, facts: GroupFlags) -> None:
        """Write the groups of a batch, up to ``most`` of the log."""
        self.met += len(groups.step)
        count = min(len(groups.step), self._most - self._seen)
        if count <= 0:
            return
        batches = step_batches(groups)
        names = dict.fromkeys((*self._names, *(_PLAIN if self._files else ())))
        # Rewards of a tight group differ in late digits.
        rewards = _cells(groups, groups.reward, count, digits=12)
        logged = _cells(groups, groups.advantage, count)
        under = {name: _cells(groups, apply(get_entry(name), batches), count) for name in names}
        steps = groups.step[:count].tolist()
        columns = [
            range(self._seen + 1, self._seen + count + 1),
            [as_cell(name) for name in groups.name[:count]] or [""] * count,
            [as_cell(prompt) for prompt in groups.prompt[:count]] or [""] * count,
            (as_cell(groups.source_of(row)) for row in groups.offsets[:count].tolist()),
            [step if step >= 0 else "" for step in steps],
            groups.position[groups.offsets[:count]].tolist(),
            groups.sizes[:count].tolist(),
            _flags(facts, count),
            rewards,
            logged,
            *(under[name] for name in self._names),
        ]
        self._rows.writerows(zip(*columns, strict=False))
        if self._files is not None:
            self._files.add(groups, facts, count, {"reward": rewards, "logged": logged}, under)
        self._seen += count

    def data(self) -> bytes:
        """The table as CSV."""
        if self.met > self._seen:
            self._rows.writerow(["", f"{self.met - self._seen} more groups are not in this table"])
        return self._out.getvalue().encode("utf-8", "replace")


def as_cell(text: str) -> str:
    """A text of a log for a table that people open in a spreadsheet.

    One that begins like a formula and is no number gets an apostrophe before it. No NUL: csv refuses it.
    """
    clean = text.replace("\0", "?")
    formula = clean.startswith(tuple("=+-@\t\r")) and not _NUMBER.fullmatch(clean)
    return f"'{clean}" if formula else clean


def _flags(facts: GroupFlags, count: int) -> list[str]:
    """The names of the flags of each group; few different sets occur."""
    given = np.array([facts.flags[name][:count] for name in FLAGS])
    codes = (1 << np.arange(len(FLAGS))) @ given
    texts = {
        code: " ".join(name for bit, name in enumerate(FLAGS) if code >> bit & 1)
        for code in set(codes.tolist())
    }
    return [texts[code] for code in codes.tolist()]


def _cells(groups: RewardGroups, values: Floats, count: int, digits: int = 6) -> list[str]:
    sizes, rows = groups.sizes[:count].tolist(), int(groups.offsets[count])
    known = np.logical_or.reduceat(np.isfinite(values[:rows]), groups.offsets[:count]).tolist()
    if not any(known):
        return [""] * count
    # One text of all numbers takes half the time of a text for each.
    number = f"%.{digits}g"
    pattern = {size: " ".join([number] * size) for size in set(sizes)}
    texts = ("\n".join([pattern[size] for size in sizes]) % tuple(values[:rows].tolist())).split("\n")
    return [text if some else "" for text, some in zip(texts, known, strict=True)]


def _names(groups: RewardGroups, column: Names, count: int) -> list[list[str]]:
    """A list for each group; none where the column is empty."""
    if not any(column.names):
        return []
    codes = column.code.tolist()
    bounds = pairwise(groups.offsets[: count + 1].tolist())
    return [[column.names[code] for code in codes[first:end]] for first, end in bounds]


@contextmanager
def group_table(out: Path, names: Sequence[str], most: int) -> Iterator[GroupTable]:
    """A table with its files, which replace those of an earlier audit in ``out`` unless there is an error."""
    made = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(dir=out, prefix=f".{DIRECTORY}-") as place:
            table = GroupTable(names, most, files := GroupFiles(Path(place)))
            yield table
            files.finish(table.met)
            _replace(Path(place), out / DIRECTORY)
    except BaseException:
        with suppress(OSError):
            if made:
                out.rmdir()
        raise


def _replace(new: Path, directory: Path) -> None:
    """Move files into a directory, from which pieces of an earlier audit go, and nothing else."""
    directory.mkdir(exist_ok=True)
    names = {path.name for path in new.iterdir()}
    for name in names:
        os.replace(new / name, directory / name)
    for path in directory.iterdir():
        if path.name not in names and _PIECE.fullmatch(path.name):
            path.unlink()
