"""The released host under our rewards: its search is untouched, its groups become records."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from search_to_signal.errors import RecordError
from search_to_signal.hosts.bank import answer, groups, odd_answers, programs
from search_to_signal.hosts.base import HostError
from search_to_signal.hosts.released.checkout import opened
from search_to_signal.hosts.released.files import HostRecord
from search_to_signal.hosts.released.host import seeded
from search_to_signal.hosts.released.intervention import run_released
from search_to_signal.problems import get_problem
from search_to_signal.records.groups import batch_of
from search_to_signal.records.reader import read_groups, read_records
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Outcome,
    StepRecord,
)
from search_to_signal.rewards import get_mapping

Sabotage = Callable[[str, str, str], Path]
CONFIG = "configs/obp/local.yaml"
OBP = get_problem("obp")


@pytest.fixture
def answering(calm: Path) -> Path:
    """The stand-in with answers to give: three groups, and one of odd ones."""
    codes = programs(OBP, 4)
    odd = list(odd_answers(OBP, codes[0]).values())[:8]
    (calm / "answers.json").write_text(json.dumps([*groups(codes, OBP.seed.code), odd]))
    return calm


def without_us(calm: Path) -> tuple[list[list[float]], list[tuple[str, float]]]:
    """Rewards and archive of a run that we do not touch."""
    with opened(calm) as checkout:
        seeded(7)
        trainer, rewards = checkout.module("main").run(checkout.module("args").Args.from_yaml(CONFIG))
        return rewards, archive(trainer)


def archive(trainer: Any) -> list[tuple[str, float]]:
    """Codes and performances, in order."""
    return [(algo.code, algo.perf) for algo in trainer.algos]


def with_us(calm: Path, mapping: str, out: Path) -> tuple[list[list[float]], list[tuple[str, float]]]:
    """The same run under one of our mappings."""
    seeded(7)
    trainer, rewards = run_released(calm, CONFIG, "obp", mapping, out, lambda code: None)
    return rewards, archive(trainer)


def records(out: Path) -> list[tuple[CompletionRecord, ...]]:
    """The recorded groups."""
    return list(read_groups(out))


def test_native_is_native(answering: Path, tmp_path: Path) -> None:
    """Rewards and population of a native run are the same, bit for bit, with and without the wrapper."""
    assert with_us(answering, "native", tmp_path / "out") == without_us(answering)


def test_another_mapping_leaves_the_search_alone(answering: Path, tmp_path: Path) -> None:
    """Under factorized the learner gets what the mapping makes of the records; the population is native's."""
    rewards, members = with_us(answering, "factorized", tmp_path / "out")
    native, untouched = without_us(answering)
    again = [
        get_mapping("factorized")(batch_of([group])).reward[0].tolist() for group in records(tmp_path / "out")
    ]
    assert rewards == again
    assert members == untouched
    assert rewards != native


def test_records_say_what_the_host_did(answering: Path, tmp_path: Path) -> None:
    """Outcomes, scores and archive events are the host's, and its native rewards follow from them."""
    native, members = with_us(answering, "native", tmp_path / "out")
    found = records(tmp_path / "out")
    assert [record.outcome for record in found[0]] == [*[Outcome.VALID] * 3, Outcome.MISSING_RATIONALE]
    assert [record.archive_event for record in found[0]] == [
        ArchiveEvent.DUPLICATE_SCORE,
        ArchiveEvent.ADMITTED,
        ArchiveEvent.DUPLICATE_SCORE,
        ArchiveEvent.INVALID,
    ]
    assert {record.score for group in found for record in group} >= {perf for _, perf in members}
    for line, group, rewards in zip(
        read_records(tmp_path / "out" / "host.jsonl", HostRecord), found, native, strict=True
    ):
        assert list(line.native) == list(line.recomputed) == rewards
        assert [record.reward for record in group] == rewards


