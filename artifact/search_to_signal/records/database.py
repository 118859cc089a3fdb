"""The program database that a search ends with, by the ids of its programs: ``database.json``."""

from pathlib import Path

import msgspec

from search_to_signal.errors import UNREADABLE, RecordError
from search_to_signal.records.files import read_regular, write_json

DATABASE = "database.json"
VERSION = 1


class Database(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Islands of programs after ``groups`` groups, and ``waiting`` ones with the number of their island."""

    groups: int
    islands: tuple[tuple[str, ...], ...]
    waiting: tuple[tuple[int, str], ...]
    version: int = VERSION


class _StoredVersion(msgspec.Struct):
    version: int = 0


def write_database(directory: Path, database: Database) -> None:
    """Write the database of a run directory."""
    write_json(directory / DATABASE, database)


def read_database(directory: Path) -> Database:
    """The database of a run directory; raises RecordError where there is none of this version."""
    path = directory / DATABASE
    try:
        data = read_regular(path)
        if (version := msgspec.json.decode(data, type=_StoredVersion).version) != VERSION:
            raise RecordError(
                f"{path} is a database of version {version}, this is version {VERSION}: "
                "read it with the version that wrote it, or run again"
            )
        return msgspec.json.decode(data, type=Database)
    except FileNotFoundError as error:
        raise RecordError(f"there is no {path}: restore it") from error
    except UNREADABLE as error:
        raise RecordError(f"{path} is no database ({error}): restore it") from error
