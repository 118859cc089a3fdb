"""Every group of a log: a row of ``groups.csv``, and files beside the page, which opens it from them.

A page on a disk may run a script beside it and read no other file. So each file is a script that hands over
data: an index of all groups, then their numbers and their texts in pieces, which the page loads as it needs
them.
"""

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.audit.agreement import apply, step_batches
from search_to_signal.audit.atlas import get_entry, source_of
from search_to_signal.audit.flags import OF_GROUPS, GroupFlags
from search_to_signal.audit.frameworks import options_of
from search_to_signal.audit.groups import Floats, Integers, Names, RewardGroups
from search_to_signal.audit.importers.rollouts import shown_texts
from search_to_signal.base.errors import RecordError

FLAGS = ("singleton", "unscored", "flat", "silenced", "dead", "merged", "reversed", "repeated", "amplified")
_MARKS = re.compile(r'[",\r\n]')
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_COLUMNS = ("number", "group", "prompt", "source", "step", "position", "size", "flags", "rewards", "logged")

# The directory of the scripts; groups of a piece of numbers, and characters of a piece of texts.
DIRECTORY = "groups"
_GROUPS, _CHARACTERS = 500, 1_000_000
_PIECE = re.compile(r"([nt])(\d+)\.js")
# Kind and name of a column, and a cell for each group.
Key = tuple[str, str]
Column = Sequence[str | list[str]]
_OF_PAGE = {**OF_GROUPS, "masked": "groups with a completion that the trainer left out of the loss"}


def compared(name: str | None) -> tuple[str, ...]:
    """Entries whose advantages are written: the one that a log is compared with, and its alternatives."""
    known = name or "trl-grpo"
    return known, *options_of(source_of(get_entry(known)).framework).scales.values()