def test_records_fit_together(answering: Path, tmp_path: Path) -> None:
    """Steps, heuristics and completions tell one story: frontier, sizes, admissions, contexts."""
    _, members = with_us(answering, "native", tmp_path / "out")
    steps = list(read_records(tmp_path / "out" / "steps.jsonl", StepRecord))
    heuristics = list(read_records(tmp_path / "out" / "heuristics.jsonl", HeuristicRecord))
    assert sorted(line.score for line in heuristics) == sorted(perf for _, perf in members)
    for step, group in zip(steps, records(tmp_path / "out"), strict=True):
        assert step.archive_size == group[0].archive_size + step.admitted
        assert step.frontier_before == group[0].frontier
        assert group[0].base_scores
        assert max(group[0].base_scores) <= step.frontier_before
        assert all((record.exposure is None) == (record.score is None) for record in group)


def test_records_are_never_overwritten(answering: Path, tmp_path: Path) -> None:
    """A second run into one directory stops before it runs."""
    with_us(answering, "native", tmp_path / "out")
    before = (tmp_path / "out" / "completions.jsonl").read_bytes()
    with pytest.raises(RecordError, match="never overwritten"):
        with_us(answering, "native", tmp_path / "out")
    assert (tmp_path / "out" / "completions.jsonl").read_bytes() == before


def test_a_performance_that_the_host_keeps_to_itself(calm: Path, sabotaged: Sabotage, tmp_path: Path) -> None:
    """Where neither object nor archive tells a score, the program is evaluated again, or the run stops."""
    sabotaged("calm_trainer.py", "import importlib", "import copy\nimport importlib")
    sabotaged(
        "calm_trainer.py",
        "        if len(codes) > 1",
        "        policy = copy.copy(policy)\n        if len(codes) > 1",
    )
    twin = f"{OBP.seed.code}# a remark"
    (calm / "answers.json").write_text(json.dumps([[answer(twin)]]))
    with pytest.raises(HostError, match="nobody can tell"):
        with_us(calm, "native", tmp_path / "stopped")
    run_released(calm, CONFIG, "obp", "native", tmp_path / "out", {twin: -27.0}.get)
    assert [record.score for record in records(tmp_path / "out")[0]] == [-27.0]


def test_two_prompts_in_one_call_are_refused(answering: Path, tmp_path: Path) -> None:
    """A group is one prompt; several at once stop the run with what to set."""
    main = answering / "main.py"
    main.write_text(
        main.read_text().replace('[row["prompt"]] * len(answers)', 'two(row["prompt"], answers)')
        + "\n\ndef two(prompt, answers):\n    other = [{'content': prompt[-1]['content'] + '?'}]\n"
        "    return [prompt, *[other] * (len(answers) - 1)]\n"
    )
    with pytest.raises(HostError, match="set n_prompts to 1"):
        with_us(answering, "native", tmp_path / "out")


def tree(path: Path) -> dict[str, str]:
    """Hash of every file below a directory."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_nothing_is_left_behind(answering: Path, tmp_path: Path) -> None:
    """The checkout keeps its bytes; working directory, search path and modules are as before."""
    utils = type(sys)("utils")
    sys.modules["utils"] = utils
    before = tree(answering), os.getcwd(), list(sys.path), set(sys.modules)
    with_us(answering, "native", tmp_path / "out")
    assert (tree(answering), os.getcwd(), list(sys.path)) == before[:3]
    assert {"calm_trainer", "heuristic", "args", "main"} & set(sys.modules) == set()
    assert sys.modules.pop("utils") is utils


def test_a_copy_of_the_seed_costs_nothing(calm: Path, tmp_path: Path) -> None:
    """The host's copy rule reaches our records: the seed again gets 0 and is no new member."""
    (calm / "answers.json").write_text(json.dumps([[answer(OBP.seed.code)]]))
    rewards, members = with_us(calm, "native", tmp_path / "out")
    assert rewards == [[0.0]]
    assert len(members) == 1
