"""Verification: an honest run passes, and doctored records and manifests are findings."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.command import Make
from tests.unit.verify.consistency.test_derived_records import Line, put, rewrite

from search_to_signal.base.errors import RunDirectoryError, S2SError
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.differences import Finding, VerificationResult, distinct_lines, findings_of
from search_to_signal.records.manifest import MANIFEST, read_manifest
from search_to_signal.verify.directory import verify
from search_to_signal.verify.records import record_problems


@pytest.mark.parametrize("condition", ["frozen", "native", "factorized", "tail_weighted", "search_exposure"])
def test_honest_runs_pass(make_run: Make, tmp_path: Path, condition: str) -> None:
    run = make_run(tmp_path / "out" / "run", condition)
    assert record_problems(run, read_manifest(run)) == []
    write_sums(tmp_path / "out")
    verdict = verify(tmp_path / "out")
    assert (verdict.problems, verdict.counts["runs"]) == ((), 1)
    assert verdict.counts["files"] == sum(path.is_file() for path in (tmp_path / "out").rglob("*")) - 1


@pytest.mark.parametrize("line", [4, 6, 7])
def test_scores_of_frozen_runs_are_held_too(make_run: Make, tmp_path: Path, line: int) -> None:
    problems = rewrite(make_run(tmp_path / "run", "frozen"), "completions.jsonl", put(line, score=-6.97))
    assert any("step 1" in problem for problem in problems), problems


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
    make_run: Make, tmp_path: Path, limits: Line, cut: int, problem: str | None
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
    make_run: Make, tmp_path: Path, change: Callable[[list[Line]], None]
) -> None:
    assert rewrite(make_run(tmp_path / "run", "native"), "heuristics.jsonl", change)


@pytest.mark.parametrize("name", ["completions.jsonl", "steps.jsonl", "heuristics.jsonl"])
def test_unreadable_and_missing_records_are_problems(make_run: Make, tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run")
    (run / name).write_text((run / name).read_text() + '{"step":\n')
    write_sums(run)
    assert any(name in problem for problem in verify(run).problems)
    (run / name).unlink()
    write_sums(run)
    assert any(name in problem for problem in verify(run).problems)


def test_changed_unfinished_and_short_runs_are_problems(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "generations.jsonl").write_text("")
    assert "generations.jsonl: bytes differ from SHA256SUMS" in verify(run).problems
    unfinished = make_run(tmp_path / "unfinished", status="running")
    assert verify(unfinished).problems == ("unfinished: the run is not complete",)
    (unfinished / "manifest.json").write_text("{}")
    write_sums(unfinished)
    assert len(verify(unfinished).problems) == 1
    run = make_run(tmp_path / "1" / "run", "native", config={"groups": 5})
    assert "run: 4 steps are recorded, the configuration asks for 5" in verify(run).problems
    problems = rewrite(make_run(tmp_path / "2" / "run", "frozen"), "completions.jsonl", put(0, reward=0.0))
    assert problems == ("run: completions.jsonl:1 (step 0, completion 0): reward is 0.0, expected null",)
    make_run(tmp_path / "3" / "out" / "native-s42")
    make_run(tmp_path / "3" / "out" / "interrupted" / "native-s42-1", status="running")
    write_sums(tmp_path / "3" / "out")
    verdict = verify(tmp_path / "3" / "out")
    assert (verdict.problems, verdict.counts["runs"]) == ((), 1)
    assert verdict.counts["files"] == sum(path.is_file() for path in (tmp_path / "3" / "out").rglob("*")) - 1


def test_nothing_to_verify_is_an_error(tmp_path: Path) -> None:
    """A directory that is not there, has no sums, or has no run is an error, never a success."""
    for prepare in (lambda path: None, Path.mkdir, write_sums):
        prepare(tmp_path / "results")
        with pytest.raises(RunDirectoryError, match="results"):
            verify(tmp_path / "results")


def test_errors_of_reading_are_findings(tmp_path: Path) -> None:
    def problems() -> Iterator[str]:
        yield "it is not complete"
        (tmp_path / "steps.jsonl").read_bytes()
        yield "never reached"

    first, last = findings_of("probe", problems(), "a manifest")
    assert first.line == "probe: it is not complete"
    assert last.line.startswith(f"cannot read {tmp_path / 'steps.jsonl'}: ")

    def problems() -> Iterator[str]:
        yield str(1 / 0)

    (found,) = findings_of("", problems(), "a manifest")
    assert found == Finding("", "a manifest cannot be read (ZeroDivisionError: division by zero)")


def test_findings_as_lines() -> None:
    findings = (
        Finding("a", "differs"),
        Finding("a", "no tokenizer", False).within("run"),
        Finding("b", "no tokenizer", False).within("run"),
    )
    result = VerificationResult(findings)
    assert result.problems == ("a: differs",)
    assert result.not_compared == {"no tokenizer": ("run: a", "run: b")}
    findings = [Finding("a", "b"), Finding("", "a: b"), Finding("c", "d")]
    assert distinct_lines(findings) == (findings[0], findings[2])


VALUES: tuple[Any, ...] = (None, 0, -1, True, 1e300, "x", [], {}, [{"a": 1}])
RULES = {"dpo": {"finetuning_frequency": 2}, "entropic": {"groups_per_batch": 2}, "grpo": {}}


def places(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every value in nested tables."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(manifest: Any, path: tuple[str, ...], value: Any) -> Any:
    """A copy with one other value."""
    copy = json.loads(json.dumps(manifest))
    table = copy
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    return copy


def told(directory: Path) -> list[str]:
    """Every line that verifying says, each one alone."""
    try:
        lines = list(verify(directory).problems)
    except S2SError as error:
        lines = [str(error)]
    return [line for line in lines if "\n" not in line]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_no_value_of_a_manifest_stops_verifying(make_run: Make, tmp_path: Path, rule: str) -> None:
    tables = {
        "evaluation": {"randomness": "text"},
        "learner": {"credit": "both"},
        "search": {"population_size": 3},
    }
    run = make_run(
        tmp_path / "native-s42",
        "native",
        config={**tables, "learning_rule": rule, "rule_settings": RULES[rule]},
    )
    write_sums(tmp_path)
    manifest = json.loads((run / MANIFEST).read_text())
    for path in places(manifest):
        for value in VALUES:
            (run / MANIFEST).write_text(json.dumps(changed(manifest, path, value)))
            assert told(tmp_path), (path, value)
