"""Makes everything that a user keeps, and says for every file whether another version makes the same.

    python -m tests.proofs.golden_bytes make OUT [--only PART,...] [--commit REV] [--logs DIR]
    python -m tests.proofs.golden_bytes compare BEFORE AFTER [--only PART,...]

`make` calls the command line of this tree, or of a commit in a worktree of its own, and keeps files, printed
text and exit codes below OUT/PART. A part that is there from the same source is not made again. Without
`--only` it makes the quick parts (words, audits, runs); `--only all` makes every part. `--logs DIR` audits
DIR/GROUP/LOG in place of the logs of this tree's tests: with BEFORE/audits/logs both versions read the same.

`compare` names the first byte that differs, with what is around it, and what is missing or new; it exits with
1 where there is anything. Left out are the source's hash, the commit, the environment, times and absolute
paths. The checksum of a made file is taken for the file's name, since the file itself is compared. Of a PNG
the pixels are compared, of a file in xz what it unpacks to.

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
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parents[2]
FACTS = "golden.json"
COMMANDS = """run record run-one updates heldout report replay compare trace verify seal rerun retrain pack
unpack rebuild standings claims conformance released pretrain card serve model list audit normalizers"""
KINDS = "profiles layers mappings alternatives normalizers problems hosts rules models fetchable"
# Ways to audit a log, beside the plain one.
WAYS = """docs/tight.jsonl --json
docs/tight.jsonl --normalizer slime-grpo
docs/tight.jsonl --class reward --format neutral-jsonl
docs/tight.jsonl --fail-on dead=0.1
docs/tight.jsonl --fail-on dead=1
docs/uneven.jsonl --map reward=reward,group=group
docs/uneven.jsonl --format verl
real/trl-1.16.0-weights --component length=0.5 --component vowels=2
real/trl-1.16.0-gdpo --normalizer trl-gdpo --json
real/trl-1.16.0-conversation --group-size 2"""
RUNS = "main/cohort/frozen-s42 main/cohort/native-s42 entropic/cohort/score-s42 evotune/cohort/pairs-s42"
LAYERS = "cohort restart breadth audit probe api updates heldout"
AGAIN = "main/cohort/frozen-s42 main/cohort/factorized-s42"

# One interpreter that imports once and forks for every command, found as the console script is.
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
warm, commands, given = json.load(sys.stdin)
screen = os.dup(1)
onto(1, os.devnull)
if warm:
    call(warm)
for name, *words in commands:
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
# One log per format, of the tests' builders.
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
    """A version of the project, the directory that a part is made in, and logs instead of its own."""

    root: Path
    out: Path
    logs: Path | None = None

    def calls(self, *commands: Sequence[str], warm: Sequence[str] = (), given: str = "") -> None:
        """Call ``s2s`` with (name of the printed text, words ...), one after the other."""
        self.python("-c", DRIVER, cwd=self.out, stdin=json.dumps([warm, commands, given]))

    def python(self, *words: str, cwd: Path, stdin: str = "") -> None:
        """Run this interpreter with the tree's package first."""
        subprocess.run(
            [sys.executable, *words], cwd=cwd, env=self.environment, input=stdin, text=True, check=True
        )

    @property
    def environment(self) -> dict[str, str]:
        """The tree's package comes before the installed one, and lines are broken alike everywhere."""
        return os.environ | {"PYTHONPATH": f"{self.root / 'artifact'}:{self.root}", "COLUMNS": "100"}

    def bring(self, name: str, to: str = ".") -> None:
        """Copy a file or directory of the tree here, since printed paths then have one length everywhere."""
        place = self.out / to / Path(name).name
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (self.root / name).is_dir() else shutil.copy)(self.root / name, place)


