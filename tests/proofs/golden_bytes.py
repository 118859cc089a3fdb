"""Makes everything that a user keeps, and says for every file whether another version makes the same.

    python -m tests.proofs.golden_bytes make OUT [--only PART,...] [--commit REV] [--logs DIR]
    python -m tests.proofs.golden_bytes compare BEFORE AFTER [--only PART,...]

`make` calls the command line of this tree, or of a commit in a worktree of its own, and keeps files, printed
text and exit codes below OUT/PART. A part that is there from the same source is not made again. Without
`--only` it makes the quick parts; `--only all` makes every part. `--logs` audits every log in a directory
besides: with the logs of an earlier OUT, `--logs BEFORE/audits/logs`, both versions read the same.

`compare` names the first byte that differs, with what is around it, and what is missing or new; it exits with
1 where there is anything. Left out are the hash of the source, the commit, the environment, times and absolute
paths. The checksum of a made file is taken for the file's name, since the file itself is compared. A PNG is
its pixels, a packed file what it unpacks to. What else differs between two makes of one commit is an error.

Nothing is imported from the package, so that this outlives its rearrangement.
"""

import argparse
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
FACTS = "golden.json"
COMMANDS = (
    "run record run-one updates heldout report replay compare trace verify seal rerun retrain pack unpack rebuild "
    "standings claims conformance released pretrain card serve model list audit normalizers"
).split()
KINDS = "profiles layers mappings alternatives normalizers problems hosts rules models fetchable".split()

# Commands of one interpreter, which imports once and then forks. The console script is found as pip finds it.
DRIVER = """
import json, os, sys
from importlib.metadata import entry_points
(main,) = [e.load() for e in entry_points(group="console_scripts") if e.name == "s2s"]
def call(words):
    sys.argv = ["s2s", *words]
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush(), sys.stderr.flush()
    return int(code or 0)
def onto(descriptor, path, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    os.dup2(os.open(path, flags, 0o644), descriptor)
warm, commands = json.load(sys.stdin)
screen = os.dup(1)
onto(1, os.devnull)
if warm:
    call(warm)
for name, words, given in commands:
    child = os.fork()
    if not child:
        onto(0, given or os.devnull, os.O_RDONLY)
        onto(1, name + ".out"), onto(2, name + ".err")
        os._exit(call(words))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(name + ".out", "a") as out:
        out.write(f"exit code {code}\\n")
    os.write(screen, f"  {code} s2s {' '.join(words)[:100]}\\n".encode())
"""
# Of the tests' builders, one log per format.
BUILDER = """
import sys
from pathlib import Path
from tests.changed_logs import LOGS
for name, (build, *_) in LOGS.items():
    directory = Path(sys.argv[1]) / name.replace(" ", "-")
    directory.mkdir(parents=True)
    build(directory)
"""


@dataclass(frozen=True)
class Tree:
    """A version of the project, and the directory that a part is made in."""

    root: Path
    out: Path
    logs: Path | None

    def calls(self, *commands: Sequence[str], warm: Sequence[str] = (), given: str = "") -> None:
        """Call ``s2s`` with (name of the printed text, words ...), one after the other."""
        todo = [(name, words, given) for name, *words in commands]
        self.python(DRIVER, cwd=self.out, stdin=json.dumps([warm, todo]))

    def python(self, code: str, *words: str, cwd: Path, stdin: str = "") -> None:
        """Run code by this interpreter, with this tree's package first."""
        environment = {**os.environ, "PYTHONPATH": f"{self.root / 'artifact'}:{self.root}", "COLUMNS": "100"}
        command = [sys.executable, "-c", code, *words]
        subprocess.run(command, cwd=cwd, env=environment, input=stdin, text=True, check=True)

    def link(self, *names: str) -> None:
        """Put files of the tree beside what is made, so that printed paths have the same length everywhere."""
        for name in names:
            place = self.out / Path(name).name
            (shutil.copytree if (self.root / name).is_dir() else shutil.copy)(self.root / name, place)


