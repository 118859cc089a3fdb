"""Packages import what stands before them, and heavy libraries stay in theirs."""

import ast
import functools
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import search_to_signal

PACKAGE = "search_to_signal"
ROOT = Path(search_to_signal.__file__).parent

ORDER: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("records",),
    ("credit", "problems"),
    ("audit", "sandbox"),
    ("models", "report"),
    ("learner", "search"),
    ("run",),
    ("claims", "integrations"),
    ("layers",),
    ("verify",),
    ("study",),
    ("cli",),
)
PLACE = {package: number for number, packages in enumerate(ORDER, start=1) for package in packages}

# In the folder of an evidence layer or of a host, what stands with another package: a layer's settings are a
# profile's, its tables a report's; a host's learning rule is a learner's.
OF_FOLDERS = {
    ("layers", "settings"): "run",
    ("layers", "tables"): "report",
    ("search", "rule"): "learner",
    ("search", "learner"): "learner",
}

# Packages that read records only; of the sandbox they take what reads programs, which runs none.
READERS = ("report", "claims")
LAST_FOR_READERS = 4
# Consistency checks replay a search by its records, too, and execute nothing, though recomputation does.
READS_ONLY = ("verify/directory", "verify/records")
REPLAYED = ("run.replayed", "run.texts", "search.hosts.calm.settings", "records.layers")

# Earlier, and still forbidden: search and learner read the same records and never each other.
NEVER = {("search", "learner")}
SEARCHES = (
    "search/hosts/calm/",
    "search/hosts/entropic/host.py",
    "search/hosts/evotune/host.py",
    "search/host.py",
    "search/member.py",
)

HEAVY = ("torch", "trl", "peft", "transformers", "tokenizers", "safetensors", "accelerate")
# The recorder runs within a trainer of TRL, and joins what its processes sampled.
HEAVY_PACKAGES = ("models/", "problems/ant_colony/", "audit/trl_callback.py", "layers/updates/pairs.py")
LIGHT = (
    "claims.ledger",
    "claims.page",
    "report.build",
    "verify.directory",
    "credit",
    "credit.normalizers",
    "audit.atlas",
    "audit.findings",
    "audit.importers",
    "audit.trl_callback",
    "integrations.trl",
    "integrations.verl",
    "layers.audit.layer",
    "cli",
)


