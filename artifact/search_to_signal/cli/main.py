"""The s2s command and its errors: one file per group of commands, each with a ``register``."""

import argparse
import io
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import cleandoc
from typing import TextIO

import search_to_signal
from search_to_signal.base.errors import RunDirectoryError, S2SError, missing
from search_to_signal.base.processes import fix_kernels, wait_without_spinning
from search_to_signal.base.progress import one_line
from search_to_signal.cli.options import Command

# The commands of each module, so that only the module of the given command is imported.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "running": ("run", "record", "run-one", "updates", "heldout"),
    "records": ("report", "replay", "compare", "trace"),
    "checking": ("verify", "seal"),
    "rerunning": ("rerun", "retrain"),
    "shipping": ("pack", "unpack", "rebuild", "standings"),
    "claims": ("claims",),
    "models": ("conformance", "released", "pretrain", "card", "serve", "model"),
    "listing": ("list",),
    "audit": ("audit", "normalizers", "worth", "exploits"),
}
# The number of printed characters of an error.
_ERROR_LENGTH = 4000
_REMEDY = "check that it exists, that you may write there, and that the disk has room"


class _Version(argparse.Action):
    """Prints version, the source's hash, which is computed only for this option, and libraries."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from search_to_signal.records.provenance import source, stack_here

        print(f"s2s {search_to_signal.__version__}, source {source().sha256}")
        print(f"Python {platform.python_version()}, {stack_here()}")
        parser.exit()


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="s2s",
        description="Run a search whose language model is trained while it searches; check and read its "
        "records; audit the logs of GRPO trainers.",
        epilog="example: s2s run --profile smoke --out results/smoke && s2s verify results/smoke",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="the version, the source's hash, and the libraries"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(command: Command, example: str) -> argparse.ArgumentParser:
        name, text = command.__name__.strip("_").replace("_", "-"), cleandoc(command.__doc__ or "")
        listed = " ".join(text.partition("\n\n")[0].split()).rstrip(".")
        sub = commands.add_parser(
            name, help=listed[:1].lower() + listed[1:], description=text, epilog=f"example: {example}"
        )
        sub.set_defaults(command=command)
        return sub

    needed = [group for group, names in _GROUPS.items() if given and given[0] in names]
    for group in needed or _GROUPS:
        import_module(f"{__package__}.{group}").register(add)
    return parser


def _discard(stream: TextIO) -> None:
    # Python writes buffered output when it ends, which would raise the same error again.
    with suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(line: str) -> None:
    """Print a line of errors; where its file takes none, as on a full disk, the exit code still tells."""
    try:
        print(f"s2s: {line}", file=sys.stderr)
    except OSError:
        _discard(sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; S2SError and OSError are printed as one line."""
    wait_without_spinning()
    fix_kernels()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without a character shows a replacement.
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else arguments
    parsed = _parser(given).parse_args(given)
    try:
        code: int = parsed.command(parsed) or 0
        sys.stdout.flush()
    except S2SError as error:
        _say(f"error: {one_line(str(error), _ERROR_LENGTH)}")
        return error.exit_code
    except ModuleNotFoundError as error:
        missing_extra = missing(error.name)
        if missing_extra is None:
            raise
        _say(f"error: {missing_extra}")
        return missing_extra.exit_code
    except BrokenPipeError:
        # The reader of the output, head for example, has ended.
        _discard(sys.stdout)
        return 0
    except OSError as error:
        where = one_line(str(error.filename)) if error.filename is not None else "output"
        _say(f"error: cannot use {where}: {error.strerror or error}; {_REMEDY}")
        if error.filename is None:
            _discard(sys.stdout)
        return RunDirectoryError.exit_code
    except KeyboardInterrupt as stop:
        _say(" ".join(["stopped", *map(str, stop.args)]))
        return 130
    return code
