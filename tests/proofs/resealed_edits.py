"""Edit single fields of a results directory, make every checksum again, and count what ``s2s verify`` finds.

    python -m tests.proofs.resealed_edits results/smoke                     # 1,000 edits, plain verify
    python -m tests.proofs.resealed_edits results/smoke --tables            # and what --tables finds

Files are drawn by kind and evenly within a kind, then a place in the file and a way to change it. An edit is
found, or it is of what unknowable.py lists, or it is missed. After an edit all lists of checksums
are rewritten, those of the runs first, and the block index with them.

To save time the checks of what an edit touched come first: those of its run, or the comparison of a file of
report or audit with what the untouched records give. Either is part of what the whole says. What they do not
find goes through the whole of verify, and what is not listed then through the whole of ``--tables``.
"""

import tests.proofs.fixed_kernels  # noqa: F401

# isort: split
import argparse
import json
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.figures import print_figure
from tests.proofs.unknowable import UNKNOWABLE, unknowable

from search_to_signal.base.errors import S2SError
from search_to_signal.layers.audit.layer import audit_results
from search_to_signal.layers.reproduction import write_report
from search_to_signal.records.checksums import (
    BLOCKS,
    DATA_SUMS,
    SUMS,
    image_sha256,
    listed_files,
    write_blocks,
    write_sums,
)
from search_to_signal.records.layers import AUDIT
from search_to_signal.records.manifest import REPORT, runs_below
from search_to_signal.run.texts import ParsedTexts
from search_to_signal.verify.directory import consistency_findings, verify
from search_to_signal.verify.tables import other_source, table_findings

