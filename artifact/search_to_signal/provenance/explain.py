"""Says where a changed file differs: which bytes of which line, and what that record was."""

from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.errors import RunDirectoryError
from search_to_signal.provenance.blocks import BLOCKS, Blocks, Damage, locate, read_blocks

SHOWN = 5
# What names a record, in the order in which people say it.
_NAMES = ("run", "checkpoint", "step", "index", "prompt", "position", "operator", "id")


def _fields(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _named(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {fields[name]}" for name in _NAMES if fields.get(name) is not None)


def _record(lines: list[bytes], number: int) -> str:
    own = _named(_fields(lines[number - 1])) if number <= len(lines) else ""
    if own:
        return f": the record of {own}"
    before = _named(_fields(lines[number - 2])) if 2 <= number <= len(lines) + 1 else ""
    return f": no readable record, after that of {before}" if before else ": no readable record"


def _sentence(path: Path, damage: Damage) -> str:
    bytes_ = f"bytes {damage.first} to {damage.last}"
    if damage.line is None:
        return f"{bytes_} of the file"
    lines = path.read_bytes().split(b"\n")
    record = _record(lines, damage.line) if path.suffix == ".jsonl" else ""
    return f"line {damage.line}, {bytes_}{record}"


def _explained(recorded: Blocks, path: Path) -> list[str]:
    found = locate(recorded, path)
    if not found:
        return ["every block is as recorded: the checksum was changed, not the file"]
    size = path.stat().st_size
    sizes = [] if size == recorded.size else [f"{size} bytes where {recorded.size} were recorded"]
    more = [f"and {len(found) - SHOWN} more places"] if len(found) > SHOWN else []
    return [*sizes, *(_sentence(path, damage) for damage in found[:SHOWN]), *more]


def explanations(directory: Path, names: list[str]) -> dict[str, list[str]]:
    """For every changed file that the block index knows, where it differs; empty without a sound index."""
    try:
        index = read_blocks(directory)
    except RunDirectoryError as error:
        return {BLOCKS: [str(error)]}
    return {name: _explained(index[name], directory / name) for name in names if name in index}
