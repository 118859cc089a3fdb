"""The benchmark of backends: what its figures mean, and that one backend's failure ends no other's run."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from backends_benchmark import error_line  # noqa: E402
from backends_measured import Backend, Group, numbers, ratios, table  # noqa: E402

pytestmark = pytest.mark.slow


def backend(name: str, updates: list[float], generation: float = 1.0, **options: object) -> Backend:
    """A backend whose groups have 100 tokens each and take ``generation`` and these seconds."""
    groups = tuple(
        Group(tokens=100, completions=4, generation=generation, update=update, total=5.0, valid=3)
        for update in updates
    )
    return msgspec.structs.replace(Backend(name=name, groups=groups), **options)


def test_settled_groups_leave_out_the_first_and_those_that_captured() -> None:
    """What compiles or captures once does not count as the usual cost, and still counts in the mean."""
    found = numbers(backend("local", [6.0, 0.5, 4.0, 0.5, 0.5]))
    assert found["settled groups"] == 3
    assert found["update s, mean settled"] == pytest.approx(0.5)
    assert found["update s, mean"] == pytest.approx(2.3)
    assert found["update s, median"] == pytest.approx(0.5)
    assert found["valid share"] == pytest.approx(0.75)
    assert found["tokens/s"] == pytest.approx(100.0)


def test_the_ratio_is_of_the_same_groups() -> None:
    """A group that only one of the two has settled is left out of the ratio of settled groups."""
    local, stock = backend("local", [1.0, 1.0, 9.0, 1.0]), backend("trl", [4.0, 4.0, 4.0], generation=6.0)
    every, settled = ratios([local, stock])
    assert "of 3 groups (all): 30.0 s against 14.0 s, 2.14 times" in every
    assert "of 1 groups (settled in both): 10.0 s against 2.0 s, 5.00 times" in settled


def test_a_backend_without_groups_stands_in_the_table_with_its_error() -> None:
    """Nothing that was not measured is shown as a number."""
    text = table([Backend(name="vllm", groups=(), error="exit status 1: ImportError: no vllm")])
    assert "| vllm | 0 | - | 0 | - | - |" in text
    assert "vllm: exit status 1: ImportError: no vllm" in text


def test_the_error_is_the_last_line_that_names_one() -> None:
    """Libraries print after the error, at exit."""
    printed = (
        "Traceback:\n  x\nsearch_to_signal.base.errors.ConfigError: no card\nprocess group not destroyed\n"
    )
    assert error_line(printed, 1) == "exit status 1: search_to_signal.base.errors.ConfigError: no card"
    ranked = "[rank0]: RuntimeError: no update\n[rank0]:[W1125 10:54:37] Warning: not destroyed\n"
    assert error_line(ranked, 1) == "exit status 1: RuntimeError: no update"


def test_a_failing_backend_ends_no_other_and_the_stock_trainer_gets_equal_tokens(tmp_path: Path) -> None:
    """One command: NF4 finds no card here, the local run and TRL's trainer come through all the same."""
    command = [
        sys.executable,
        str(BENCHMARKS / "backends_benchmark.py"),
        "qwen2-2.1m",
        "--out",
        str(tmp_path),
    ]
    options = ["--profile", "smoke", "--device", "cpu", "--groups", "2", "--backends", "local-nf4,local,trl"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    nf4, local, stock = (
        msgspec.json.decode((tmp_path / f"{name}.json").read_bytes(), type=Backend)
        for name in ("local-nf4", "local", "trl")
    )
    assert not nf4.groups
    assert "NVIDIA card" in nf4.error
    assert not local.error
    assert not stock.error
    assert [group.tokens for group in stock.groups] == [group.tokens for group in local.groups]
    assert all(0 < group.generation < group.total for group in (*local.groups, *stock.groups))
    assert "trl against local, generation and update of 2 groups (all)" in ended.stdout
