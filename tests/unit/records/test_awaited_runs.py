"""While runs of a plan are awaited s2s claims decides no direction, whatever of the evidence it is given."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.plans import plan_text, text_sha256

from search_to_signal.claims.directions import Direction
from search_to_signal.cli import main
from search_to_signal.records.manifest import write_roster
from search_to_signal.study.container import list_evidence

pytestmark = pytest.mark.slow

PLAN = plan_text({})
CLOSING = '[[amendments]]\ndate = 2001-02-03\nwhat = "closes"\nstudies = ["main"]\nwhy = "No machine."\n'
DECIDED = {Direction.SAME, Direction.OPPOSITE, Direction.TIED, Direction.HOLDS, Direction.FAILS}
AWAITED = (
    "main: cohort PARTIAL: 4 of 6 planned runs are there: until the rest is recorded, no direction of "
    "our estimates is decided"
)
NAMES = [f"{condition}-s{seed}" for condition in ("frozen", "native") for seed in (1, 2, 3)]
# Six seeds, whose directions a sign test tells from chance.
TABLE = "".join(f"frozen,{seed},-5.0\nnative,{seed},-4.9\n" for seed in range(6))


def write_results(results: Path, **manifest: str) -> Path:
    """Two of three planned seeds, and a table."""
    for name in NAMES:
        condition, _, seed = name.partition("-s")
        if seed != "3":
            write_synthetic_run(results / "cohort" / name, condition, int(seed), groups=4, **manifest)
    write_roster(results / "cohort", NAMES)
    (results / "report").mkdir()
    (results / "report" / "core_seeds.csv").write_text(f"Condition,Seed,Final best\n{TABLE}")
    return results


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """The same, packed, below its plan."""
    results = write_results(tmp_path / "results" / "main", plan_sha256=text_sha256(PLAN))
    top = tmp_path / "evidence"
    top.mkdir()
    (top / "plan.toml").write_text(PLAN)
    assert main(["pack", str(results), "--into", str(top)]) == 0
    list_evidence(top)
    return top


@pytest.fixture
def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], tuple[bool, str]]:
    """Whether s2s claims decides a direction by some results, and what it prints."""

    def judge(results: Path) -> tuple[bool, str]:
        capsys.readouterr()
        assert main(["claims", "--results", str(results), "--out", str(tmp_path / "claims")]) == 0
        with (tmp_path / "claims" / "claims.csv").open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row["embedded"]]
        assert any("6 of 6 seeds" in row["embedded"] for row in rows)
        decided = {direction.value for direction in DECIDED}
        return any(row["direction"] in decided for row in rows), capsys.readouterr().out

    return judge


def test_a_profile_alone_decides_no_more_than_its_plan(
    evidence: Path, tmp_path: Path, judged: Callable[[Path], tuple[bool, str]]
) -> None:
    alone = Path(shutil.copytree(evidence / "main", tmp_path / "alone" / "main"))
    unpacked = tmp_path / "results"
    for results in (evidence, evidence / "main", alone, unpacked, unpacked / "main"):
        decided, told = judged(results)
        assert not decided, results
        assert AWAITED in told, results


def test_what_is_closed_is_decided_in_a_profile_too(
    evidence: Path, judged: Callable[[Path], tuple[bool, str]]
) -> None:
    (evidence / "amendments.toml").write_text(CLOSING)
    list_evidence(evidence)
    for results in (evidence, evidence / "main"):
        decided, told = judged(results)
        assert decided, results
        assert "no direction of our estimates" not in told


def test_results_that_are_whole_or_follow_no_plan_are_decided(
    tmp_path: Path, judged: Callable[[Path], tuple[bool, str]]
) -> None:
    planned = write_results(tmp_path / "planned", plan_sha256=text_sha256(PLAN))
    assert not judged(planned)[0]
    write_roster(planned / "cohort", [name for name in NAMES if not name.endswith("-s3")])
    assert judged(planned)[0]
    assert judged(write_results(tmp_path / "own"))[0]


def test_a_run_that_is_being_written_is_awaited(
    tmp_path: Path, judged: Callable[[Path], tuple[bool, str]]
) -> None:
    results = write_results(tmp_path / "main", plan_sha256=text_sha256(PLAN))
    write_roster(results / "cohort", [*NAMES[:2], *NAMES[3:5]])
    write_synthetic_run(results / "cohort" / "native-s4", "native", 4, groups=4, status="running")
    assert judged(results)[0]
    write_roster(results / "cohort", [*NAMES[:2], *NAMES[3:5], "native-s4"])
    assert not judged(results)[0]


def test_a_report_decides_nothing_either(tmp_path: Path) -> None:
    results = write_results(tmp_path / "main", plan_sha256=text_sha256(PLAN))
    shutil.rmtree(results / "report")
    write_roster(results / "cohort", [name for name in NAMES if not name.endswith("-s3")])
    ledger = results / "report" / "claims" / "claims.md"
    awaited = (
        "main: restart PARTIAL: 0 of 2 planned runs are there: until the rest is recorded, no direction "
        "of our estimates is decided"
    )
    for restarts in (["native-s1", "native-s2"], []):
        write_roster(results / "restart", restarts)
        assert main(["report", str(results)]) == 0
        assert (awaited in ledger.read_text(encoding="utf-8")) == bool(restarts)


def test_a_whole_profile_does_not_wait_for_one_that_gives_no_table(
    tmp_path: Path, judged: Callable[[Path], tuple[bool, str]]
) -> None:
    top = tmp_path / "results"
    whole, later = (write_results(top / name, plan_sha256=text_sha256(PLAN)) for name in ("first", "later"))
    write_roster(whole / "cohort", [name for name in NAMES if not name.endswith("-s3")])
    assert judged(top)[0]
    (whole / "report" / "core_seeds.csv").rename(whole / "report" / "other.csv")
    decided, told = judged(top)
    assert not decided
    assert "later: cohort PARTIAL: 4 of 6" in told
