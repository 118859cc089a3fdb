"""The bank of the probe: prompts that a recorded search really asked, rebuilt from its records."""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from spec.synthetic_runs import plain_manifest
from tests.profiles import plain_profile

from recipe.pairs import pairs, sources
from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.seeding import stream
from search_to_signal.layers.probe.layer import build_bank, chosen_steps, spread
from search_to_signal.models.base import Completion, Generation
from search_to_signal.problems import get_problem
from search_to_signal.records.manifest import write_manifest
from search_to_signal.records.reader import read_groups
from search_to_signal.records.schema import (
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    Outcome,
    StepRecord,
)
from search_to_signal.run.config import RunConfig
from search_to_signal.run.group import EvaluatedCompletion, completion_records
from search_to_signal.sandbox.programs import Failure, parse, program_sha256
from search_to_signal.search.host import Request, Transition
from search_to_signal.search.hosts.calm.host import ReferenceHost
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import initial_state
from search_to_signal.search.member import frontier, seed_member

SEARCH = SearchSettings(population_size=4, collapse_threshold=2)
CONFIG = plain_profile(model="grammar", conditions=("frozen",), seeds=(3,), groups=8, search=SEARCH).runs()[0]


@pytest.mark.parametrize(("total", "count"), [(1, 1), (5, 5), (100, 7), (12, 3)])
def test_chosen_positions_are_spread(total: int, count: int) -> None:
    chosen = spread(total, count)
    assert len(set(chosen)) == count
    assert chosen == sorted(chosen)
    assert 0 <= chosen[0] <= chosen[-1] < total


def _judged(text: str, score: float) -> EvaluatedCompletion:
    proposal = parse(text)
    completion = Completion((1,), text, False)
    if isinstance(proposal, Failure):
        return EvaluatedCompletion(completion, proposal.outcome, proposal.detail, None, None, None, None)
    program = program_sha256(proposal.code)
    return EvaluatedCompletion(completion, Outcome.VALID, "", score, proposal, program, None)


def _played(config: RunConfig) -> Iterator[tuple[str, msgspec.Struct]]:
    """A search with answers from the grammar and scores out of the air, as (record file, record)."""
    problem = get_problem(config.problem)
    host = ReferenceHost(problem, config.search)
    state = initial_state(seed_member(problem.seed, -5.0))
    seed = state.archive[0]
    yield (
        "heuristics",
        HeuristicRecord(
            id=seed.id, step=0, index=0, operator=None, idea=seed.idea, code=seed.code, score=seed.score
        ),
    )
    shares = dict.fromkeys(("simplification", "injection", "replacement", "crossover", "creation"), 0.4)
    for step in range(config.groups):
        request = host.propose(state, stream(config.seed, "search", step))
        drawn = pairs(sources(["tsp"])[0], shares, np.random.default_rng(step))
        texts = tuple(pair.response for pair in itertools.islice(drawn, 4))
        judged = [_judged(text, -5.0 + 0.01 * step - 0.1 * i) for i, text in enumerate(texts)]
        results = [item.evaluated for item in judged]
        transition = host.update(request, results, step)
        state, prompt = transition.state, request.prompt.user
        generation = Generation(prompt, (1,), tuple(item.completion for item in judged))
        records = completion_records(request, step, "tsp", generation, judged, transition.events, [None] * 4)
        yield from (("completions", record) for record in records)
        yield (
            "generations",
            GenerationRecord(
                step=step, prompt=prompt, prompt_ids=(1,), completion_ids=((1,),) * 4, completions=texts
            ),
        )
        yield "steps", _step(request, transition, records)


def _step(request: Request, transition: Transition, records: list[CompletionRecord]) -> StepRecord:
    return StepRecord(
        step=records[0].step,
        operator=request.operator,
        prompt_sha256=records[0].prompt_sha256,
        collapsed=request.collapsed,
        stagnation=transition.stagnation,
        archive_size=len(transition.archive),
        frontier_before=records[0].frontier,
        frontier_after=frontier(transition.archive),
        valid=sum(record.score is not None for record in records),
        admitted=0,
        mapping=None,
        zero_advantage=None,
        loss=None,
        kl=None,
        grad_norm=None,
        training_tokens=0,
        adapter_sha256=None,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, RunConfig]:
    """Two recorded Frozen runs of different seeds."""
    made = {}
    for seed in (3, 4):
        config = msgspec.structs.replace(CONFIG, seed=seed)
        directory = tmp_path_factory.mktemp("bank") / config.name
        directory.mkdir()
        for name, record in _played(config):
            with (directory / f"{name}.jsonl").open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
        write_manifest(directory, plain_manifest(msgspec.to_builtins(config)))
        made[directory] = config
    return made


def test_bank_prompts_are_the_recorded_ones(runs: dict[Path, RunConfig]) -> None:
    """Every prompt is, byte for byte, what the search asked in the step that the bank names."""
    bank = build_bank(runs, 6)
    assert [entry.prompt for entry in bank] == list(range(6))
    groups = {(run.name, group[0].step): group for run in runs for group in read_groups(run)}
    for entry in bank:
        group = groups[entry.run, entry.step]
        assert (
            hashlib.sha256(entry.user.encode()).hexdigest() == entry.prompt_sha256 == group[0].prompt_sha256
        )
        assert (entry.operator, entry.base_scores) == (group[0].operator, group[0].base_scores)
        assert entry.base_scores
        assert "travelling" in entry.system.lower() or "tsp" in entry.system.lower()


def test_bank_prompts_are_distinct_and_from_every_run(runs: dict[Path, RunConfig]) -> None:
    bank = build_bank(runs, 8)
    assert len({entry.prompt_sha256 for entry in bank}) == 8
    assert {entry.run for entry in bank} == {run.name for run in runs}
    assert build_bank(runs, 8) == bank


def test_a_bank_larger_than_the_records_is_refused(runs: dict[Path, RunConfig]) -> None:
    with pytest.raises(ConfigError, match=r"probe\.prompts is 99"):
        build_bank(runs, 99)


def test_records_that_were_not_drawn_so_are_refused(runs: dict[Path, RunConfig]) -> None:
    """Under another seed the recorded steps come out otherwise, and no bank is made of that."""
    wrong = {run: msgspec.structs.replace(config, seed=config.seed + 10) for run, config in runs.items()}
    with pytest.raises(RecordError):
        build_bank(wrong, 8)


def test_only_distinct_prompts_with_a_base_are_chosen(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """A prompt that two runs asked counts once, and one without a comparator not at all."""
    runs = [make_run(tmp_path / name, "frozen", groups=4) for name in ("first", "second")]
    assert chosen_steps(runs, 4) == [(runs[0], step) for step in range(4)]
    for run in runs:
        lines = (run / "completions.jsonl").read_text().splitlines(keepends=True)
        bare = [line.replace('"base_scores":[', '"base_scores":[],"x":[') for line in lines[4:8]]
        clean = [re.sub(r'"x":\[[^]]*\],', "", line) for line in bare]
        (run / "completions.jsonl").write_text("".join([*lines[:4], *clean, *lines[8:]]))
    assert chosen_steps(runs, 3) == [(runs[0], step) for step in (0, 2, 3)]
    with pytest.raises(ConfigError, match="probe.prompts is 4.* 3 distinct"):
        chosen_steps(runs, 4)