def words(tree: Tree) -> None:
    """Help, lists, the atlas, the ledger of the paper's numbers, errors of use."""
    tree.calls(
        ("help", "--help"),
        *((f"help-{name}", name, "--help") for name in COMMANDS.split()),
        ("help-model-fetch", "model", "fetch", "--help"),
        ("list", "list"),
        *((f"list-{kind}", "list", kind) for kind in KINDS.split()),
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
    """A log of every format, real ones and examples: page, JSON, CSV and text; some in other ways too."""
    if tree.logs:
        shutil.copytree(tree.logs, tree.out / "logs")
    else:
        tree.python("-c", BUILDER, str(tree.out / "logs" / "built"), cwd=tree.root)
        tree.bring("tests/unit/audit/real", to="logs")
        tree.bring("docs/examples/tight.jsonl", to="logs/docs")
        tree.bring("docs/examples/uneven.jsonl", to="logs/docs")
    paths = [str(place.relative_to(tree.out)) for place in sorted((tree.out / "logs").glob("*/*"))]
    pages = [(path, "pages/" + path.removeprefix("logs/").replace("/", "-")) for path in paths]
    (tree.out / "pages").mkdir()
    ways = [way.partition(" ") for way in WAYS.splitlines()]
    tree.calls(
        *((page, "audit", path, "--out", page) for path, page in pages),
        *((f"way-{at}", "audit", f"logs/{log}", *way.split()) for at, (log, _, way) in enumerate(ways)),
        warm=("audit", paths[0]),
    )


def runs(tree: Tree) -> None:
    """Two groups of shipped configurations, of every host and rule, with an update; checked and replayed."""
    names = {name.replace("/", "-"): name for name in RUNS.split()}
    for name, source in names.items():
        config = json.loads((tree.root / "artifact" / "evidence" / source / "config.json").read_bytes())
        often = dict.fromkeys(config["rule_settings"], 2)
        given = json.dumps({**config, "groups": 2, "rule_settings": often})
        (tree.out / f"{name}.json").write_text(given, encoding="utf-8")
        tree.calls((f"{name}.run", "run-one", "--out", f"runs/{name}"), given=f"{name}.json")
    frozen, native = (f"runs/{name}" for name in list(names)[:2])
    tree.calls(
        *((f"recompute-{name}", "verify", f"runs/{name}", "--recompute") for name in names),
        ("draws", "verify", native, "--draws"),
        ("replay", "replay", "runs", "--out", "replay"),
        ("compare", "compare", frozen, native),
    )


def smoke(tree: Tree) -> None:
    """Every layer of profile smoke, and what is done with results; minutes."""
    run = ("run", "--profile", "smoke", "--out", "smoke", "--resume")
    layers = [word for layer in LAYERS.split() for word in ("--layer", layer)]
    for name, more in (("others.run", layers), ("anchor.run", ["--layer", "anchor"])):
        tree.calls((name, *run, *more))
        still(tree.out / "smoke")
        if name == "others.run":  # The contract of the true times, and what was reported after it.
            shutil.rmtree(tree.out / "smoke" / "anchor")
            shutil.rmtree(tree.out / "smoke" / "report")
    native, only = "cohort/native-s42", ("--mapping", "native", "--normalizer", "rloo")
    tree.calls(
        ("all.run", *run),
        ("verify", "verify", "smoke", "--tables"),
        ("recompute", "verify", "smoke", "--recompute"),
        ("trace", "trace", "smoke"),
        ("trace-table", "trace", "smoke", "replay_pairs"),
        ("trace-cell", "trace", "smoke", "core_results", "native", "Valid (%)", "--show", "2"),
        ("claims", "claims", "--results", "smoke", "--out", "claims"),
        ("report", "report", "smoke", "--out", "report"),
        ("replay", "replay", "smoke/cohort", "--out", "replay"),
        ("rloo", "replay", "smoke/cohort", *only, "--out", "rloo"),
        ("pack", "pack", "smoke", "--into", "packed"),
        ("rerun", "rerun", "smoke", native, "--out", "rerun"),
        ("retrain", "retrain", "smoke", native, "--out", "retrained"),
    )


def embedded(tree: Tree) -> None:
    """Profile embedded, cut to one seed of three groups: cohort, restarts, and the page; minutes."""
    profile = (tree.root / "artifact" / "profiles" / "embedded.toml").read_text(encoding="utf-8")
    profile = re.sub(r"seeds = \[42, .*\]", "seeds = [42]", profile.replace("groups = 60", "groups = 3"))
    (tree.out / "cut.toml").write_text(profile, encoding="utf-8")
    layers = ("--layer", "cohort", "--layer", "restart")
    tree.calls(("cut.run", "run", "--profile", "cut.toml", "--out", "cut", *layers))
    still(tree.out / "cut")
    tree.calls(("report", "report", "cut"))


def evidence(tree: Tree) -> None:
    """The shipped evidence: tables, figures and pages of all plans, the ledger, all that unpacks; a while."""
    tree.bring("artifact/evidence")
    tree.calls(
        ("rebuild", "rebuild", "evidence", "--out", "rebuilt"),
        ("claims", "claims", "--results", "evidence", "--out", "claims"),
        ("trace", "trace", "evidence/main", "core_results", "native", "Valid (%)"),
        ("besides", "trace", "evidence/pretrained", "besides"),
        ("standings", "standings", "evidence", "--check", "1"),
        ("unpack", "unpack", "evidence", "--out", "unpacked"),
    )
    files = sorted(file for file in (tree.out / "unpacked").rglob("*") if file.is_file())
    lines = (f"{sha256(file)} {file.relative_to(tree.out)}\n" for file in files)
    (tree.out / "unpacked.txt").write_text("".join(lines), encoding="utf-8")
    for name in ("unpacked", "evidence"):
        shutil.rmtree(tree.out / name)


def rerun(tree: Tree) -> None:
    """Two shipped runs of 500 groups executed again, and compared with what was recorded; an hour."""
    tree.bring("artifact/evidence")
    tree.calls(("rerun.run", "rerun", "evidence", *AGAIN.split(), "--out", "again", "--jobs", "2"))
    shutil.rmtree(tree.out / "evidence")


PARTS: dict[str, Callable[[Tree], None]] = {
    part.__name__: part for part in (words, audits, runs, smoke, embedded, evidence, rerun)
}


def still(results: Path) -> None:
    """Put a second for every time and mend the checksums: groups of the anchor are bought by time."""
    for file in results.rglob("timings.jsonl"):
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            line["seconds"] = {name: 4.0 if name == "total" else 1.0 for name in line["seconds"]}
            line["processor_seconds"] = 4.0
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        file.write_text(text, encoding="utf-8")
        manifest = file.with_name("manifest.json")
        facts = json.loads(manifest.read_bytes())
        known = {"total": 4.0 * len(lines), "groups_per_minute": 15.0}
        facts["timing"] = {name: known.get(name, float(len(lines))) for name in facts["timing"]}
        manifest.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    for name in ("BLOCKS.jsonl", "SHA256SUMS", "SHA256SUMS.data"):
        (results / name).unlink(missing_ok=True)
    for listing in sorted(results.rglob("SHA256SUMS"), key=lambda file: -len(file.parts)):
        names = [line.split("  ", 1)[1] for line in listing.read_text(encoding="utf-8").splitlines()]
        text = "".join(f"{sha256(listing.parent / name)}  {name}\n" for name in names)
        listing.write_text(text, encoding="utf-8")


def sha256(file: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def make(root: Path, out: Path, parts: Sequence[str], logs: Path | None) -> None:
    """Make the parts that are not there from this source."""
    ask, environment = (
        [sys.executable, "-m", "search_to_signal.cli", "--version"],
        Tree(root, out).environment,
    )
    source = subprocess.check_output(ask, env=environment, text=True).split()[3]
    commit = subprocess.check_output(["git", "-C", root, "rev-parse", "HEAD"], text=True).strip()
    for part in parts:
        place = out / part
        facts = {"source": source, "commit": commit, "out": str(place), "root": str(root)}
        if (place / FACTS).exists() and json.loads((place / FACTS).read_bytes())["source"] == source:
            print(f"{part}: is there", flush=True)
            continue
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(f"{part}: {PARTS[part].__doc__}", flush=True)
        PARTS[part](Tree(root, place, logs))
        (place / FACTS).write_text(json.dumps(facts), encoding="utf-8")


# What differs between two makes of one commit, and what is put in its place.
LEFT_OUT = [
    (re.compile(pattern), put)
    for pattern, put in (
        (rb'"(timing|seconds|environment)":\s*\{(?:[^{}]|\{[^{}]*\})*\}', rb'"\1":-'),
        (rb'"(processor_seconds|clean)":\s*(true|false|[0-9][0-9.e+-]*)', rb'"\1":-'),
        (rb"[0-9.]+ groups per minute \(.*\)", b"<speed>"),
        (rb"layer (\w+): [0-9.]+ s\b", rb"layer \1: <seconds>"),
        (rb"(?m)^[\w./-]+:? [0-9]+/[0-9]+\b.*\n", b""),  # Progress is told again when time has passed.
    )
]


class Made:
    """The files of a part, which is a directory of its own, and what is compared of each."""

    def __init__(self, place: Path) -> None:
        """Raises OSError where the part was not made to its end."""
        facts = json.loads((place / FACTS).read_bytes())
        files = [file for file in sorted(place.rglob("*")) if file.is_file() and file.name != FACTS]
        self.files = {str(file.relative_to(place)): file for file in files}
        self._known = [(facts["out"].encode(), b"<out>"), (facts["root"].encode(), b"<tree>")]
        for fact in ("source", "commit"):
            shorter = [facts[fact][:length].encode() for length in (64, 16, 12, 10, 8, 7)]
            self._known += [(value, f"<{fact}>".encode()) for value in shorter]
        self._names = {sha256(file).encode(): name.encode() for name, file in reversed(self.files.items())}

    def content(self, name: str) -> bytes:
        """A file without what may differ."""
        data = self.files[name].read_bytes()
        if name.endswith(".png"):
            return pixels(data)
        data = lzma.decompress(data) if name.endswith(".xz") else data
        for known, label in self._known:
            data = data.replace(known, label)
        data = re.sub(rb"\b[0-9a-f]{64}\b", lambda one: self._names.get(one[0], one[0]), data)
        data = re.sub(rb"data:image/png;base64,([\w+/=]+)", lambda one: pixels(b64decode(one[1])), data)
        for pattern, put in LEFT_OUT:
            data = pattern.sub(put, data)
        if name.endswith("BLOCKS.jsonl"):
            data = re.sub(rb'"[0-9a-f]{16,}"', b'"-"', data)
        if name.endswith((".run.err", ".run.out")):  # Runs side by side, and heartbeats.
            lines = (line for line in data.splitlines(keepends=True) if not line.startswith(b"["))
            data = b"".join(sorted(lines))
        return data


def pixels(data: bytes) -> bytes:
    """Size and colours of a picture, as a checksum."""
    with Image.open(BytesIO(data)) as picture:
        colours = hashlib.sha256(picture.convert("RGBA").tobytes()).hexdigest()
        return f"{picture.size} {colours}".encode()


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
                pairs = enumerate(zip(old, new, strict=False))
                at = next((at for at, (one, two) in pairs if one != two), min(len(old), len(new)))
                around = slice(max(at - 40, 0), at + 40)
                yield f"byte {at} of {name}\n  before {old[around]!r}\n  after  {new[around]!r}"


def compare(before: Path, after: Path, only: Sequence[str] | None) -> int:
    """Print what differs and how much does not; 1 where anything differs or a named part is not there."""
    total = found = 0
    for part in only or PARTS:
        lacking = [str(place) for place in (before, after) if not (place / part / FACTS).exists()]
        if lacking:
            print(f"{part}: not made in {' and '.join(lacking)}")
            found += bool(only)
            continue
        old, new = Made(before / part), Made(after / part)
        lines = list(differences(old, new))
        print("".join(f"{part}: {line}\n" for line in lines), end="")
        print(f"{part}: {len(old.files)} files, {f'{len(lines)} differ' if lines else 'same'}", flush=True)
        total, found = total + len(old.files), found + len(lines)
    print(f"{total} files, {f'{found} differ' if found else 'same' if total else 'nothing compared'}")
    return int(bool(found or not total))


def main() -> int:
    """Make or compare."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("action", choices=("make", "compare"))
    parser.add_argument("places", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--commit")
    parser.add_argument("--logs", type=Path)
    given = parser.parse_args()
    if given.action == "compare":
        before, after = given.places
        return compare(before, after, given.only)
    out, logs = given.places[0].absolute(), given.logs and given.logs.absolute()
    parts = list(PARTS) if given.only == ["all"] else given.only or ["words", "audits", "runs"]
    if given.commit is None:
        make(HERE, out, parts, logs)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        root, git = Path(directory) / "tree", ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(root), given.commit], check=True)
        try:
            make(root, out, parts, logs)
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
