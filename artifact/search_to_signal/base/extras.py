"""The libraries that the distribution's extras bring, and the line that names a missing one."""

from importlib.util import find_spec
from types import MappingProxyType

from search_to_signal.base.errors import ConfigError

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
