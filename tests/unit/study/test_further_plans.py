"""A further plan lies in a directory of its own beside the first: its own list, tables, page and problems."""

import re
import shutil
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.command import Command
from tests.plans import pack_study, plan_text, text_sha256
from tests.probes import write_synthetic_probe

from search_to_signal.cli import main
from search_to_signal.records.manifest import write_roster
from search_to_signal.report.figures.plot import CsvFrame
from search_to_signal.study.container import list_evidence
from search_to_signal.study.plan_checks import table_problems

pytestmark = pytest.mark.slow

FIRST = plan_text({})
LARGER = {"pairs": '[["larger/cohort/native", "larger/cohort/frozen"]]', "horizon": 80}
NARROWING = {"key": "main.distinct", "metric": "valid_program_uniqueness", "role": "secondary"}
FURTHER = (
    plan_text(LARGER, {**LARGER, **NARROWING})
    .replace('"A small plan"', '"A further plan"')
    .replace('profiles = ["main"]', 'profiles = ["larger"]')
)
CLOSING = """
[[amendments]]
date = 2001-02-03
what = "closes"
studies = ["main"]
why = "No card."
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evidence of two plans, with its tables."""
    top = tmp_path_factory.mktemp("two")
    pack_study(top, FIRST, top / "evidence")
    pack_study(top, FURTHER, top / "evidence" / "further", "larger")
    assert main(["rebuild", str(top / "evidence"), "--out", str(top / "made"), "--ship"]) == 0
    return top / "evidence"


def cohorts_beside(report: Path) -> list[str]:
    """The cohorts whose courses a plan's page draws side by side."""
    return CsvFrame.read((report / "figures" / "courses.csv").read_text()).names("cohort")