Rng = np.random.Generator
Place = tuple[str | int, ...]


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every number, text, switch and null of a JSON value."""
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from leaves(part, (*place, key))
    elif isinstance(value, list) and value:
        for index, part in enumerate(value):
            yield from leaves(part, (*place, index))
    else:
        yield place


def drawn_leaf(value: Any, rng: Rng) -> Place:
    """A leaf, drawn by its field first: a list of a thousand tokens is one field."""
    by_field: dict[str, list[Place]] = defaultdict(list)
    for place in leaves(value):
        by_field[named(place)].append(place)
    field = sorted(by_field)[int(rng.integers(len(by_field)))]
    return by_field[field][int(rng.integers(len(by_field[field])))]


def named(place: Place) -> str:
    """A place as a dotted field."""
    return ".".join("*" if isinstance(part, int) else part for part in place)


def changed(value: Any, rng: Rng) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([-1, 1, 3]))
    if isinstance(value, float):
        return value * (1 + float(rng.choice([-0.01, 0.001, 0.05]))) if value else 0.5
    if isinstance(value, str):
        if not value:
            return "x"
        at = int(rng.integers(len(value)))
        return value[:at] + ("0" if value[at] != "0" else "1") + value[at + 1 :]
    return "x" if value is None else value


def put(value: Any, place: Place, rng: Rng) -> Any:
    """A JSON value with one leaf changed."""
    if not place:
        return changed(value, rng)
    value[place[0]] = put(value[place[0]], place[1:], rng)
    return value


def edit_json(path: Path, rng: Rng) -> str:
    """One field of a JSON file."""
    value = json.loads(path.read_bytes())
    place = drawn_leaf(value, rng)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(put(value, place, rng)), indent=2) + b"\n")
    return named(place)


def edit_lines(path: Path, rng: Rng) -> str:
    """One field of one record, or a line dropped, doubled or swapped with another."""
    lines = path.read_bytes().splitlines(keepends=True)
    at, way = int(rng.integers(len(lines))), int(rng.integers(10))
    if way == 0:
        lines[at : at + 1] = []
        path.write_bytes(b"".join(lines))
        return "a line dropped"
    if way == 1:
        lines[at : at + 1] = [lines[at]] * 2
        path.write_bytes(b"".join(lines))
        return "a line doubled"
    value = json.loads(lines[at])
    place = drawn_leaf(value, rng)
    lines[at] = msgspec.json.encode(put(value, place, rng)) + b"\n"
    path.write_bytes(b"".join(lines))
    return named(place)


def edit_text(path: Path, rng: Rng) -> str:
    """One digit or letter of a text."""
    text = path.read_text(encoding="utf-8")
    places = [i for i, letter in enumerate(text) if letter.isalnum()]
    at = places[int(rng.integers(len(places)))] if places else 0
    path.write_text(text[:at] + ("7" if text[at : at + 1] != "7" else "3") + text[at + 1 :], encoding="utf-8")
    return "a letter or digit"


def edit_bytes(path: Path, rng: Rng) -> str:
    """One byte of a binary file."""
    data = bytearray(path.read_bytes())
    data[int(rng.integers(len(data)))] ^= 1
    path.write_bytes(data)
    return "a byte"


def swap(path: Path, copy: Path, rng: Rng) -> str:
    """The contents of another file of the same name."""
    same = (p for p in listed_files(copy) if (p.suffix if p.suffix == ".png" else p.name) in path.name)
    others = [p for p in same if p.read_bytes() != path.read_bytes()]
    if not others:
        path.write_bytes(b"")
        return "emptied"
    path.write_bytes(others[int(rng.integers(len(others)))].read_bytes())
    return "swapped with another of its name"


EDITORS: dict[str, Callable[[Path, Rng], str]] = {".jsonl": edit_lines, ".json": edit_json}
TEXTS = (".csv", ".md", ".tex", ".html", ".log", ".sha256")


def edit(path: Path, copy: Path, rng: Rng) -> str:
    """Change a file somehow; returns what was changed."""
    if rng.random() < 0.05 or path.suffix == ".png":  # a damaged image gets no checksum
        return swap(path, copy, rng)
    if not path.stat().st_size:
        path.write_bytes(b"x")
        return "filled"
    return EDITORS.get(path.suffix, edit_text if path.suffix in TEXTS else edit_bytes)(path, rng)


def reseal(copy: Path, path: Path) -> None:
    """Make block index and checksum lists again, as whoever sealed the directory did."""
    for folder in path.parents:
        if folder != copy and folder.is_relative_to(copy) and (folder / SUMS).is_file():
            write_sums(folder)
    if path.name != BLOCKS and (copy / BLOCKS).is_file():
        write_blocks(copy)
    write_sums(copy)


def whole_problem(copy: Path, programs: bool, tables: bool) -> str | None:
    """The first that verify says against a directory; the slow part only where the quick one is silent."""
    try:
        if problems := verify(copy, programs=programs).problems:
            return problems[0]
        return next((finding.line for finding in table_findings(copy)), None) if tables else None
    except S2SError as error:
        return str(error)


def near_problem(copy: Path, name: Path, made: Path | None) -> bool:
    """Whether the checks of what a file belongs to find something, whatever the lists of checksums say."""
    for run in runs_below(copy):
        if (copy / name).is_relative_to(run):
            return any(True for _ in consistency_findings(run, ParsedTexts()))
    if made is None or not (made / name).is_file():
        return False
    digest = image_sha256 if name.suffix == ".png" else Path.read_bytes
    return digest(copy / name) != digest(made / name)


def made_again(copy: Path, out: Path) -> Path:
    """Report and audit of a sound directory, made from its records as ``--tables`` makes them."""
    write_report(copy, out / REPORT)
    if (copy / AUDIT).is_dir():
        audit_results(copy, out / AUDIT)
    return out


def kind(path: Path) -> str:
    """What a file is, whatever run or table it is of."""
    return path.name if path.suffix in (".jsonl", ".json", "") else path.suffix


def main() -> None:
    """Print every missed edit and the tally; exit 1 when one was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--edits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    rng, tally, missed = np.random.default_rng(arguments.seed), Counter[str](), Counter[str]()
    if arguments.tables and other_source(arguments.directory):
        raise SystemExit("made by another version of the source: its tables cannot be compared")
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "copy"
        shutil.copytree(arguments.directory, copy)
        told = whole_problem(copy, arguments.tables, arguments.tables)
        assert told is None, f"the directory must be sound before it is edited: {told}"
        made = made_again(copy, Path(temporary) / "made") if arguments.tables else None
        names = [path.relative_to(copy) for path in listed_files(copy)]
        kinds: dict[str, list[Path]] = defaultdict(list)
        for name in names:
            if name.name not in (SUMS, DATA_SUMS):
                kinds[kind(name)].append(name)
        for _ in range(arguments.edits):
            files = kinds[sorted(kinds)[int(rng.integers(len(kinds)))]]
            name = files[int(rng.integers(len(files)))]
            touched = {p: p.read_bytes() for p in lists_of(copy, name)}
            field = edit(copy / name, copy, rng)
            if (copy / name).read_bytes() == touched[copy / name]:
                continue
            known = unknowable(name.as_posix(), field)
            found = near_problem(copy, name, made)
            if not found:
                reseal(copy, copy / name)
                found = whole_problem(copy, arguments.tables, arguments.tables and not known) is not None
            verdict = "found" if found else "allowed" if known else "missed"
            tally[verdict] += 1
            if verdict == "missed":
                missed[f"{kind(name)}: {field} ({name.parts[0]})"] += 1
            for path, data in touched.items():
                path.write_bytes(data)
            if sum(tally.values()) % 20 == 0:
                print(dict(tally), dict(missed), flush=True)
    for what, count in sorted(missed.items()):
        print(f"missed {count}: {what}")
    print("what no check can know:")
    for entry in UNKNOWABLE:
        print(f"  {entry.files} {entry.fields}: {entry.settles}")
    counts = ", ".join(f"{tally[name]} {name}" for name in ("found", "allowed", "missed"))
    command = f"python -m tests.proofs.resealed_edits {arguments.directory}{' --tables' * arguments.tables}"
    print_figure("resealed_edits", command, f"{sum(tally.values())} resealed edits: {counts}")
    raise SystemExit(1 if tally["missed"] else 0)


def lists_of(copy: Path, name: Path) -> list[Path]:
    """A file and every list that speaks of it."""
    lists = [folder / one for folder in (copy / name).parents for one in (SUMS, DATA_SUMS)]
    own = [path for path in lists if path.is_relative_to(copy) and path.is_file()]
    return [copy / name, *own, *([copy / BLOCKS] if (copy / BLOCKS).is_file() else [])]


if __name__ == "__main__":
    main()
