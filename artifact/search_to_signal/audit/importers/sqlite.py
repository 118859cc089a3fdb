"""SQLite databases, opened so that nothing beside or within them changes, and nothing in them is run."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from search_to_signal.audit.importers.streams import regular
from search_to_signal.errors import RecordError

# Instructions of SQLite's machine: so many, and so many per byte; a log needs a fraction of one per byte.
_WORK, _PER_BYTE, _STEP = 50_000_000, 20, 100_000
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
_COMPANIONS = ("-wal", "-shm", "-journal")
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name"


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write and reads tables only: no view, function or generated column.

    A database without a pending write-ahead log is opened as immutable: even a reader would otherwise leave
    files beside it. With one, the log has to be read, and its two companions must be there already.
    Raises RecordError for a database that is damaged or locked, and for one that takes work without end.
    """
    pending = path.with_name(path.name + "-wal")
    mode = "mode=ro" if pending.is_file() and pending.stat().st_size else "mode=ro&immutable=1"
    # SQLite would wait for the writer of a pipe.
    for companion in (path.with_name(path.name + end) for end in _COMPANIONS):
        if companion.exists():
            regular(companion).close()
    with regular(path) as file:
        size = file.seek(0, 2)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(_budget(_WORK + _PER_BYTE * size), _STEP)
            connection.set_authorizer(_authorized)
            yield connection
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        raise RecordError(
            f"{path}: unreadable database ({error}); copy it again when its writer is done"
        ) from error


def _budget(work: int) -> Callable[[], bool]:
    def exhausted() -> bool:
        nonlocal work
        work -= _STEP
        return work < 0

    return exhausted


def _authorized(action: int, name: str | None, more: str | None, _: str | None, within: str | None) -> int:
    """Only tables are read, and what their columns are called; ``within`` is the view that asks."""
    about = action == sqlite3.SQLITE_PRAGMA and name == "table_xinfo"
    allowed = about or (action in _READING and within is None)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def table_columns(path: Path) -> tuple[str, ...]:
    """Every column of every table, as ``table.column``, sorted; of a table with computed columns none."""
    with read_only(path) as connection:
        names = [table["name"] for table in connection.execute(_TABLES)]
        columns = {
            name: connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall() for name in names
        }
    return tuple(
        f"{table}.{column['name']}"
        for table in names
        for column in columns[table]
        if not any(other["hidden"] for other in columns[table])
    )
