"""SQLite databases, opened so that nothing beside or within them changes."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.errors import RecordError, reason


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write; raises RecordError for a database that is damaged or locked."""
    with ExitStack() as stack:
        try:
            uri = _uri(path.resolve(), stack)
            connection = stack.enter_context(closing(sqlite3.connect(uri, uri=True)))
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA query_only = ON")
            yield connection
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            raise RecordError(
                f"{path}: unreadable database ({reason(error)}); copy it again when its writer is done"
            ) from error


def _uri(path: Path, stack: ExitStack) -> str:
    """Where a database is opened so that no file beside it appears or changes.

    Without a journal it is immutable: even a reader would otherwise leave files. A write-ahead log is read
    through the index that its writer left, and where that is missing, as where a transaction was not ended,
    the database is copied, since the files that SQLite needs would be made beside it.
    """
    journals = [path.with_name(path.name + end) for end in ("-wal", "-journal")]
    pending = [journal for journal in journals if journal.is_file() and journal.stat().st_size]
    if not pending:
        return f"{path.as_uri()}?mode=ro&immutable=1"
    index = path.with_name(path.name + "-shm")
    if pending == journals[:1] and index.is_file() and index.stat().st_size:
        return f"{path.as_uri()}?mode=ro&readonly_shm=1"
    directory = Path(stack.enter_context(TemporaryDirectory()))
    for file in (path, *pending):
        shutil.copyfile(file, directory / file.name)
    return (directory / path.name).as_uri()


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