class GroupFiles:
    """The scripts of a page: numbers of groups as they are audited, then texts, then an index of all.

    Texts are read again, and never held; the rest is held until it is written.
    """

    def __init__(self) -> None:
        self._index: dict[str, list[Any]] = defaultdict(list)
        self._prompts: dict[str, int] = {}
        self._files: dict[str, int] = {}
        # By kind and name, a cell for each group since the last piece.
        self._cells: dict[Key, list[Any]] = defaultdict(list)
        self._numbers: list[bytes] = []
        # By file, (3, R): position, group and place in the group of completions.
        self._places: dict[int, list[Integers]] = defaultdict(list)

    def add(self, groups: RewardGroups, facts: GroupFlags, count: int, cells: Mapping[Key, Column]) -> None:
        """The first ``count`` groups of a batch, with cells of their rewards and advantages."""
        tokens = np.where(groups.tokens >= 0, groups.tokens, np.nan)
        columns: dict[Key, Column] = {
            **cells,
            **{("part", name): _cells(groups, values, count) for name, values in groups.components.items()},
            ("tokens", ""): _cells(groups, tokens, count, digits=12),
            ("masked", ""): _cells(groups, np.where(groups.masked, 1.0, np.nan), count),
            ("taught", ""): _cells(groups, np.where(facts.taught, 1.0, np.nan), count),
            ("ended", ""): _names(groups, groups.status),
            ("class", ""): _names(groups, groups.label),
        }
        before = len(self._index["step"]) - len(self._numbers) * _GROUPS
        for key, column in columns.items():
            held = self._cells[key]
            # Not every batch has every column.
            held += [""] * (before - len(held))
            held += column[:count]
        self._note_places(groups, int(groups.offsets[count]))
        for name, values in self._of_index(groups, facts, count).items():
            self._index[name] += values
        while len(self._index["step"]) >= (len(self._numbers) + 1) * _GROUPS:
            self._end_piece()

    def _note_places(self, groups: RewardGroups, rows: int) -> None:
        """Where the texts of the first rows are going to be read."""
        names = (groups.source,) if groups.file is None else groups.file.names
        numbers = np.array([self._files.setdefault(name, len(self._files)) for name in names])
        codes = np.zeros_like(groups.group) if groups.file is None else groups.file.code
        files = numbers[codes[:rows]]
        for file in np.unique(files).tolist():
            here = np.flatnonzero(files == file)
            group = groups.group[here]
            places = (groups.position[here], group + len(self._index["step"]), here - groups.offsets[group])
            self._places[file].append(np.array(places))

    def _of_index(self, groups: RewardGroups, facts: GroupFlags, count: int) -> dict[str, Sequence[Any]]:
        """What is told of each of the first ``count`` groups where it is listed."""
        starts, sizes, rows = groups.offsets[:count], groups.sizes[:count], int(groups.offsets[count])
        masked = np.logical_or.reduceat(groups.masked[:rows], starts)
        flags = [*(facts.flags[name][:count] for name in OF_GROUPS), masked]
        means = np.add.reduceat(groups.reward[:rows], starts) / sizes
        prompts = groups.prompt[:count] or [""] * count
        return {
            "step": [step if step >= 0 else "–" for step in groups.step[:count].tolist()],
            "size": sizes.tolist(),
            "mean": [f"{mean:.4g}" for mean in means.tolist()],
            "marks": ((1 << np.arange(len(flags))) @ np.array(flags)).tolist(),
            "name": groups.name[:count] or [""] * count,
            "prompt": [self._prompts.setdefault(prompt, len(self._prompts)) for prompt in prompts],
            "file": [self._files[name] for name in _sources(groups, count)],
            "position": groups.position[starts].tolist(),
        }

    def _end_piece(self) -> None:
        piece = [(*key, column[:_GROUPS]) for key, column in self._cells.items() if any(column[:_GROUPS])]
        self._numbers.append(_script(f"n{len(self._numbers)}", piece))
        self._cells = defaultdict(list, {key: column[_GROUPS:] for key, column in self._cells.items()})

    def write(self, directory: Path, met: int) -> None:
        """Write all into a directory, from which the pieces of an earlier audit go.

        ``met``: groups of the log, of which the first were added.
        """
        if len(self._index["step"]) > len(self._numbers) * _GROUPS:
            self._end_piece()
        directory.mkdir(exist_ok=True)
        spans: list[tuple[int, int]] = []
        for texts in self._pieces():
            groups = [group for group, *_ in texts["rows"]]
            (directory / f"t{len(spans)}.js").write_bytes(_script(f"t{len(spans)}", texts))
            spans.append((min(groups), max(groups)))
        for number, script in enumerate(self._numbers):
            (directory / f"n{number}.js").write_bytes(script)
        index = {"met": met, "groups": _GROUPS, "flags": list(_OF_PAGE.items()), "texts": spans}
        index |= {"files": list(self._files), "prompts": list(self._prompts)}
        (directory / "index.js").write_bytes(_script("index", {**index, **self._index}))
        for path in directory.iterdir():
            piece = _PIECE.fullmatch(path.name)
            if piece and int(piece[2]) >= (len(spans) if piece[1] == "t" else len(self._numbers)):
                path.unlink()

    def _pieces(self) -> Iterator[dict[str, Any]]:
        """Texts of about _CHARACTERS: rows of group, place in the group, number of the prompt, and text."""
        rows, prompts, held = list[Any](), dict[str, int](), 0
        for group, row, prompt, text in self._texts():
            held += len(prompt) * (prompt not in prompts) + len(text)
            rows.append((group, row, prompts.setdefault(prompt, len(prompts)), text))
            if held >= _CHARACTERS:
                yield {"prompts": list(prompts), "rows": rows}
                rows, prompts, held = [], {}, 0
        if rows:
            yield {"prompts": list(prompts), "rows": rows}

    def _texts(self) -> Iterator[tuple[int, int, str, str]]:
        """Group, place in the group, prompt and text of every completion that is found again."""
        names = list(self._files)
        for file, parts in self._places.items():
            known = np.concatenate(parts, axis=1)
            places, groups, rows = known[:, np.argsort(known[0], kind="stable")]
            # A file without texts, or of another kind than lines and tables, has numbers only.
            with suppress(RecordError):
                for place, prompt, completions in shown_texts(Path(names[file])):
                    if place > places[-1]:
                        break
                    first, end = places.searchsorted([place, place + 1]).tolist()
                    # A record of another number of completions does not say which were audited.
                    if end - first == len(completions):
                        for at, text in enumerate(completions, first):
                            yield int(groups[at]), int(rows[at]), prompt, text


def _script(name: str, data: object) -> bytes:
    # In ASCII no text of a log ends a line, and without < none ends a script.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f's2sPut("{name}",{text});\n'.encode("ascii")


