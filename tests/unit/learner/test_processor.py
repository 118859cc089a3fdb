"""Every processor with AVX2 takes the same kernels, whoever made it (D46)."""

from pathlib import Path

import pytest
from tests.forked import Commands

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text(), reason="a processor without AVX2"),
]
# The process that it is forked from has loaded torch and multiplied nothing: MKL chooses when it first does.
MULTIPLY = """
import ctypes, os, torch
from search_to_signal.base.processes import KERNELS, fix_kernels
for name in KERNELS:
    os.environ.pop(name, None)
os.environ.update({given!r}, MKL_VERBOSE="1")
fix_kernels()
from search_to_signal.models import device
{change}
device.prepare_processor(1)
torch.ones(64, 64) @ torch.ones(64, 64)
print("MKL is told", os.environ["S2S_MKL_PROCESSOR"], torch.get_num_threads(), flush=True)
ctypes.CDLL(None).fflush(None)  # MKL's own lines
os._exit(0)
"""
# A question that every processor of today answers with no.
GUARDED = """
device._ASKS_FOR_INTEL = ("mkl_serv_cpuisitbarcelona",)
def guarded(*_):
    raise OSError(13, "mprotect")
device._protect = guarded
"""


def multiplied(commands: Commands, given: dict[str, str], change: str = "") -> list[str]:
    """What a process prints that multiplies with MKL: MKL's own lines, and what it was told."""
    done = commands.run(boot=MULTIPLY.format(given=given, change=change))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_mkl_takes_the_recorded_kernels_on_every_makers_processor(commands: Commands) -> None:
    """MKL says itself which branch it takes; without being told, it ignores the choice on AMD's."""
    lines = multiplied(commands, {})
    assert "MKL is told intel 1" in lines
    assert [line for line in lines if "SGEMM" in line and "CNR:AVX2" in line], lines


@pytest.mark.parametrize(
    ("given", "change"),
    [({"S2S_MKL_PROCESSOR": "own"}, ""), ({"MKL_CBWR": "COMPATIBLE"}, ""), ({}, GUARDED)],
    ids=["asked not to", "another branch", "guarded memory"],
)
def test_mkl_is_left_alone(commands: Commands, given: dict[str, str], change: str) -> None:
    """A user's choice stands, and where code may not be changed the manifest says that it was not."""
    changed = f"{change}\ndevice.ctypes.memmove = None"
    assert "MKL is told own 1" in multiplied(commands, given, changed)


def test_a_function_is_made_to_answer_yes(commands: Commands) -> None:
    """The change works where the processor is Intel's too, and its answer is yes without it."""
    code = (
        "import ctypes, os, torch\n"
        "from pathlib import Path\n"
        "from search_to_signal.models.device import always_return_1\n"
        "mkl = ctypes.CDLL(str(Path(torch.__file__).with_name('lib') / 'libtorch_cpu.so'))\n"
        "name = 'mkl_serv_cpuisitbarcelona'\n"
        "before = mkl[name]()\n"
        "always_return_1(mkl, name)\n"
        "print(before, mkl[name](), flush=True)\n"
        "os._exit(0)\n"
    )
    done = commands.run(boot=code)
    assert done.stdout == "0 1\n", done.stderr