def test_both_are_made_again(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    """One command checks both, the later page is named first, and shows both plans' cohorts and the paper."""
    out = s2s("rebuild", shipped, "--out", tmp_path).out
    pages = [tmp_path / "report/evidence.html", tmp_path / "further/report/evidence.html"]
    assert out.splitlines()[-1] == f"s2s: OK: 0 problems; open {pages[1]} and {pages[0]}"
    first, further = (page.read_text() for page in pages)
    assert '<a href="../further/report/evidence.html">A further plan</a>' in first
    assert '<a href="../../report/evidence.html">A small plan</a>' in further
    assert (tmp_path / "further" / "larger" / "report.html").is_file()
    assert cohorts_beside(tmp_path / "report") == ["main"]
    assert cohorts_beside(tmp_path / "further" / "report") == ["larger", "main"]
    assert '<figure id="figure-courses">' in further
    assert "paper +33.07, above in 3 of 3" in further
    assert "further" not in (shipped / "SHA256SUMS").read_text()
    assert "larger/cohort/native-s1/records.xz" in (shipped / "further" / "SHA256SUMS").read_text()


def test_half_a_study_leads_nothing(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    for condition in ("frozen", "native"):
        shutil.rmtree(evidence / "further" / "larger" / "cohort" / f"{condition}-s3")
    list_evidence(evidence / "further")
    assert main(["rebuild", str(evidence), "--out", str(tmp_path / "made"), "--ship"]) == 0
    out = s2s("rebuild", shipped, "--out", tmp_path / "whole").out
    lines = out.splitlines()
    table = lines[[n for n, line in enumerate(lines) if line.startswith("| Comparison")][1] :][:4]
    (tmp_path / "README.md").write_text("\n".join(table) + "\n")
    out = s2s("rebuild", evidence, "--out", tmp_path / "out", "--readme", tmp_path / "README.md").out
    pages = [tmp_path / "out/report/evidence.html", tmp_path / "out/further/report/evidence.html"]
    assert out.splitlines()[-1] == f"s2s: OK: 0 problems; open {pages[0]} and {pages[1]}"
    assert out.index("Main (n = 3)") < out.index("Main (n = 2 of 3 seeds, no verdict)")
    assert "n = 2 of 3 seeds: no verdict yet. So far Valid (points)" in pages[1].read_text()
    assert "n = 2 of 3: partial: no verdict" in pages[1].read_text()
    assert "larger: cohort PARTIAL: 4 of 6" in (pages[1].parent / "claims" / "claims.md").read_text()
    assert "PARTIAL" not in pages[0].read_text()
    besides = (
        pages[1].read_text().partition("<summary>Asked in addition to the plan, exploratory</summary>")[2]
    )
    copies = "native minus frozen: Copies of a parent (points) +0.00"
    assert re.search(re.escape(copies) + r".*?, n = 2 of 3 planned: partial: no verdict", besides)
    assert copies in pages[1].with_suffix(".md").read_text().partition("\n## Main\n")[2]


def test_a_further_plan_is_closed_by_amendments_of_its_own(
    shipped: Path, tmp_path: Path, s2s: Command
) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    further = evidence / "further"
    for condition in ("frozen", "native"):
        shutil.rmtree(further / "larger" / "cohort" / f"{condition}-s3")
    (further / "amendments.toml").write_text(CLOSING)
    list_evidence(further)
    s2s("rebuild", evidence, "--out", tmp_path / "made", "--ship")
    out = s2s("rebuild", evidence, "--out", tmp_path / "out").out
    pages = [tmp_path / "out/report/evidence.html", tmp_path / "out/further/report/evidence.html"]
    assert out.splitlines()[-1] == f"s2s: OK: 0 problems; open {pages[0]} and {pages[1]}"
    closed = "closed: 2 of 3 seeds, amendment of 2001-02-03"
    assert out.index("Main (n = 3)") < out.index(f"Main ({closed})")
    assert "further: larger: cohort closed: 4 of 6 planned runs, amendment of 2001-02-03" in out
    assert closed in pages[1].read_text()
    assert "n = 2 of 3 seeds: no verdict. So far Valid (points)" in pages[1].read_text()
    assert "amendment of 2001-02-03 closes it: No card" in pages[1].read_text()
    assert "closed" not in pages[0].read_text()
    others = [*(tmp_path / "out").rglob("*.html"), *(tmp_path / "out").rglob("*.md")]
    assert not [page for page in others if "PARTIAL" in page.read_text()]
    told = s2s("claims", "--results", further, "--out", tmp_path / "claims").out
    assert "amendment of 2001-02-03 closes main" in told
    record = ["record", "--plan", str(further / "plan.toml"), "--out", str(tmp_path / "results")]
    assert "closed them: main" in s2s(*record).out
    s2s(*record, "--study", "main", code=2)


def test_runs_without_a_whole_seed_have_their_course(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    further = evidence / "further"
    for run in (further / "larger" / "cohort").glob("native-s*"):
        shutil.rmtree(run)
    list_evidence(further)
    out = s2s("rebuild", evidence, "--out", tmp_path / "made", "--ship").out
    assert "further: larger: no tables, but a course: " in out
    s2s("rebuild", evidence, "--out", tmp_path / "again")
    shipped_tables = [path.name for path in (further / "larger" / "report").rglob("*.csv")]
    assert shipped_tables == ["course.csv"]
    courses = CsvFrame.read((tmp_path / "again" / "further/report/figures/courses.csv").read_text())
    whole = CsvFrame.read((shipped / "further" / "report" / "figures" / "courses.csv").read_text())
    assert courses.where(cohort="larger") == whole.where(cohort="larger", condition="frozen")
    assert courses.where(cohort="main") == whole.where(cohort="main")
    told = s2s("trace", further / "larger", "core_results", "frozen", "Final best", code=1).err
    assert told == "s2s: error: no seed of layer cohort has all its runs yet\n"


def test_each_has_its_own_problems(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    plan = evidence / "further" / "plan.toml"
    plan.write_text(plan.read_text().replace("Is it so?", "Was it so?"))
    out = s2s("rebuild", evidence, "--out", tmp_path / "out", code=1).out
    problems = [line for line in out.splitlines() if line.startswith("PROBLEM")]
    assert problems
    assert all(line.startswith("PROBLEM further/plan.toml: ") for line in problems)
    (evidence / "further" / "larger" / "files.xz").write_bytes(b"cut")
    assert (
        "larger/files.xz: bytes differ" in s2s("rebuild", evidence, "--out", tmp_path / "again", code=4).err
    )


def test_a_plan_waits_for_its_first_run(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    for path in (evidence / "further").iterdir():
        if path.name != "plan.toml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    out = s2s("rebuild", evidence, "--out", tmp_path / "out").out
    assert "further: nothing of this plan is packed yet" in out


def test_the_readme_leads_with_the_last_plan_whose_main_study_is_whole(
    shipped: Path, tmp_path: Path, s2s: Command
) -> None:
    out = s2s("rebuild", shipped, "--out", tmp_path / "out").out
    lines = out.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("| Comparison")]
    further, first = ("\n".join(lines[start : start + 4]) for start in starts)
    assert first != further
    readme = tmp_path / "README.md"
    lacking = f"its table lacks the rebuilt row {further.splitlines()[-1]}"
    for text, said in (
        (further, ""),
        (f"{first}\n\n{further}", ""),
        (first, lacking),
        (f"{first.replace('native', 'negative')}\n\n{further}", "has a row that is not rebuilt: | negative"),
    ):
        readme.write_text(f"# Read\n\n{text}\n")
        problems = list(table_problems(readme, [first, further], further))
        assert bool(problems) == bool(said), text
        assert said in "".join(problems)
    readme.write_text(f"# Read\n\n{first}\n")
    assert lacking in s2s("rebuild", shipped, "--out", tmp_path / "out", "--readme", readme, code=1).out


def test_each_is_packed_traced_and_brought_back_by_itself(
    shipped: Path, tmp_path: Path, s2s: Command
) -> None:
    further = str(shipped / "further")
    row = "main.q/native minus frozen"
    ends = []
    for column in ("Low", "High", "Estimate"):
        traced = s2s("trace", further, "outcomes", row, column).out
        ends.append(traced.splitlines()[0].rpartition(": ")[2])
    assert ends[2].endswith(f" [{ends[0]}, {ends[1]}]")
    assert "larger/cohort/frozen-s1/completions.jsonl" in traced
    said = s2s("trace", further, "standings", code=2)
    assert "only the tables outcomes and besides" in said.err
    s2s("unpack", further, "--out", tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "larger" / "cohort" / "native-s1" / "completions.jsonl").is_file()
    s2s("claims", "--results", further)


def test_a_further_plan_is_not_rebuilt_without_those_before_it(
    shipped: Path, tmp_path: Path, s2s: Command
) -> None:
    """Its figure would lack their cohorts: every row of them a problem, or lost with --ship."""
    courses = shipped / "further" / "report" / "figures" / "courses.csv"
    before = courses.read_bytes()
    for more in ([], ["--ship"]):
        command = ["rebuild", str(shipped / "further"), "--out", str(tmp_path / "out"), *more]
        said = s2s(*command, code=2)
        assert f"is a further plan of {shipped}" in said.err
    assert courses.read_bytes() == before
    assert not (tmp_path / "out").exists()
    alone = Path(shutil.copytree(shipped / "further", tmp_path / "alone"))
    said = s2s("rebuild", alone, "--out", tmp_path / "out", "--ship", code=2).err
    assert (
        f"{alone} is a further plan without the one before it, which has the profiles main: put it back"
        in said
    )
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    (evidence / "further" / "plan.toml").unlink()
    for given in (evidence, evidence / "further"):
        said = s2s("rebuild", given, "--out", tmp_path / "out", code=4).err
        assert said == (
            f"s2s: error: {evidence / 'further'} has no plan.toml, which its SHA256SUMS lists: restore it\n"
        )
    assert not (tmp_path / "out").exists()


def test_a_planned_probe_is_read_by_its_manifest(tmp_path: Path, s2s: Command) -> None:
    text = FIRST.replace('layers = ["cohort"]', 'layers = ["cohort", "probe"]')
    text = text.replace("cohort/native", "probe/native").replace("cohort/frozen", "probe/initial")
    said: list[str] = []
    for number, seeds in enumerate([(1, 2, 3), (1, 2)]):
        top = tmp_path / str(number)
        answers: dict[str, list[tuple[float | None, ...]]] = {"initial": [(-1.0, None)]}
        answers |= {f"native-s{seed}": [(-1.0, -1.0)] for seed in seeds}
        write_synthetic_probe(top / "results" / "main" / "probe", [()], answers)
        pack_study(top, text, top / "evidence")
        told = s2s("rebuild", top / "evidence", "--out", top / "made", "--ship", code=None).out.splitlines()
        said += [line for line in told if line.startswith("PROBLEM")]
    assert said == ["PROBLEM main/probe/native: the probe lacks 1 of 3 planned checkpoints: native-s3"]


def test_a_run_that_ends_before_its_turn_is_packed_once_earlier_seeds_are(
    tmp_path: Path, s2s: Command
) -> None:
    """Seeds that end sooner would be a choice: the third waits for the second, and both are packed then."""
    results, evidence = tmp_path / "results" / "main", tmp_path / "evidence"
    names = [f"{condition}-s{seed}" for condition in ("frozen", "native") for seed in (1, 2, 3)]
    for name in names:
        condition, _, seed = name.partition("-s")
        run = results / "cohort" / name
        write_synthetic_run(run, condition, int(seed), plan_sha256=text_sha256(FIRST))
    evidence.mkdir()
    (evidence / "plan.toml").write_text(FIRST)
    late = (results / "cohort" / "native-s2").rename(tmp_path / "late")
    command = ["pack", str(results), "--into", str(evidence)]
    # Pieces came without the list that is recorded beside runs: only the rebuilt evidence would miss it.
    said = s2s(*command, code=4)
    assert "cohort lacks runs.json, the list of its planned runs" in said.err
    write_roster(results / "cohort", names)
    output = s2s(*command)
    assert "not packed until earlier seeds are finished: cohort/native-s3" in output.out + output.err
    packed = evidence / "main" / "cohort"
    assert sorted(path.name for path in packed.iterdir() if path.is_dir()) == [*names[:3], "native-s1"]
    s2s("rebuild", evidence, "--out", tmp_path / "made", "--ship")
    late.rename(results / "cohort" / "native-s2")
    s2s(*command)
    assert sorted(path.name for path in packed.iterdir() if path.is_dir()) == names
    # A run that is packed counts as finished where it is no longer at hand.
    shutil.rmtree(results / "cohort" / "native-s2")
    shutil.rmtree(packed / "native-s3")
    s2s(*command)
    assert sorted(path.name for path in packed.iterdir() if path.is_dir()) == names


def test_a_plan_compares_with_the_runs_of_another(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    """Its controls come from the plan that packed them, are no runs of its own, and cannot be missing."""
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    pairs = '[["another/cohort/native", "larger/cohort/frozen"]]'
    text = 'controls = ["larger"]' + plan_text({"pairs": pairs, "horizon": 80})
    text = text.replace('"A small plan"', '"Beside it"').replace(
        'profiles = ["main"]', 'profiles = ["another"]'
    )
    pack_study(tmp_path, text, evidence / "beside", "another")
    s2s("rebuild", evidence, "--out", tmp_path / "made", "--ship")
    asked, beside = (
        CsvFrame.read((evidence / name / "report" / "outcomes.csv").read_text())
        for name in ("further", "beside")
    )
    assert [row["value"] for row in beside.rows] == [row["value"] for row in asked.rows][: len(beside.rows)]
    own = len(list((evidence / "beside" / "another" / "cohort").glob("*/manifest.json")))
    assert f"{own} runs are packed" in (tmp_path / "made" / "beside" / "report" / "evidence.md").read_text()
    shutil.rmtree(evidence / "further")
    assert "larger" in s2s("rebuild", evidence, "--out", tmp_path / "without", code=4).err
