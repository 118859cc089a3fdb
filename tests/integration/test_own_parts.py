"""The examples of docs/extending.md: a run with a host, a rule and a normalizer that are not ours."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cohorts import StoppingAfter
from tests.profiles import profile_head

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.progress import PlainProgress
from search_to_signal.credit.normalizers import get_normalizer
from search_to_signal.layers.heldout.checks import problems as heldout_problems
from search_to_signal.layers.heldout.layer import heldout
from search_to_signal.layers.settings import HeldoutSettings
from search_to_signal.problems import PROBLEMS
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.heldout import read_heldout
from search_to_signal.report.results import Results
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.run.profile import load_profile
from search_to_signal.run.texts import ParsedTexts
from search_to_signal.verify.directory import verify

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NAMES = ("my_normalizer", "my_rule", "my_host")
RECORDS = ("completions", "steps", "generations", "heuristics")
PROFILE = f"""{profile_head("frozen", "native+my_normalizer:median_scaled", groups=3, seed=42)}
learning_rule = "my_rule:policy_gradient"
host = "my_host:HillClimber"

[rule_settings]
rate = 0.02

[host_settings]
width = 2

[generation]
group_size = 4
max_prompt_tokens = 1024
max_completion_tokens = 320

[learner]
lora_rank = 4
lora_alpha = 8
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the examples, on Python's path as the one where somebody works."""
    directory = tmp_path_factory.mktemp("own")
    for name in NAMES:
        shutil.copy(EXAMPLES / f"{name}.py", directory)
    (directory / "mine.toml").write_text(PROFILE, encoding="utf-8")
    sys.path.append(str(directory))
    yield directory
    sys.path.remove(str(directory))
    for name in NAMES:
        sys.modules.pop(name, None)


def configuration(place: Path) -> RunConfig:
    """The trained run of the profile."""
    return load_profile(str(place / "mine.toml")).runs()[1]


@pytest.fixture(scope="module")
def done(place: Path) -> Path:
    """The trained run, undisturbed."""
    run(configuration(place), place / "whole", PlainProgress())
    return place / "whole"


@pytest.fixture(scope="module")
def halted(place: Path) -> Path:
    """The run, stopped after its second group."""
    with pytest.raises(KeyboardInterrupt):
        run(configuration(place), place / "halted", StoppingAfter(2))
    return place / "halted"


@pytest.fixture
def stopped(halted: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on with."""
    return Path(shutil.copytree(halted, tmp_path / "stopped"))


def rows(directory: Path, name: str) -> list[dict[str, Any]]:
    """A record file."""
    return [json.loads(line) for line in (directory / f"{name}.jsonl").read_text().splitlines()]


def test_such_a_run_trains_and_verifies(done: Path) -> None:
    """The rule moves the adapter, the host admits improvements alone, and the records contradict nothing."""
    config = json.loads((done / "config.json").read_bytes())
    assert config["normalizer"] == "my_normalizer:median_scaled"
    assert (config["learning_rule"], config["host"]) == ("my_rule:policy_gradient", "my_host:HillClimber")
    assert len({step["adapter_sha256"] for step in rows(done, "steps")}) > 1
    scores = [heuristic["score"] for heuristic in rows(done, "heuristics")]
    assert scores == sorted(set(scores))
    assert verify(done).problems == ()


def test_advantages_are_those_of_the_run_s_normalizer(done: Path) -> None:
    """Every recorded advantage follows from the recorded rewards, and not by the paper's normalizer."""
    records = rows(done, "completions")
    groups = np.array([record["reward"] for record in records]).reshape(-1, 4)
    told = np.array([record["advantage"] for record in records]).reshape(-1, 4)
    np.testing.assert_array_equal(told, get_normalizer("my_normalizer:median_scaled")(groups))
    assert not np.allclose(told, get_normalizer("group")(groups))
    (read,) = Results(done).cohort
    np.testing.assert_array_equal(read.normalized(groups), told)


def test_a_stopped_run_goes_on_to_the_same_bytes(done: Path, place: Path, stopped: Path) -> None:
    """Host, rule and normalizer of one's own give equal records and adapter after a stop."""
    run(configuration(place), stopped, PlainProgress(), resume=True)
    for name in (*(f"{record}.jsonl" for record in RECORDS), "adapter/adapter_model.safetensors"):
        assert (stopped / name).read_bytes() == (done / name).read_bytes(), name


def edit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the normalizer say the opposite."""
    median_scaled = get_normalizer("my_normalizer:median_scaled")
    monkeypatch.setattr(
        sys.modules["my_normalizer"], "median_scaled", lambda rewards: -median_scaled(rewards)
    )


def move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the first instance last."""
    first, *others = PROBLEMS["tsp"].instances("embedded")
    monkeypatch.setattr(type(PROBLEMS["tsp"]), "instances", lambda self, split: (*others, first))


@pytest.mark.parametrize(
    ("change", "told"),
    [(edit, "step 0 other rewards or advantages"), (move, "when problem tsp had another")],
)
def test_a_stopped_run_does_not_go_on_once_something_changed(
    place: Path,
    stopped: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch], None],
    told: str,
) -> None:
    """Code or instances that changed in between are named, and its records stay as they were."""
    before = (stopped / "completions.jsonl").read_bytes()
    change(monkeypatch)
    with pytest.raises(RunDirectoryError, match=told):
        run(configuration(place), stopped, PlainProgress(), resume=True)
    assert (stopped / "completions.jsonl").read_bytes() == before


def test_a_forged_advantage_is_found(done: Path, place: Path) -> None:
    """An advantage of the paper's normalizer is none of this run."""
    copy = Path(shutil.copytree(done, place / "forged"))
    records = rows(copy, "completions")
    records[0]["advantage"] += 0.5
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    (copy / "completions.jsonl").write_text(text, encoding="utf-8")
    write_sums(copy)
    assert any(": advantage is" in problem for problem in verify(copy).problems)


def test_a_problem_of_ones_own_is_held_out_under_the_name_of_its_runs(place: Path) -> None:
    """Its held-out scores verify, and say which code computes them again."""
    example = (EXAMPLES / "nearest_number.py").read_text(encoding="utf-8")
    (place / "held_number.py").write_text(example.replace('("train",)', '("train", "heldout")'))
    own = PROFILE.replace('"tsp"', '"held_number:problem"').replace('"embedded"', '"train"')
    (place / "held.toml").write_text(own, encoding="utf-8")
    frozen = load_profile(str(place / "held.toml")).runs()[0]
    run(frozen, place / "held" / "cohort" / "frozen", PlainProgress())
    heldout(place / "held", HeldoutSettings(behaviour_split="train"), PlainProgress())
    assert read_heldout(place / "held" / "heldout").problem == "held_number:problem"
    assert list(heldout_problems(place / "held", ParsedTexts())) == []
