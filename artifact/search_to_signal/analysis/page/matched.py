"""The matched updates as one page that a person reads."""

from pathlib import Path

from search_to_signal.analysis.tables.files import to_markdown
from search_to_signal.analysis.tables.matched import matched_tables


def matched_page(directory: Path) -> str:
    """The tables as one Markdown page."""
    tables = matched_tables(directory)
    parts = [f"## {table.title}\n\n{to_markdown(table.text_rows())}" for table in tables]
    return "\n".join(["# Matched updates\n", f"{tables[0].note}\n", *parts])
