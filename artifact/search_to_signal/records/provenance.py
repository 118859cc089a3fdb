"""What made a result: a hash over the files that determine it, the checkout, the machine and its software."""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.base.errors import ConfigError, reason
from search_to_signal.base.package_data import INSTALLED, LOCK, PACKAGE, source_files
from search_to_signal.base.processes import kernels_in_force
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.manifest import Accelerator, Environment, Source


def _git(*arguments: str) -> str | None:
    if INSTALLED:  # its environment may lie in the checkout of another project
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def source() -> Source:
    """Return the hash of the source files, with commit and state of the checkout where there is one."""
    digest = hashlib.sha256()
    for name, path in source_files().items():
        digest.update(f"{sha256_file(path)}  {name}\n".encode())
    status = _git("status", "--porcelain")
    return Source(
        sha256=digest.hexdigest(),
        commit=_git("rev-parse", "HEAD"),
        clean=None if status is None else status == "",
    )


def read_lock(path: Path = LOCK) -> dict[str, Any]:
    """Return the lock file as data; raises ConfigError where it cannot be read."""
    try:
        lock: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"cannot read {path}: {reason(error)}; restore it, or make it with uv lock"
        ) from error
    return lock


PACKAGES = (
    *("torch", "transformers", "tokenizers", "trl", "peft", "numpy", "scipy"),
    *("numba", "msgspec", "unsloth", "vllm", "bitsandbytes", "ray"),
)

# Of these, the ones that decide the bits of a run wherever it is computed.
_STACK = ("torch", "transformers", "peft", "numpy")

_TIMEOUT_S = 30


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def stack(packages: Mapping[str, str | None]) -> str:
    """Name the libraries that decide a run's bits, with their versions, for people."""
    return ", ".join(f"{name} {packages.get(name) or 'not installed'}" for name in _STACK)


def stack_here() -> str:
    """Name those of this environment."""
    return stack({name: _version(name) for name in _STACK})


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


def accelerator() -> Accelerator | None:
    """Return the NVIDIA card that torch would use, by its driver's report; None without a card."""
    fields = "name,driver_version,memory.total"
    first = next(iter(_query_card(next(iter(named_cards()), ""), fields).splitlines()), "")
    parts = [part.strip() for part in first.split(",")]
    if len(parts) != fields.count(",") + 1 or not parts[2].isdigit():
        return None
    cuda = re.search(r"CUDA Version\s*:\s*([0-9.]+)", _output_of("nvidia-smi", "-q"))
    return Accelerator(
        name=parts[0],
        driver=parts[1],
        cuda=cuda[1] if cuda else "",
        memory_mib=int(parts[2]),
        share=os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") or msgspec.UNSET,
    )


class VisibleCard(NamedTuple):
    """An NVIDIA card by the name that CUDA_VISIBLE_DEVICES has for it, else its UUID; memory in MiB.

    ``number`` is nvidia-smi's, which is CUDA's under CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """

    name: str
    number: str
    free_mib: int
    total_mib: int


def visible_cards() -> list[VisibleCard]:
    """Return the cards of CUDA_VISIBLE_DEVICES (numbers or UUIDs) in its order, else all; may be empty."""
    fields = "uuid,index,memory.free,memory.total"
    answers = [(name, _query_card(name, fields)) for name in named_cards() or [""]]
    lines = [(name, line.split(",")) for name, answer in answers for line in answer.splitlines()]
    cards = [(name, [fact.strip() for fact in facts]) for name, facts in lines]
    return [
        VisibleCard(name or facts[0], facts[1], int(facts[2]), int(facts[3]))
        for name, facts in cards
        if len(facts) == fields.count(",") + 1 and all(fact.isdigit() for fact in facts[1:])
    ]


def named_cards() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES names; empty where it is not set."""
    return [name for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if (name := part.strip())]


def _query_card(name: str, fields: str) -> str:
    """The lines of nvidia-smi about a card, about all without a name."""
    chosen = ("-i", name) if name else ()
    return _output_of("nvidia-smi", *chosen, f"--query-gpu={fields}", "--format=csv,noheader,nounits").strip()


def _output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def environment(card: bool = False) -> Environment:
    """Return the facts, with ``card`` also those of the accelerator; facts that are unavailable are empty."""
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
        accelerator=(card and accelerator()) or msgspec.UNSET,
    )
