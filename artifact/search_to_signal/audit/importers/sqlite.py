"""SQLite databases, opened so that nothing beside or within them changes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from search_to_signal.errors import RecordError


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write; raises RecordError for a database that is damaged or locked.

    A database without a pending write-ahead log is opened as immutable: even a reader would otherwise leave
    files beside it. With one, the log has to be read, and its two companions must be there already.
    """
    pending = path.with_name(path.name + "-wal")
    mode = "mode=ro" if pending.exists() and pending.stat().st_size else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA query_only = ON")
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise RecordError(
            f"{path}: unreadable database ({error}); copy it again when its writer is done"
        ) from error


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
