"""The lines that the pages give for the released host run as they are written, on the stand-in.

Not the network, so the pin names a repository made here; not a GPU, so a local model's answers are read from
a file; and our small instances and fewer draws, for time.
"""

import json
import re
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.command import Capture, Patch
from tests.copies import copy_to_change

from search_to_signal.cli import main
from search_to_signal.problems import get_problem
from search_to_signal.records.manifest import read_manifest
from search_to_signal.verify.conformance import comparison
from search_to_signal.verify.conformance.pair import groups, programs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "artifact/calm").glob("*.md")),
]
LINE = re.compile(r"^ {4}((?:s2s (?:conformance|released)|artifact/calm/fetch\.sh) .*)$", re.MULTILINE)
LINES = {
    page.relative_to(ROOT): [re.split(r" {2,}", line)[0] for line in LINE.findall(page.read_text("utf-8"))]
    for page in PAGES
}
GIVEN = {str(page): lines for page, lines in LINES.items() if lines}
TSP = get_problem("tsp")
# Instances of the small split, and what a run of one round needs.
SMALL = (
    ("problems/tsp.py", "seed(1234)", "seed(2027)"),
    ("problems/tsp.py", "rand(64, 50, 2)", "rand(16, 30, 2)"),
    ("problems/obp.py", "seed(1234)", "seed(2027)"),
    ("problems/obp.py", "(100, 500)", "(100,)"),
    ("problems/obp.py", "[sizes(5000), sizes(1000)]", "np.split(sizes(400), 2)"),
    (
        "configs/tsp/local.yaml",
        "log_name: local",
        "log_name: local\nmax_steps: 1\nmax_stuck_threshold: 25\nn_generations: 4",
    ),
)


@pytest.fixture
def small(standin: Path, tmp_path: Path) -> Path:
    """A stand-in on small instances, with answers for one round."""
    calm = copy_to_change(standin, tmp_path / "CALM")
    for name, old, new in SMALL:
        text = (calm / name).read_text(encoding="utf-8")
        assert old in text
        (calm / name).write_text(text.replace(old, new), encoding="utf-8")
    answers = groups(TSP, programs(TSP, 3), TSP.seed.code)[:1]
    (calm / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    return calm


def pin_of(calm: Path, pin: Path) -> None:
    """Make a repository of a checkout, and have a pin name its one commit."""
    repository = copy_to_change(calm, calm.parent / "repository")

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")
        return subprocess.check_output(["git", "-C", str(repository), *who, *arguments], text=True).strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "all")
    pin.write_text(f'url = "{repository}"\nrevision = "{git("rev-parse", "HEAD")[:12]}"\n', encoding="utf-8")


SHORTENED = "steps (paper 500, ours 500, checkout 1)"


def test_both_pages_give_lines() -> None:
    assert sorted(GIVEN) == ["artifact/calm/README.md", "docs/artifact-evaluation.md"]
    assert {line.split()[1] for lines in GIVEN.values() for line in lines if line.startswith("s2s")} == {
        "conformance",
        "released",
    }


def without_the_checkout(line: str) -> str:
    """A line without the place of the checkout that it names."""
    return re.sub(r"--calm \S+", "--calm CALM", line)


def test_both_pages_give_the_same_lines() -> None:
    """But for where the checkout lies: those of one page, which fetches it, are run below."""
    whole, other = (set(map(without_the_checkout, GIVEN[page])) for page in sorted(GIVEN))
    assert other
    assert other < whole


@pytest.mark.usefixtures("gpu_packages")
@pytest.mark.skipif(shutil.which("git") is None, reason="the image has no git")
def test_the_lines_of_a_page(small: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    here = tmp_path / "here"
    shutil.copytree(ROOT / "artifact" / "calm", here / "artifact" / "calm")
    pin_of(small, here / "artifact" / "calm" / "pin.toml")
    monkeypatch.setattr(
        "search_to_signal.search.hosts.released.checkout.PIN", here / "artifact" / "calm" / "pin.toml"
    )
    fewer = partial(comparison.conform, split="embedded")
    monkeypatch.setattr(
        comparison,
        "conform",
        lambda path, problems, checks, programs, draws, **more: fewer(path, problems, checks, 2, 100, **more),
    )
    monkeypatch.chdir(here)
    for line in GIVEN["artifact/calm/README.md"]:
        program, *arguments = shlex.split(line)
        if program == "s2s" and arguments[0] == "conformance":
            assert main(arguments) == 1, line
            differing = [found for found in capsys.readouterr().out.splitlines() if " differs " in found]
            assert [found.partition("differs")[2].split() for found in differing] == [SHORTENED.split()]
        elif program == "s2s":
            assert main(arguments) == 0, line
        else:
            assert subprocess.call(["bash", program, *arguments]) == 0, line
    manifest = read_manifest(here / "run")
    assert (manifest.status, manifest.facts.mapping, manifest.config["problem"]) == (
        "complete",
        "factorized",
        "tsp",
    )
    assert main(["verify", "run"]) == 0
