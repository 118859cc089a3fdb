"""Matched updates: what has to be fixed is fixed, and what holds by construction holds."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.cohorts import Told

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.credit import PUBLISHED
from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.layers.settings import UpdateSettings
from search_to_signal.layers.updates.layer import PAGE, choose_runs, matched_updates
from search_to_signal.layers.updates.pairs import relation
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import GenerationSettings
from search_to_signal.models.files import checked_files
from search_to_signal.records.files import RecordWriter
from search_to_signal.records.manifest import Manifest, read_manifest, write_manifest
from search_to_signal.records.reader import read_groups, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, PairRecord, UpdateRecord
from search_to_signal.run.config import RunConfig
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.hosts.calm.settings import SearchSettings

pytestmark = pytest.mark.slow

GROUPS, WITHHELD = 2, 2
SETTINGS = UpdateSettings(groups=GROUPS, withheld=WITHHELD)
AFFINE = {"trl_float32", "dr_grpo", "rloo", "batch"}


def save_model(model: Any, tokenizer: Any, directory: Path) -> Path:
    """A model directory with its checksums."""
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    files = sorted(path for path in directory.iterdir() if path.suffix in (".json", ".safetensors"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (directory / "SHA256SUMS").write_text("".join(lines))
    return directory


def write_tokens(run: Path, groups: int) -> None:
    """Give every group tokens of its own."""
    path = run / "generations.jsonl"
    path.unlink()
    rng = np.random.default_rng(5)
    with RecordWriter(path) as writer:
        for step in range(groups):
            rows = tuple(tuple(rng.integers(5, 250, size=int(rng.integers(3, 9))).tolist()) for _ in range(4))
            prompt = tuple(rng.integers(5, 250, size=6).tolist())
            record = GenerationRecord(
                step=step,
                prompt="p",
                prompt_ids=prompt,
                completion_ids=rows,
                completions=("a", "b", "c", "d"),
            )
            writer.write(record)


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory,
    make_run: Callable[..., Path],
    new_model: Callable[..., Any],
    tokenizer: Any,
) -> Path:
    """A frozen run of seven groups."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("matched")
    config = RunConfig(
        purpose="formal",
        problem="tsp",
        split="embedded",
        model=str(save_model(new_model(), tokenizer, root / "model")),
        condition="frozen",
        seed=42,
        groups=7,
        threads=1,
        search=SearchSettings(),
        generation=GenerationSettings(),
        learner=LearnerSettings(lora_rank=4, lora_alpha=8, learning_rate=1e-3),
        evaluation=EvaluationSettings(),
    )
    run = make_run(
        root / "cohort" / "frozen-s42",
        "frozen",
        groups=7,
        config=msgspec.to_builtins(config),
        model_files=checked_files(root / "model"),
    )
    write_tokens(run, 7)
    return run


@pytest.fixture(scope="module")
def made(recorded: Path) -> Path:
    """The layer over that run."""
    out = recorded.parents[1] / "updates"
    assert matched_updates([recorded], out, SETTINGS, Told()) == out / PAGE
    return out


def updates(directory: Path) -> list[UpdateRecord]:
    return list(read_records(directory / UPDATES, UpdateRecord))


def pairs(directory: Path) -> list[PairRecord]:
    return list(read_records(directory / PAIRS, PairRecord))


def test_everything_but_credit_is_fixed(made: Path) -> None:
    """Whatever the credit, an update reads the same bytes, steps as often, on as many tokens."""
    given = defaultdict(set)
    for one in updates(made):
        facts = (one.fixed, one.optimizer_steps, one.training_tokens)
        given[one.variant, one.steps].add(msgspec.json.encode(facts))
    assert [len(facts) for facts in given.values()] == [1] * 4
    assert len({one.fixed.initial_adapter for one in updates(made)}) == 1
    assert len({one.fixed.tokens for one in updates(made)}) == 3
    assert len({one.adapter_sha256 for one in updates(made)}) > 40


