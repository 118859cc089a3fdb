"""The command that lists the names for profiles and commands: mappings, problems, hosts and others."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from search_to_signal.base.errors import ConfigError
from search_to_signal.cli.options import Add
from search_to_signal.records.conditions import FROZEN

Row = tuple[str, str]


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def _described(builtins: Mapping[str, Any]) -> list[Row]:
    return [(name, _first_line(thing)) for name, thing in builtins.items()]


def _with_registered(built_in: list[Row], group: str) -> list[Row]:
    """The built-in names, then the entry points of the group that installed packages register."""
    from importlib.metadata import entry_points

    names = {name for name, _ in built_in}
    points = [
        (
            point.name,
            f"{point.value}, hidden by a built-in of this name" if point.name in names else point.value,
        )
        for point in entry_points(group=group)
    ]
    return [*built_in, *points]


def _profiles() -> list[Row]:
    from search_to_signal.base.package_data import PROFILES

    def comment(path: Path) -> str:
        return path.read_text(encoding="utf-8").lstrip("# ").partition("\n")[0].partition(". ")[0]

    return [(path.stem, comment(path)) for path in sorted(PROFILES.glob("*.toml"))]


def _mappings() -> list[Row]:
    from search_to_signal.credit import GROUP, MAPPINGS

    frozen = (FROZEN, "No mapping: the model is not trained.")
    return _with_registered([frozen, *_described(MAPPINGS)], GROUP)


def _alternatives() -> list[Row]:
    from search_to_signal.credit import READINGS

    return [
        (reading.mapping.name, f"{reading.chosen}, other reading of {reading.decision}")
        for reading in READINGS
    ]


def _normalizers() -> list[Row]:
    from search_to_signal.credit.normalizers import GROUP, NORMALIZERS

    return _with_registered(_described(NORMALIZERS), GROUP)


def _problems() -> list[Row]:
    from search_to_signal.problems import GROUP, PROBLEMS

    built_in = [(name, f"splits {', '.join(problem.splits)}") for name, problem in PROBLEMS.items()]
    return _with_registered(built_in, GROUP)


def _hosts() -> list[Row]:
    from search_to_signal.records.schema import HOSTS
    from search_to_signal.search.hosts import GROUP, REFERENCE, RELEASED

    built_in = [
        (REFERENCE, "Our search, run by s2s run."),
        *((host.key, host.summary) for host in HOSTS),
        (RELEASED, "A checkout of the released CALM, run by s2s released."),
    ]
    return _with_registered(built_in, GROUP)


def _rules() -> list[Row]:
    from search_to_signal.learner import GROUP, RULES

    return _with_registered([(name, _first_line(type(rule))) for name, rule in RULES.items()], GROUP)


def _layers() -> list[Row]:
    from search_to_signal.records.layers import LAYERS

    return [(layer.key, f"{layer.name}: {layer.claim}") for layer in LAYERS]


def _models() -> list[Row]:
    from search_to_signal.base.package_data import MODELS

    return [(path.name, str(path)) for path in sorted(MODELS.glob("*")) if path.is_dir()]


def _fetchable() -> list[Row]:
    from search_to_signal.models.files import KNOWN, PLACE

    def description(name: str) -> str:
        known = KNOWN[name]
        directory = f", in {PLACE}/{name}" if Path(PLACE, name).is_dir() else ""
        size = f", {known.size:,} bytes" if known.size else ""
        return f"{known.repository}, {known.licence}{size}{directory}"

    return [(name, description(name)) for name in KNOWN]


KINDS: dict[str, Callable[[], Iterable[Row]]] = {
    "profiles": _profiles,
    "layers": _layers,
    "mappings": _mappings,
    "alternatives": _alternatives,
    "normalizers": _normalizers,
    "problems": _problems,
    "hosts": _hosts,
    "rules": _rules,
    "models": _models,
    "fetchable": _fetchable,
}


def _list(arguments: argparse.Namespace) -> None:
    """Profiles, layers, mappings, normalizers, problems, hosts and models by name; what can be fetched."""
    if arguments.kind is not None and arguments.kind not in KINDS:
        raise ConfigError(f"nothing is called {arguments.kind!r}: list one of {', '.join(KINDS)}")
    for kind in [arguments.kind] if arguments.kind else KINDS:
        rows = list(KINDS[kind]())
        width = max((len(name) for name, _ in rows), default=0)
        print(f"{kind}:")
        for name, text in rows:
            print(f"  {name:{width}}  {text}".rstrip())


def register(add: Add) -> None:
    command = add(_list, "s2s list mappings")
    command.add_argument("kind", nargs="?", help=f"one of {', '.join(KINDS)} (default: all)")
