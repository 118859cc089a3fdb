"""s2s claims: verdicts in seconds without any run, and an exit code that tells a finding from damage."""

import csv
import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from scipy.stats import binomtest
from tests.command import Command, Make, Patch
from tests.copies import copy_to_change

from search_to_signal.base.errors import ConfigError, LedgerError
from search_to_signal.base.package_data import EVIDENCE
from search_to_signal.claims import ledger, page, tables
from search_to_signal.claims.ledger import load_ledger
from search_to_signal.cli import main

pytestmark = pytest.mark.slow


def test_a_fresh_clone_is_judged(s2s: Command, tmp_path: Path) -> None:
    summary = s2s("claims", "--out", tmp_path).out.splitlines()[0]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "claims.csv").read_text(encoding="utf-8"))))
    assert summary.startswith(f"s2s: {len(rows)} entries: ")
    for verdict in {row["verdict"] for row in rows}:
        assert f"{sum(row['verdict'] == verdict for row in rows)} {verdict}" in summary
    page, ledger = (tmp_path / "claims.md").read_text(encoding="utf-8"), load_ledger()
    assert all(ledger.strongest_claim(name) in page for name in ledger.layers)


def test_notes_are_printed_on_request(s2s: Command) -> None:
    lines = s2s("claims").out.splitlines()
    with_notes = s2s("claims", "--notes").out.splitlines()
    notes = {entry.checks.note for entry in load_ledger().entries if entry.checks.note}
    assert len(set(with_notes) - set(lines)) == len(notes)
    assert all(any(line.endswith(f": {note}") for line in with_notes) for note in notes)
    assert [line for line in with_notes if line in lines] == lines


def test_a_single_run(make_run: Make, tmp_path: Path, s2s: Command) -> None:
    """Claims and report on one run each say the next step, which leads to its numbers, of whatever model."""
    run, page = make_run(tmp_path / "run"), tmp_path / "page"
    told = s2s("claims", "--results", run, code=LedgerError.exit_code).err
    assert f"make it (s2s report {run} --out PAGE) and give --results PAGE" in told
    said = s2s("report", run, code=ConfigError.exit_code)
    assert "give --out PAGE" in said.err
    s2s("report", run, "--out", page)
    s2s("claims", "--results", page, "--out", tmp_path / "claims")
    rows = csv.DictReader(io.StringIO((tmp_path / "claims" / "claims.csv").read_text(encoding="utf-8")))
    assert any(row["embedded"] for row in rows)
    assert "embedded scale" not in (tmp_path / "claims" / "claims.md").read_text(encoding="utf-8")