@functools.cache
def files() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every source file as (path within the package, what it imports)."""
    names = ((path, path.relative_to(ROOT).as_posix()) for path in sorted(ROOT.rglob("*.py")))
    return tuple(
        (name, tuple(imported(name, ast.parse(path.read_text(encoding="utf-8"))))) for path, name in names
    )


def imported(name: str, tree: ast.Module) -> Iterator[str]:
    """Full dotted names of everything that a file imports, wherever the statement stands."""
    here = [PACKAGE, *Path(name).with_suffix("").parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = [".".join(here[: -node.level])] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def package_of(name: str) -> str:
    """The package, or the file at the top, that a path belongs to."""
    first, *parts = Path(name).with_suffix("").parts
    return next((OF_FOLDERS[first, part] for part in parts if (first, part) in OF_FOLDERS), first)


@functools.cache
def edges() -> tuple[tuple[str, str, str], ...]:
    """Every import within the package as (file, its package, imported name without the root)."""
    return tuple(
        (name, package_of(name), target.removeprefix(f"{PACKAGE}."))
        for name, targets in files()
        # What the code implements is compared with the paper: it reads tables and profile.
        if name not in ("__init__.py", "claims/settings.py")
        for target in targets
        if target.startswith(f"{PACKAGE}.")
    )


def allowed(package: str, target: str) -> bool:
    """Whether a package may import that module."""
    other = package_of(target.replace(".", "/"))
    if package == other or (package, other) in NEVER:
        return package == other
    if package in READERS and other == "sandbox":
        return target.startswith("sandbox.programs")
    readable = PLACE[other] <= LAST_FOR_READERS or other in READERS
    return PLACE[other] < PLACE[package] and (package not in READERS or readable)


def test_every_package_has_a_place() -> None:
    assert {package_of(name) for name, _ in files()} - {"__init__"} <= set(PLACE)


def test_imports_go_to_earlier_places() -> None:
    """No file imports a later package than its own, or a neighbour that is not named."""
    assert len(edges()) > 200
    assert [
        f"{name} imports {target}" for name, package, target in edges() if not allowed(package, target)
    ] == []


def test_consistency_reads_records_alone() -> None:
    """Checking records against each other needs a replay of them, and nothing that samples or trains."""
    known = (*REPLAYED, *(name.replace("/", ".") for name in READS_ONLY))
    later = {
        f"{name} imports {target}"
        for name, _, target in edges()
        if name.startswith(READS_ONLY) or (name.startswith("layers/") and name.endswith("/checks.py"))
        if not target.startswith(known) and not allowed("report", target)
    }
    assert later == set()


def test_searches_know_no_model() -> None:
    """A search of ours neither samples nor learns, as the kernel that it is made of."""
    found = [(name, target.split(".")[0]) for name, _, target in edges() if name.startswith(SEARCHES)]
    assert len(found) > 50
    assert [name for name, other in found if other in ("generators", "learner")] == []


def module_of(dotted: str, modules: Collection[str]) -> str | None:
    """The file that an imported name is of: itself, or what holds it."""
    return next((name for name in (dotted, dotted.rpartition(".")[0]) if name in modules), None)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Files that import each other in a ring, empty where there is no such ring."""
    left = dict(graph)
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    ring: list[str] = []
    name = min(left, default="")
    while left and name not in ring:
        ring.append(name)
        name = min(left[name] & left.keys())
    return ring[ring.index(name) :] if ring else []


def test_no_file_imports_itself_on_a_detour() -> None:
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): targets
        for name, targets in files()
    }
    graph = {}
    for module, targets in modules.items():
        within = (target.removeprefix(f"{PACKAGE}.") for target in targets)
        graph[module] = {found for t in within if (found := module_of(t, modules.keys()))} - {module}
    assert sum(map(len, graph.values())) > 200
    assert circle(graph) == []


def test_a_ring_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
    assert circle({"a": {"b"}, "b": set()}) == []


@pytest.mark.parametrize(
    ("package", "target"),
    [
        ("records", "credit.base"),
        ("search", "learner.settings"),
        ("report", "verify.directory"),
        ("records", "report.results"),
        ("report", "search.member"),
        ("records", "run.loop"),
        ("search", "cli"),
        ("layers", "verify.recompute"),
        ("integrations", "verify.recompute"),
    ],
)
def test_forbidden_directions(package: str, target: str) -> None:
    assert not allowed(package, target)


def test_heavy_libraries_stay_in_their_packages() -> None:
    """Model libraries are imported by generators, learner, ant colonies and TRL's recorder alone."""
    for name, targets in files():
        heavy = {target.split(".")[0] for target in targets} & set(HEAVY)
        assert not heavy or name.startswith(HEAVY_PACKAGES) or package_of(name) == "learner", name


@pytest.mark.slow
def test_readers_load_no_model_library() -> None:
    """Reading, checking and replaying records loads neither torch nor anything above it."""
    code = (
        "import sys, importlib;"
        f"[importlib.import_module('{PACKAGE}.' + name) for name in {LIGHT!r}];"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.slow
def test_verifying_loads_only_what_its_checks_need(tmp_path: Path) -> None:
    """Loading the rest would take longer than the checks do."""
    idle = ("matplotlib", "pandas", "scipy", "numba", "rich", "importlib.metadata", f"{PACKAGE}.sandbox.pool")
    code = (
        f"import sys; from {PACKAGE}.cli import main; main(['verify', '.']);"
        f"import {PACKAGE}.verify.directory; print(sorted(set({idle!r}) & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=tmp_path).strip() == "[]"
