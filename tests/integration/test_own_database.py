"""A host with a database and a learning rule with batches that are not ours: run, verified and reported."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.forked import NOT_DRAWN, Commands
from tests.profiles import profile_head

from search_to_signal.cli import main
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import DATABASE, MANIFEST, runs_below
from search_to_signal.records.reader import COMPLETIONS, STEPS
from search_to_signal.verify.directory import verify

PROFILE = f"""{profile_head("native", groups=4, seed=42)}
learning_rule = "shelves:batched"
host = "shelves:Shelves"

[rule_settings]
groups = 2

[generation]
group_size = 4
max_prompt_tokens = 1024
max_completion_tokens = 320

[learner]
lora_rank = 4
lora_alpha = 8
"""
RUN = Path("out", "cohort", "native-s42")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody works, with host, profile and what they recorded."""
    directory = tmp_path_factory.mktemp("own")
    shutil.copy(Path(__file__).with_name("shelves.py"), directory)
    (directory / "mine.toml").write_text(PROFILE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        assert main(["run", "--profile", "mine.toml", "--out", "out"]) == 0
    return directory


def problems(run: Path) -> list[str]:
    """What verifying says of the run, after its list was written anew, without the run's name."""
    write_sums(run)
    return [line.removeprefix(f"{run.name}: ") for line in verify(run).problems]


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    """The run, to be changed."""
    return Path(shutil.copytree(place / RUN, tmp_path / "copy"))


def edit(path: Path, change: Any) -> None:
    """Change a JSON file, or the first line of a record file."""
    first, *rest = (
        path.read_text(encoding="utf-8").split("\n") if path.suffix == ".jsonl" else [path.read_text()]
    )
    value = json.loads(first)
    change(value)
    path.write_text("\n".join([json.dumps(value, separators=(",", ":")), *rest]), encoding="utf-8")


def test_the_records_verify_at_every_level(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    commands: Commands,
) -> None:
    """Without leave all that needs no code of theirs; with it the search is played again, to its database."""
    monkeypatch.chdir(place)
    # Their code is loaded here already, and in no process of its own.
    assert commands.run("verify", "out", "--tables", boot=NOT_DRAWN).returncode == 0
    assert "allow it with --host" in commands.run("verify", "out", "--recompute").stdout
    assert main(["verify", "out", "--recompute", "--host", "shelves:Shelves"]) == 0, capsys.readouterr()


def test_the_manifest_says_what_host_and_rule_can(place: Path) -> None:
    """By their methods, and by what the rule says of itself; the database is not the archive."""
    manifest = json.loads((place / RUN / MANIFEST).read_bytes())
    facts = {"calm": False, "own_loop": False, "exposures": True, "database": "heuristics"}
    assert manifest["host_facts"] == facts
    assert manifest["rule_facts"] == {"all_told": False, "groups_per_step": 2, "pairs": False}
    tokens = [json.loads(line)["training_tokens"] for line in (place / RUN / STEPS).read_text().splitlines()]
    assert [bool(n) for n in tokens] == [False, True, False, True]
    assert len(json.loads((place / RUN / DATABASE).read_bytes())["islands"][0]) == 2


def test_the_records_are_reported(place: Path) -> None:
    """The page stands, and the audit asks every mapping, since the host gives exposures."""
    assert main(["report", str(place / "out"), "--out", str(place / "again")]) == 0
    assert "shelves:Shelves" in (place / "again" / "report.html").read_text(encoding="utf-8")
    assert ",search_exposure," in (place / "out" / "audit" / "signal.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (
            DATABASE,
            {"islands": [["f" * 64]]},
            f"{DATABASE}: program {'f' * 64} is not a heuristic of this run",
        ),
        (DATABASE, {"groups": 3}, f"{DATABASE}: it is not the database after the last step"),
        (STEPS, {"training_tokens": 5}, "step 0: training_tokens is 5, its completions have 0"),
        (COMPLETIONS, {"exposure": None}, "step 0, completion 0: exposure None with score"),
    ],
)
def test_what_they_can_is_held_against_the_records(
    copy: Path, file: str, change: dict[str, Any], said: str
) -> None:
    """A database of another run, a step out of turn, an exposure that is gone."""
    edit(copy / file, lambda value: value.update(change))
    assert [told for told in problems(copy) if told.startswith(said)], said


def test_a_run_of_an_earlier_version_is_judged_by_its_names(copy: Path) -> None:
    """Without facts nothing is known of a host and rule that are not ours, and nothing held against them."""

    def forget(manifest: dict[str, Any]) -> None:
        del manifest["host_facts"], manifest["rule_facts"]

    edit(copy / MANIFEST, forget)
    assert problems(copy) == []


def test_nobody_gives_a_run_a_loop_of_its_own(copy: Path) -> None:
    """A fact that would spare a run its checks is a problem itself."""
    edit(copy / MANIFEST, lambda manifest: manifest["host_facts"].update(own_loop=True))
    assert [told for told in problems(copy) if "brings its own loop" in told]
    assert runs_below(copy) == [copy]
