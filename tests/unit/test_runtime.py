"""Switches of the whole process are set before the libraries that read them are loaded."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from search_to_signal.base import processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CODE = "from search_to_signal.cli import main; main(['verify', '/nowhere']); import torch; torch.ones(1)"


def spins(given: dict[str, str]) -> str:
    """How often OpenMP says that an idle thread looks before it sleeps, after a command has begun."""
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**clean, **given, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line)
    return line.split("'")[1]


def test_the_command_line_lets_idle_threads_sleep() -> None:
    """They do not spin once a command has begun, unless the user asks for it."""
    assert spins({}) == "0"
    assert spins({"OMP_WAIT_POLICY": "ACTIVE"}) != "0"


def test_numpy_threads_sleep_at_once() -> None:
    """OpenBLAS is told not to let its threads spin, before numpy loads it; a user's own choice stands."""
    code = (
        "import os; from search_to_signal.cli import main; main(['verify', '/nowhere']);"
        "print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    )
    for given, due in (({}, "4"), ({"OPENBLAS_THREAD_TIMEOUT": "26"}, "26")):
        clean = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**clean, **given}, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == due


def test_cycles_are_searched_for_again_afterwards() -> None:
    """Within the block no collection is due, behind it collecting is as it was before."""
    with processes.without_cycle_search():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()


KERNELS = """import os, sys
from search_to_signal.cli.main import main
assert not {'numpy', 'torch'} & set(sys.modules)
main(['verify', '/nowhere'])
import numpy, torch
from numpy.core._multiarray_umath import __cpu_features__ as found
from search_to_signal.records.provenance import environment
print(torch.backends.cpu.get_cpu_capability(), found['AVX512F'], environment().kernels['MKL_CBWR'])
"""


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text(), reason="a processor without AVX2")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "AVX2 False AVX2"),
        ({"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}, "NO AVX False COMPATIBLE"),
    ],
)
def test_a_command_fixes_the_kernels_before_they_load(given: dict[str, str], told: str) -> None:
    """torch and numpy use AVX2 and nothing newer, whatever the processor; a user's own choice stands."""
    clean = {name: value for name, value in os.environ.items() if name not in processes.KERNELS}
    command = [sys.executable, "-c", KERNELS]
    done = subprocess.run(command, env={**clean, **given}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == told


def test_nothing_is_fixed_without_the_instructions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch would die of an instruction that its processor lacks."""
    for name in processes.KERNELS:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cpuinfo").write_text("model name: old\nflags\t: fpu sse sse2\n")
    monkeypatch.setattr(processes, "_CPU_FACTS", tmp_path / "cpuinfo")
    processes.fix_kernels()
    assert not set(processes.KERNELS) & set(os.environ)


def test_a_proof_that_compares_bits_takes_the_kernels_of_every_command() -> None:
    """Whatever variables are set, it chooses them before numpy is loaded, which reads them then."""
    asked = ["-X", "importtime", "-m", "tests.proofs.resealed_edits", "--help"]
    clean = {name: value for name, value in os.environ.items() if name not in processes.KERNELS}
    done = subprocess.run(
        [sys.executable, *asked], capture_output=True, text=True, check=True, env=clean, cwd=ROOT
    )
    loaded = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert loaded.index("tests.proofs.fixed_kernels") < loaded.index("numpy")
