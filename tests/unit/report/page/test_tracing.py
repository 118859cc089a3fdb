"""From a number to its records: s2s trace."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command import Command, Make

from search_to_signal.cli import main
from search_to_signal.report.build import line_ranges


@pytest.fixture
def cohort(make_run: Make, tmp_path: Path) -> Path:
    for condition in ("frozen", "native"):
        for seed in (1, 2):
            make_run(tmp_path / f"{condition}-s{seed}", condition, seed, shift=0.01 * seed)
    return tmp_path


@pytest.fixture
def trace(cohort: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Exit code, output and error output of ``s2s trace`` on the cohort."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["trace", str(cohort), *arguments])
        return (code, *capsys.readouterr())

    return call


Trace = Callable[..., tuple[int, str, str]]


@given(st.sets(st.integers(1, 60), min_size=1))
def test_ranges_name_exactly_the_lines(lines: set[int]) -> None:
    text = line_ranges(sorted(lines)).split(" ", 1)[1]
    ends = [(int(part.split("-")[0]), int(part.split("-")[-1])) for part in text.split(", ")]
    assert {line for start, stop in ends for line in range(start, stop + 1)} == lines
    assert all(stop + 1 < start for (_, stop), (start, _) in pairwise(ends))


def test_ranges_of_all_and_of_none() -> None:
    assert (line_ranges(None), line_ranges([])) == ("all lines", "no lines")
    assert (line_ranges([7]), line_ranges(range(1, 241))) == ("line 7", "lines 1-240")


def test_a_number_leads_to_its_records(trace: Trace, cohort: Path) -> None:
    code, out, _ = trace("admissions", "native-s2", "Admissions")
    assert code == 0
    value = int(re.findall(r"value +(\d+)", out)[0])
    file, spans = re.findall(r"records +(\S+): lines (.+)", out)[0]
    ends = [span.split("-") for span in spans.split(", ")]
    numbers = [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)]
    lines = (cohort / file).read_text().splitlines()
    assert file == "native-s2/completions.jsonl"
    assert len(numbers) == value == 8
    assert all(json.loads(lines[n - 1])["archive_event"] == "admitted" for n in numbers)
    _, out, _ = trace("admissions", "native-s1", "Admissions", "--show", "2")
    shown = re.findall(r"^    (\d+): (.+)$", out, re.MULTILINE)
    assert [number for number, _ in shown] == ["1", "4"]
    assert all(text.startswith('{"step":0,"index":') and len(text) < 200 for _, text in shown)
    assert not re.search(r"[0-9a-f]{64}", out)


def test_a_mean_names_n_spread_formula_and_every_run(trace: Trace) -> None:
    _, out, _ = trace("core_results", "native", "Final best")
    assert re.search(r"n +2\n", out)
    assert float(re.findall(r"value +(\S+)", out)[0]) == pytest.approx(-7 + 4 * 0.115)
    assert float(re.findall(r"spread +(\S+)", out)[0]) == pytest.approx(0.04 * 0.5**0.5)
    assert "mean over 2 seeds of (best score after the last group" in out
    assert re.findall(r"records +(\S+): (.+)", out) == [
        (f"native-s{seed}/completions.jsonl", "all lines") for seed in (1, 2)
    ]
    _, tables, _ = trace()
    assert re.search(r"^core_results +Core results", tables, re.MULTILINE)
    assert re.search(r"^restart +absent: layer restart has not run", tables, re.MULTILINE)
    _, parts, _ = trace("core_results")
    assert {"  Final best", "  frozen", "  native"} <= set(parts.splitlines())
    _, values, _ = trace("core_results", "native")
    assert re.search(r"Valid \(%\) +75\.00 ± 0\.00 +\(n = 2\)", values)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["core"], 2, "core_results"),
        (["core_results", "natives"], 2, "frozen, native"),
        (["core_results", "native", "Best"], 2, "Final best, Trajectory AUC"),
        (["restart", "native"], 1, "layer restart has not run"),
        (["core_results", "native", "Final best", "--show", "-1"], 2, "0 or more"),
    ],
)
def test_unknown_names_list_the_choices(trace: Trace, arguments: list[str], code: int, text: str) -> None:
    found, out, err = trace(*arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert text in err


def test_smoke_tables_go_by_both_names(make_run: Make, tmp_path: Path, s2s: Command) -> None:
    make_run(tmp_path / "native-s1", "native", 1, config={"purpose": "smoke"})
    for name in ("core_results", "smoke_core_results"):
        said = s2s("trace", tmp_path, name, "native", "Final best")
        assert said.out.startswith("smoke_core_results / native / Final best")


def test_a_lost_record_file_is_an_error(cohort: Path, s2s: Command) -> None:
    """What cannot be read is named, in one line."""
    (cohort / "native-s1" / "completions.jsonl").unlink()
    said = s2s("trace", cohort, "core_results", "native", "Final best", code=4)
    assert "native-s1" in said.err
