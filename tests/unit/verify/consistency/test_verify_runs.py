"""Verification: an honest run passes, and each way to doctor its records is found, sums rewritten or not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.verify.consistency.test_derived_records import Line, put, rewrite

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import read_manifest
from search_to_signal.verify.directory import verify
from search_to_signal.verify.records import record_problems


@pytest.mark.parametrize("condition", ["frozen", "native", "factorized", "tail_weighted", "search_exposure"])
def test_honest_runs_pass(make_run: Callable[..., Path], tmp_path: Path, condition: str) -> None:
    """A faithful run of every condition has no problem, alone and as part of a cohort."""
    run = make_run(tmp_path / "out" / "run", condition)
    assert record_problems(run, read_manifest(run)) == []
    write_sums(tmp_path / "out")
    verdict = verify(tmp_path / "out")
    assert (verdict.problems, verdict.counts["runs"]) == ((), 1)
    assert verdict.counts["files"] == sum(path.is_file() for path in (tmp_path / "out").rglob("*")) - 1


@pytest.mark.parametrize("line", [4, 6, 7])
def test_scores_of_frozen_runs_are_held_too(make_run: Callable[..., Path], tmp_path: Path, line: int) -> None:
    """No reward stands beside a frozen run's scores, and still a changed one contradicts the archive."""
    problems = rewrite(make_run(tmp_path / "run", "frozen"), "completions.jsonl", put(line, score=-6.97))
    assert any("step 1" in problem for problem in problems), problems


def test_frozen_runs_have_no_credit(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """A reward in a frozen run is a contradiction."""
    problems = rewrite(make_run(tmp_path / "run", "frozen"), "completions.jsonl", put(0, reward=0.0))
    assert problems == ("run: completions.jsonl:1 (step 0, completion 0): reward is 0.0, expected null",)


@pytest.mark.parametrize(
    ("limits", "cut", "problem"),
    [
        ({"max_prompt_tokens": 2, "long_prompts": "cut"}, 5, None),
        ({"max_prompt_tokens": 3, "long_prompts": "cut"}, 5, "5 prompt tokens cut, 2 left, limit 3"),
        ({"max_prompt_tokens": 2, "long_prompts": "cut"}, -5, "-5 prompt tokens cut"),
        ({"max_prompt_tokens": 2, "long_prompts": "refuse"}, 5, "refuse"),
        ({"max_prompt_tokens": 2}, 5, "refuse"),
        ({"max_prompt_tokens": 2, "long_prompts": "cut", "backend": "api"}, 5, "send whole"),
        ({"max_prompt_tokens": 1, "long_prompts": "cut", "backend": "api"}, 0, None),
        ({"max_prompt_tokens": 1, "long_prompts": "cut"}, 0, "2 tokens of a prompt were read"),
    ],
)
def test_a_cut_prompt_fits_the_limit(
    make_run: Callable[..., Path], tmp_path: Path, limits: Line, cut: int, problem: str | None
) -> None:
    """A prompt loses tokens only where the settings cut, is then as long as its limit, and never longer."""
    run = make_run(tmp_path / "run", "native", config={"generation": {"group_size": 4, **limits}})
    found = rewrite(run, "steps.jsonl", lambda lines: [line.update(prompt_tokens_cut=cut) for line in lines])
    assert len(found) == (0 if problem is None else 4)
    assert problem is None or all(problem in line for line in found), found


@pytest.mark.parametrize(("difference", "agrees"), [(0.05, True), (0.2, False), (-0.1, False), (None, False)])
def test_a_server_stays_within_its_limit(
    make_run: Callable[..., Path], tmp_path: Path, difference: float | None, agrees: bool
) -> None:
    """Every step of a trained run by a server says how far it was, and none goes on over its limit."""
    by_server = {"group_size": 4, "backend": "server", "server": {"max_difference": 0.1}}
    run = make_run(tmp_path / "run", "native", config={"generation": by_server})
    told = {} if difference is None else {"sampler_difference": difference}
    found = rewrite(run, "steps.jsonl", lambda lines: [line.update(told) for line in lines])
    problems = [line for line in found if "sampler_difference" in line]
    assert len(problems) == (0 if agrees else 4), found


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.pop(2),
        lambda lines: lines.append(lines[2]),
        put(2, score=-6.0),
        put(0, score=-6.0),
    ],
    ids=["dropped", "duplicated", "score", "seed score"],
)
def test_doctored_heuristics_are_found(
    make_run: Callable[..., Path], tmp_path: Path, change: Callable[[list[Line]], None]
) -> None:
    """The store holds the seed and what was admitted, no more and no less."""
    assert rewrite(make_run(tmp_path / "run", "native"), "heuristics.jsonl", change)


def test_short_runs_are_found(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """A run that lost its last group from every file has fewer groups than its configuration asks for."""
    run = make_run(tmp_path / "run", "native", config={"groups": 5})
    assert "run: 4 steps are recorded, the configuration asks for 5" in verify(run).problems


@pytest.mark.parametrize("name", ["completions.jsonl", "steps.jsonl", "heuristics.jsonl"])
def test_unreadable_and_missing_records_are_problems(
    make_run: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    """A damaged or missing record file is one problem with its name, not a crash."""
    run = make_run(tmp_path / "run")
    (run / name).write_text((run / name).read_text() + '{"step":\n')
    write_sums(run)
    assert any(name in problem for problem in verify(run).problems)
    (run / name).unlink()
    write_sums(run)
    assert any(name in problem for problem in verify(run).problems)


def test_changed_bytes_and_unfinished_runs_are_problems(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    """Bytes that no longer match their sums, an unfinished run and a broken manifest each are one problem."""
    run = make_run(tmp_path / "run")
    (run / "generations.jsonl").write_text("")
    assert "generations.jsonl: bytes differ from SHA256SUMS" in verify(run).problems
    unfinished = make_run(tmp_path / "unfinished", status="running")
    assert verify(unfinished).problems == ("unfinished: the run is not complete",)
    (unfinished / "manifest.json").write_text("{}")
    write_sums(unfinished)
    assert len(verify(unfinished).problems) == 1


def test_nothing_to_verify_is_an_error(tmp_path: Path) -> None:
    """A directory that is not there, has no sums, or has no run is an error, never a success."""
    for prepare in (lambda path: None, Path.mkdir, write_sums):
        prepare(tmp_path / "results")
        with pytest.raises(RunDirectoryError, match="results"):
            verify(tmp_path / "results")


def test_runs_set_aside_are_not_judged(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """Unfinished runs under interrupted/ are covered by the sums, and not taken for runs."""
    make_run(tmp_path / "out" / "native-s42")
    make_run(tmp_path / "out" / "interrupted" / "native-s42-1", status="running")
    write_sums(tmp_path / "out")
    verdict = verify(tmp_path / "out")
    assert (verdict.problems, verdict.counts["runs"]) == ((), 1)
    assert verdict.counts["files"] == sum(path.is_file() for path in (tmp_path / "out").rglob("*")) - 1
