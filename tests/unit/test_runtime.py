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
CODE = """import os, sys
from search_to_signal.cli.main import main
assert not {'numpy', 'torch'} & set(sys.modules)
main(['verify', '/nowhere'])
import numpy, torch
from numpy.core._multiarray_umath import __cpu_features__ as found
from search_to_signal.records.provenance import environment
torch.ones(1)
print(os.environ['OPENBLAS_THREAD_TIMEOUT'])
print(torch.backends.cpu.get_cpu_capability(), found['AVX512F'], environment().kernels.get('MKL_CBWR'))
"""
CHOSEN = {"OMP_WAIT_POLICY": "ACTIVE", "OPENBLAS_THREAD_TIMEOUT": "26"}
CHOSEN |= {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}


@pytest.mark.parametrize(
    ("given", "spins", "timeout", "kernels"),
    [({}, False, "4", "AVX2 False AVX2"), (CHOSEN, True, "26", "NO AVX False COMPATIBLE")],
)
def test_a_command_sets_what_libraries_read_before_they_load(
    given: dict[str, str], spins: bool, timeout: str, kernels: str
) -> None:
    """Idle threads sleep, and torch and numpy use AVX2 and nothing newer, unless the user chose otherwise."""
    clean = {name: value for name, value in os.environ.items() if name not in {*CHOSEN, *processes.KERNELS}}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**clean, **given, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    # How often an idle thread of OpenMP looks before it sleeps.
    (line,) = (line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line)
    assert (line.split("'")[1] != "0") is spins
    *_, told_timeout, told_kernels = done.stdout.splitlines()
    assert told_timeout == timeout
    if "avx2" in Path("/proc/cpuinfo").read_text():
        assert told_kernels == kernels


def test_cycles_are_searched_for_again_afterwards() -> None:
    """Within the block no collection is due, behind it collecting is as it was before."""
    with processes.without_cycle_search():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()


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