def test_every_mapping_meets_every_normalizer(made: Path) -> None:
    """All mappings under all normalizers, each of two groups alone, both in a row, and both by descent."""
    plans = [("fresh", (1,)), ("fresh", (2,)), ("history", (1, 2)), ("sgd", (1, 2))]
    cells = Counter((one.mapping, one.normalizer, one.variant, one.steps) for one in updates(made))
    assert cells == Counter((m, n, *plan) for m in PUBLISHED for n in NORMALIZERS for plan in plans)
    couples = len(list(combinations(PUBLISHED, 2)))
    assert len(pairs(made)) == len(plans) * (
        couples * len(NORMALIZERS) + (len(NORMALIZERS) - 1) * len(PUBLISHED)
    )


def test_the_window_is_the_middle_of_the_run(made: Path, recorded: Path) -> None:
    """Seven groups, two to step on and two withheld: steps 1 and 2; tokens are counted as recorded."""
    generations = list(read_records(recorded / "generations.jsonl", GenerationRecord))
    tokens = [sum(map(len, one.completion_ids)) for one in generations]
    for one in updates(made):
        assert one.training_tokens == sum(tokens[step] for step in one.steps)


def test_affine_normalizers_are_one_in_a_single_step(made: Path) -> None:
    """A fresh Adam forgets the scale of credit; with history it does not, and nothing claims it does."""
    seen = set()
    for pair in pairs(made):
        if pair.first[0] == pair.second[0] and pair.first[1] in AFFINE:
            seen.add((pair.variant, pair.first[1]))
            assert pair.relation in ("equal", "proportional")
            if pair.variant == "fresh":
                assert pair.by_construction
                assert pair.cosine is not None
                assert pair.cosine >= 0.9999
            elif pair.relation == "proportional":
                assert not pair.by_construction
    assert {name for variant, name in seen if variant == "fresh"} == AFFINE
    far = [p.cosine for p in pairs(made) if p.first == ("native", "dr_grpo") and p.variant == "history"]
    assert far[0] is not None
    assert far[0] < 0.9999


def test_equal_credit_is_the_same_update(made: Path) -> None:
    adapters = {(one.variant, one.steps, (one.mapping, one.normalizer)): one for one in updates(made)}
    equal = [pair for pair in pairs(made) if pair.relation == "equal"]
    assert {pair.variant for pair in equal} == {"fresh", "history", "sgd"}
    for pair in equal:
        assert pair.by_construction
        assert (pair.cosine, pair.product_cosine, pair.norm_ratio) == (1.0, 1.0, 1.0)
        assert pair.withheld_token_max_difference == 0.0
        first, second = (adapters[pair.variant, pair.steps, key] for key in (pair.first, pair.second))
        assert first.adapter_sha256 == second.adapter_sha256


def test_different_credit_is_a_different_update(made: Path) -> None:
    (pair,) = (
        pair
        for pair in pairs(made)
        if pair.first == ("native", "group")
        and pair.second == ("tail_weighted", "group")
        and pair.variant == "history"
    )
    assert pair.relation == "different"
    assert not pair.by_construction
    assert pair.cosine is not None
    assert pair.cosine < 0.999
    assert pair.advantage_difference > 0.1
    assert pair.withheld_token_max_difference >= pair.withheld_max_difference > 1e-4


def test_plain_descent_keeps_the_scale(recorded: Path, tmp_path: Path) -> None:
    """One unclipped step by rloo is 4/3 of that by dr_grpo, in the same direction."""
    settings = UpdateSettings(
        groups=1, withheld=1, mappings=("native", "factorized"), normalizers=("dr_grpo", "rloo")
    )
    matched_updates([recorded], tmp_path / "updates", settings, Told())
    scaled = [p for p in pairs(tmp_path / "updates") if p.variant == "sgd" and p.first[0] == p.second[0]]
    assert len(scaled) == 2
    for pair in scaled:
        assert pair.by_construction
        assert pair.norm_ratio == pytest.approx(4 / 3, rel=1e-4)
        assert pair.cosine == pytest.approx(1.0, abs=1e-6)
    assert {one.variant for one in updates(tmp_path / "updates")} == {"fresh", "sgd"}


