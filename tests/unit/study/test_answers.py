"""The page of the plan, through ``s2s rebuild``: one answer per comparison, its reach, what went against."""

import json
import re
import shutil
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.command import Command
from tests.plans import plan_text, text_sha256

from search_to_signal.cli import main
from search_to_signal.records.manifest import write_roster

pytestmark = pytest.mark.slow

QUESTIONS = (
    {"comparisons": 2},
    {"key": "main.fewer", "seeds": 3, "role": "secondary"},
    {"key": "main.best", "metric": "final_best", "comparisons": 2},
    {"key": "main.worse", "pairs": '[["main/cohort/frozen", "main/cohort/native"]]', "role": "secondary"},
    {"key": "main.distinct", "metric": "valid_program_uniqueness", "role": "secondary"},
    {
        "key": "main.time",
        "metric": "final_best",
        "match": "processor_time",
        "pairs": '[["main/cohort/native", "main/anchor/frozen"]]',
    },
)
LONGER = {1: 70, 2: 90}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is made again of packed evidence of four seeds, two of them with a longer frozen run."""
    top = tmp_path_factory.mktemp("answers")
    results, names = top / "results" / "main", []
    plan = plan_text(*({"seeds": 4, **question} for question in QUESTIONS), seeds=4)
    under = text_sha256(plan)
    for seed in (1, 2, 3, 4):
        for condition in ("frozen", "native"):
            names.append(f"{condition}-s{seed}")
            write_synthetic_run(results / "cohort" / names[-1], condition, seed, plan_sha256=under)
    write_roster(results / "cohort", names)
    for seed, groups in LONGER.items():
        run = results / "anchor" / f"frozen-s{seed}"
        write_synthetic_run(run, "frozen", seed, groups=groups, layer="anchor", plan_sha256=under)
    write_roster(results / "anchor", [f"frozen-s{seed}" for seed in (1, 2, 3, 4)])
    assert main(["pack", str(results), "--into", str(top / "evidence")]) == 0
    (top / "evidence" / "plan.toml").write_text(plan)
    assert main(["rebuild", str(top / "evidence"), "--out", str(top / "made"), "--ship"]) == 0
    return top / "made"


def test_the_first_lines_say_what_was_decided(made: Path) -> None:
    text = (made / "report" / "evidence.md").read_text()
    answer = r"^- native minus frozen: (Valid \(points\) \S+ \[.*?\], n = \d+: [a-z ]+)"
    found = re.findall(answer, text, re.M)
    assert len(found) == 2
    assert len(set(found)) == 1
    assert "n = 3" not in text
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


def records_of(made: Path, layer: str, name: str) -> list[dict[str, Any]]:
    """The recorded completions of a run."""
    file = made.parent / "results" / "main" / layer / name / "completions.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_is_lost_stands_beside_what_is_gained(made: Path, s2s: Command) -> None:
    """A comparison that ends below zero is a column of the first table, whatever its role."""
    evidence = str(made.parent / "evidence")
    heads = [
        line
        for line in s2s("rebuild", evidence, "--out", made.parent / "again").out.splitlines()
        if line.startswith("| Comparison")
    ]
    assert (
        "main.distinct/native minus frozen,Verdict,below zero"
        in (made / "report" / "outcomes.csv").read_text()
    )
    assert "| Distinct programs (%) |" in heads[0]


def test_each_program_counts_once_besides(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def each_once(name: str) -> float:
        valid = [one for one in records_of(made, "cohort", name) if one["score"] is not None]
        return mean({one["program_sha256"]: one["score"] for one in reversed(valid)}.values())

    found = mean(each_once(f"native-s{seed}") - each_once(f"frozen-s{seed}") for seed in (1, 2, 3, 4))
    top = (made / "report" / "evidence.md").read_text().partition("\n## ")[0]
    besides = top.partition("**Asked in addition to the plan, exploratory**")[2]
    assert f"Valid-only perf., each program once against frozen, n = 4: native {found:+.4f}" in besides
    assert "Copies of a parent (points) against frozen, n = 4: native +0.00" in besides
    assert "besides" not in (made / "report" / "outcomes.csv").read_text()
    evidence = made.parent / "evidence"
    assert (evidence / "report" / "besides.csv").is_file()
    row = "main.distinct+valid_only_performance_of_programs/native minus frozen"
    capsys.readouterr()
    assert main(["trace", str(evidence), "besides", row, "Estimate"]) == 0
    traced = capsys.readouterr().out
    assert f"value    {found:.12f}"[:-4] in traced
    assert "main/cohort/native-s4/completions.jsonl" in traced


def test_what_longer_runs_still_found_stands_beside_the_verdict(made: Path) -> None:
    def best(seed: int, groups: int) -> float:
        records = [one for one in records_of(made, "anchor", f"frozen-s{seed}") if one["step"] < groups]
        admitted = [one["score"] for one in records if one["archive_event"] == "admitted"]
        return max([records[0]["frontier"], *admitted])

    gain = mean(best(seed, groups) - best(seed, 40) for seed, groups in LONGER.items())
    text = (made / "report" / "evidence.md").read_text()
    said = "2 frozen runs went on after 40 groups, for 30 to 50 further groups, and gained"
    assert f"{said} {gain:.4f} in Final best" in text.partition("\n## ")[0].partition("**Undecided**")[2]
    assert said in text.partition("\n## ")[2]


def test_a_number_is_traced_by_the_layers_that_its_table_reads(
    made: Path, tmp_path: Path, s2s: Command
) -> None:
    main_profile = Path(shutil.copytree(made.parent / "evidence" / "main", tmp_path / "main"))
    cell = ["trace", str(main_profile), "core_results", "native", "Final best"]
    whole = s2s(*cell).out
    (main_profile / "anchor" / f"frozen-s{min(LONGER)}" / "records.xz").write_bytes(b"")
    said = s2s(*cell)
    assert said.out == whole
    s2s("trace", main_profile, "anchor", code=4)
