"""SQLite databases, opened so that nothing beside or within them changes, and nothing in them is run."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.audit.importers.streams import regular
from search_to_signal.errors import RecordError, reason

# Bytes of a database with a pending journal, which is copied to be read.
LARGEST = 4 * 1024 * 1024 * 1024
_TRIES = 3
# Instructions of SQLite's machine: so many, and so many per byte; a log takes less than one per byte.
_WORK, _PER_BYTE, _STEP = 50_000_000, 20, 100_000
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name"


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads tables and no view, and calls no function.

    Raises RecordError for a database that is damaged or locked, and for one that takes work without end.

    A database without a journal is opened as immutable: even a reader would otherwise leave files beside it.
    One with a write-ahead log, or with a transaction that was not ended, is copied with it: SQLite makes or
    changes the files that it needs for them, and without their writer waits for what never comes.
    """
    with ExitStack() as stack:
        try:
            regular(path).close()
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
            connection.execute("PRAGMA trusted_schema = OFF")
            work = _WORK + _PER_BYTE * sum(file.stat().st_size for file in files)
            connection.set_progress_handler(_counted_down(work // _STEP), _STEP)
            connection.set_authorizer(_authorized)
            yield connection
        except (sqlite3.Error, UnicodeDecodeError, OSError, OverflowError) as error:
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


def _counted_down(calls: int) -> Callable[[], bool]:
    """Whether it was called more often than is allowed."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def _authorized(action: int, name: str | None, more: str | None, _: str | None, view: str | None) -> int:
    """Only tables are read, and what their columns are called."""
    about = action == sqlite3.SQLITE_PRAGMA and name == "table_xinfo"
    allowed = about or (action in _READING and view is None)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def table_columns(path: Path) -> tuple[str, ...]:
    """Every column of every table, as ``table.column``, sorted; none of one that computes columns."""
    with read_only(path) as connection:
        names = [table["name"] for table in connection.execute(_TABLES)]
        columns = {
            name: connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall() for name in names
        }
    plain = [name for name in names if not any(column["hidden"] for column in columns[name])]
    return tuple(f"{name}.{column['name']}" for name in plain for column in columns[name])


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
