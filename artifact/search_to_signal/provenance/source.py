"""The source of a result: a hash over the files that determine it, the checkout, and the locked packages."""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.errors import ConfigError, reason
from search_to_signal.package_data import INSTALLED, LOCK, PACKAGE, source_files
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.manifest import Source


def _git(*arguments: str) -> str | None:
    if INSTALLED:  # its environment may lie in the checkout of another project
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def source() -> Source:
    """Return the hash of the source files, with commit and state of the checkout where there is one."""
    digest = hashlib.sha256()
    for name, path in source_files().items():
        digest.update(f"{sha256_file(path)}  {name}\n".encode())
    status = _git("status", "--porcelain")
    return Source(
        sha256=digest.hexdigest(),
        commit=_git("rev-parse", "HEAD"),
        clean=None if status is None else status == "",
    )


def read_lock(path: Path = LOCK) -> dict[str, Any]:
    """Return the lock file as data; raises ConfigError where it cannot be read."""
    try:
        lock: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"cannot read {path}: {reason(error)}; restore it, or make it with uv lock"
        ) from error
    return lock
