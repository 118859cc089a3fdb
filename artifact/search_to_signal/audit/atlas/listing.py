"""The atlas as a table, for people and for programs."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from search_to_signal.audit.atlas.entry import NormalizerEntry, entries, source_of, sources


def row(entry: NormalizerEntry) -> dict[str, str]:
    """The cells of an entry in the plain table."""
    source = source_of(entry)
    place = f"{source.repository}@{source.commit[:12]}" if source.commit else source.repository
    # Both stages of an entry that whitens are named, and whose deviation it is where it is not the group's.
    over = f" of {entry.scale.over}" if entry.scale and entry.scale.over != "group" else ""
    second = f", {entry.whiten.deviation} of {entry.whiten.over}" if entry.whiten else ""
    at = f" at {entry.epsilon_at}" if entry.epsilon else ""
    return {
        "name": entry.name,
        "framework": source.framework,
        "version": source.version,
        "deviation": f"{entry.deviation}{over}{second}",
        "epsilon": f"{entry.epsilon:g}{at}",
        "singleton": entry.singleton,
        "flat": entry.flat,
        "aggregation": entry.aggregation,
        "source": f"{place}:{entry.path}" if entry.path else place,
    }


def table(chosen: Iterable[NormalizerEntry]) -> str:
    """Entries, one or more, as aligned plain text, and beneath it the sources that nobody could read."""
    rows = [row(entry) for entry in chosen]
    cells = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    unread = [source.framework for source in sources().values() if source.repository == "unread"]
    return "\n".join([*lines, "", f"Not read in a source: {', '.join(unread)}."])


def document(chosen: Iterable[NormalizerEntry]) -> list[Mapping[str, Any]]:
    """Entries with everything that the atlas says of them, their source included, for JSON."""
    return [
        {
            **msgspec.to_builtins(entry),
            "deviation": entry.deviation,
            "epsilon": entry.epsilon,
            "epsilon_at": entry.epsilon_at,
            "source": msgspec.to_builtins(source_of(entry)),
        }
        for entry in chosen
    ]


def chosen(name: str | None) -> list[NormalizerEntry]:
    """The entries whose name or framework begins with ``name``, without regard to case; all without one."""
    wanted = (name or "").lower()
    return [
        entry
        for entry in entries().values()
        if entry.name.lower().startswith(wanted) or source_of(entry).framework.lower().startswith(wanted)
    ]
