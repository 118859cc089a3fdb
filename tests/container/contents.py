"""What is in an image: list it, check it, compare two of them. Reads the stream of ``docker export``.

docker export CONTAINER | python tests/container/contents.py list >LIST
python tests/container/contents.py check LIST [SECRET...]      files whose bytes must not be in the image
python tests/container/contents.py compare LIST LIST           of two builds

A line of a list is: mode, owner, kind, SHA-256 of a file or target of a link, path; sorted by path. Times are
left out: the engine gives every new directory the time of the build.
"""

import hashlib
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

WRITABLE = {"results", "tmp", "var/tmp", "run/lock", "dev/shm"}
FORBIDDEN = (
    (r"(^|/)\.git/", "history"),
    (r"(^|/)(\.netrc|\.pypirc|pip\.conf|uv\.toml|\.env[^/]*|id_(rsa|ed25519))$", "secret"),
    (r"^(root/\.cache|var/cache/apt|var/lib/apt/lists|var/log|tmp)/", "cache"),
    (r"(^|/)bin/uvx?$", "build tool"),
    (r"^run/(ca\.pem|secrets/.*)$", "secret"),
    (r"(^|/)\.(hypothesis|pytest_cache|mypy_cache|ruff_cache)/", "cache"),
    (r"^etc/apt/sources\.list\.d/.", "live package list"),
)
# What two builds may differ in, and why.
EXPLAINED = (
    (r"^opt/search-to-signal/\.venv/.*\.pyc$", "marshal writes a reference mark where an object is shared"),
    (r"^opt/search-to-signal/\.venv/.*dist-info/uv_cache\.json$", "uv's time stamp of an editable install"),
    (r"^opt/search-to-signal/\.venv/.*dist-info/RECORD$", "lists the hash of that time stamp"),
)


class Entry(NamedTuple):
    """One path of an image; ``content`` is a file's SHA-256 or a link's target."""

    mode: str
    owner: str
    kind: str
    content: str
    path: str


def entries(stream: IO[bytes]) -> Iterator[Entry]:
    """Every path of a tar stream."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for item in archive:
            kind, content = "other", "-"
            if item.isreg():
                data = archive.extractfile(item)
                assert data is not None
                kind, content = "file", hash_of(data)
            elif item.isdir():
                kind = "directory"
            elif item.issym() or item.islnk():
                kind, content = "link", item.linkname.replace(" ", "%20")
            path, owner = item.name.removeprefix("./"), f"{item.uid}:{item.gid}"
            yield Entry(f"{item.mode & 0o7777:04o}", owner, kind, content, path)


def hash_of(data: IO[bytes]) -> str:
    """SHA-256 of an open file, read in pieces."""
    digest = hashlib.sha256()
    while piece := data.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def read(path: str) -> list[Entry]:
    """A list that was written before."""
    return [Entry(*line.split(" ", 4)) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def complaints(listed: list[Entry], secrets: Iterable[str]) -> Iterator[str]:
    """What should not be as it is in an image."""
    hidden = {hashlib.sha256(Path(secret).read_bytes()).hexdigest() for secret in secrets}
    for entry in listed:
        mode = int(entry.mode, 8)
        if entry.kind in ("file", "directory") and mode & 0o002 and entry.path not in WRITABLE:
            yield f"{entry.path} can be written by all"
        if entry.path.startswith("opt/") and (
            entry.owner != "0:0" or (mode & 0o022 and entry.kind != "link")
        ):
            yield f"{entry.path} is not root's alone to write: {entry.mode} {entry.owner}"
        if entry.content in hidden:
            yield f"{entry.path} holds a secret of the build"
        if entry.kind != "directory":
            yield from (f"{entry.path}: {what}" for rule, what in FORBIDDEN if re.search(rule, entry.path))


def check(listed: list[Entry], secrets: list[str]) -> int:
    """Print what is wrong with an image; returns the exit status."""
    found = list(complaints(listed, secrets))
    for line in found[:50]:
        print(f"! {line}")
    print(f"contents: {len(listed)} paths, {len(found)} complaints")
    return 1 if found else 0


def compare(first: list[Entry], second: list[Entry]) -> int:
    """Print where two builds differ; unexplained differences make the exit status 1."""
    one, two = ({entry.path: entry for entry in listed} for listed in (first, second))
    different = sorted(path for path in one.keys() | two.keys() if one.get(path) != two.get(path))
    reasons: Counter[str] = Counter()
    for path in different:
        reason = next((why for rule, why in EXPLAINED if re.search(rule, path)), "")
        reasons[reason] += 1
        if not reason:
            print(f"! {path}: {one.get(path)} {two.get(path)}")
    for reason, count in sorted(reasons.items()):
        print(f"  {count} paths: {reason or 'UNEXPLAINED'}")
    print(f"two builds: {len(one)} paths, {len(one.keys() & two.keys()) - len(different)} identical")
    return 1 if reasons[""] else 0


def main() -> int:
    """Do what the command line says."""
    verb, *rest = sys.argv[1:]
    if verb == "check":
        return check(read(rest[0]), rest[1:])
    if verb == "compare":
        return compare(read(rest[0]), read(rest[1]))
    for entry in sorted(entries(sys.stdin.buffer), key=lambda entry: entry.path):
        print(*entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
