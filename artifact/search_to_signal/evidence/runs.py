"""One run as a container: its record lines in the compact encoding, every other file as it is."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.errors import UNREADABLE, RunDirectoryError, reason
from search_to_signal.evidence import compact_encoding as compact
from search_to_signal.evidence.compact_encoding import Encode, Line
from search_to_signal.evidence.container import read_container, write_container, write_files
from search_to_signal.profiles.run_config import CONFIG
from search_to_signal.provenance.adapters import ADAPTER
from search_to_signal.provenance.checksums import SUMS, read_sums
from search_to_signal.records.manifest import MANIFEST, Manifest, RunFacts, read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS
from search_to_signal.verification.recompute.tokens import ModelTokenizer

RECORDS = "records.xz"
OPEN = (MANIFEST, CONFIG, SUMS)
"""The files of a run that stay as they are, beside the container."""

_SHORT = (GENERATIONS, COMPLETIONS, HEURISTICS, STEPS, TIMINGS)
_WHOLE = "whole:"
# Heuristics are the answers that were admitted, and those that the archive began with.
_BEGINNING = 10_000
# Bytes of a short line at least.
_SHORTEST = 16
TOKENS = "the tokenizer of its model is not here with the recorded checksums"


class Tokenizer(NamedTuple):
    """Texts to token ids, and the tokens that end a completion, the first of them the usual one."""

    encode: Encode
    ends: tuple[int, ...]


def tokenizer(tokens: ModelTokenizer | None) -> Tokenizer | None:
    """What the encoding needs of a tokenizer."""
    if tokens is None:
        return None

    def encode(texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        found: list[list[int]] = tokens.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return found

    return Tokenizer(encode, tuple(sorted(tokens.ends)))


def pack_run(run: Path, out: Path, found: Tokenizer | None, adapter: bool) -> None:
    """Write a complete run's container, and copy what stays open; ``adapter``: with its final weights.

    Every file is brought back before it is written: one whose bytes would not come back is stored whole.
    """
    manifest = read_manifest(run)
    files = {name: (run / name).read_bytes() for name in _SHORT if (run / name).is_file()}
    parts = _shortened(files, manifest, found)
    again = restored(parts, manifest.facts, found)
    parts = {name: data for name, data in parts.items() if again.get(name) == files[name]}
    parts |= {f"{_WHOLE}{name}": data for name, data in files.items() if name not in parts}
    others = sorted(path for path in run.rglob("*") if path.is_file())
    for path in others:
        name = path.relative_to(run).as_posix()
        if name not in (*files, *OPEN) and (adapter or name.split("/")[0] != ADAPTER):
            parts[f"{_WHOLE}{name}"] = path.read_bytes()
    out.mkdir(parents=True, exist_ok=True)
    write_container(out / RECORDS, parts)
    for name in OPEN:
        if (run / name).is_file():
            (out / name).write_bytes((run / name).read_bytes())


def _shortened(files: Mapping[str, bytes], manifest: Manifest, found: Tokenizer | None) -> dict[str, bytes]:
    try:
        lines = {name: _decoded(data) for name, data in files.items()}
        generations = {line["step"]: line for line in lines[GENERATIONS]}
        completions = {(line["step"], line["index"]): line for line in lines[COMPLETIONS]}
        reading, size = manifest.facts.idea_end, manifest.facts.group_size
        context = compact.context_of(generations, lines[HEURISTICS], lines[STEPS], reading)
        credit = compact.credit_of(lines[COMPLETIONS], manifest.facts)
        encode, ends = found or (None, ())
        short: dict[str, Iterable[Line]] = {
            GENERATIONS: compact.short_generations(lines[GENERATIONS], encode, ends),
            COMPLETIONS: compact.short_completions(lines[COMPLETIONS], context, credit, size),
            HEURISTICS: compact.short_heuristics(lines[HEURISTICS], completions, generations, reading),
            STEPS: compact.short_steps(lines[STEPS], generations),
            TIMINGS: compact.short_timings(lines[TIMINGS]),
        }
        return {name: _encoded(short[name]) for name in files}
    except (KeyError, IndexError, TypeError, ValueError, *UNREADABLE):
        # Records of another form, as another host writes them.
        return {}


def _decoded(data: bytes, most: int | None = None) -> list[Line]:
    """Lines as objects; raises ValueError for more than ``most`` or shorter ones, before any is decoded."""
    if most is not None and data.count(b"\n") > min(most, _BEGINNING + len(data) // _SHORTEST):
        raise ValueError("it has more lines than its run has answers")
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in data.split(b"\n") if line]


def _encoded(lines: Iterable[Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def restored(
    parts: Mapping[str, bytes], facts: RunFacts, found: Tokenizer | None, tokens: bool = True
) -> dict[str, bytes]:
    """The files of a container; those with token ids only with ``tokens``, which takes most of the time.

    Raises RunDirectoryError where token ids are asked for and there is no tokenizer.
    """
    files = {name.removeprefix(_WHOLE): data for name, data in parts.items() if name.startswith(_WHOLE)}
    most = _BEGINNING + facts.groups * facts.group_size
    short = {name: _decoded(data, most) for name, data in parts.items() if not name.startswith(_WHOLE)}
    generations = {line["step"]: line for line in short.get(GENERATIONS, _lines(files, GENERATIONS, most))}
    source = short.get(COMPLETIONS, _lines(files, COMPLETIONS, most))
    source = compact.placed_completions(source, facts.group_size)
    completions = {(line["step"], line["index"]): line for line in source}
    if HEURISTICS in short:
        whole = compact.whole_heuristics(short[HEURISTICS], completions, generations, facts.idea_end)
        files[HEURISTICS] = _encoded(whole)
    if STEPS in short:
        files[STEPS] = _encoded(compact.whole_steps(short[STEPS], generations))
    if TIMINGS in short:
        files[TIMINGS] = _encoded(compact.whole_timings(short[TIMINGS]))
    if COMPLETIONS in short:
        told = _lines(files, HEURISTICS, most), _lines(files, STEPS, most)
        context = compact.context_of(generations, *told, facts.idea_end)
        lines = list(compact.whole_completions(source, context))
        files[COMPLETIONS] = _encoded(compact.with_credit(lines, compact.credit_of(lines, facts)))
    if GENERATIONS in short and tokens:
        files[GENERATIONS] = _encoded(_with_tokens(short[GENERATIONS], found))
    return files


def _lines(files: Mapping[str, bytes], name: str, most: int) -> list[Line]:
    return _decoded(files.get(name, b""), most)


def _with_tokens(lines: list[Line], found: Tokenizer | None) -> Iterable[Line]:
    if found is None:
        if any("prompt_ids" not in line or "completion_ids" not in line for line in lines):
            raise RunDirectoryError(f"{TOKENS}: its token ids cannot be restored")
        return lines
    return compact.whole_generations(lines, *found)


def unpack_run(packed: Path, out: Path, found: Tokenizer | None, tokens: bool = True) -> None:
    """Write the files of a packed run; raises RunDirectoryError for a container that cannot be read."""
    manifest = read_manifest(packed)
    path = packed / RECORDS
    parts = read_container(path)
    try:
        files = restored(parts, manifest.facts, found, tokens)
    except (KeyError, IndexError, TypeError, ArithmeticError, ValueError, *UNREADABLE) as error:
        raise RunDirectoryError(f"cannot read {path} ({reason(error)}): restore the file") from error
    files |= {name: (packed / name).read_bytes() for name in OPEN if (packed / name).is_file()}
    for name, sha256 in read_sums(packed).items():
        if name in files and hashlib.sha256(files[name]).hexdigest() != sha256:
            raise RunDirectoryError(
                f"{path}: {name} comes back with other bytes than {SUMS} says: restore the file"
            )
    write_files(files, out, path)
