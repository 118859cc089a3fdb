"""The loop itself, with answers from the grammar instead of a model: what it writes, verify accepts."""

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.cohorts import Told
from tests.profiles import plain_profile

from recipe.pairs import pairs, sources
from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.credit import get_mapping
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.learner.base import StepResult
from search_to_signal.models.base import ChatPrompt, Completion, Generation, GenerationSettings
from search_to_signal.models.settings import ModelLoading
from search_to_signal.problems import get_problem
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import STEPS, read_groups, read_records
from search_to_signal.records.schema import CompletionRecord, StepRecord, StepTiming
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import read_timing, run_files
from search_to_signal.run.loop import Live, can_replay_behind, run, run_live, starting_position
from search_to_signal.sandbox.outcomes import Evaluation, Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.host import Host
from search_to_signal.search.hosts import open_host
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.verify.records import record_problems

pytestmark = pytest.mark.slow

LIMITS = EvaluationSettings(timeout_s=10.0, replay="off")
RECORDS = ("completions", "steps", "generations", "heuristics")


def configuration(condition: str, **changes: Any) -> RunConfig:
    """Twelve groups in which the population collapses now and then."""
    settings = {
        "search": SearchSettings(population_size=4, collapse_threshold=2),
        "generation": GenerationSettings(group_size=4),
        "evaluation": LIMITS,
    }
    profile = plain_profile(model="grammar", conditions=(condition,), seeds=(3,), groups=12, **settings)
    return msgspec.structs.replace(profile.runs()[0], **changes)


def host_of(config: RunConfig) -> Host:
    """The host that a run's configuration names."""
    return open_host(config.host, config.host_setup)


class Grammar:
    """Answers any prompt from the training corpus, spoiled ones included."""

    model = None

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        shares = dict.fromkeys(("simplification", "injection", "replacement", "crossover", "creation"), 0.4)
        drawn = pairs(sources(["tsp"])[0], shares, np.random.default_rng(seed))
        texts = [pair.response for pair in itertools.islice(drawn, 4)]
        return Generation(prompt.user, (1, 2), tuple(Completion((5, 6, 2), text, False) for text in texts))


class Training:
    """Credits a group and learns nothing from it."""

    def __init__(self, condition: str) -> None:
        self.mapping, self.normalizer = get_mapping(condition), group_advantages
        self.seen: list[list[float | None]] = []
        self.learner = self
        self.model = None

    def update(self, generation: Generation, records: list[CompletionRecord]) -> StepResult:
        self.seen.append([record.advantage for record in records])
        return StepResult(0.0, 0.0, 0.0, 12, "a")

    def dump(self) -> bytes:
        return b"nothing learned"

    def save(self, directory: Path) -> None: ...


@pytest.fixture(scope="module")
def pool() -> Iterator[EvaluationPool]:
    """Workers on the embedded instances."""
    with EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as running:
        yield running


def play(
    directory: Path, pool: Any, condition: str, generator: Any = None, groups: int = 12, **settings: Any
) -> tuple[RunConfig, Training | None]:
    """Play a whole run into a directory."""
    config = configuration(condition, groups=groups)
    training = None if condition == "frozen" else Training(condition)
    directory.mkdir()
    with run_files(directory) as files:
        parts = (get_problem("tsp"), host_of(config), generator or Grammar(), pool, training)
        live = Live(config, *parts, files, **settings)  # type: ignore[arg-type]
        run_live(live, starting_position(live), Told())
    return config, training


