"""The command that prints the atlas of normalizers."""

import argparse
import json

from search_to_signal.cli.base import Add
from search_to_signal.errors import ConfigError


def _normalizers(arguments: argparse.Namespace) -> int:
    from search_to_signal.audit.atlas.entry import sources
    from search_to_signal.audit.atlas.listing import chosen, document, table

    found = chosen(arguments.name)
    if not found:
        frameworks = sorted({source.framework for source in sources().values()})
        raise ConfigError(
            f"the atlas has no name or framework that begins with {arguments.name!r}: frameworks are "
            f"{', '.join(frameworks)}"
        )
    print(json.dumps(document(found), indent=2) if arguments.json else table(found))
    return 0


def register(add: Add) -> None:
    """Add normalizers."""
    text = "what each framework's normalizer makes of a group: the atlas as a table"
    command = add("normalizers", _normalizers, text, "s2s normalizers verl --json")
    command.add_argument("name", nargs="?", help="only those whose name or framework begins so")
    command.add_argument("--json", action="store_true", help="everything the atlas says, as JSON")