def words(tree: Tree) -> None:
    """Help, lists, the atlas, the ledger of the paper's numbers, errors of use."""
    tree.calls(
        ("help", "--help"),
        *((f"help-{name}", name, "--help") for name in COMMANDS),
        ("help-model-fetch", "model", "fetch", "--help"),
        ("list", "list"),
        *((f"list-{kind}", "list", kind) for kind in KINDS),
        ("normalizers", "normalizers"),
        ("claims", "claims", "--out", "claims"),
        ("dry", "run", "--profile", "embedded", "--out", "none", "--dry-run"),
        ("no-command",),
        ("no-log", "audit", "nothing.jsonl"),
        ("no-profile", "run", "--profile", "nothing", "--out", "none"),
        ("no-directory", "verify", "nothing"),
        ("no-kind", "list", "nothing"),
    )


def audits(tree: Tree) -> None:
    """Each log audited with page, JSON, CSV and text; a few with other options."""
    logs = tree.out / "logs"
    tree.python(BUILDER, str(logs / "built"), cwd=tree.root)
    shutil.copytree(tree.root / "tests" / "unit" / "audit" / "real", logs / "real")
    (logs / "docs").mkdir()
    for name in ("tight.jsonl", "uneven.jsonl"):
        shutil.copy(tree.root / "docs" / "examples" / name, logs / "docs")
    if tree.logs:
        shutil.rmtree(logs)
        shutil.copytree(tree.logs, logs, ignore=shutil.ignore_patterns("*.sqlite-*"))
    (tree.out / "pages").mkdir()
    found = [
        place.relative_to(tree.out) for group in sorted(logs.iterdir()) for place in sorted(group.iterdir())
    ]
    named = {str(place.relative_to("logs")).replace("/", "-"): str(place) for place in found}
    tight, ways = (
        "logs/docs/tight.jsonl",
        "--json|--normalizer slime-grpo|--fail-on dead=0.1|--fail-on dead=1",
    )
    ways += "|--map reward=reward,group=group|--group-size 2|--class prompt|--component reward|--format verl"
    tree.calls(
        *((f"pages/{name}", "audit", path, "--out", f"pages/{name}") for name, path in named.items()),
        *((f"way-{at}", "audit", tight, *way.split()) for at, way in enumerate(ways.split("|"))),
        warm=("audit", tight),
    )


def runs(tree: Tree) -> None:
    """The first two groups of shipped configurations of every host and rule: records, checks, replay."""
    chosen = (
        "main/cohort/frozen-s42 main/cohort/native-s42 entropic/cohort/score-s42 evotune/cohort/pairs-s42"
    )
    for name in chosen.split():
        config = json.loads((tree.root / "artifact" / "evidence" / name / "config.json").read_bytes())
        place = tree.out / f"{name.replace('/', '-')}.json"
        place.write_text(json.dumps({**config, "groups": 2}), encoding="utf-8")
        tree.calls((f"{place.stem}.run", "run-one", "--out", f"runs/{place.stem}"), given=place.name)
    native = "runs/main-cohort-native-s42"
    tree.calls(
        ("verify", "verify", "runs", "--tables", "--recompute"),
        ("draws", "verify", native, "--draws"),
        ("replay", "replay", "runs", "--out", "replay"),
        ("compare", "compare", "runs/main-cohort-frozen-s42", native),
    )


PARTS: dict[str, Callable[[Tree], None]] = {"words": words, "audits": audits, "runs": runs}
QUICK = ("words", "audits", "runs")


def make(root: Path, out: Path, parts: Sequence[str], logs: Path | None) -> None:
    """Make the parts that are not there from this source."""
    version = subprocess.run(
        [sys.executable, "-m", "search_to_signal.cli", "--version"],
        env={**os.environ, "PYTHONPATH": str(root / "artifact")}, cwd=root, text=True, capture_output=True, check=True,
    ).stdout.split()[-1]  # fmt: skip
    commit = subprocess.run(
        ["git", "-C", root, "rev-parse", "HEAD"], text=True, capture_output=True, check=True
    )
    facts = {"source": version, "commit": commit.stdout.strip(), "out": str(out), "root": str(root)}
    for part in parts:
        place = out / part
        if (place / FACTS).exists() and json.loads((place / FACTS).read_text())["source"] == version:
            print(f"{part}: is there", flush=True)
            continue
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(f"{part}: {PARTS[part].__doc__}", flush=True)
        PARTS[part](Tree(root, place, logs))
        (place / FACTS).write_text(json.dumps(facts), encoding="utf-8")