def test_the_same_again_is_kept_and_equal(made: Path, recorded: Path, tmp_path: Path) -> None:
    settings = UpdateSettings(groups=1, withheld=1, mappings=("native",), normalizers=("group", "rank"))
    names = (UPDATES, PAIRS, PAGE, SETUP)
    for place in ("first", "second"):
        matched_updates([recorded], tmp_path / place, settings, Told())
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name
    (tmp_path / "first" / UPDATES).write_text("touched")
    spoken = Told()
    matched_updates([recorded], tmp_path / "first", settings, spoken)
    assert spoken.lines[-1].endswith("kept")
    assert (tmp_path / "first" / UPDATES).read_text() == "touched"
    (tmp_path / "first" / SETUP).write_text("other")
    matched_updates([recorded], tmp_path / "first", settings, spoken)
    assert (tmp_path / "first" / UPDATES).read_bytes() == (tmp_path / "second" / UPDATES).read_bytes()


def test_one_run_per_problem_and_model(
    tmp_path: Path, make_run: Callable[..., Path], manifest: Callable[..., Manifest]
) -> None:
    """The frozen run of the smallest seed speaks for its cell; unfinished runs speak for nothing."""
    made = {
        name: make_run(tmp_path / name, condition, seed, groups=1, config={"problem": problem})
        for name, condition, seed, problem in (
            ("a", "native", 1, "tsp"),
            ("b", "frozen", 7, "tsp"),
            ("c", "frozen", 42, "tsp"),
            ("d", "native", 42, "cvrp"),
            ("e", "factorized", 42, "cvrp"),
        )
    }
    assert choose_runs(list(made.values())) == [made["e"], made["b"]]
    write_manifest(made["b"], manifest(read_manifest(made["b"]).config, status="running"))
    assert choose_runs(list(made.values())) == [made["e"], made["c"]]
    with pytest.raises(ConfigError):
        choose_runs([made["b"]])


def test_another_model_is_told_before_anything_is_written(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    """A run that names a model which is here, with other files, is no minute of updates on foreign tokens."""
    run = make_run(tmp_path / "run", "frozen", config={"model": "llama-2.1m"}, model_files={"a": "0" * 64})
    with pytest.raises(RecordError, match=r"names the model llama-2\.1m, whose files here do not have"):
        matched_updates([run], tmp_path / "updates", SETTINGS, Told())
    assert not (tmp_path / "updates").exists()


def test_a_short_run_is_refused(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has 7 groups, .* 9$"):
        matched_updates([recorded], tmp_path / "u", UpdateSettings(groups=5, withheld=4), Told())


@pytest.mark.parametrize("changes", [{"groups": 0}, {"withheld": 0}, {"mappings": ()}, {"normalizers": ()}])
def test_settings_that_compare_nothing_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"updates\.\w+ is 0|at least one"):
        UpdateSettings(**changes)


def test_how_credits_relate() -> None:
    credit = np.array([[1.0, -1.0, 0.5, -0.5], [0.0, 2.0, -1.0, -1.0]])
    assert relation(credit, credit * (1 + 1e-12)) == "equal"
    assert relation(credit, credit * np.array([[3.0], [0.1]])) == "proportional"
    assert relation(credit, -credit) == "different"
    assert relation(credit, credit * np.array([[1.0], [0.0]])) == "different"
    assert relation(credit, np.zeros((2, 4))) == "without_credit"


def test_records_are_the_runs_own(made: Path, recorded: Path) -> None:
    """A record names the run, its place in a results directory, and the credit that its groups give."""
    one = updates(made)[0]
    assert one.run == "cohort/frozen-s42"
    assert (one.mapping, one.normalizer, one.variant, one.purpose) == ("native", "group", "fresh", "formal")
    group = list(read_groups(recorded))[one.steps[0]]
    assert len(one.advantages) == 1
    assert len(one.advantages[0]) == len(group)
    assert sum(one.advantages[0]) == pytest.approx(0.0, abs=1e-12)
    assert one.delta_norm > one.withheld_max_change > 0.0
    assert one.withheld_token_max_change is not None
    assert one.withheld_token_max_change > one.withheld_max_change
