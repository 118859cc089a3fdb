"""Keep the reference tables of the pages: ``python -m tests.docs.reference``.

Keys of profiles, fields of records, the order of packages, what no check can know, figures of proofs and the
numbers of results come from the code and its files. The last column, what a key is for, is written by hand in
the page and kept; a new row asks for it with an ellipsis.
"""

import importlib
import pkgutil
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import tomli
from tests.docs.numbers import with_numbers
from tests.figures import read_figures
from tests.proofs.unknowable import UNKNOWABLE, Unknowable
from tests.unit.test_import_order import ORDER

from search_to_signal import records
from search_to_signal.base.package_data import PROFILES
from search_to_signal.base.settings import Range
from search_to_signal.run.profile import Profile

ROOT = Path(__file__).parents[2]
NUMBERED = (ROOT / "README.md", ROOT / "docs" / "results.md")
UNSAID = "…"
Kind = type[msgspec.Struct]
Row = tuple[str, ...]
Order = tuple[tuple[str, ...], ...]


def spoken_type(hint: Any) -> str:
    """A type as the pages say it; literals as their choices."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return spoken_type(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join("none" if part is type(None) else spoken_type(part) for part in parts)
    if origin is tuple:
        inner = [spoken_type(part) for part in parts if part is not Ellipsis]
        return f"list of {inner[0]}" if Ellipsis in parts else f"({', '.join(inner)})"
    if origin is dict:
        return f"map of {parts[0].__name__} to {spoken_type(parts[1])}"
    names = {"int": "integer", "float": "number", "bool": "true, false", "str": "text", "Any": "anything"}
    name = getattr(hint, "__name__", str(hint))
    return names.get(name, name)


def spoken_value(value: Any) -> str:
    """A value as TOML would say it, in code."""
    if value is None or value is msgspec.UNSET:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def range_of(hint: Any) -> str:
    """The range beside a type, empty without one."""
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Range)]
    return str(marks[0]) if marks else ""


def nested(hint: Any) -> Kind | None:
    """The settings within a key, if it is a table of its own."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    found = [nested(part) for part in get_args(hint) if part is not Ellipsis]
    return next((kind for kind in found if kind is not None), None)


def profile_tables(kind: Kind = Profile, place: str = "") -> Iterator[tuple[str, Kind]]:
    """Every table of a profile by dotted name, the top level first."""
    if place == "api.endpoint":
        return  # the same keys as generation.api
    yield place or "top level", kind
    for name, hint in get_type_hints(kind).items():
        inner = nested(hint)
        if inner is not None:
            yield from profile_tables(inner, f"{place}.{name}" if place else name)


def profile_rows(place: str, kind: Kind) -> Iterator[Row]:
    """Key, type, default, range, and the value in the embedded profile, of the keys that hold no table."""
    shipped: Any = tomli.loads((PROFILES / "embedded.toml").read_text(encoding="utf-8"))
    for part in [] if place == "top level" else place.split("."):
        shipped = shipped.get(part, {})
        shipped = shipped[0] if isinstance(shipped, list) else shipped
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        if nested(field.type) is None:
            default = "required" if field.required else spoken_value(field.default)
            if field.default is msgspec.NODEFAULT and not field.required:
                default = "`{}`"
            used = spoken_value(shipped[field.name]) if field.name in shipped else ""
            kind_of_value = spoken_type(field.type).removesuffix(" or UnsetType")
            yield f"`{field.name}`", kind_of_value, default, range_of(hints[field.name]), used


def record_kinds() -> dict[str, Kind]:
    """Every public record by name, in the order of modules and lines."""
    modules = [
        importlib.import_module(f"{records.__name__}.{m.name}")
        for m in pkgutil.iter_modules(records.__path__)
    ]
    found = {
        value.__name__: value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and value.__module__ == module.__name__
    }
    return {name: kind for name, kind in found.items() if not name.startswith("_")}


def record_rows(name: str, kind: Kind) -> Iterator[Row]:
    """Field and type."""
    for field in msgspec.structs.fields(kind):
        yield f"`{field.name}`", spoken_type(field.type)


def order_rows(name: str, order: Order) -> Iterator[Row]:
    """Package and place, the first that imports nothing."""
    for number, packages in enumerate(order, start=1):
        yield from ((f"`{package}`", str(number)) for package in packages)


def figure_rows(name: str, figures: dict[str, dict[str, str]]) -> Iterator[Row]:
    """Proof, command, and what it printed."""
    for proof, figure in sorted(figures.items()):
        yield proof, f"`{figure['command']}`", f"`{figure['printed']}`"


def unknowable_rows(name: str, entries: tuple[Unknowable, ...]) -> Iterator[Row]:
    """Files, fields, and what would tell; entries of the same files and reason share a row."""
    shared: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        shared.setdefault((entry.files, entry.settles), []).append(f"`{entry.fields}`")
    for (files, settles), fields in shared.items():
        yield f"`{files}`", ", ".join(fields), settles


def rendered(
    name: str,
    heads: Row,
    tables: dict[str, Any],
    rows: Callable[[str, Any], Iterator[Row]],
    said: bool = True,
) -> tuple[Path, str]:
    """A page with its marked tables up to date; a table that the page lacks comes at its end.

    Tables end with a column that is written by hand, unless all is ``said`` by the rows.
    """
    path = ROOT / name
    page = path.read_text(encoding="utf-8")
    for marked, source in tables.items():
        marker = f"<!-- table: {marked} -->\n"
        page = page if marker in page else f"{page.rstrip()}\n\n## `{marked}`\n\n{marker}\n"
        before, _, after = page.partition(marker)
        old, _, rest = after.partition("\n\n") if not after.startswith("\n") else ("", "", after[1:])
        known = {cells[0]: cells[-1] for cells in map(cells_of, old.splitlines())}
        lines = [heads, (":--",) * len(heads)]
        lines += [row if said else (*row, known.get(row[0], UNSAID)) for row in rows(marked, source)]
        text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        page = f"{before}{marker}{text}\n{rest}"
    return path, f"{page.rstrip()}\n"


def cells_of(line: str) -> list[str]:
    """The cells of a table's line."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] or [""]


def pages() -> dict[Path, str]:
    """The pages as they should be."""
    keys = ("key", "type", "default", "range", "embedded", "what for")
    fields, order = ("field", "type", "meaning"), ("package", "place", "what it holds")
    proofs, known = ("proof", "command", "printed"), ("files", "fields", "what would tell")
    tables = (
        rendered("docs/reference/profiles.md", keys, dict(profile_tables()), profile_rows, said=False),
        rendered("docs/reference/records.md", fields, record_kinds(), record_rows, said=False),
        rendered("CONTRIBUTING.md", order, {"order": ORDER}, order_rows, said=False),
        rendered("docs/reference/unknowable.md", known, {"unknowable": UNKNOWABLE}, unknowable_rows),
        rendered("docs/reference/proofs.md", proofs, {"figures": read_figures()}, figure_rows),
    )
    return dict(tables) | {path: with_numbers(path.read_text(encoding="utf-8")) for path in NUMBERED}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
