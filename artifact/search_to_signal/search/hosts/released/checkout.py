"""A checkout of the released host as importable modules.

It is opened through links that go, or as a copy in which what the host writes stays.
"""

import filecmp
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from search_to_signal.base.errors import ConfigError, HostError
from search_to_signal.base.package_data import PIN
from search_to_signal.base.progress import one_line

NVML = "pynvml"
# The extra of this package that brings what the released host imports.
BRINGS = {NVML: "gpu", "unsloth": "gpu", "vllm": "gpu", "bitsandbytes": "gpu", "ray": "cluster"}

NAMES = {"tsp": "tsp", "obp": "obp", "cvrp": "cvrp_aco", "op": "op_aco"}
"""The released host's names of our problems."""
_OWN = {"seed_algo_fp": "seed.py", "template_fp": "template.py"}

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_QUIET_WORKERS = "RAY_LOG_TO_DRIVER"
_NEEDED = ("calm_trainer.py", "heuristic.py", "args.py", "problems", "configs")
_LARGE = 1 << 26
_LEFT_OUT = shutil.ignore_patterns(".git", "__pycache__")


@dataclass(frozen=True)
class ReleasedCheckout:
    """An open checkout; ``path`` is where it really lies."""

    path: Path

    def module(self, name: str) -> ModuleType:
        """One of its modules; raises HostError when it, or what it needs, cannot be imported."""
        try:
            return importlib.import_module(name)
        except Exception as error:  # code of others: whatever stops it is what we report
            what = f"{type(error).__name__}: {one_line(str(error))}"
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            what_to_do = remedy(missing) if missing else "it may need a GPU, or another version of a package"
            raise HostError(
                f"{name.replace('.', '/')}.py does not import here ({what}): {what_to_do}"
            ) from error

    def configured(self, problem: str, name: str) -> str:
        """The text of a file of the released configuration of one of our problems: seed.py, template.py."""
        path = self.path / "configs" / NAMES[problem] / name
        if not path.is_file():
            raise HostError(f"{path} is missing: give a whole checkout, or leave out the problem {problem}")
        return path.read_text(encoding="utf-8")

    def named(self, problem: str, options: Any, option: str) -> str:
        """The text of the file that an option names; an empty path is the problem's own."""
        given = getattr(options, option)
        if not given:
            return self.configured(problem, _OWN[option])
        path = self.path / str(given)
        if not path.is_file():
            raise HostError(
                f"configs/{NAMES[problem]}/local.yaml: {option} names {given}, which is not there"
            )
        return path.read_text(encoding="utf-8")

    def options(self, problem: str) -> Any:
        """The released options of one of our problems."""
        path = self.path / "configs" / NAMES[problem] / "local.yaml"
        return self.module("args").Args.from_yaml(str(path))


def remedy(module: str) -> str:
    """What to do where a module of this name is missing."""
    package = module.partition(".")[0]
    if package in BRINGS:
        return f"uv sync --extra {BRINGS[package]}"
    return f"install {package} here, or give a whole checkout where it is a file of the host's"


@contextmanager
def opened(path: Path, place: Path | None = None) -> Iterator[ReleasedCheckout]:
    """Make a checkout importable and its files readable by relative path, without writing into it.

    The working directory is a temporary one with links to what the checkout holds, or ``place``, a copy of
    it in which what the host writes stays. The host takes its own ``main.py`` for the main module, whose
    place it derives its directories from. Afterwards directory, search path, modules and environment are as
    before.
    Raises HostError when the path is no such checkout.
    """
    path = path.resolve()
    missing = [name for name in _NEEDED if not (path / name).exists()]
    if missing:
        raise HostError(f"{path} is no CALM checkout: it lacks {', '.join(missing)}")
    own = {entry.stem for entry in path.iterdir()}
    made = linked(path) if place is None else copied(path, place)
    with made as directory, _imported_from(directory, own), _contained_children():
        yield ReleasedCheckout(path if place is None else directory)


@contextmanager
def _imported_from(directory: Path, own: set[str]) -> Iterator[None]:
    """Within it modules of these names come from the directory, which is the working directory as well."""
    before, search, modules = Path.cwd(), list(sys.path), dict(sys.modules)
    wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    main = vars(sys.modules["__main__"])
    file = main.get("__file__")
    for name in [name for name in sys.modules if name.split(".")[0] in own]:
        del sys.modules[name]
    sys.path.insert(0, str(directory))
    os.chdir(directory)
    main["__file__"] = str(directory / "main.py")
    try:
        yield
    finally:
        main["__file__"] = file
        os.chdir(before)
        sys.path[:], sys.dont_write_bytecode = search, wrote
        for name in [name for name in sys.modules if name.split(".")[0] in own]:
            del sys.modules[name]
        sys.modules.update({name: modules[name] for name in modules if name.split(".")[0] in own})


@contextmanager
def _contained_children() -> Iterator[None]:
    """Let child processes write no bytecode into the checkout, and end a Ray session that begins meanwhile.

    Workers of Ray import from the directory that goes away with the checkout; what they print stays in Ray's
    own logs. The host sets variables of the environment for its own children, such as the one graphics card
    that it takes: they go with it.
    """
    before, environment = sys.modules.get("ray"), dict(os.environ)
    os.environ |= {_NO_BYTECODE: "1", _QUIET_WORKERS: "0"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        ray = sys.modules.get("ray")
        if ray is not None and ray is not before and ray.is_initialized():
            ray.shutdown()


@contextmanager
def linked(path: Path) -> Iterator[Path]:
    """A temporary directory with links to what a checkout holds; it goes with everything written into it."""
    with tempfile.TemporaryDirectory(prefix="s2s-calm-") as directory:
        for entry in path.iterdir():
            (Path(directory) / entry.name).symlink_to(entry)
        yield Path(directory)


@contextmanager
def copied(path: Path, place: Path) -> Iterator[Path]:
    """A copy of a checkout without its history; afterwards what differs from the checkout stays there.

    A copy, because a host may find its directories through links, and would then write into the checkout.
    """
    shutil.copytree(path, place, ignore=_LEFT_OUT, copy_function=_copy, ignore_dangling_symlinks=True)
    for entry in (place, *place.rglob("*")):
        if entry.is_dir():
            entry.chmod(0o755)
    try:
        yield place
    finally:
        _remove_unchanged(path, place)


def _copy(original: str, copy: str) -> None:
    """Contents alone, as a checkout may be read-only; a link to what is large, such as weights."""
    if Path(original).stat().st_size > _LARGE:
        Path(copy).symlink_to(original)
    else:
        shutil.copyfile(original, copy)


def _remove_unchanged(path: Path, place: Path) -> None:
    inner_first = sorted(place.rglob("*"), reverse=True)
    for entry in (*inner_first, place):
        original = path / entry.relative_to(place)
        if entry.is_dir() and not entry.is_symlink():
            if not any(entry.iterdir()):
                entry.rmdir()
        elif entry.suffix == ".pyc" or (original.is_file() and _is_copy(original, entry)):
            entry.unlink()


def _is_copy(original: Path, entry: Path) -> bool:
    return entry.samefile(original) or filecmp.cmp(original, entry, shallow=False)


# Which revision of the released host a checkout is, read off its files.


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
        raise ConfigError(
            f"{path}: it has no valid table [words] of fingerprints ({one_line(str(error))})"
        ) from error


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
        raise HostError(f"{path} is the directory around the checkout: give {tree}")


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
