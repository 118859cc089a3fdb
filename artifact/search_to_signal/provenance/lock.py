"""What the lock pins: the packages that an installation on Linux x86_64 with CPython 3.10 needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli
from packaging.markers import Marker

from search_to_signal.errors import ConfigError, reason
from search_to_signal.package_data import LOCK

PROJECT = "search-to-signal"
# The image's platform; markers are judged for it on every machine, so that every machine says the same.
LINUX = {
    "implementation_name": "cpython",
    "implementation_version": "3.10.12",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_release": "",
    "platform_system": "Linux",
    "platform_version": "",
    "python_full_version": "3.10.12",
    "python_version": "3.10",
    "sys_platform": "linux",
}


@dataclass(frozen=True)
class Pinned:
    """One locked package; ``wheels`` maps file name to SHA-256."""

    name: str
    version: str
    wheels: Mapping[str, str]
    requires: tuple[str, ...]


def read_lock(path: Path = LOCK) -> dict[str, Any]:
    """The lock as data; raises ConfigError when it cannot be read."""
    try:
        return tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise ConfigError(
            f"cannot read {path}: {reason(error)}; restore it, or make it with uv lock"
        ) from error


def _applies(dependency: Mapping[str, Any]) -> bool:
    marker = dependency.get("marker")
    return marker is None or Marker(marker).evaluate(LINUX)


def _parts(dependency: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(dependency["name"], extra) for extra in ("", *dependency.get("extra", ()))]


def _listed(package: Mapping[str, Any], extra: str) -> list[tuple[str, str]]:
    optional = package.get("optional-dependencies", {})
    listed = optional.get(extra, ()) if extra else package.get("dependencies", ())
    return [part for dependency in listed if _applies(dependency) for part in _parts(dependency)]


def needed(lock: Mapping[str, Any], extras: Sequence[str] = ()) -> list[Pinned]:
    """Every package that the project with these extras installs on LINUX, by name; the project left out.

    Raises ConfigError for an extra that the project lacks, or a lock that holds a package twice.
    """
    packages = {package["name"]: package for package in lock["package"]}
    if len(packages) != len(lock["package"]):
        raise ConfigError("the lock holds a package in two versions: pin it to one in pyproject.toml")
    unknown = set(extras) - set(packages[PROJECT].get("optional-dependencies", {}))
    if unknown:
        raise ConfigError(f"the project has no extra {', '.join(sorted(unknown))}")
    todo = [(PROJECT, extra) for extra in ("", *extras)]
    seen: dict[str, set[str]] = {}
    while todo:
        name, extra = todo.pop()
        if extra not in seen.setdefault(name, set()):
            seen[name].add(extra)
            todo += _listed(packages[name], extra)
    return [_pinned(packages[name], seen) for name in sorted(seen) if name != PROJECT]


def direct(lock: Mapping[str, Any], extras: Sequence[str] = ()) -> list[str]:
    """Names of what the project itself asks for, sorted."""
    project = next(package for package in lock["package"] if package["name"] == PROJECT)
    return sorted({name for extra in ("", *extras) for name, _ in _listed(project, extra)})


def _pinned(package: Mapping[str, Any], seen: Mapping[str, set[str]]) -> Pinned:
    wheels = {
        w["url"].rsplit("/", 1)[1]: w["hash"].removeprefix("sha256:") for w in package.get("wheels", ())
    }
    parts = {part for extra in seen[package["name"]] for part in _listed(package, extra)}
    requires = tuple(sorted({name for name, _ in parts}))
    return Pinned(package["name"], package["version"], wheels, requires)
