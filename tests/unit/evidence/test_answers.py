"""The page of the plan, through ``s2s rebuild``: one answer per comparison, its reach, what went against."""

import re
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.plans import plan_text

from search_to_signal.cli import main
from search_to_signal.records.manifest import write_roster

QUESTIONS = (
    {"comparisons": 2},
    {"key": "main.fewer", "seeds": 3, "role": "secondary"},
    {"key": "main.best", "metric": "final_best", "comparisons": 2},
    {"key": "main.worse", "pairs": '[["main/cohort/frozen", "main/cohort/native"]]', "role": "secondary"},
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is made again of packed evidence of four seeds."""
    top = tmp_path_factory.mktemp("answers")
    results, names = top / "results" / "main", []
    for seed in (1, 2, 3, 4):
        for condition in ("frozen", "native"):
            names.append(f"{condition}-s{seed}")
            write_synthetic_run(results / "cohort" / names[-1], condition, seed)
    write_roster(results / "cohort", names)
    assert main(["pack", str(results), "--into", str(top / "evidence")]) == 0
    questions = ({"seeds": 4, **question} for question in QUESTIONS)
    (top / "evidence" / "plan.toml").write_text(plan_text(*questions, seeds=4))
    assert main(["rebuild", str(top / "evidence"), "--out", str(top / "made"), "--ship"]) == 0
    return top / "made"


def test_no_study_has_an_answer_of_its_own(made: Path) -> None:
    """Asked over four seeds and over three, validity has one number, interval, n and verdict on the page."""
    text = (made / "report" / "evidence.md").read_text()
    answer = r"^- native minus frozen: (Valid \(points\) \S+ \[.*?\], n = \d+: [a-z ]+)"
    found = re.findall(answer, text, re.M)
    assert len(found) == 2
    assert len(set(found)) == 1
    assert "n = 3" not in text


def test_the_first_lines_say_what_was_decided_and_what_is_excluded(made: Path) -> None:
    """Before every study: decided or not, for or against, and the end that an undecided gain stays below."""
    text = (made / "report" / "evidence.md").read_text().partition("\n## ")[0]
    assert "against frozen, n = 4: native" in text
    page = (made / "report" / "evidence.html").read_text()
    assert page.index('class="verdicts"') < page.index('class="findings"')
    lines = (made / "report" / "outcomes.csv").read_text().splitlines()
    upper = "main.best/native minus frozen,Verdict high,"
    high = next(line.removeprefix(upper).split(",")[0] for line in lines if line.startswith(upper))
    assert "Final best against frozen, n = 4: native" in text
    assert f"(not above {float(high):+.4f})" in text
    assert any(line.startswith("main.best/native minus frozen,Smallest effect recorded,0.") for line in lines)
