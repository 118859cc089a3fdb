"""A checkout of the released host as importable modules.

It is opened through links that go, or as a copy in which what the host writes stays.
"""

import ast
import filecmp
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
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
        elif entry.suffix == ".pyc" or (
            original.is_file() and (entry.samefile(original) or filecmp.cmp(original, entry, shallow=False))
        ):
            entry.unlink()


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


# Does a checkout have the released interface? Read off its files; none of its code runs here.

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Signature:
    """A function that this package calls, or is called through.

    ``parameters`` stand in this order, without ``self``. Where ``exact`` they are given by name, else only
    their number counts. The host may have more of them, if those have defaults. Where ``inherited`` the class
    may have it from another one.
    """

    file: str
    owner: str | None
    name: str
    parameters: tuple[str, ...]
    exact: bool = False
    inherited: bool = False

    def __str__(self) -> str:
        called = f"{self.owner}.{self.name}" if self.owner else self.name
        return called.removesuffix(".__init__")


_FILES = ("args.py", "calm_trainer.py", "heuristic.py", "main.py", "utils.py")
_FIELDS = (
    *("problem_name", "log_name", "max_steps", "api_key", "base_url", "n_prompts", "population_size"),
    *("ub_simplification", "ub_injection", "ub_replacement", "ub_crossover", "model_name", "n_generations"),
    *("seed_algo_fp", "template_fp", "speed_collapse", "max_stuck_threshold", "lr"),
)
_SIGNATURES = (
    Signature("args.py", "Args", "from_yaml", ("path",)),
    Signature("calm_trainer.py", "Trainer", "prepare_dataset", ()),
    Signature("calm_trainer.py", "Trainer", "reward_func", ("prompts", "completions"), True),
    Signature("heuristic.py", "HeuristicPolicy", "__init__", ("step_func", "name", "problem_name"), True),
    Signature("heuristic.py", "HeuristicPolicy", "run_one_episode_sync", ("instances", "timeout")),
    Signature("main.py", None, "run", ("calm_args",)),
)
_PROBLEM = (("training_dataset", ()), ("run_async", ("policy", "instances")))


def require_interface(path: Path, problems: Iterable[str]) -> None:
    """Raise HostError, naming file and fact, for the first thing in which a checkout is another host.

    ``problems`` are our names. See HOST.md, point 27.
    """
    names = [NAMES[problem] for problem in problems]
    files = [*_FILES, *(f"problems/{name}.py" for name in names)]
    files += [f"configs/{name}/{file}" for name in names for file in ("seed.py", "template.py", "local.yaml")]
    for file in files:
        if not (path / file).is_file():
            raise HostError(f"{path / file} is missing: give a complete checkout of the released host")
    calls = [
        Signature(f"problems/{name}.py", "Environment", called, parameters, inherited=True)
        for name in names
        for called, parameters in _PROBLEM
    ]
    for signature in (*_SIGNATURES, *calls):
        _require(path, signature)
    _require_fields(path / "args.py")


def offered(path: Path) -> list[str]:
    """Those of our problems of which a checkout has anything (D41)."""
    return [
        problem
        for problem, name in NAMES.items()
        if (path / "problems" / f"{name}.py").exists() or (path / "configs" / name).exists()
    ]


def _require(path: Path, wanted: Signature) -> None:
    file = path / wanted.file
    tree = _tree(file)
    if wanted.owner in _imported(tree):
        return  # defined elsewhere, and seen when it is used
    owner = next((node for node in _classes(tree) if node.name == wanted.owner), None)
    if wanted.owner and owner is None:
        raise HostError(f"{file} defines no class {wanted.owner}: the released host does")
    body = owner.body if owner else tree.body
    definition = next(
        (node for node in body if isinstance(node, Function) and node.name == wanted.name), None
    )
    if definition is None and wanted.inherited and owner and owner.bases:
        return
    if definition is None:
        raise HostError(f"{file} defines no {wanted}: the released host does")
    fault = _fault(definition, wanted)
    if fault:
        raise HostError(f"{file}:{definition.lineno}: {wanted} {fault}")


def _fault(definition: Function, wanted: Signature) -> str | None:
    given = [argument.arg for argument in (*definition.args.posonlyargs, *definition.args.args)]
    static = any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in definition.decorator_list
    )
    given = given[1:] if wanted.owner and not static else given
    count = len(wanted.parameters)
    needed = len(given) - len(definition.args.defaults)
    missing = [default for default in definition.args.kw_defaults if default is None]
    enough = len(given) >= count or (definition.args.vararg is not None and not wanted.exact)
    same = tuple(given[:count]) == wanted.parameters or not wanted.exact
    if enough and same and needed <= count and not missing:
        return None
    ours, theirs = ", ".join(wanted.parameters), ", ".join(given)
    return f"takes ({theirs}), the released host's takes ({ours})"


def _require_fields(file: Path) -> None:
    tree = _tree(file)
    if "Args" in _imported(tree):
        return
    body = next(node.body for node in _classes(tree) if node.name == "Args")
    targets = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    fields = {target.id for target in targets if isinstance(target, ast.Name)}
    missing = [name for name in _FIELDS if name not in fields]
    if missing:
        raise HostError(f"{file}: Args has no field {', '.join(missing)}: the released host's has")


def _tree(file: Path) -> ast.Module:
    try:
        return _parsed(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise HostError(f"{file} cannot be read as Python ({error}): give a whole checkout") from error


# Of each file several things are required.
_parsed = lru_cache(maxsize=32)(ast.parse)


@lru_cache(maxsize=32)
def _classes(tree: ast.Module) -> tuple[ast.ClassDef, ...]:
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


@lru_cache(maxsize=32)
def _imported(tree: ast.Module) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for node in nodes for alias in node.names}
