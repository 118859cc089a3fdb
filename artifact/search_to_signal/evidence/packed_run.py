"""A packed run: a container with record lines in the compact encoding, and with all other files unchanged."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.errors import UNREADABLE, RunDirectoryError, reason
from search_to_signal.evidence import compact_encoding as compact
from search_to_signal.evidence.compact_encoding import Encode, Line
from search_to_signal.evidence.container import RECORDS, read_container, write_container, write_files
from search_to_signal.profiles.run_config import CONFIG
from search_to_signal.provenance.adapters import ADAPTER
from search_to_signal.provenance.checksums import SUMS, UNSHIPPED, read_sums
from search_to_signal.records.files import read_regular
from search_to_signal.records.manifest import MANIFEST, Manifest, RunFacts, read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS
from search_to_signal.verification.recompute.tokens import ModelTokenizer

OPEN = (MANIFEST, CONFIG, SUMS)
"""The files of a run that are packed openly, next to the container."""

_ENCODED = (GENERATIONS, COMPLETIONS, HEURISTICS, STEPS, TIMINGS)
_WHOLE = "whole:"
_IDS = ("prompt_ids", "completion_ids")
# Heuristics are admitted completions and those of the first archive, of which there are at most so many.
_FIRST_ARCHIVE = 10_000
# The least number of bytes of a short line.
_SHORTEST_LINE = 16
TEXTS = "generations-without-ids.jsonl"
"""Prompts and completions of a run as they are packed, where its token ids cannot be restored."""
NO_TOKENIZER = "the tokenizer of its model is not here with the recorded checksums"


class Tokenizer(NamedTuple):
    """A function from texts to token ids, and the tokens that end a completion, the usual one first."""

    encode: Encode
    ends: tuple[int, ...]


def tokenizer(tokens: ModelTokenizer | None) -> Tokenizer | None:
    """Return the parts of a model's tokenizer that the encoding needs."""
    if tokens is None:
        return None

    def encode(texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = tokens.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return ids

    return Tokenizer(encode, tuple(sorted(tokens.ends)))


def pack_run(run: Path, out: Path, tokens: Tokenizer | None, adapter: bool) -> None:
    """Write a complete run's container and copy its open files; ``adapter`` includes its final weights.

    Every file is restored before the container is written: one whose bytes differ is stored whole.
    """
    manifest = read_manifest(run)
    files = {name: read_regular(run / name) for name in _ENCODED if (run / name).is_file()}
    parts = _encoded_files(files, manifest, tokens)
    decoded = restored(parts, manifest.facts, tokens)
    parts = {name: data for name, data in parts.items() if decoded.get(name) == files[name]}
    parts |= {f"{_WHOLE}{name}": data for name, data in files.items() if name not in parts}
    others = sorted(path for path in run.rglob("*") if path.is_file())
    for path in others:
        name = path.relative_to(run).as_posix()
        known = name in (*files, *OPEN) or path.name == UNSHIPPED
        if not known and (adapter or name.split("/")[0] != ADAPTER):
            parts[f"{_WHOLE}{name}"] = read_regular(path)
    out.mkdir(parents=True, exist_ok=True)
    write_container(out / RECORDS, parts)
    for name in OPEN:
        if (run / name).is_file():
            (out / name).write_bytes(read_regular(run / name))


def _encoded_files(
    files: Mapping[str, bytes], manifest: Manifest, tokens: Tokenizer | None
) -> dict[str, bytes]:
    try:
        lines = {name: _decoded(data) for name, data in files.items()}
        generations = {line["step"]: line for line in lines[GENERATIONS]}
        completions = {(line["step"], line["index"]): line for line in lines[COMPLETIONS]}
        idea_end, size = manifest.facts.idea_end, manifest.facts.group_size
        context = compact.context_of(generations, lines[HEURISTICS], lines[STEPS], idea_end)
        credit = compact.credit_of(lines[COMPLETIONS], manifest.facts)
        encode, ends = tokens or (None, ())
        short: dict[str, Iterable[Line]] = {
            GENERATIONS: compact.short_generations(lines[GENERATIONS], encode, ends),
            COMPLETIONS: compact.short_completions(lines[COMPLETIONS], context, credit, size),
            HEURISTICS: compact.short_heuristics(lines[HEURISTICS], completions, generations, idea_end),
            STEPS: compact.short_steps(lines[STEPS], generations),
            TIMINGS: compact.short_timings(lines[TIMINGS]),
        }
        return {name: _encoded(short[name]) for name in files}
    except (KeyError, IndexError, TypeError, ValueError, *UNREADABLE):
        # Other hosts may write records of another form, which are stored whole.
        return {}


def _decoded(data: bytes, most: int | None = None) -> list[Line]:
    """Lines as objects; raises ValueError for more than ``most`` lines, before any is decoded."""
    if most is not None and data.count(b"\n") > min(most, _FIRST_ARCHIVE + len(data) // _SHORTEST_LINE):
        raise ValueError("it has more lines than its run has answers")
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in data.split(b"\n") if line]


def _encoded(lines: Iterable[Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def restored(
    parts: Mapping[str, bytes], facts: RunFacts, tokens: Tokenizer | None, with_tokens: bool = True
) -> dict[str, bytes]:
    """Return the files of a container, generations only ``with_tokens``, which takes most of the time.

    Raises RunDirectoryError where token ids are missing and there is no tokenizer; ValueError and the like
    for parts of another form.
    """
    files = {name.removeprefix(_WHOLE): data for name, data in parts.items() if name.startswith(_WHOLE)}
    most = _FIRST_ARCHIVE + facts.completions
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
        heuristics, steps = _lines(files, HEURISTICS, most), _lines(files, STEPS, most)
        context = compact.context_of(generations, heuristics, steps, facts.idea_end)
        lines = list(compact.whole_completions(source, context))
        files[COMPLETIONS] = _encoded(compact.with_credit(lines, compact.credit_of(lines, facts)))
    if GENERATIONS in short and with_tokens:
        files[GENERATIONS] = _encoded(_with_token_ids(short[GENERATIONS], tokens))
    return files


def _lines(files: Mapping[str, bytes], name: str, most: int) -> list[Line]:
    return _decoded(files.get(name, b""), most)


def _with_token_ids(lines: list[Line], tokens: Tokenizer | None) -> Iterable[Line]:
    if tokens is None:
        if any(name not in line for line in lines for name in _IDS):
            raise RunDirectoryError(f"{NO_TOKENIZER}, so its token ids cannot be restored: give --model DIR")
        return lines
    return compact.whole_generations(lines, *tokens)


def needs_tokenizer(packed: Path) -> bool:
    """Whether token ids were left out of a packed run; raises RunDirectoryError as ``read_container``."""
    lines = read_container(packed / RECORDS).get(GENERATIONS, b"").split(b"\n")
    return any(line and not all(f'"{name}":'.encode() in line for name in _IDS) for line in lines)


def write_texts(packed: Path, out: Path) -> None:
    """Write TEXTS of a packed run below ``out``; raises RunDirectoryError as ``read_container``."""
    path = packed / RECORDS
    write_files({TEXTS: read_container(path)[GENERATIONS]}, out, path)


def unpack_run(packed: Path, out: Path, tokens: Tokenizer | None, with_tokens: bool = True) -> None:
    """Write the files of a packed run below ``out``, generations only ``with_tokens``.

    Raises RunDirectoryError for a container that cannot be read, and for a file that differs from its
    recorded checksum.
    """
    manifest = read_manifest(packed)
    path = packed / RECORDS
    parts = read_container(path)
    try:
        files = restored(parts, manifest.facts, tokens, with_tokens)
    except (KeyError, IndexError, TypeError, ArithmeticError, ValueError, *UNREADABLE) as error:
        raise RunDirectoryError(f"cannot read {path} ({reason(error)}): restore the file") from error
    files |= {name: read_regular(packed / name) for name in OPEN if (packed / name).is_file()}
    for name, sha256 in read_sums(packed).items():
        if name in files and hashlib.sha256(files[name]).hexdigest() != sha256:
            raise RunDirectoryError(
                f"{path}: {name} comes back with other bytes than {SUMS} says: restore the file"
            )
    write_files(files, out, path)
