"""The models that can be fetched by name: whose they are, under which licence, and the bytes they must be."""

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from search_to_signal.base.errors import ConfigError

# Where profiles look for them.
PLACE = "mounts"


@dataclass(frozen=True)
class KnownModel:
    """One published model. ``files`` has the SHA-256 by name where it is known before the hub is asked.

    A GGUF file is converted; a model without one is taken as its safetensors files are.
    """

    repository: str
    revision: str
    licence: str
    files: MappingProxyType[str, str]
    size: int | None = None

    @property
    def gguf(self) -> str | None:
        """The name of the GGUF file."""
        return next((name for name in self.files if name.endswith(".gguf")), None)


def _gguf(repository: str, revision: str, name: str, sha256: str, size: int) -> KnownModel:
    return KnownModel(repository, revision, "Apache-2.0", MappingProxyType({name: sha256}), size)


_NO_FILES: MappingProxyType[str, str] = MappingProxyType({})

KNOWN = MappingProxyType(
    {
        "qwen2.5-coder-0.5b-instruct": _gguf(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "ebb2015119c907b064c512bf053e945850b5875f",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            491_400_064,
        ),
        "qwen2.5-coder-1.5b-instruct": _gguf(
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            1_117_320_768,
        ),
        "Qwen2.5-7B-Instruct": KnownModel(
            "Qwen/Qwen2.5-7B-Instruct", "a09a35458c702b33eeacc393d103063234e8bc28", "Apache-2.0", _NO_FILES
        ),
        "deepseek-coder-7b-instruct-v1.5": KnownModel(
            "deepseek-ai/deepseek-coder-7b-instruct-v1.5",
            "2a050a4c59d687a85324d32e147517992117ed30",
            "DeepSeek Model License",
            _NO_FILES,
        ),
    }
)


def known_place(path: Path) -> str | None:
    """The name of the known model that a profile means by this path; None where it is none."""
    return path.name if path.name in KNOWN and path.parent.name == PLACE else None


def unknown_model(name: str) -> ConfigError:
    """What to say of a name that is not known, and that nothing else vouches for."""
    return ConfigError(
        f"no model {name!r} is known: name one of {', '.join(KNOWN)}, or give a GGUF file of your own with "
        "--from FILE --sha256 DIGEST"
    )
