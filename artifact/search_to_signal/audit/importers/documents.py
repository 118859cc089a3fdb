"""Files that are one JSON document: a list of records, or an object that holds one."""

from pathlib import Path
from typing import Any

from search_to_signal.audit.importers.lines import parse_json, refuse_dense
from search_to_signal.audit.importers.streams import start_of
from search_to_signal.errors import RecordError

LARGEST = 1024 * 1024 * 1024


def read_document(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON file: the list itself, or the list under ``traces``. The file is held whole.

    Raises RecordError for a file that is no JSON, cut off, over a gigabyte, or without such a list.
    """
    text = start_of(path, LARGEST + 1)
    if len(text) > LARGEST:
        raise RecordError(f"{path} is one JSON document of over {LARGEST} bytes; write it as JSON Lines")
    refuse_dense(str(path), text)
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not JSON, or cut off ({error}); copy the file again") from error
    records = document.get("traces") if isinstance(document, dict) else document
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise RecordError(f"{path}: no list of records; a log is a list of JSON objects")
    return records
