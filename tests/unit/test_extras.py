"""The core needs few libraries, and a command that needs more names the extra in one line."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from search_to_signal.base import package_data
from search_to_signal.base.errors import EXTRAS
from search_to_signal.records.checksums import write_sums

ROOT = Path(__file__).parents[2]
# Directories of tests that need torch, or a checkout around the package.
NEEDS_MORE = {"container", "docs", "layers", "learner", "models"}
NEEDS_MORE |= {"recipe", "run", "search", "study"}
MISSING = [package for packages in EXTRAS.values() for package in packages]
WITHOUT = (
    f"import sys; sys.modules.update(dict.fromkeys({MISSING!r}));"
    "from search_to_signal.cli import main; sys.exit(main())"
)


def without(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command where no extra is installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], cwd=cwd, input="{}", capture_output=True, text=True
    )


NEEDS = {
    "run --profile smoke --out out": "run",
    "run-one --out out": "run",
    "updates . --out out": "run",
    "verify --recompute .": "run",
    "conformance --calm .": "run",
    "released --calm . --config x.yaml --mapping factorized --out out": "run",
    f"pretrain {package_data.MODELS / 'qwen2-2.1m' / 'recipe.toml'} --out out": "run",
    f"card {package_data.MODELS / 'qwen2-2.1m'}": "run",
    "serve qwen2-2.1m": "run",
    "model fetch qwen2.5-coder-0.5b-instruct": "run",
    "report . --out out": "report",
    "claims": "report",
    "audit completions.parquet --format trl": "parquet",
}
ALL = "for line in sys.argv[1:]: print(main(line.split()), file=sys.stderr)"


@pytest.mark.slow
def test_a_missing_extra_is_named_in_one_line(tmp_path: Path) -> None:
    """Exit code 2, the extra's name, no traceback, and nothing is written."""
    (tmp_path / "completions.parquet").write_bytes(b"PAR1")
    code = WITHOUT.replace("sys.exit(main())", "") + f"\n{ALL}"
    told = subprocess.run(
        [sys.executable, "-c", code, *NEEDS], cwd=tmp_path, input="{}", capture_output=True, text=True
    ).stderr.splitlines()
    assert told[1::2] == ["2"] * len(NEEDS)
    for line, (arguments, extra) in zip(told[::2], NEEDS.items(), strict=True):
        assert f"install search-to-signal[{extra}]" in line, arguments
    assert [path.name for path in tmp_path.iterdir()] == ["completions.parquet"]


@pytest.mark.parametrize(
    "arguments",
    ["--help", "audit log.jsonl --out page", "normalizers", "list", "verify out", "compare out out"],
)
@pytest.mark.slow
def test_the_core_does_without_every_extra(
    arguments: str, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    """Audit with its page, the atlas, the lists and verification run where no extra is installed."""
    rows = "".join(f'{{"group": {row // 4}, "reward": {row % 3}}}\n' for row in range(8))
    (tmp_path / "log.jsonl").write_text(rows)
    make_run(tmp_path / "out" / "run", "native")
    write_sums(tmp_path / "out")
    done = without(*arguments.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_named_is_what_the_extras_bring() -> None:
    """Every library of an extra is known by it, and no library of the core is."""
    project = msgspec.toml.decode(package_data.PYPROJECT.read_bytes())["project"]
    for extra, packages in EXTRAS.items():
        named = {re.split(r"[^\w-]", line)[0] for line in project["optional-dependencies"][extra]}
        assert named - {"numpy", "search-to-signal"} <= set(packages)
    assert not {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]} & set(MISSING)


@pytest.mark.slow
def test_audit_is_imported_without_what_it_may_not_need() -> None:
    """``import search_to_signal.audit`` loads no library of an extra, and no template engine."""
    code = (
        "import sys, search_to_signal.audit;"
        f"print(sorted({{'jinja2', 'pandas', 'polars', *{MISSING!r}}} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.slow
def test_help_loads_nothing_heavy() -> None:
    """``s2s audit --help`` answers at once: it loads no numpy, and nothing of an extra."""
    heavy = "{'numpy', 'scipy', 'matplotlib', 'torch', 'rich', 'pyarrow'}"
    code = (
        "import sys; from search_to_signal.cli import main\n"
        "try: main(['audit', '--help'])\n"
        f"finally: print('loaded:', sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.slow
def test_a_command_loads_its_own_file_alone() -> None:
    """``s2s verify`` reads its own file, no other command's, nor what only several processes need."""
    code = (
        "import sys; from search_to_signal.cli import main\n"
        "try: main(['verify', '--help'])\n"
        "finally: print(sorted(m for m in sys.modules if m.startswith(('search_to_signal.cli.', 'concur'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = ("checking", "main", "options")
    assert done.stdout.splitlines()[-1] == str([f"search_to_signal.cli.{name}" for name in own])


def test_every_directory_of_tests_is_of_the_core_or_not() -> None:
    """What tests/core/run.sh runs exists, and a new directory of unit tests is in the list or named here."""
    few, listed = (
        {line.rpartition("=")[2].partition("::")[0] for line in text.splitlines() if line[:1] != "#"}
        for text in ((ROOT / "tests" / "core" / f"{name}.txt").read_text() for name in ("few", "files"))
    )
    assert [path for path in few | listed if not (ROOT / path).exists()] == []
    packages = {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/test_*.py")}
    packages |= {path.parents[1].name for path in (ROOT / "tests" / "unit").glob("*/*/test_*.py")}
    assert {name for name in packages if f"tests/unit/{name}" not in listed} == NEEDS_MORE