class Watched:
    """A pool whose replays wait a moment for the next group's evaluation, and the generator of the groups.

    What was replayed decides otherwise from then on, as a program may. The last group repeats the one before.
    """

    def __init__(self, pool: EvaluationPool, groups: int) -> None:
        self.pool, self.groups, self.changed = pool, groups, threading.Condition()
        self.evaluated, self.sampled = 0, 0
        self.behind: list[bool] = []
        self.replayed: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        with self.changed:
            self.evaluated += 1
            self.changed.notify()
        evaluations = self.pool.evaluate(codes)
        return [self.changing(code, each) for code, each in zip(codes, evaluations, strict=True)]

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        # The seed was evaluated first.
        replayed, following = self.pool.replay(codes), len(self.behind) + 2
        with self.changed:
            self.behind.append(self.changed.wait_for(lambda: self.evaluated > following, 0.1))
        self.replayed |= set(codes)
        return [self.changing(code, each) for code, each in zip(codes, replayed, strict=True)]

    def changing(self, code: str, evaluation: Evaluation) -> Evaluation:
        if code not in self.replayed:
            return evaluation
        found = {
            "isolation": Isolation.NONDETERMINISTIC,
            "detail": "replay: an object at 0x1f decided otherwise",
        }
        return dataclasses.replace(evaluation, **found)

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        self.sampled += 1
        return Grammar().generate(prompt, min(self.sampled, self.groups - 1))


def test_replays_behind_change_no_byte(tmp_path: Path) -> None:
    """A replay goes on while later groups are evaluated, not for a checkpoint; bytes are equal."""
    runs = {}
    for behind in (False, True):
        directory = tmp_path / str(behind)
        with EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as pool:
            watched = Watched(pool, groups=5)
            play(directory, watched, "factorized", watched, 5, checkpoint_every=3, replays_behind=behind)
        assert watched.behind == [behind and done in (1, 2, 4) for done in range(1, 6)]
        assert len(list(read_records(directory / "timings.jsonl", StepTiming))) == 5
        runs[behind] = {name: (directory / f"{name}.jsonl").read_bytes() for name in RECORDS}
    assert runs[True] == runs[False]
    repeats = [
        line for line in runs[True]["completions"].splitlines() if b'"nondeterministic, repeat"' in line
    ]
    assert repeats
    assert all(b'"detail":"replay: an object at 0x decided otherwise"' in line for line in repeats)


class Streaming(Grammar):
    """A generator that hands out a group's completions before it returns them, but for the last one."""

    def stream_to(self, receive: Callable[[str], None]) -> None:
        self.receive = receive

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        generation = super().generate(prompt, seed)
        for completion in generation.completions[:-1]:
            self.receive(completion.text)
        return generation


def test_programs_that_began_while_others_were_sampled_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are those of a generator that returns all completions at once."""
    begun: list[str] = []
    begin = EvaluationPool.begin

    def counted(pool: EvaluationPool, code: str) -> None:
        begun.append(code)
        begin(pool, code)

    monkeypatch.setattr(EvaluationPool, "begin", counted)
    for name, generator in (("whole", Grammar()), ("streamed", Streaming())):
        with EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as pool:
            play(tmp_path / name, pool, "native", generator, 3)
        assert (len(begun) > 5) is (name == "streamed")
    for file in RECORDS:
        assert len({(tmp_path / name / f"{file}.jsonl").read_bytes() for name in ("whole", "streamed")}) == 1


class Meeting:
    """A pool whose replays wait for each other."""

    def __init__(self, pool: EvaluationPool, replays: int) -> None:
        self.pool, self.all = pool, threading.Barrier(replays, timeout=30)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        self.all.wait()
        return self.pool.replay(codes)


def test_replays_of_several_groups_go_on_side_by_side(tmp_path: Path, pool: EvaluationPool) -> None:
    """So that groups do not wait for one slow program after the other."""
    play(tmp_path / "run", Meeting(pool, 4), "native", groups=4, checkpoint_every=4, replays_behind=True)
    assert (tmp_path / "run" / "completions.jsonl").read_bytes().count(b"\n") == 16


@pytest.mark.parametrize(
    ("device", "limits", "behind"),
    [
        ("cuda", {}, True),
        ("cuda", {"clock": "wall"}, False),
        ("cuda", {"randomness": "behaviour", "replay": "full"}, False),
        ("cpu", {}, False),
    ],
)
def test_replays_go_on_behind_where_nothing_waits_for_them(
    device: str, limits: dict[str, Any], behind: bool
) -> None:
    """On a card, by processor time, and where a replay decides no outcome."""
    evaluation = EvaluationSettings(**limits)
    config = configuration("native", evaluation=evaluation, loading=ModelLoading(device=device))
    assert can_replay_behind(config) is behind


def problems(directory: Path, config: RunConfig, made_manifest: Callable[..., Manifest]) -> list[str]:
    """What the consistency check says of a run."""
    return record_problems(directory, made_manifest(msgspec.to_builtins(config)))


@pytest.mark.parametrize("condition", ["frozen", "native", "factorized"])
def test_live_records_are_consistent(
    tmp_path: Path, pool: EvaluationPool, manifest: Callable[..., Manifest], condition: str
) -> None:
    """A real stream with failures, copies, admissions and collapses has no contradiction in its records."""
    config, training = play(tmp_path / "run", pool, condition)
    assert problems(tmp_path / "run", config, manifest) == []
    groups, steps = (
        list(read_groups(tmp_path / "run")),
        list(read_records(tmp_path / "run" / STEPS, StepRecord)),
    )
    assert len({record.outcome for group in groups for record in group}) > 3
    assert len({record.archive_event for group in groups for record in group}) >= 2
    assert any(step.collapsed for step in steps)
    assert not all(step.collapsed for step in steps)
    if training is not None:
        assert training.seen == [[record.advantage for record in group] for group in groups]


def played(directory: Path, condition: str) -> Path:
    """Four groups, with a pool that knows nothing yet."""
    with EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as fresh:
        play(directory, fresh, condition, groups=4)
    return directory


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four groups, credited."""
    return played(tmp_path_factory.mktemp("four") / "native", "native")


