"""Where torch computes, with which threads, kernels and memory; deterministically on CPU and CUDA devices."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch

from search_to_signal.base.errors import ConfigError, S2SError
from search_to_signal.base.processes import KERNELS, MKL_PROCESSOR

Device = Literal["cpu", "cuda"]

LESS_MEMORY = "lower jobs or generation.max_completion_tokens, or set learner.gradient_checkpointing"
# What the driver and cuBLAS say where torch has no error of its own.
_NO_MEMORY = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")

# With a share of 40 % eight runs wrote no program, and no gradient was finite; without one all was right.
_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_CUDA_WITHOUT_SHARES = 13

_READ, _WRITE, _EXECUTE = 1, 2, 4
_RETURN_1 = bytes.fromhex("b801000000c3")  # mov eax, 1; ret
_ASKS_FOR_INTEL = ("mkl_serv_intel_cpu_true", "mkl_serv_intel_cpu")


def prepare_processor(threads: int) -> None:
    """Have torch compute with so many threads and the kernels of ``runtime.KERNELS``; before it computes."""
    torch.set_num_threads(threads)
    asked = all(os.environ.get(name) == KERNELS[name] for name in ("MKL_CBWR", MKL_PROCESSOR))
    os.environ[MKL_PROCESSOR] = "intel" if asked and _take_intel_kernels() else "own"


def _take_intel_kernels() -> bool:
    """Have MKL obey ``MKL_CBWR=AVX2`` on every maker's processor (D46); whether it does now.

    MKL ignores the variable where it finds no Intel processor, and sums in another order there. It has no
    option for that, so the functions by which it asks are made to answer yes, in this process's memory.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
        for name in _ASKS_FOR_INTEL:
            if not library[name]():
                always_return_1(library, name)
    except (OSError, AttributeError):  # a build without MKL; a kernel that keeps code as it is
        return False
    return True


def always_return_1(library: ctypes.CDLL, name: str) -> None:
    """Overwrite the code of a loaded x86-64 library's function.

    Raises AttributeError for a function that the library lacks, OSError where code may not be changed.
    """
    address = ctypes.cast(library[name], ctypes.c_void_p).value or 0
    page = address - address % mmap.PAGESIZE
    length = address + len(_RETURN_1) - page
    _protect(page, length, _READ | _WRITE | _EXECUTE)
    ctypes.memmove(address, _RETURN_1, len(_RETURN_1))
    _protect(page, length, _READ | _EXECUTE)


def _protect(page: int, length: int, access: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(length), access):
        raise OSError(ctypes.get_errno(), "mprotect")


def fix_cublas() -> None:
    """Have cuBLAS add up in one order; it reads this once, at its first product in a process."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def require_device(device: Device, asked: str, remedy: str) -> None:
    """Raise ConfigError, with what ``asked`` for it and the ``remedy``, for one that this machine lacks."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"{asked} asks for an NVIDIA card, which torch does not find on this machine: {remedy}"
        )


def prepare_device(device: Device) -> None:
    """Make the device give the same bits every time; raises ConfigError for one that this machine lacks."""
    if device == "cpu":
        return
    remedy = 'set device = "cpu" in a copy of the file (equal seeds then give other bytes, after hours)'
    require_device(device, 'device = "cuda"', remedy)
    _refuse_wrong_products()
    fix_cublas()
    torch.use_deterministic_algorithms(True)
    # Memory is written before it is read here: filling it first costs a tenth of the time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    # Backward passes of these two add up in no fixed order.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)


def _refuse_wrong_products() -> None:
    """Raise ConfigError where a card was seen to compute nonsense without a word (torch 2.11, H200)."""
    share = os.environ.get(_SHARE, "100")
    if share != "100" and int((torch.version.cuda or "0").partition(".")[0]) >= _CUDA_WITHOUT_SHARES:
        raise ConfigError(
            f"{_SHARE} = {share} gives wrong numbers with this torch (CUDA {torch.version.cuda}): unset it; "
            "NVIDIA MPS without a share lets runs compute side by side, and changes no record"
        )


@contextmanager
def memory_errors(what: str, remedy: str = LESS_MEMORY, kind: type[S2SError] = ConfigError) -> Iterator[None]:
    """Context in which a card may have too little memory for ``what``: its error becomes one line (``kind``).

    ``remedy`` is what there is to do besides ending what else runs on the card. Other errors stay the same.
    """
    try:
        yield
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        lack = f"the card has too little free memory for {what}{_card_memory()}"
        raise kind(f"{lack}: end what else runs on it, or {remedy}") from error


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a card had too little memory: one error may hide another, as when a capture is ended."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def _card_memory() -> str:
    with suppress(RuntimeError):
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            sizes = (*torch.cuda.mem_get_info(), torch.cuda.memory_reserved())
            free, total, own = (f"{size / (1 << 30):.1f}" for size in sizes)
            return f" ({free} of {total} GiB free, {own} held by this process)"
    return ""


def processor(device: Device) -> str:
    """What the device is, for people."""
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def torch_version() -> str:
    """The version of torch with the CUDA that it was built for."""
    return str(torch.__version__)


# Low precision through bitsandbytes 0.45.2, where there is a GPU; no path of a CPU imports it.


def bitsandbytes(setting: str) -> Any:
    """The library; raises ConfigError, naming the setting that asks for it, where it cannot work."""
    if not torch.cuda.is_available():
        raise ConfigError(f"{setting} needs a GPU, and torch finds none: change the setting in the profile")
    try:
        return import_module("bitsandbytes")
    except ImportError as error:
        raise ConfigError(f"{setting} needs bitsandbytes ({error}): install the extra 'gpu'") from error


def load_4bit(directory: Path) -> Any:
    """The causal language model of a directory in 4 bits, in evaluation mode, on the first GPU.

    NF4 with double quantization, computing in bfloat16, else float16: what Unsloth 2025.3.18 makes of
    ``load_in_4bit`` (models/llama.py) and the paper's precision. Raises ConfigError without a GPU or the
    library, naming both settings that may have asked for it.
    """
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig  # takes longer than asking a card

    from search_to_signal.models.releases import in_precision

    bitsandbytes('model.quantization = "nf4" (or learner.load_in_4bit)')
    compute = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )
    model = AutoModelForCausalLM.from_pretrained(
        directory,
        quantization_config=quantization,
        device_map={"": 0},
        attn_implementation="sdpa",
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        **in_precision(compute),
    )
    return model.eval()


def base_weight(linear: Any) -> torch.Tensor:
    """The weight (outputs, inputs) of a linear layer, adapted or not, unpacked where it is in 4 bits."""
    weight: torch.Tensor = getattr(linear, "base_layer", linear).weight
    if hasattr(weight, "quant_state"):
        library = import_module("bitsandbytes.functional")
        unpacked: torch.Tensor = library.dequantize_4bit(weight.data, weight.quant_state)
        return unpacked
    return weight.data
