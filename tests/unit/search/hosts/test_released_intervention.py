"""The released host under our rewards: its search is untouched, its groups become records."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from answering_host import OBP, archive, rewards, some_answers, with_answers, with_us, without_us

from search_to_signal.base.errors import HostError
from search_to_signal.credit import get_mapping
from search_to_signal.records.groups import batch_of
from search_to_signal.records.reader import read_groups, read_records
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Outcome,
    StepRecord,
)
from search_to_signal.search.hosts.calm.prompts import INJECTION, REPLACEMENT, SIMPLIFICATION
from search_to_signal.search.hosts.released.intervention import HostRecord
from search_to_signal.verify.conformance.pair import answer
from search_to_signal.verify.directory import verify

Sabotage = Callable[[str, str, str], Path]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gpu_packages")]


def records(out: Path) -> list[tuple[CompletionRecord, ...]]:
    return list(read_groups(out))


def tree(path: Path) -> dict[str, str]:
    """Hash of every file below a directory."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_native_is_native_and_leaves_nothing_behind(answering: Path, out: Path, tmp_path: Path) -> None:
    utils = type(sys)("utils")
    sys.modules["utils"] = utils
    main = sys.modules["__main__"].__file__
    before = tree(answering), os.getcwd(), list(sys.path), dict(os.environ)
    with_us(answering, out)
    assert (tree(answering), os.getcwd(), list(sys.path), dict(os.environ)) == before
    assert sys.modules["__main__"].__file__ == main
    assert {"calm_trainer", "heuristic", "args", "main"} & set(sys.modules) == set()
    assert sys.modules.pop("utils") is utils
    there = without_us(answering, tmp_path / "alone")
    assert (rewards(out / "host"), archive(out / "host")) == (rewards(there), archive(there))


def test_another_mapping_leaves_the_search_alone(sabotaged: Sabotage, out: Path, tmp_path: Path) -> None:
    calm = sabotaged(
        "main.py", "trainer.train()", "print(json.dumps(trainer.train()), file=open('given.jsonl', 'a'))"
    )
    with_answers(calm, some_answers())
    with_us(calm, out, "factorized")
    here, there = out / "host", without_us(calm, tmp_path / "alone")
    given = [json.loads(line) for line in (here / "given.jsonl").read_text().splitlines()]
    again = [get_mapping("factorized")(batch_of([group])).reward[0].tolist() for group in records(out)]
    assert given == again
    assert given != rewards(here)
    assert (rewards(here), archive(here)) == (rewards(there), archive(there))


def test_records_say_what_the_host_did_and_fit_together(answering: Path, out: Path) -> None:
    with_us(answering, out)
    found, native = records(out), rewards(out / "host")
    assert [record.outcome for record in found[0]] == [*[Outcome.VALID] * 3, Outcome.MISSING_RATIONALE]
    assert [record.archive_event for record in found[0]] == [
        ArchiveEvent.DUPLICATE_SCORE,
        ArchiveEvent.ADMITTED,
        ArchiveEvent.DUPLICATE_SCORE,
        ArchiveEvent.INVALID,
    ]
    kept = {performance for _, performance in archive(out / "host")}
    assert {record.score for group in found for record in group} >= kept
    for line, group, rewarded in zip(
        read_records(out / "host.jsonl", HostRecord), found, native, strict=True
    ):
        assert list(line.native) == list(line.recomputed) == rewarded
        assert [record.reward for record in group] == rewarded
    steps = list(read_records(out / "steps.jsonl", StepRecord))
    heuristics = list(read_records(out / "heuristics.jsonl", HeuristicRecord))
    kept = [performance for _, performance in archive(out / "host")]
    assert sorted(line.score for line in heuristics) == sorted(kept)
    for step, group in zip(steps, records(out), strict=True):
        assert step.archive_size == group[0].archive_size + step.admitted
        assert step.frontier_before == group[0].frontier
        assert group[0].base_scores
        assert max(group[0].base_scores) <= step.frontier_before
        assert all((record.exposure is None) == (record.score is None) for record in group)


def test_the_operator_is_the_one_that_the_host_names(calm: Path, out: Path) -> None:
    """Even where no completion became a heuristic, which would bear the operator's name."""
    with_answers(calm, [["nothing"] * 2] * 12)
    with_us(calm, out)
    found = {step.operator for step in read_records(out / "steps.jsonl", StepRecord)}
    assert found == {SIMPLIFICATION, INJECTION, REPLACEMENT}


def test_a_performance_that_the_host_keeps_to_itself(sabotaged: Sabotage, out: Path, tmp_path: Path) -> None:
    sabotaged("calm_trainer.py", "import importlib", "import copy\nimport importlib")
    promise = "        return policy, self.env.run_async(policy, self.instances)"
    calm = sabotaged("calm_trainer.py", promise, f"        policy = copy.copy(policy)\n{promise}")
    with_answers(calm, [[answer(f"{OBP.seed.code}# a remark")]])
    with_us(calm, out)
    assert records(out)[0][0].score is not None
    only_there = OBP.seed.code.replace("import numpy as np", "import heuristic\nimport numpy as np")
    with_answers(calm, [[answer(only_there)]])
    with pytest.raises(HostError):
        with_us(calm, tmp_path / "stopped")


def test_a_host_that_admits_everything(sabotaged: Sabotage, out: Path) -> None:
    rule = "        if not any(abs(algo.perf - policy.perf) < SAME for algo in self.algos):\n            self"
    calm = with_answers(sabotaged("calm_trainer.py", rule, "        self"), some_answers())
    with_us(calm, out)
    found = [record for group in records(out) for record in group]
    assert all((r.archive_event is ArchiveEvent.ADMITTED) == (r.score is not None) for r in found)
    assert verify(out).problems == ()


def test_a_collapse(calm: Path, out: Path) -> None:
    groups = [*some_answers(), *[["nothing"] * 4] * 3]
    with_us(with_answers(calm, groups, population_size=2, max_stuck_threshold=2), out)
    steps = list(read_records(out / "steps.jsonl", StepRecord))
    assert [step.collapsed for step in steps].count(True) == 1
    assert verify(out).problems == ()


def test_two_prompts_in_one_call_are_refused(sabotaged: Sabotage, out: Path) -> None:
    calm = sabotaged(
        "calm_trainer.py",
        'prompts=[row["prompt"]] * len(texts)',
        'prompts=[row["prompt"], *[[{"content": "another"}]] * (len(texts) - 1)]',
    )
    with_answers(calm, some_answers())
    with pytest.raises(HostError, match="set n_prompts to 1"):
        with_us(calm, out)


def test_a_copy_of_the_seed_costs_nothing(calm: Path, out: Path) -> None:
    with_us(with_answers(calm, [[answer(OBP.seed.code)]]), out)
    assert rewards(out / "host") == [[0.0]]
    assert len(archive(out / "host")) == 1
