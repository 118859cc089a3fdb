"""Facts about the machine and the software, without naming the machine or its user."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from search_to_signal.records.manifest import Environment
from search_to_signal.runtime import kernels_in_force

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "trl",
    "peft",
    "numpy",
    "scipy",
    "numba",
    "msgspec",
    "unsloth",
    "vllm",
    "bitsandbytes",
    "ray",
)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def environment() -> Environment:
    """Collect the facts; a fact that this system does not tell is empty."""
    cpu = _read("/proc/cpuinfo")
    flags = _field(cpu, "flags").split()
    memory = _field(_read("/proc/meminfo"), "MemTotal").split()
    return Environment(
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        system=platform.system(),
        kernel=platform.release().split("-")[0],
        libc=" ".join(platform.libc_ver()),
        machine=platform.machine(),
        cpu=_field(cpu, "model name"),
        cpu_flags_simd=tuple(sorted(f for f in flags if f.startswith(("avx", "sse", "fma")))),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_mib=int(memory[0]) // 1024 if memory else 0,
        kernels=kernels_in_force() or msgspec.UNSET,
    )
