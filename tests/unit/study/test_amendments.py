"""What an amendment closes is waited for no longer, says how far it came, and decides nothing."""

import shutil
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.command import Capture, Command
from tests.plans import STUDY, plan_text, text_sha256

from search_to_signal.base.errors import ConfigError
from search_to_signal.cli import main
from search_to_signal.records.manifest import write_roster
from search_to_signal.study.container import list_evidence

pytestmark = pytest.mark.slow

QUESTION = """
[[studies.questions]]
key = "{key}.q"
asks = "And so?"
role = "primary"
metric = "valid_rate"
estimator = "mean_difference"
interval = "t"
pairs = [["{side}", "main/cohort/frozen"]]
horizon = 160
seeds = {seeds}
comparisons = 1
counts_against = "an interval below zero"
"""


def study(key: str, profile: str, layer: str, side: str, seeds: int = 3) -> str:
    text = STUDY.format(key=key, title=key.title(), profile=profile, layer=layer)
    return text + QUESTION.format(key=key, side=side, seeds=seeds)


PLAN = plan_text({}) + "".join(
    [
        study("restart", "main", "restart", "main/restart/native"),
        study("other", "other", "cohort", "other/cohort/native"),
        study("fewer", "main", "restart", "main/restart/native", seeds=2),
    ]
)
CLOSING = """
[[amendments]]
date = 2001-02-03
what = "closes"
studies = [{studies}]
why = "No machine."
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evidence of three seeds, of whose restarts the last one is missing and another profile whole."""
    top = tmp_path_factory.mktemp("packed")
    results, under = top / "results" / "main", text_sha256(PLAN)
    for seed in (1, 2, 3):
        for condition in ("frozen", "native"):
            run = results / "cohort" / f"{condition}-s{seed}"
            write_synthetic_run(run, condition, seed, plan_sha256=under)
    parent = {"run": "../../cohort/native-s1"}
    for seed in (1, 2):
        run = results / "restart" / f"native-s{seed}"
        facts = {"layer": "restart", "config": {"parent": parent}}
        write_synthetic_run(run, "native", seed, plan_sha256=under, **facts)
    write_roster(results / "cohort", [f"{c}-s{seed}" for c in ("frozen", "native") for seed in (1, 2, 3)])
    write_roster(results / "restart", [f"native-s{seed}" for seed in (1, 2, 3)])
    assert main(["pack", str(results), "--into", str(top / "evidence")]) == 0
    (top / "evidence" / "plan.toml").write_text(PLAN)
    return top / "evidence"


def amended(packed: Path, tmp_path: Path, *studies: str) -> Path:
    """A copy of the evidence in which these studies are closed, with its tables."""
    evidence = Path(shutil.copytree(packed, tmp_path / "evidence"))
    if studies:
        closing = CLOSING.format(studies=", ".join(f'"{study}"' for study in studies))
        (evidence / "amendments.toml").write_text(closing)
    assert main(["rebuild", str(evidence), "--out", str(tmp_path / "made"), "--ship"]) in (0, 1)
    return evidence


