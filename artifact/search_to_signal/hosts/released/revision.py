"""Which revision of the released host a checkout is, read off its files."""

from pathlib import Path

import msgspec

from search_to_signal.errors import ConfigError, HostError
from search_to_signal.package_data import PIN
from search_to_signal.progress import one_line


def pinned() -> str:
    """The revision that the paper pins, as it prints it: the first digits of a commit."""
    return str(msgspec.toml.decode(PIN.read_bytes())["revision"])


def known_words(path: Path | None = None) -> dict[str, str]:
    """Fingerprints of the words of prompts, by text: table ``words`` of a TOML file, by default the pin.

    Raises ConfigError where the file holds something else.
    """
    path = path or PIN
    try:
        return msgspec.convert(msgspec.toml.decode(path.read_bytes()).get("words", {}), dict[str, str])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ConfigError(f"{path}: no table words of fingerprints ({one_line(str(error))})") from error


def revision_of(path: Path) -> tuple[Path, str] | None:
    """The commit of a checkout and the file that says so; None where nothing says it.

    A clone has ``.git``; what ``artifact/calm/fetch.sh`` wrote has ``REVISION`` next to the tree.
    """
    marker = path.parent / "REVISION"
    head = _git_directory(path) / "HEAD"
    if head.is_file():
        return head, _commit(head)
    if marker.is_file():
        return marker, marker.read_text(encoding="utf-8").strip()
    return None


def require_checkout(path: Path) -> None:
    """Raise HostError for a path that is no directory, or the one that ``artifact/calm/fetch.sh`` made.

    That one holds the tree, its revision and checksums.
    """
    if not path.is_dir():
        raise HostError(f"there is no directory {path}: give that of a CALM checkout")
    tree = path / "source"
    if (tree / "args.py").is_file() and not (path / "args.py").is_file():
        raise HostError(f"{path} is what fetch.sh made: give {tree}, which holds the checkout")


def require_pinned(path: Path) -> None:
    """Raise HostError when a checkout says that it is another revision than the pinned one (D40)."""
    revision = revision_of(path)
    if revision is not None and not revision[1].startswith(pinned()):
        file, commit = revision
        raise HostError(
            f"{file}: the checkout is at {commit[:12] or 'no commit'}, the pinned revision is {pinned()}: "
            "check that one out, or give --any-revision"
        )


def _git_directory(path: Path) -> Path:
    git = path / ".git"
    if git.is_file():  # a work tree apart from its repository
        return path / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    return git


def _commit(head: Path) -> str:
    text = head.read_text(encoding="utf-8").strip()
    if not text.startswith("ref: "):
        return text
    name, shared = text.removeprefix("ref: "), head.parent / "commondir"
    common = head.parent / shared.read_text(encoding="utf-8").strip() if shared.is_file() else head.parent
    loose, packed = common / name, common / "packed-refs"
    if loose.is_file():
        return loose.read_text(encoding="utf-8").strip()
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")