def test_equal_seeds_write_equal_records(native: Path, tmp_path: Path) -> None:
    again = played(tmp_path / "again", "native")
    for name in RECORDS:
        first, second = ((one / f"{name}.jsonl").read_bytes() for one in (native, again))
        assert first == second, name
    split = read_timing(native)
    assert split.total == pytest.approx(split.generation + split.evaluation + split.update + split.other)
    assert split.groups_per_minute == pytest.approx(60 * 4 / split.total)


def test_conditions_share_everything_but_credit(native: Path, tmp_path: Path) -> None:
    """As long as the model does not move, runs of one seed differ in rewards and advantages alone."""
    streams = []
    for directory in (native, played(tmp_path / "frozen", "frozen")):
        records = [record for group in read_groups(directory) for record in group]
        streams.append(
            [msgspec.structs.replace(r, components=None, reward=None, advantage=None) for r in records]
        )
    assert streams[0] == streams[1]


def test_credit_is_the_mapping_through_the_normalizer(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """Crediting a group again changes nothing; its advantages sum to zero, its components to its reward."""
    for group in read_groups(make_run(tmp_path / "run", "native")):
        again = assign_credit(list(group), get_mapping("native"), group_advantages)
        assert again == list(group)
        assert sum(record.advantage or 0.0 for record in again) == pytest.approx(0.0, abs=1e-12)
        assert all(sum((r.components or {}).values()) == pytest.approx(r.reward) for r in again)


def test_a_failing_seed_heuristic_is_explained(tmp_path: Path) -> None:
    """Limits under which not even the seed runs are an error that names them, not a crash."""
    tight = msgspec.structs.replace(LIMITS, timeout_s=0.01, wall_factor=1.0)
    config = configuration("frozen", evaluation=tight)
    with EvaluationPool(get_problem("tsp"), "train", tight) as slow, run_files(tmp_path) as files:
        live = Live(config, get_problem("tsp"), host_of(config), Grammar(), slow, None, files)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"seed heuristic.*timeout.*evaluation\.timeout_s"):
            starting_position(live)


def test_a_run_refuses_a_directory_with_anything_in_it(make_run: Callable[..., Path], tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(RunDirectoryError):
        run(configuration("native"), directory, Told())
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_manifest_hash_is_that_of_its_configuration() -> None:
    config = configuration("native")
    assert canonical_sha256(msgspec.to_builtins(config)) == config.sha256
