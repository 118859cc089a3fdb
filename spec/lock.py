"""Which packages of uv.lock an installation on Linux x86_64 with CPython 3.10 needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.markers import Marker

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

    Raises ValueError for an extra that the project lacks, or a lock that holds a package twice.
    """
    packages = {package["name"]: package for package in lock["package"]}
    if len(packages) != len(lock["package"]):
        raise ValueError("the lock holds a package in two versions: pin it to one in pyproject.toml")
    unknown = set(extras) - set(packages[PROJECT].get("optional-dependencies", {}))
    if unknown:
        raise ValueError(f"the project has no extra {', '.join(sorted(unknown))}")
    todo = [(PROJECT, extra) for extra in ("", *extras)]
    seen: dict[str, set[str]] = {}
    while todo:
        name, extra = todo.pop()
        if extra not in seen.setdefault(name, set()):
            seen[name].add(extra)
            todo += _listed(packages[name], extra)
    return [_pinned(packages[name]) for name in sorted(seen) if name != PROJECT]


def _pinned(package: Mapping[str, Any]) -> Pinned:
    wheels = {
        w["url"].rsplit("/", 1)[1]: w["hash"].removeprefix("sha256:") for w in package.get("wheels", ())
    }
    return Pinned(package["name"], package["version"], wheels)
