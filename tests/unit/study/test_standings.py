"""The best programs of packed cohorts beside those of the field: scored, shown, and checked."""

import csv
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.command import Command, Patch
from tests.plans import pack_study, plan_text

from search_to_signal.cli import main
from search_to_signal.problems import get_problem
from search_to_signal.problems.tsp import known_heuristics, known_scores
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.schema import HeuristicRecord
from search_to_signal.sandbox.programs import sha256_text
from search_to_signal.study import scored_standings, standings
from search_to_signal.study.container import list_evidence

pytestmark = pytest.mark.slow

PROGRAM = """def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    return {}(unvisited_nodes, key=lambda node: distance_matrix[{}][node])
"""
# The best of frozen is that of seed 2; native found nothing better than the seed heuristic.
FOUND = {("frozen", 1): ("max", 0.5), ("frozen", 2): ("min", 1.0), ("frozen", 3): ("max", 0.2)}
FILE, FINALS = "heldout/programs.jsonl", "heldout/finals.jsonl"


def write_heuristics(run: Path, condition: str, seed: int) -> None:
    """The seed heuristic of a run and what it found, in the run's list of files too."""
    tsp = get_problem("tsp").seed
    common: dict[str, Any] = {"idea": tsp.idea, "index": 0}
    records = [HeuristicRecord(id="seed", code=tsp.code, score=-7.0, operator=None, step=-1, **common)]
    if (condition, seed) in FOUND:
        rule, gain = FOUND[condition, seed]
        code = PROGRAM.format(rule, "current_node")
        common["idea"] = "a <found> idea"
        records.append(
            HeuristicRecord(id="found", code=code, score=gain - 7.0, operator="injection", step=1, **common)
        )
    lines = [msgspec.json.encode(record) + b"\n" for record in records]
    (run / "heuristics.jsonl").write_bytes(b"".join(lines))
    write_sums(run)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed evidence of three seeds with scores of its best programs, and its tables."""
    top = tmp_path_factory.mktemp("standings")
    pack_study(top, plan_text({}), top / "evidence", after=write_heuristics)
    list_evidence(top / "evidence")
    assert main(["standings", str(top / "evidence")]) == 0
    assert main(["rebuild", str(top / "evidence"), "--out", str(top / "made"), "--ship"]) == 0
    return top / "evidence"


@pytest.fixture
def few_known(monkeypatch: Patch) -> None:
    """Of the field's heuristics two that are quick; every one is scored again by the tests of problems."""
    monkeypatch.setattr(scored_standings, "known_heuristics", lambda: known_heuristics()[:2])


def changed(shipped: Path, tmp_path: Path, change: Any) -> Path:
    """A copy of the evidence with other scores, which its list has."""
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    lines = [json.loads(line) for line in (evidence / FILE).read_text().splitlines()]
    text = "".join(json.dumps(line) + "\n" for line in change(lines))
    (evidence / FILE).write_text(text)
    list_evidence(evidence)
    return evidence


