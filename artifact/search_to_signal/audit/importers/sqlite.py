"""SQLite databases, opened so that nothing beside or within them changes."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.errors import RecordError, reason

# Bytes of a database with a pending journal, which is copied to be read.
LARGEST = 4 * 1024 * 1024 * 1024
_TRIES = 3


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write; raises RecordError for a database that is damaged or locked.

    A database without a journal is opened as immutable: even a reader would otherwise leave files beside it.
    One with a write-ahead log, or with a transaction that was not ended, is copied with it: SQLite makes or
    changes the files that it needs for them, and without their writer waits for what never comes.
    """
    with ExitStack() as stack:
        try:
            found = path.resolve()
            journals = [found.with_name(found.name + end) for end in ("-wal", "-journal")]
            files = [found, *(one for one in journals if one.is_file() and one.stat().st_size)]
            uri = f"{found.as_uri()}?mode=ro&immutable=1"
            if len(files) > 1:
                directory = Path(stack.enter_context(TemporaryDirectory()))
                uri = _copied(files, directory).as_uri()
            connection = stack.enter_context(closing(sqlite3.connect(uri, uri=True)))
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA query_only = ON")
            yield connection
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            raise RecordError(
                f"{path}: unreadable database ({reason(error)}); copy it again when its writer is done"
            ) from error


def _copied(files: Sequence[Path], directory: Path) -> Path:
    """A database and its journal as they were at one time. Raises OSError where they change or are large."""
    for _ in range(_TRIES):
        before = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        if sum(size for size, _ in before) > LARGEST:
            raise OSError(f"it has a pending journal and over {LARGEST} bytes")
        for file in files:
            shutil.copyfile(file, directory / file.name)
        if before == [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]:
            return directory / files[0].name
    raise OSError("it changed while it was read")


def table_columns(path: Path) -> tuple[str, ...]:
    """Every column of every table, as ``table.column``, sorted."""
    with read_only(path) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        ).fetchall()
        return tuple(
            f"{table['name']}.{column['name']}"
            for table in tables
            for column in connection.execute("SELECT name FROM pragma_table_info(?)", (table["name"],))
        )
