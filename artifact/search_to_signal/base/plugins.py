"""Find an implementation by built-in name, entry point, or import path."""

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from search_to_signal.base.errors import ConfigError, MappingError, S2SError

_OURS = Path(__file__).resolve().parents[1]

# The import paths that were loaded in this process: as global as the modules that they are of.
_ALLOWED: set[str] = set()


def part(folder: str, name: str) -> Any:
    """Return the module NAME of a folder of this package (``layers/probe``), None where there is none."""
    there = (_OURS / folder / f"{name}.py").is_file()
    return import_module(".".join((_OURS.name, *folder.split("/"), name))) if there else None


def load(name_or_path: str, builtins: Mapping[str, object], group: str) -> object:
    """Return the object named by a built-in name, an entry point of ``group``, or ``pkg.mod:obj``.

    An import path runs its module, so it must come from the user, never from a file that is checked.
    Raises ConfigError, naming what is known, when there is no such object.
    """
    return _registered(name_or_path, builtins, group, _imported)


def find(name_or_path: str, builtins: Mapping[str, object], group: str, option: str) -> object:
    """``load`` for a name out of a results directory: an import path counts only where it was loaded before.

    Raises ConfigError as ``load`` does, and for an import path that was not allowed with ``option``.
    """
    return _registered(name_or_path, builtins, group, partial(_loaded, option))


def _registered(
    name_or_path: str, builtins: Mapping[str, object], group: str, by_path: Callable[[str], object]
) -> object:
    if name_or_path in builtins:
        return builtins[name_or_path]
    # Importing it takes longer than most commands do.
    from importlib.metadata import entry_points

    points = entry_points(group=group)
    registered = {point.name: point for point in points}
    if name_or_path in registered:
        several = [point for point in points if point.name == name_or_path]
        if len({point.value for point in several}) > 1:
            packages = sorted({point.dist.name if point.dist else point.value for point in several})
            raise ConfigError(
                f"{name_or_path!r} is registered by {' and '.join(packages)}: uninstall one of them"
            )
        point = registered[name_or_path]
        named = f"{point.name!r}, registered as {point.value}"
        with _loading(point.module, named, "the package is complete"):
            return point.load()
    if ":" in name_or_path:
        return by_path(name_or_path)
    known = ", ".join(sorted({*builtins, *registered}))
    raise ConfigError(f"unknown name {name_or_path!r}: use one of {known}, or an import path pkg.mod:obj")


def _imported(path: str) -> object:
    module, _, attribute = path.partition(":")
    with _loading(module, repr(path), "the module is on PYTHONPATH"), _working_directory_searched():
        plugin: object = getattr(import_module(module), attribute)
    _ALLOWED.add(path)
    return plugin


@contextmanager
def _loading(module: str, what: str, whole: str) -> Iterator[None]:
    """Context in which a module is imported: whatever that raises becomes one line, a ConfigError."""
    try:
        yield
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"cannot load {what} ({error}): check that {whole} and defines that name"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{module} cannot be loaded ({type(error).__name__}: {error}): fix it") from error


def _loaded(option: str, path: str) -> object:
    module, _, attribute = path.partition(":")
    # A module of the standard library is loaded already, which does not show that it was meant to be loaded.
    names = vars(sys.modules[module]) if path in _ALLOWED and module in sys.modules else {}
    if attribute not in names:
        raise ConfigError(
            f"{path!r} is third-party code, which runs only on request: read it, then allow it with "
            f"{option} {path}"
        )
    return names[attribute]


@contextmanager
def third_party_errors(
    what: str, built_in: bool = False, passing: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Context in which third-party code may run: whatever it raises becomes one line, a MappingError.

    Errors of this package and those of ``passing`` pass; for ``built_in`` code all do.
    """
    try:
        yield
    except S2SError:
        raise
    except (Exception, SystemExit) as error:
        # The boundary to third-party code.
        if built_in or isinstance(error, passing):
            raise
        place = _last_own_line(error)
        raise MappingError(f"{what} raised {type(error).__name__}: {error} ({place}); fix it") from error


def _last_own_line(error: BaseException) -> str:
    """File and line where an error came up: the last of somebody's own file, which no library's is."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame, Path(frame.filename)) for frame in frames]
    own = [frame for frame, path in places if _OURS not in path.parents and "site-packages" not in path.parts]
    last = (own or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


@contextmanager
def _working_directory_searched() -> Iterator[None]:
    # What one writes lies where one works. It is searched last, and only for what was asked for: a file there
    # that has the name of an optional module must not run by itself.
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)