def test_what_is_closed_is_not_waited_for(packed: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = amended(packed, tmp_path, "restart", "other", "fewer")
    out = s2s("rebuild", evidence, "--out", tmp_path / "again", code=1).out
    pages = [*(tmp_path / "again").rglob("*.html"), *(tmp_path / "again").rglob("*.md")]
    assert not [page for page in pages if "PARTIAL" in page.read_text()]
    assert "PARTIAL" not in out
    text = (tmp_path / "again" / "report" / "evidence.md").read_text()
    assert "closed: restart (2 of 3 seeds, amendment of 2001-02-03)" in text
    assert "n = 2 of 3 planned: closed: no verdict (amendment of 2001-02-03)" in text
    assert "closed before it was recorded: 1 comparison of 3 seeds planned" in text
    assert "amendment of 2001-02-03 closes it: No machine." in text
    assert "restart closed: 2 of 3 planned runs, amendment of 2001-02-03" in out
    table = (tmp_path / "again" / "report" / "outcomes.csv").read_text()
    assert "restart.q/restart/native minus cohort/frozen,Verdict,closed: no verdict,,2" in table


def test_the_page_counts_what_was_packed_or_closed_and_says_what_is_noted(
    packed: Path, tmp_path: Path
) -> None:
    evidence = amended(packed, tmp_path, "restart")
    text = (tmp_path / "made" / "report" / "evidence.md").read_text()
    assert "8 runs are packed; " in text
    assert "Deviation: nothing of it is packed." in text
    assert "not packed: 1 comparison of 3 seeds planned" in text
    note = CLOSING.format(studies='"main"').replace("closes", "notes").replace("No machine", "Begun again")
    with (evidence / "amendments.toml").open("a") as file:
        file.write(note)
    main(["rebuild", str(evidence), "--out", str(tmp_path / "noted"), "--ship"])
    text = (tmp_path / "noted" / "report" / "evidence.md").read_text()
    wide = text.partition("## Deviations that concern all studies")[2]
    assert "amendments closed 1 of 4 studies: restart" in wide
    assert "the primary questions of restart have no answer" in wide
    assert "although later studies of the plan were recorded: restart" in wide
    assert "main, note of 2001-02-03: Begun again" in wide
    assert "amendment of 2001-02-03 closes it: Begun again" not in text


def test_without_it_the_same_evidence_waits(packed: Path, tmp_path: Path) -> None:
    amended(packed, tmp_path, "other")
    text = (tmp_path / "made" / "report" / "evidence.md").read_text()
    assert "**PARTIAL.**" in text
    assert "n = 2 of 3 planned: partial: no verdict" in text
    assert "restart PARTIAL: 2 of 3 planned runs" in (tmp_path / "made" / "main" / "report.md").read_text()


def test_a_closed_question_gives_others_no_answer(packed: Path, tmp_path: Path, s2s: Command) -> None:
    """Whoever reads verdicts of the paper's numbers beside this evidence hears of it, too."""
    evidence = amended(packed, tmp_path, "restart", "other")
    table = (tmp_path / "made" / "report" / "outcomes.csv").read_text()
    row = "fewer.q/restart/native minus cohort/frozen"
    assert f"{row},Verdict of,fewer.q" in table
    assert f"{row},Verdict,closed" not in table
    assert f"{row},Verdict,partial" not in table
    assert "amendment of 2001-02-03 closes restart, other" in s2s("claims", "--results", evidence).out


def test_a_whole_study_cannot_be_closed(packed: Path, tmp_path: Path, capsys: Capture, s2s: Command) -> None:
    evidence = amended(packed, tmp_path, "main")
    assert "amendments.toml: it closes main, of which every seed is recorded" in capsys.readouterr().out
    file = evidence / "amendments.toml"
    for change in (lambda: file.write_text(file.read_text().replace("No machine", "No reason")), file.unlink):
        change()
        told = s2s("rebuild", evidence, "--out", tmp_path / "again", code=1).out
        assert "PROBLEM amendments.toml: SHA256SUMS does not list it as it is here" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CLOSING.format(studies='"nothing"'), "names nothing"),
        (CLOSING.format(studies='"other"') * 2, "closes other twice"),
        (
            CLOSING.format(studies='"other"') + CLOSING.format(studies='"main"').replace("2001", "2000"),
            "not sorted by date",
        ),
        ("[[amendments]]\nwhat = 1", "amendments.toml"),
    ],
)
def test_amendments_that_contradict_the_plan_are_refused(
    packed: Path, tmp_path: Path, text: str, said: str, s2s: Command
) -> None:
    evidence = Path(shutil.copytree(packed, tmp_path / "evidence"))
    (evidence / "amendments.toml").write_text(text)
    list_evidence(evidence)
    assert said in s2s("rebuild", evidence, "--out", tmp_path / "out", code=ConfigError.exit_code).err


def test_what_is_closed_is_not_recorded(packed: Path, tmp_path: Path, s2s: Command) -> None:
    plan = tmp_path / "plan.toml"
    shutil.copyfile(packed / "plan.toml", plan)
    studies = ", ".join(f'"{key}"' for key in ("main", "restart", "other", "fewer"))
    plan.with_name("amendments.toml").write_text(CLOSING.format(studies=studies))
    record = ["record", "--plan", str(plan), "--out", str(tmp_path / "out")]
    said = s2s(*record)
    assert "closed them: main, restart, other, fewer" in said.out
    assert not (tmp_path / "out").exists()
    said = s2s(*record, "--study", "other", code=ConfigError.exit_code)
    assert "closed: other (amendment of 2001-02-03)" in said.err
