"""Findings as lines, and errors of reading as findings."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.records.differences import Finding, VerificationResult, distinct_lines, findings_of


def test_an_unreadable_file_ends_the_checks_and_is_named(tmp_path: Path) -> None:
    def problems() -> Iterator[str]:
        yield "it is not complete"
        (tmp_path / "steps.jsonl").read_bytes()
        yield "never reached"

    first, last = findings_of("probe", problems(), "a manifest")
    assert first.line == "probe: it is not complete"
    assert last.line.startswith(f"cannot read {tmp_path / 'steps.jsonl'}: ")


def test_a_value_that_no_check_can_use_is_a_finding() -> None:
    def problems() -> Iterator[str]:
        yield str(1 / 0)

    (found,) = findings_of("", problems(), "a manifest")
    assert found == Finding("", "a manifest cannot be read (ZeroDivisionError: division by zero)")


def test_problems_and_places_that_are_not_compared_are_apart() -> None:
    findings = (
        Finding("a", "differs"),
        Finding("a", "no tokenizer", False).within("run"),
        Finding("b", "no tokenizer", False).within("run"),
    )
    result = VerificationResult(findings)
    assert result.problems == ("a: differs",)
    assert result.not_compared == {"no tokenizer": ("run: a", "run: b")}


def test_equal_lines_are_printed_once() -> None:
    findings = [Finding("a", "b"), Finding("", "a: b"), Finding("c", "d")]
    assert distinct_lines(findings) == (findings[0], findings[2])
