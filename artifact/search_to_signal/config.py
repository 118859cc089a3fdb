"""Reading settings: TOML in, typed and frozen out, with one canonical form to hash."""

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from search_to_signal.errors import ConfigError

T = TypeVar("T")


def load_toml(path: Path, kind: type[T]) -> T:
    """Decode a TOML file strictly; raises ConfigError that names the file and the offending key."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {path}: check the path") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}; correct or remove that key") from error
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def canonical_json(value: Any) -> bytes:
    """The one JSON form of a value: keys sorted, no blanks; equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def canonical_sha256(value: Any) -> str:
    """SHA-256 of the canonical JSON form."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
