"""Replace every file of a results directory by a pipe or worse, one at a time, and give every command.

    python -m tests.proofs.strange_files results/smoke                 # pipes and endless links, all commands
    python -m tests.proofs.strange_files results/smoke --kind sparse --command verify

A command has to end within ``--seconds``, without a traceback, and a check with another code than 0.
"""

import tests.proofs.fixed_kernels  # noqa: F401

# isort: split
import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from tests.figures import print_figure

from search_to_signal.cli import main as s2s

_GIB = 1 << 30


def _socket(path: Path) -> None:
    place = os.getcwd()
    os.chdir(path.parent)  # An address has at most 108 bytes.
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)
    os.chdir(place)


def _sparse(size: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.touch()
        os.truncate(path, size)

    return make


def _long_line(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(_GIB >> 20):
            file.write(b"[" * (1 << 20))


KINDS: Mapping[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "outside": lambda path: path.symlink_to("/etc/hostname"),
    "socket": _socket,
    "folder": Path.mkdir,
    "huge": _sparse(20 * _GIB),
    "sparse": _sparse(3 * _GIB),
    "line": _long_line,
    "nul": lambda path: path.write_bytes(bytes(1 << 20)),
    "nested": lambda path: path.write_bytes(b"[" * (1 << 20)),
    "empty": Path.touch,
}

# D is the directory, OUT a place that is not there, COPY an untouched copy.
COMMANDS = {
    "verify": "verify D",
    "tables": "verify D --tables",
    "recompute": "verify D --recompute --sample 1 --seed 1",
    "draws": "verify D --draws --sample 1 --seed 1",
    "report": "report D --out OUT",
    "replay": "replay D --out OUT",
    "compare": "compare D COPY",
    "trace": "trace D core_results --show 1",
    "rerun": "rerun D cohort/frozen-s42 --out OUT",
    "retrain": "retrain D cohort/native-s42 --out OUT",
    "pack": "pack D --into OUT",
    "seal": "seal D --sign KEY",
    "claims": "claims --results D",
    "updates": "updates D --out OUT",
    "heldout": "heldout D --instances 1",
    "resume": "run --profile smoke --out D --resume",
}
VERIFYING = ("verify", "tables", "recompute", "draws")
_LOADED = (
    *(
        "verify.directory",
        "verify.tables",
        "verify.recompute",
        "verify.rerun",
    ),
    *(
        "verify.token_draws",
        "layers.updates.pairs",
        "study.packing",
        "study.unpacking",
        "claims.verdicts",
        "claims.page",
    ),
)


def answer(words: list[str], seconds: float, log: Path) -> tuple[int | None, str]:
    """The exit code of a command, in a process of its own, and what it printed; None where it did not end."""
    child = os.fork()
    if child == 0:
        os.setsid()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        try:
            code = s2s(words)
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001
            import traceback

            traceback.print_exc()
            code = 70
        os._exit(code)
    end = time.monotonic() + seconds
    done, status = os.waitpid(child, os.WNOHANG)
    while not done and time.monotonic() < end:
        time.sleep(0.01)
        done, status = os.waitpid(child, os.WNOHANG)
    if not done:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return (os.waitstatus_to_exitcode(status) if done else None), log.read_text(errors="replace")


def judged(command: str, code: int | None, printed: str) -> str:
    """What an answer is: hung, killed, a traceback, silent where a check has to say no, read or refused."""
    if code is None:
        return "hung"
    if "Traceback" in printed or code == 70:
        return "traceback"
    if code < 0:
        return "killed"
    if code == 0:
        return "silent" if command in VERIFYING else "read"
    return "refused"


def main() -> None:
    """Print the tally of each command and kind, and what was wrong; exit 1 where anything was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kind", action="append", choices=KINDS, default=[])
    parser.add_argument("--command", action="append", choices=COMMANDS, default=[])
    parser.add_argument("--seconds", type=float, default=14.0)
    parser.add_argument("--every", type=int, default=1, help="only every so many files")
    arguments = parser.parse_args()
    for name in _LOADED:
        import_module(f"search_to_signal.{name}")
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        top = Path(temporary)
        copy, other, aside = (
            Path(shutil.copytree(arguments.directory, top / "copy")),
            Path(shutil.copytree(arguments.directory, top / "other")),
            top / "aside",
        )
        key = top / "key"
        key.write_text("no key")
        files = sorted(path for path in copy.rglob("*") if path.is_file())[:: arguments.every]
        for name in arguments.command or COMMANDS:
            for kind in arguments.kind or ("pipe", "endless"):
                tally: Counter[str] = Counter()
                slowest = 0.0
                for path in files:
                    path.rename(aside)
                    KINDS[kind](path)
                    places = {"D": str(copy), "OUT": str(top / "out"), "COPY": str(other), "KEY": str(key)}
                    words = [places.get(word, word) for word in COMMANDS[name].split()]
                    begun = time.monotonic()
                    code, printed = answer(words, arguments.seconds, top / "log")
                    slowest = max(slowest, time.monotonic() - begun)
                    verdict = judged(name, code, printed)
                    tally[verdict] += 1
                    if verdict not in ("read", "refused"):
                        print(f"{verdict}: {name} {kind} {path.relative_to(copy)}: {printed[-300:]!r}")
                    shutil.rmtree(top / "out", ignore_errors=True)
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                    aside.rename(path)
                print(f"{name} {kind}: {dict(tally)}, slowest {slowest:.1f} s", flush=True)
                total += tally
    wrong = sum(count for verdict, count in total.items() if verdict not in ("read", "refused"))
    command = f"python -m tests.proofs.strange_files {arguments.directory}"
    print_figure("strange_files", command, f"{wrong} of {sum(total.values())} answers wrong: {dict(total)}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