def test_the_page_says_where_programs_stand(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    lines = s2s("rebuild", shipped, "--out", tmp_path).out.splitlines()
    assert lines[-1].split(";")[0] == "s2s: OK: 0 problems"
    rows = (tmp_path / "report" / "standings.csv").read_text().splitlines()
    gaps = [row.split("Gap (%) 200,")[1].split(",")[0] for row in rows if "Gap (%) 200" in row]
    assert len(gaps) == len(known_heuristics()) + 2
    own = {
        row.split(",Gap")[0].strip('"'): gap
        for row, gap in zip([row for row in rows if "Gap (%) 200" in row], gaps, strict=True)
    }
    # The best program of frozen is the nearest neighbour in other words, that of native the seed.
    assert own["main: frozen, best of 3 seeds"] == own["Nearest neighbour"]
    assert own["main: native, best of 3 seeds, the seed itself"] == own["AEL, the seed of every search here"]
    page = (tmp_path / "report" / "evidence.html").read_text()
    best = (
        "main&#39;s best program by its score in training (frozen, best of 3 seeds) is 24.37 %, 24.51 % and"
    )
    assert f"{best} 24.72 %" in page
    assert (
        "Its tours are 13.19 % longer, 10.85 % longer and 9.88 % longer than those of the heuristic" in page
    )
    section = page.partition('<section id="standings">')[2].partition("</section>")[0]
    assert section.count("<details>") == len(known_heuristics()) + 2
    assert "return min(unvisited_nodes" in section
    assert "return max(unvisited_nodes" not in section
    assert "a &lt;found&gt; idea<br>main/cohort/frozen-s2; score in training -6.0000" in section
    assert "## The programs found here, compared" in (tmp_path / "report" / "evidence.md").read_text()


@pytest.mark.usefixtures("few_known")
def test_scores_can_be_made_again(shipped: Path, s2s: Command) -> None:
    lines = s2s("standings", shipped, "--check", 1).out.splitlines()
    assert lines[-1] == "s2s: OK: 0 problems, on the first 1 instance of each size"
    before = (shipped / FILE).read_bytes()
    lines = s2s("standings", shipped).out.splitlines()
    assert not any("heldout_50" in line for line in lines)
    assert (shipped / FILE).read_bytes() == before


@pytest.mark.usefixtures("few_known")
def test_a_changed_score_is_found(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    def longer(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines[0]["scores"][0] -= 0.001
        return lines

    evidence = changed(shipped, tmp_path, longer)
    lines = s2s("standings", evidence, "--check", 1, code=1).out.splitlines()
    assert lines[-2].startswith("PROBLEM main: frozen, best of 3 seeds on heldout_50, instance 1: recorded -")
    lines = s2s("rebuild", evidence, "--out", tmp_path / "out", code=1).out.splitlines()
    assert any("report/standings.csv: main: frozen, best of 3 seeds" in line for line in lines)

    def shorter(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines[0]["scores"][0] = -1.0
        return lines

    lines = s2s(
        "rebuild", changed(shipped, tmp_path / "2", shorter), "--out", tmp_path / "out", code=1
    ).out.splitlines()
    assert any("scores that no tours of these instances have" in line for line in lines)


def test_another_best_program_asks_for_scores(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    def other(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines[0]["code_sha256"] = "0" * 64
        return lines

    lines = s2s(
        "rebuild", changed(shipped, tmp_path, other), "--out", tmp_path / "out", code=1
    ).out.splitlines()
    assert (
        f"PROBLEM {FILE}: main: frozen, best of 3 seeds has no scores on heldout_50: s2s standings makes them"
    ) in lines
    assert any(
        "program 000000000000 on heldout_50 is not one of the programs to score" in line for line in lines
    )


def test_what_is_not_packed_or_scored_says_so(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    shutil.rmtree(evidence / "heldout")
    (evidence / "report" / "standings.csv").unlink()
    list_evidence(evidence)
    lines = s2s("rebuild", evidence, "--out", tmp_path / "out").out.splitlines()
    assert any(line.startswith(f"no {FILE}: s2s standings") for line in lines)
    assert 'id="standings"' not in (tmp_path / "out" / "report" / "evidence.html").read_text()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "plan.toml").write_text(plan_text({}))
    said = s2s("standings", tmp_path / "1", code=4)
    assert "holds no packed evidence: s2s pack makes it" in said.err
    said = s2s("standings", tmp_path / "1", "--check", "0", code=2)
    assert "--check 0: give a number of instances of at least 1" in said.err


@pytest.fixture(scope="module")
def every_run(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evidence without native's last run, whose final bests have scores, and its tables."""
    top = tmp_path_factory.mktemp("every")
    evidence = Path(shutil.copytree(shipped, top / "evidence"))
    shutil.rmtree(evidence / "main" / "cohort" / "native-s3")
    list_evidence(evidence)
    assert main(["standings", str(evidence), "--every-run", "--slots", "2"]) == 0
    assert main(["rebuild", str(evidence), "--out", str(top / "made"), "--ship"]) == 0
    return evidence


def test_every_final_best_stands_beside_the_seed_heuristic(
    every_run: Path, tmp_path: Path, s2s: Command
) -> None:
    lines = s2s("rebuild", every_run, "--out", tmp_path).out.splitlines()
    assert lines[-1].split(";")[0] == "s2s: OK: 0 problems"
    with (tmp_path / "report" / "final_bests.csv").open() as rows:
        table = list(csv.DictReader(rows))
    cells = {(row["row"], row["column"]): row["value"] for row in table}
    scores = [json.loads(line) for file in (FILE, FINALS) for line in (every_run / file).open()]
    seed, *_ = [
        line for line in known_scores() if line.code_sha256 == sha256_text(get_problem("tsp").seed.code)
    ]
    of_seed = np.array(seed.scores)
    gaps = {
        rule: mean(
            100.0 * (length / own - 1.0)
            for line in scores
            if (line["code_sha256"], line["split"]) == (sha256_text(program), "heldout_50")
            for length, own in zip(line["scores"], of_seed, strict=True)
        )
        for rule, program in ((rule, PROGRAM.format(rule, "current_node")) for rule in ("min", "max"))
    }
    # Frozen's three runs end with the farthest node twice and with the nearest, native's two with the seed's.
    assert float(cells["main: frozen", "Gap (%) 50"]) == pytest.approx((2 * gaps["max"] + gaps["min"]) / 3)
    assert gaps["max"] > gaps["min"] == pytest.approx(13.2, abs=0.3)
    assert cells["main: frozen", "Seeds"] == "3"
    assert (cells["main: native", "Seeds"], cells["main: native", "Gap (%) 50"]) == ("2", "0.0")
    difference = "main: native minus frozen"
    assert float(cells[difference, "Gap (%) 50"]) == pytest.approx(-(gaps["max"] + gaps["min"]) / 2)
    half = 12.7062 * (gaps["max"] - gaps["min"]) / 2
    middle = float(cells[difference, "Gap (%) 50"])
    assert float(cells[difference, "Low 50"]) == pytest.approx(middle - half, rel=1e-4)
    assert (cells["main: native", "Shorter 50"], cells[difference, "Shorter 50"]) == ("0", "2")
    page = (tmp_path / "report" / "evidence.html").read_text()
    assert "Of main&#39;s 5 final bests, 0, 0 and 0 give shorter tours" in page
    assert "0, 0 and 0 by the total length; 2 are that heuristic itself)." in page
    assert f"<td>{middle:+.2f} [{middle - half:+.2f}, {middle + half:+.2f}]</td><td>2 of 2</td>" in page
    assert "### Every final best, compared" in (tmp_path / "report" / "evidence.md").read_text()


def test_whole_seeds_alone_choose_a_conditions_program(every_run: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(every_run, tmp_path / "evidence"))
    shutil.rmtree(evidence / "main" / "cohort" / "native-s2")
    list_evidence(evidence)
    s2s("standings", evidence)
    listed = {json.loads(line)["code_sha256"] for line in (evidence / FILE).open()}
    rules = [rule for rule in ("min", "max") if sha256_text(PROGRAM.format(rule, "current_node")) in listed]
    assert rules == ["max"]
    s2s("rebuild", evidence, "--out", tmp_path / "out", code=None)
    assert "main: frozen, best of 1 seed" in (tmp_path / "out" / "report" / "standings.csv").read_text()


@pytest.mark.usefixtures("few_known")
def test_scores_of_final_bests_are_kept_and_checked(every_run: Path, tmp_path: Path, s2s: Command) -> None:
    before = (every_run / FINALS).read_bytes()
    lines = s2s("standings", every_run).out.splitlines()
    assert not any("heldout_50" in line for line in lines)
    assert (every_run / FINALS).read_bytes() == before
    s2s("standings", every_run, "--check", 1)

    evidence = Path(shutil.copytree(every_run, tmp_path / "evidence"))
    first, *others = [json.loads(line) for line in before.splitlines()]
    first["scores"][0] -= 0.001
    (evidence / FINALS).write_text("".join(json.dumps(line) + "\n" for line in (first, *others)))
    list_evidence(evidence)
    lines = s2s("standings", evidence, "--check", 1, code=1).out.splitlines()
    assert any("-s1, its final best on heldout_50, instance 1: recorded -" in line for line in lines)
    lines = s2s("rebuild", evidence, "--out", tmp_path / "out", code=1).out.splitlines()
    assert any("report/final_bests.csv: main: " in line for line in lines)

    others[0]["code_sha256"] = "0" * 64
    (evidence / FINALS).write_text("".join(json.dumps(line) + "\n" for line in others))
    list_evidence(evidence)
    lines = s2s("rebuild", evidence, "--out", tmp_path / "out", code=1).out.splitlines()
    assert any(f"PROBLEM {FINALS}: main/cohort/" in line and "has no scores on" in line for line in lines)
    assert any(f"PROBLEM {FINALS}: program 000000000000 on" in line for line in lines)
    s2s("standings", evidence)
    assert (evidence / FINALS).read_bytes() == before


def test_a_stop_keeps_what_is_scored(shipped: Path, tmp_path: Path, monkeypatch: Patch, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    shutil.rmtree(evidence / "heldout")
    list_evidence(evidence)
    monkeypatch.setattr(scored_standings, "_PROGRAMS_PER_SLOT", 1)
    score, calls = scored_standings.score_programs, list[int]()

    def stopped(codes: Mapping[str, str], *arguments: Any) -> Iterator[ProgramScores]:
        calls.append(len(codes))
        if calls == [1, 1]:
            raise KeyboardInterrupt
        return score(codes, *arguments)

    monkeypatch.setattr(scored_standings, "score_programs", stopped)
    s2s("standings", evidence, "--every-run", code=130)
    s2s("standings", evidence)
    # Two programs are no seed heuristic: the nearest node, scored before the stop, and the farthest.
    assert calls == [1, 1, 1]
    assert (evidence / FILE).read_bytes() == (shipped / FILE).read_bytes()
    assert len((evidence / FINALS).read_bytes().splitlines()) == 3


def test_final_bests_differ_from_another_plans_controls() -> None:
    seed = {scored.split: scored for scored in known_scores() if scored.code_sha256 == standings.SEED_SHA256}
    finals, scores = {}, []
    for profile, condition, longer in (("own", "distinct", 1.05), ("other", "frozen", 1.02)):
        code = f"# {condition}"
        finals[profile] = [
            standings.FinalBest(profile, condition, number, f"{profile}/run", "model", -7.0, "idea", code)
            for number in range(1, 4 if profile == "own" else 3)
        ]
        scores += [
            msgspec.structs.replace(
                one, code_sha256=sha256_text(code), scores=tuple(score * longer for score in one.scores)
            )
            for one in seed.values()
        ]
    made = standings.build_beside_seed(finals["own"], finals["other"], scores, 0.95).table
    row = "own: distinct minus other's frozen"
    assert [row.label for row in made.rows] == ["own: distinct", row]
    assert made.cell(row, "Gap (%) 50").number == pytest.approx(3.0)
    assert made.cell(row, "Seeds").number == 2