def test_results_that_are_none_are_refused(tmp_path: Path, s2s: Command) -> None:
    said = s2s("claims", "--results", tmp_path / "nowhere", code=LedgerError.exit_code)
    assert f"there is no directory {tmp_path / 'nowhere'}" in said.err
    said = s2s("claims", "--results", tmp_path, code=LedgerError.exit_code)
    assert "run s2s report first" in said.err


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the command says of the shipped evidence, and where it writes."""
    out = tmp_path_factory.mktemp("beside")
    with redirect_stdout(io.StringIO()) as said:
        assert main(["claims", "--results", str(EVIDENCE), "--out", str(out)]) == 0
    return said.getvalue(), out


@pytest.fixture(scope="module")
def beside(judged: tuple[str, Path]) -> dict[str, dict[str, str]]:
    """The ledger beside the shipped evidence, by entry."""
    text = (judged[1] / "claims.csv").read_text(encoding="utf-8")
    return {row["id"]: row for row in csv.DictReader(io.StringIO(text))}


def test_a_coin_gives_no_direction(beside: dict[str, dict[str, str]]) -> None:
    splits = 0
    for row in beside.values():
        found = re.match(r"same direction in (\d+) of \d+ seeds, opposite in (\d+)", row["embedded"])
        if found is None or found[1] == found[2]:
            continue
        same, opposite = map(int, found.groups())
        said = "same direction" if same > opposite else "opposite direction"
        chance = binomtest(same, same + opposite).pvalue > 0.05
        assert row["direction"] == ("undecided" if chance else said), row["id"]
        splits += 1
    assert splits > 100


def test_one_comparison_counts_once(judged: tuple[str, Path], beside: dict[str, dict[str, str]]) -> None:
    summary = judged[0].splitlines()[0]
    rows = [row for row in beside.values() if row["direction"] not in ("", "no counterpart")]
    once = {(row["comparison"], row["direction"]) for row in rows}
    assert f"{len(rows)} have an estimate from our runs, {len(once)} comparisons (" in summary
    opposite = sum(direction == "opposite direction" for _, direction in once)
    assert f" {opposite} opposite direction" in summary
    same = {
        beside[name]["comparison"] for name in ("restart_wins", "restart_final_tail", "restart_frozen_42")
    }
    assert same == {"intro_restart_wins"}


def test_n_counts_seeds_or_says_what_it_counts(beside: dict[str, dict[str, str]]) -> None:
    """n is never larger than the twenty seeds; other numbers are called numbers, spreads say of how many."""
    sizes = [int(n) for row in beside.values() for n in re.findall(r"n = (\d+)", row["embedded"])]
    assert max(sizes) == 20
    assert "60 numbers of 20 seeds" in beside["valid_only_above_frozen"]["embedded"]
    assert "(of 20 seeds)" in beside["core_results[Native, Final best sd]"]["embedded"]
    assert not any("asks for the deviation" in row["embedded"] for row in beside.values())


def test_statements_that_our_runs_speak_against_are_there(beside: dict[str, dict[str, str]]) -> None:
    cells = {
        (row["row"], row["column"]): float(row["value"] or "nan")
        for table in ("replay_pairs", "reward_changes", "operator_gains")
        for row in csv.DictReader(
            (EVIDENCE / "main" / "report" / f"{table}.csv").read_text(encoding="utf-8").splitlines()
        )
    }
    for problem in ("obp", "op"):
        found = [
            cells[f"{problem}-{model}-2.1m/native, factorized", "Equivalent (%)"]
            for model in ("llama", "qwen2")
        ]
        assert f"{min(found):g} to {max(found):g})" in beside[f"near_equivalent_{problem}"]["embedded"]
        assert beside[f"near_equivalent_{problem}"]["direction"] == "does not hold for ours"
    kept = [100 - cells[name, "Times ten (%)"] for name in ("native", "factorized", "tail_weighted")]
    assert f"{min(kept):g} to {max(kept):g})" in beside["rescaling_nearly_removed"]["embedded"]
    gains = {
        name: cells[f"native minus frozen/{name}", "Valid (points)"] for name in ("injection", "crossover")
    }
    assert gains["injection"] < gains["crossover"]
    assert "1 of 3 comparisons above" in beside["injection_largest"]["embedded"]


def test_output_is_the_same_every_time(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        assert main(["claims", "--out", str(tmp_path / name)]) == 0
        texts.append([(tmp_path / name / file).read_bytes() for file in ("claims.csv", "claims.md")])
    assert texts[0] == texts[1]


def test_damage_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: Patch, tmp_path: Path) -> None:
    directory = copy_to_change(tables.PUBLISHED, tmp_path / "published")
    text = (directory / "core_results.csv").read_text(encoding="utf-8")
    (directory / "core_results.csv").write_text(text.replace("-6.2090", "-6.2091"), encoding="utf-8")
    damaged, numbers = ledger.load_ledger(directory), ledger.load_numbers(directory)
    monkeypatch.setattr(page, "published", lambda: (damaged, None))
    monkeypatch.setattr(ledger, "load_numbers", lambda: numbers)
    assert main(["claims"]) != 0
    out, err = capsys.readouterr()
    assert "tab:core-results: line 217 has -6.2090, the published table -6.2091" in err
    assert out == ""
