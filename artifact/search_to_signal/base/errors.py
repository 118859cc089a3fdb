"""One root error and one class per meaning. Every message says what happened and what to do next.

A missing library is one of them: the message names the extra of the distribution that brings it.
"""

from importlib.util import find_spec
from types import MappingProxyType
from typing import ClassVar

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes from outside; the last for brackets within brackets without end."""


class S2SError(Exception):
    """Root of every error that this package raises on purpose.

    A subclass says which code a command ends with after it, or has that of its base.
    """

    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        super().__init_subclass__()
        if exit_code is not None:
            cls.exit_code = exit_code


def reason(error: Exception) -> str:
    """Why something failed, in words: of an OSError what the system says, without its number and path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class ConfigError(S2SError, exit_code=2):
    """A profile or option is unknown, missing or out of range."""


class ModelFileError(S2SError, exit_code=3):
    """A model file is missing or does not match its recorded checksum."""


class RunDirectoryError(S2SError, exit_code=4):
    """A results directory is missing, incomplete, or already holds another run."""


class RecordError(S2SError, exit_code=5):
    """A record line cannot be read, or contradicts its neighbours."""


class IllFormedGroupError(S2SError, exit_code=6):
    """A group handed to a reward mapping or normalizer is not well formed."""


class MappingError(S2SError, exit_code=18):
    """A third-party mapping, normalizer, problem, host, rule or table failed or broke its protocol."""


class DataHashError(S2SError, exit_code=7):
    """Regenerated instances do not have the recorded SHA-256."""


class SandboxError(S2SError, exit_code=8):
    """The isolation layer itself failed; never a candidate's fault and never a reward."""


class LearnerError(S2SError, exit_code=9):
    """An update would use non-finite or inconsistent inputs."""


class NotFiniteError(LearnerError, exit_code=20):
    """A gradient is not finite; no weight has moved."""


class LedgerError(S2SError, exit_code=17):
    """A published table or the ledger of claims is damaged, or asks for what it does not hold."""


class ContractError(S2SError, exit_code=21):
    """The resource anchor's contract is missing, altered, or would come after the results."""


class GenerationError(S2SError, exit_code=13):
    """Completions cannot be had from an endpoint or engine; the run stops, and this is never a reward."""


class SignatureError(S2SError, exit_code=19):
    """A checksum list cannot be signed, or is not signed by whom it should be."""


class RunFailedError(S2SError, exit_code=10):
    """A run's process ended without completing its directory."""


class StoppedError(S2SError, exit_code=130):
    """Somebody asked for the end before the last run."""


class HostError(S2SError, exit_code=12):
    """A released host lacks, or does not keep, the interface that this package knows."""


# By the name that is imported; pyproject.toml says which versions.
EXTRAS = MappingProxyType(
    {
        "report": ("matplotlib", "rich", "scipy"),
        "parquet": ("pyarrow",),
        "run": (
            *("torch", "transformers", "tokenizers", "safetensors", "accelerate", "peft"),
            *("numba", "openai", "gguf", "sentencepiece", "huggingface_hub", "setuptools"),
        ),
        "tensorboard": ("tensorboard",),
    }
)


class MissingExtraError(ConfigError):
    """A library that an extra brings is not installed."""


def missing(module: str | None) -> MissingExtraError | None:
    """What to say where a module cannot be imported; None where no extra would bring it."""
    package = (module or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return MissingExtraError(
                f"this needs {package}, which is not installed: install search-to-signal[{extra}]"
            )
    return None


def require(*packages: str) -> None:
    """Raise MissingExtraError for the first of these packages that is not installed."""
    for package in packages:
        error = None if find_spec(package) else missing(package)
        if error is not None:
            raise error