class GroupTable:
    """Collects groups as they are audited; ``names`` are the entries whose advantages get a column each.

    Rewards and advantages of a group are in one cell, in order, with a space between. A last row without a
    number says how many groups were left out, of which ``most`` are written.
    """

    def __init__(self, names: Sequence[str], most: int) -> None:
        self._names, self._most, self._files = tuple(names), most, GroupFiles()
        self._out = io.StringIO()
        # Cells of numbers need no quotes: a writer of csv would look at each of their digits.
        self._out.write(f"{','.join([*_COLUMNS, *self._names])}\n")
        self._seen = self._met = 0

    def add(self, groups: RewardGroups, audited: Floats, facts: GroupFlags) -> None:
        """Write the groups of a batch, up to ``most`` of the log."""
        self._met += len(groups.step)
        count = min(len(groups.step), self._most - self._seen)
        if count <= 0:
            return
        batches = step_batches(groups)
        under = {name: apply(get_entry(name), batches) for name in self._names}
        cells: dict[Key, Column] = {
            # Rewards of a tight group differ in late digits.
            ("reward", ""): _cells(groups, groups.reward, count, digits=12),
            ("logged", ""): _cells(groups, groups.advantage, count),
            **{("under", name): _cells(groups, values, count) for name, values in under.items()},
        }
        columns = [
            map(str, range(self._seen + 1, self._seen + count + 1)),
            *(_quoted(texts[:count] or [""] * count) for texts in (groups.name, groups.prompt)),
            _quoted(_sources(groups, count)),
            [str(step) if step >= 0 else "" for step in groups.step[:count].tolist()],
            map(str, groups.position[groups.offsets[:count]].tolist()),
            map(str, groups.sizes[:count].tolist()),
            _flags(facts, count),
            *cells.values(),
        ]
        self._out.writelines(f"{','.join(row)}\n" for row in zip(*columns, strict=False))
        self._files.add(groups, facts, count, cells)
        self._seen += count

    def data(self) -> bytes:
        """The table as CSV."""
        if self._met > self._seen:
            self._out.write(f",{self._met - self._seen} more groups are not in this table\n")
        return self._out.getvalue().encode("utf-8", "replace")

    def write_files(self, out: Path) -> None:
        """Write the files from which the page in ``out`` opens the groups of the table."""
        self._files.write(out / DIRECTORY, self._met)


def as_cell(text: str) -> str:
    """A text of a log for a table that people open in a spreadsheet.

    One that begins like a formula and is no number gets an apostrophe before it. No NUL: csv refuses it.
    """
    clean = text.replace("\0", "?")
    formula = clean.startswith(tuple("=+-@\t\r")) and not _NUMBER.fullmatch(clean)
    return f"'{clean}" if formula else clean


def _quoted(texts: Sequence[str]) -> list[str]:
    """Texts of a log as cells of CSV."""
    cells = {text: as_cell(text) for text in set(texts)}
    for text, cell in cells.items():
        if _MARKS.search(cell):
            cells[text] = '"' + cell.replace('"', '""') + '"'
    return [cells[text] for text in texts]


def _sources(groups: RewardGroups, count: int) -> list[str]:
    """The file in which each of the first groups begins."""
    if groups.file is None:
        return [groups.source] * count
    names = groups.file.names
    return [names[code] for code in groups.file.code[groups.offsets[:count]].tolist()]


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
    sizes, shown = groups.sizes[:count].tolist(), values[: int(groups.offsets[count])]
    known = np.logical_or.reduceat(np.isfinite(shown), groups.offsets[:count]).tolist()
    if not any(known):
        return [""] * count
    # One text of all numbers takes half the time of a text for each.
    number = f"%.{digits}g"
    pattern = {size: " ".join([number] * size) for size in set(sizes)}
    texts = ("\n".join([pattern[size] for size in sizes]) % tuple(shown.tolist())).split("\n")
    return texts if all(known) else [text if some else "" for text, some in zip(texts, known, strict=True)]


def _names(groups: RewardGroups, column: Names) -> list[list[str]]:
    """A list for each group; none where the column is empty."""
    if not any(column.names):
        return []
    names = [column.names[code] for code in column.code.tolist()]
    return [names[first:end] for first, end in pairwise(groups.offsets.tolist())]