# What may differ between two makes of one commit, and what is put in its place.
SECONDS = rb"-?[0-9][0-9.e+-]*"
LEFT_OUT = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        (rb'"(timing|seconds|environment)":\s*\{(?:[^{}]|\{[^{}]*\})*\}', rb'"\1":<left out>'),
        (rb'"(processor_seconds|\w*_seconds)":\s*' + SECONDS, rb'"\1":<left out>'),
        (rb"[0-9.]+ groups per minute \(.*\)", b"<speed>"),
        (rb"(?m)^\[.*time left.*\]$|^\[.*about .* left.*\]$", b"<progress>"),
    )
)


class Made:
    """The files of a part, with what may differ taken out."""

    def __init__(self, place: Path) -> None:
        """``place`` is a part's directory."""
        self.place = place
        self.files = {
            str(f.relative_to(place)): f for f in sorted(place.rglob("*")) if f.is_file() and f.name != FACTS
        }
        facts = json.loads((place / FACTS).read_text())
        self._known = [(facts["out"].encode(), b"<out>"), (facts["root"].encode(), b"<tree>")]
        for name in ("source", "commit"):
            self._known += [
                (facts[name][:long].encode(), f"<{name}>".encode()) for long in (64, 40, 16, 12, 10, 8, 7)
            ]
        self._names: dict[bytes, bytes] = {}
        for name, file in self.files.items():
            self._names.setdefault(
                hashlib.sha256(file.read_bytes()).hexdigest().encode(), f"<sha256 of {name}>".encode()
            )

    def content(self, name: str) -> bytes:
        """What is compared of a file."""
        data = self.files[name].read_bytes()
        if name.endswith(".png"):
            return pixels(self.files[name])
        if name.endswith(".xz"):
            data = lzma.decompress(data)
        if b"\0" in data[:4096]:
            return data
        for known, label in self._known:
            data = data.replace(known, label)
        data = re.sub(rb"\b[0-9a-f]{64}\b", lambda found: self._names.get(found[0], found[0]), data)
        for pattern, put in LEFT_OUT:
            data = pattern.sub(put, data)
        return data


def pixels(path: Path) -> bytes:
    """Of a picture: size and colours."""
    from PIL import Image

    with Image.open(path) as picture:
        return repr(picture.size).encode() + picture.convert("RGBA").tobytes()


def differences(before: Made, after: Made) -> Iterator[str]:
    """A line for every file that is not the same."""
    for name in sorted({*before.files, *after.files}):
        if name not in after.files:
            yield f"missing {name}"
        elif name not in before.files:
            yield f"new {name}"
        elif before.files[name].read_bytes() != after.files[name].read_bytes():
            old, new = before.content(name), after.content(name)
            if old != new:
                at = next(
                    (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
                    min(len(old), len(new)),
                )
                around = slice(max(at - 40, 0), at + 40)
                yield f"byte {at} of {name}\n  before {old[around]!r}\n  after  {new[around]!r}"


def compare(before: Path, after: Path, parts: Sequence[str]) -> int:
    """Print what differs and how much does not; 1 where anything differs, or nothing was compared."""
    total = found = 0
    for part in parts:
        pair = before / part, after / part
        if not all((place / FACTS).exists() for place in pair):
            print(
                f"{part}: not made in {' and '.join(str(p.parent) for p in pair if not (p / FACTS).exists())}"
            )
            continue
        old, new = (Made(place) for place in pair)
        lines = list(differences(old, new))
        for line in lines:
            print(f"{part}: {line}")
        total, found = total + len(old.files), found + len(lines)
        print(f"{part}: {len(old.files)} files, {len(lines)} differ", flush=True)
    print(f"{total} files, {'same' if not found else f'{found} differ'}")
    return int(bool(found or not total))


def main() -> int:
    """Make or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("make", "compare"))
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--commit")
    parser.add_argument("--logs", type=Path)
    given = parser.parse_args()
    places = [place.absolute() for place in given.places]
    if given.action == "compare":
        return compare(*places, given.only.split(",") if given.only else list(PARTS))
    parts = list(PARTS) if given.only == "all" else given.only.split(",") if given.only else list(QUICK)
    if not given.commit:
        make(HERE, *places, parts, given.logs and given.logs.absolute())
        return 0
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "tree"
        subprocess.run(
            ["git", "-C", HERE, "worktree", "add", "-q", "--detach", root, given.commit], check=True
        )
        try:
            make(root, *places, parts, given.logs and given.logs.absolute())
        finally:
            subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", root], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
