"""Find an implementation by built-in name, entry point, or import path."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points

from search_to_signal.errors import ConfigError


def load(name_or_path: str, builtins: Mapping[str, object], group: str) -> object:
    """Return the object named by a built-in name, an entry point of ``group``, or ``pkg.mod:obj``.

    Raises ConfigError, naming what is known, when there is no such object.
    """
    if name_or_path in builtins:
        return builtins[name_or_path]
    registered = {point.name: point for point in entry_points(group=group)}
    if name_or_path in registered:
        return registered[name_or_path].load()
    if ":" in name_or_path:
        return _imported(name_or_path)
    known = ", ".join(sorted({*builtins, *registered}))
    raise ConfigError(f"unknown name {name_or_path!r}: use one of {known}, or an import path pkg.mod:obj")


def _imported(path: str) -> object:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"cannot load {path!r} ({error}): check that the module is on PYTHONPATH and defines that name"
        ) from error
