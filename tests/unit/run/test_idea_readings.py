"""Ideas without braces under both readings (D37): what a run records, and what checks its records later."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from tests.cohorts import Told
from tests.forging import configure, edit_manifest, reseal
from tests.unit.run.test_live_loop import LIMITS, configuration, host_of

from search_to_signal.base.package_data import EVIDENCE, PROFILES
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.cli import main
from search_to_signal.models.base import ChatPrompt, Completion, Generation
from search_to_signal.problems import get_problem
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import Manifest, read_manifest, write_manifest
from search_to_signal.records.plan import read_plan
from search_to_signal.records.reader import HEURISTICS, read_groups, read_records
from search_to_signal.records.schema import HeuristicRecord, IdeaEnd, Outcome
from search_to_signal.run.directory import run_files
from search_to_signal.run.loop import Live, run_live, starting_position
from search_to_signal.run.profile import Profile, load_profile
from search_to_signal.run.replayed import run_config
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import OPENING
from search_to_signal.study.container import read_container

pytestmark = pytest.mark.slow

READINGS: tuple[IdeaEnd, ...] = get_args(IdeaEnd)
ARGUMENTS = "current_node, destination_node, unvisited_nodes, distance_matrix"


class Loose:
    """Answers as a pretrained model does: no braces, and a tagged fence right behind the idea."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        texts = [_answer(next(self._numbers), told) for told in (" walk to another node.", "", " see below.")]
        return Generation(prompt.user, (1, 2), tuple(Completion((5, 2), text, False) for text in texts))


def _answer(number: int, told: str) -> str:
    body = f"    return sorted(unvisited_nodes)[{number} % len(unvisited_nodes)]"
    return f"Sure! {OPENING}{told}\n```python\ndef select_next_node({ARGUMENTS}):\n{body}\n```\n"


def recorded(run: Path, reading: IdeaEnd, manifest: Callable[..., Manifest]) -> Path:
    """A sealed frozen run of four groups of three such answers."""
    plain = configuration("frozen", groups=4, idea_end=msgspec.UNSET if reading == "bare_fence" else reading)
    config = msgspec.structs.replace(
        plain, generation=msgspec.structs.replace(plain.generation, group_size=3)
    )
    run.mkdir(parents=True)
    with EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as pool, run_files(run) as files:
        live = Live(config, get_problem("tsp"), host_of(config), Loose(), pool, None, files)  # type: ignore[arg-type]
        run_live(live, starting_position(live), Told())
    write_manifest(run, manifest(msgspec.to_builtins(config)))
    configure(run)
    for file in (run / "checkpoint").glob("*"):
        file.unlink()
    (run / "checkpoint").rmdir()
    write_sums(run)
    return run


@pytest.fixture(scope="module", params=READINGS)
def run(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    manifest: Callable[..., Manifest],
) -> Path:
    """A run of each reading."""
    place = tmp_path_factory.mktemp(request.param) / "main" / "cohort" / "frozen-s3"
    return recorded(place, request.param, manifest)


def test_the_reading_decides_outcomes_and_ideas(run: Path) -> None:
    """By the host's a word before a tagged fence is no rationale, by the other one the code is part of it."""
    host = read_manifest(run).facts.idea_end == "any_fence"
    outcomes = Counter(record.outcome for group in read_groups(run) for record in group)
    assert outcomes[Outcome.MISSING_RATIONALE] == (4 if host else 0)
    assert outcomes[Outcome.VALID] == (8 if host else 12)
    told = [h.idea for h in read_records(run / HEURISTICS, HeuristicRecord) if h.operator is not None]
    assert told
    assert all(("def select_next_node" in idea) is not host for idea in told)


def test_records_are_checked_under_their_own_reading(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """verify and verify --recompute take them; with the other reading in the configuration both object."""
    for options in ([], ["--recompute"]):
        assert main(["verify", str(run), *options]) == 0, capsys.readouterr()
    before = {file: file.read_bytes() for file in run.iterdir() if file.is_file()}
    other = next(one for one in READINGS if one != read_manifest(run).facts.idea_end)
    configure(run, idea_end=other)
    reseal(run)
    for options in ([], ["--recompute"]):
        assert main(["verify", str(run), *options]) == 1
        assert "missing_rationale" in "".join(capsys.readouterr())
    for file, data in before.items():
        file.write_bytes(data)


def test_packed_records_come_back(run: Path, tmp_path: Path) -> None:
    """Shorthand leaves out what a text says under its run's reading, so ideas are not stored twice."""
    results = run.parents[1]
    assert main(["pack", str(results), "--into", str(tmp_path / "packed")]) == 0
    packed = tmp_path / "packed" / "main"
    assert b"walk to another" not in read_container(packed / "cohort/frozen-s3/records.xz")[HEURISTICS]
    assert main(["unpack", str(tmp_path / "packed"), "--out", str(tmp_path / "out")]) == 0
    for file in (path for path in run.iterdir() if path.is_file()):
        assert (tmp_path / "out/main/cohort/frozen-s3" / file.name).read_bytes() == file.read_bytes()


def test_new_profiles_read_as_the_host() -> None:
    """A profile that says nothing, and each that ships outside of the evidence, has the host's reading."""
    assert configuration("frozen").reading == "any_fence"
    for path in PROFILES.glob("*.toml"):
        assert {config.reading for config in load_profile(path.stem).runs()} == {"any_fence"}


@pytest.mark.parametrize("name", ["main", "entropic", "evotune"])
def test_recorded_evidence_keeps_its_reading_and_its_hash(name: str) -> None:
    profile: Profile = load_profile(str(PROFILES / "evidence" / f"{name}.toml"))
    config = profile.runs()[0]
    manifest = read_manifest(EVIDENCE / name / "cohort" / config.name)
    assert "idea_end" not in manifest.config
    assert canonical_sha256(config) == manifest.config_sha256
    assert run_config(manifest) == config
    assert config.reading == manifest.facts.idea_end == "bare_fence"


def test_every_profile_of_the_first_plan_keeps_the_older_reading() -> None:
    """What could still be recorded of it is to be compared with what is recorded."""
    plan = read_plan()
    names = {name for study in plan.studies for name in study.profiles}
    assert len(names) > 5
    assert {load_profile(f"evidence/{name}").idea_end for name in names} == {"bare_fence"}


def test_an_unknown_reading_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a manifest it is damage that is named, not a crash."""
    before = (run / "manifest.json").read_bytes()
    edit_manifest(run, lambda manifest: manifest["config"].update(idea_end="no_fence"))
    assert main(["verify", str(run)]) != 0
    assert "idea_end" in "".join(capsys.readouterr())
    (run / "manifest.json").write_bytes(before)
