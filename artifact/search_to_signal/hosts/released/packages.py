"""The packages that a checkout imports: all have to be there before it runs."""

import ast
import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import NamedTuple

from search_to_signal.errors import HostError
from search_to_signal.hosts.released.checkout import BRINGS, NAMES, NVML, ReleasedCheckout, remedy
from search_to_signal.hosts.released.plan import ReleasedPlan
from search_to_signal.progress import one_line

_MODULES = ("main", "args", "calm_trainer", "heuristic", "utils")


class _Import(NamedTuple):
    """A package that a file names; ``later`` where a function or a condition has to be reached first."""

    package: str
    file: str
    line: int
    later: bool

    def __str__(self) -> str:
        missing = f"{self.file}:{self.line} imports {self.package}, which is not installed"
        return f"{missing}: {remedy(self.package)}"


def require_packages(checkout: ReleasedCheckout, plan: ReleasedPlan) -> None:
    """Raise HostError, naming file and line, for every package that is needed and not here."""
    missing = [imported for imported in _needed(checkout, plan) if not _is_here(imported.package)]
    lines = [str(imported) for imported in missing]
    if any((imported.package, imported.file) == (NVML, "main.py") for imported in missing):
        lines.append(_nvml_needs(checkout.path / "main.py"))
    if lines:
        raise HostError("; ".join(lines))


def import_later(checkout: ReleasedCheckout, plan: ReleasedPlan) -> None:
    """Import now what the host imports later: Unsloth refuses a machine without a GPU, and comes before TRL.

    Raises HostError, naming file and line, where one does not import.
    """
    for needed in _needed(checkout, plan):
        if not needed.later:
            continue
        try:
            importlib.import_module(needed.package)
        except Exception as error:  # a package may refuse a machine with any error
            raise HostError(
                f"{needed.file}:{needed.line} imports {needed.package}, which does not import here "
                f"({type(error).__name__}: {one_line(str(error))})"
            ) from error


def import_main(checkout: ReleasedCheckout) -> None:
    """Import ``main.py``, which asks NVML for the graphics cards meanwhile, whatever the configuration.

    Raises HostError where it does not import; where NVML is missing, with what a stand-in for it needs.
    """
    try:
        checkout.module("main")
    except HostError as error:
        main = checkout.path / "main.py"
        lines = {
            frame.lineno
            for frame in extract_tb(getattr(error.__cause__, "__traceback__", None))
            if Path(frame.filename) == main
        }
        if lines.isdisjoint(node.lineno for node in _nvml_calls(main)):
            raise
        raise HostError(f"{error}; {_nvml_needs(main)}") from error


def _nvml_calls(main: Path) -> list[ast.Attribute]:
    """Where a file names something of NVML, in order."""
    named = (
        node
        for node in ast.walk(ast.parse(main.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    )
    calls = [node for node in named if isinstance(node.value, ast.Name) and node.value.id == NVML]
    return sorted(calls, key=lambda node: (node.lineno, node.col_offset))


def _nvml_needs(main: Path) -> str:
    names = ", ".join(dict.fromkeys(node.attr for node in _nvml_calls(main)))
    return (
        "main.py asks NVML for the graphics cards while it is imported; for a model behind an endpoint, a "
        f"module {NVML} on PYTHONPATH with {names} stands in for it"
    )


def _needed(checkout: ReleasedCheckout, plan: ReleasedPlan) -> list[_Import]:
    """What a plan imports for certain; of what is imported later, what a local model is known to need."""
    later = set() if plan.served else set(BRINGS)
    imports = _imports(checkout.path, plan.problem)
    return [imported for imported in imports if not imported.later or imported.package in later]


def _is_here(package: str) -> bool:
    try:
        return sys.modules.get(package) is not None or find_spec(package) is not None
    except ValueError:  # in place of a module, something without a specification
        return False


def _imports(path: Path, problem: str) -> Iterator[_Import]:
    """What the modules of a run import from elsewhere, each package once per file."""
    own = {entry.stem for entry in path.iterdir()}
    for name in (*_MODULES, f"problems/{NAMES[problem]}"):
        file = f"{name}.py"
        by_package: dict[str, _Import] = {}
        for imported in _named(ast.parse((path / file).read_text(encoding="utf-8")), file):
            known = by_package.get(imported.package)
            if imported.package in own or imported.package in sys.stdlib_module_names:
                continue
            if known is None or (known.later and not imported.later):
                by_package[imported.package] = imported
        yield from by_package.values()


def _named(node: ast.AST, file: str, later: bool = False) -> Iterator[_Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield _Import(alias.name.split(".")[0], file, child.lineno, later)
        elif isinstance(child, ast.ImportFrom):
            if not child.level:
                yield _Import(str(child.module).split(".")[0], file, child.lineno, later)
        elif not isinstance(child, ast.Try):  # which is how an optional one is written
            yield from _named(child, file, True)
