"""Damage is told by file, line, bytes and record; PNGs by what they show."""

import hashlib
import json
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin
from tests.command import Make, Patch

from search_to_signal.records.checksums import (
    BLOCK_BYTES,
    BLOCKS,
    CRATE,
    DATA_SUMS,
    SUMS,
    Damage,
    blocks_of,
    explain_changes,
    image_sha256,
    locate,
    read_sums,
    seal,
    sum_problems,
    write_sums,
)
from search_to_signal.verify.directory import verify


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A record file of five lines, 150 bytes or more each."""
    path = tmp_path / "completions.jsonl"
    lines = [json.dumps({"step": step, "index": 1, "text": "x" * 150}) for step in range(5)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_damage_is_placed_in_its_block_and_line(file: Path, tmp_path: Path) -> None:
    before = blocks_of(tmp_path, file)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:100] + b"y" + lines[3][101:]
    file.write_bytes(b"".join(lines))
    assert locate(before, file) == [Damage(4, BLOCK_BYTES, 2 * BLOCK_BYTES - 1)]
    before = blocks_of(tmp_path, file)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert [damage.line for damage in locate(before, file)] == [3]
    file.write_bytes(b"".join([*lines[:2], b"{}\n", *lines[2:]]))
    assert locate(before, file) == [Damage(3, 0, 2)]


def sealed(make_run: Make, tmp_path: Path) -> Path:
    """A sealed results directory with one run and one picture."""
    make_run(tmp_path / "out" / "cohort" / "native-s1", "native", 1)
    (tmp_path / "out" / "report").mkdir()
    Image.new("RGB", (4, 3), (10, 20, 30)).save(tmp_path / "out" / "report" / "figure.png")
    seal(tmp_path / "out", "a title")
    return tmp_path / "out"


def test_a_sealed_directory_is_sound_until_a_byte_changes(make_run: Make, tmp_path: Path) -> None:
    out = sealed(make_run, tmp_path)
    assert verify(out).problems == ()
    assert {CRATE, BLOCKS, DATA_SUMS} <= set(read_sums(out))
    graph = {part["@id"]: part for part in json.loads((out / CRATE).read_bytes())["@graph"]}
    assert graph["./"]["name"] == "a title"
    assert {"@id": "report/figure.png"} in graph["./"]["hasPart"]
    assert all(part["@id"] in graph for part in graph["./"]["hasPart"] + graph["./"]["mentions"])
    path = out / "cohort" / "native-s1" / "completions.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    fields = json.loads(lines[1])
    lines[1] = lines[1].replace(b'"detail":"', b'"detail":"!', 1)
    path.write_bytes(b"".join(lines))
    (told,) = explain_changes(out, ["cohort/native-s1/completions.jsonl"]).values()
    assert told[0].endswith("were recorded")
    assert "line 2, bytes " in told[1]
    assert f"the record of step {fields['step']}, index {fields['index']}" in told[1]
    assert any("line 2, bytes " in problem for problem in verify(out).problems)
    out = sealed(make_run, tmp_path / "2")
    sums = out / SUMS
    line = next(line for line in sums.read_text().splitlines() if line.endswith("completions.jsonl"))
    sums.write_text(sums.read_text().replace(line, "0" * 64 + line[64:]))
    (told,) = verify(out).problems
    assert "the checksum that changed" in told


def test_what_is_damaged_within_lists_hides_nothing(make_run: Make, tmp_path: Path) -> None:
    out = sealed(make_run, tmp_path)
    (out / BLOCKS).write_bytes(b"{")
    (out / CRATE).write_bytes(b"{}")
    problems = verify(out).problems
    assert any(problem.startswith(f"{CRATE}: bytes differ") for problem in problems)
    assert any(problem.startswith(f"{BLOCKS}: bytes differ") for problem in problems)
    out = sealed(make_run, tmp_path / "1")
    for name in ("completions.jsonl", "manifest.json"):
        path = out / "cohort" / "native-s1" / name
        path.write_bytes(path.read_bytes().replace(b'"', b'"\xb7', 1))
    (out / BLOCKS).write_bytes(b'{"path":"\xb7"}')
    problems = verify(out).problems
    assert all(any(name in text for text in problems) for name in ("completions", "manifest", BLOCKS))


def test_pictures_are_compared_by_what_they_show(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    image = Image.new("RGB", (40, 30), (1, 2, 3))
    notes = PngImagePlugin.PngInfo()
    notes.add_text("note", "words")
    image.save(path, compress_level=9, pnginfo=notes)
    write_sums(tmp_path)
    small = path.read_bytes()
    image.save(path, compress_level=0)
    assert path.read_bytes() != small
    assert sum_problems(tmp_path) == {}
    image.putpixel((5, 5), (1, 2, 4))
    image.save(path)
    assert list(sum_problems(tmp_path)) == ["a.png"]
    place = small.index(b"words")
    for damaged in (small[:-3], small + b"\0", small[:place] + b"v" + small[place + 1 :]):
        path.write_bytes(damaged)
        assert image_sha256(path) is None


def test_a_flipped_line_end_in_the_list_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    write_sums(tmp_path)
    text = (tmp_path / SUMS).read_bytes()
    (tmp_path / SUMS).write_bytes(text.replace(b"\n", b"\x0b", 1))
    assert sum_problems(tmp_path) != {}


@pytest.mark.parametrize("bytes_of_rows", [1 << 16, (1 << 18) + 1])
def test_rows_that_unpack_to_many_pieces_are_hashed_whole(
    tmp_path: Path, bytes_of_rows: int, monkeypatch: Patch
) -> None:
    header, rows = b"IHDR" + bytes(13), bytes(bytes_of_rows)
    chunks = (header, b"IDAT" + zlib.compress(rows), b"IEND")
    body = b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    assert image_sha256(tmp_path / "a.png") == hashlib.sha256(header + rows).hexdigest()
    monkeypatch.setattr("search_to_signal.records.checksums._MOST", bytes_of_rows - 1)
    assert image_sha256(tmp_path / "a.png") is None
