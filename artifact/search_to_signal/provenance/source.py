"""Which source made a result: a hash over the files that decide it, the checkout, the locked packages."""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import tomli

from search_to_signal.errors import ConfigError
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.manifest import Source

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "uv.lock"
_DECIDING = ("artifact/search_to_signal/**/*", "artifact/profiles/*.toml", "pyproject.toml", "uv.lock")


def _files() -> list[Path]:
    found = {path for pattern in _DECIDING for path in ROOT.glob(pattern)}
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def source() -> Source:
    """Hash the source bundle and ask git about the checkout."""
    digest = hashlib.sha256()
    for path in _files():
        digest.update(f"{sha256_file(path)}  {path.relative_to(ROOT)}\n".encode())
    status = _git("status", "--porcelain")
    return Source(
        sha256=digest.hexdigest(),
        commit=_git("rev-parse", "HEAD"),
        clean=None if status is None else status == "",
    )


def read_lock(path: Path = LOCK) -> dict[str, Any]:
    """The lock as data; raises ConfigError when it cannot be read."""
    try:
        return tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}; restore it, or make it with uv lock") from error
