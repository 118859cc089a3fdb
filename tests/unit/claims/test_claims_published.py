"""The published numbers: complete, transcribed as printed, and any change of one is noticed."""

from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from search_to_signal.base.errors import LedgerError
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.claims.directions import Direction, Estimate
from search_to_signal.claims.feasibility import check_feasibility
from search_to_signal.claims.ledger import Ledger, find_uncovered, load_ledger, load_numbers
from search_to_signal.claims.page import (
    ClaimFinding,
    ClaimVerdict,
    judge_claims,
    judge_published,
    misfits,
    published,
)
from search_to_signal.claims.tables import load_published, load_report, numbers_in, plain_text, words_in

pytestmark = pytest.mark.slow


class Edit(Protocol):
    """Replaces a text in a published file."""

    def __call__(self, name: str, old: str, new: str) -> Path: ...


FORMULA = "'groups * group_size'"


def problems(directory: Path) -> list[str]:
    """What does not agree between a copy of the ledger and the list of the document's numbers."""
    return find_uncovered(load_ledger(directory), load_numbers(directory), directory)


def found(directory: Path, name: str) -> ClaimFinding:
    return found_in(load_ledger(directory), name)


def found_in(ledger: Ledger, name: str) -> ClaimFinding:
    """The finding of one entry of a ledger."""
    return judge_claims(ledger, only={name})[0]


def test_keys_reasons_and_coverage() -> None:
    assert find_uncovered(published()[0], load_numbers()) == []
    for finding in judge_published():
        assert finding.reason, finding.entry.id
        if finding.verdict is ClaimVerdict.NEEDS_RUN:
            assert "./reproduce.sh paper on one 24 GB GPU" in finding.reason
    for table in load_published().values():
        assert all(column.unit for column in table.entry.columns.values())
        keys = [tuple(row[key] for key in table.entry.keys) for row in table.rows]
        assert len(set(keys)) == len(keys) > 0


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("core_results.csv", "-6.2090", "-6.2091", "tab:core-results: line 217 has -6.2090"),
        ("core_seeds.csv", "1197560", "1197650", "tab:core-seeds"),
        ("anchor.csv", "-0.0415", "0.0415", "tab:gate4-resource"),
        ("parameters.csv", "alpha 64", "alpha 46", "tab:parameters"),
        ("claims.toml", 'value = "37.7"', 'value = "37.6"', "reordered_share: 37.6 is not at"),
        ("claims.toml", 'at = "228:541"', 'at = "228:540"', "matched_cosine: 0.9769 is not at"),
        ("not_claims.toml", '"33:414 two", ', "", "line 33, column 414: two is no claim and has no reason"),
        ("not_claims.toml", '"33:414 two"', '"33:414 two", "232:16 60.85"', "232:16 is named twice"),
        ("numbers.csv", "226,93,387,prose\n", "226,93,387,prose\n226,99,388,prose\n", "388 is no claim"),
    ],
)
def test_tampering_is_noticed(edited: Edit, name: str, old: str, new: str, said: str) -> None:
    assert any(said in problem for problem in problems(edited(name, old, new)))


def test_a_lost_row_is_noticed(edited: Edit) -> None:
    directory = edited("api.csv", "3407,82.15", "3407,82.15")
    lines = (directory / "api.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (directory / "api.csv").write_text("".join(lines[:2] + lines[3:]), encoding="utf-8")
    assert any("tab:api-reference: the document has" in problem for problem in problems(directory))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("core_seeds.csv", "-6.1771", "-6.177", "not a number as printed"),
        ("core_seeds.csv", "-6.1771", "minus six", "not a number as printed"),
        ("core_seeds.csv", "Final best", "Best", "lacks Final best"),
        ("core_seeds.csv", "-6.1771,", "", "rows of different lengths"),
        ("index.toml", "[document]", "[documents]", "documents"),
        ("claims.toml", FORMULA, "'groups ** group_size'", "may not hold"),
        ("claims.toml", FORMULA, "'group * group_size'", "no table or claim is called group"),
        ("claims.toml", FORMULA, "'__import__(\"os\")'", "may not hold"),
        ("claims.toml", FORMULA, "'groups * '", "cannot read the formula"),
        ("claims.toml", '"audited_groups"', '"midrank_groups"', "midrank_groups twice"),
        ("claims.toml", 'layer = "audit"', 'layer = "audits"', "unknown layer 'audits'"),
        ("claims.toml", 'quantity = "audited groups"', 'quantiti = "audited groups"', "quantiti"),
    ],
)
def test_a_damaged_ledger_is_refused(edited: Edit, name: str, old: str, new: str, said: str) -> None:
    """A file that cannot be what was checked in gives one error that names it, and no verdicts."""
    with pytest.raises(LedgerError, match=said):
        judge_claims(load_ledger(edited(name, old, new)))


def test_a_changed_seed_breaks_what_follows_from_it(edited: Edit) -> None:
    directory = edited("core_seeds.csv", "-6.2117", "-6.2317")
    wrong = {
        f.entry.id for f in judge_claims(load_ledger(directory)) if f.verdict is ClaimVerdict.INCONSISTENT
    }
    assert {"core_results[Tail-weighted, Final best]", "core_results[Tail-weighted, Final best sd]"} <= wrong
    assert {"gain_final_tail", "restart_frozen_42", "api_local_final_tail"} <= wrong
    # 60.87 % of 2,000 completions is no whole number of them.
    finding = found(edited("core_seeds.csv", ",60.85,", ",60.87,"), "core_seeds[Frozen 42, Valid]")
    assert finding.verdict is ClaimVerdict.INCONSISTENT
    finding = found(edited("claims.toml", 'value = "159"', 'value = "161"'), "novelty_reordered_share")
    assert finding.verdict is ClaimVerdict.INCONSISTENT
    assert "novelty_reordered = 161; midrank_groups = 422" in finding.reason
    assert "is [38.15165877, 38.15165877], which misses [37.65, 37.75]" in finding.reason


def test_findings_about_the_paper() -> None:
    """One contradicts the equation above it, one the main text's: findings about the paper, by a witness."""
    tiny, gap = found(PUBLISHED, "residual_never_full"), found(PUBLISHED, "tail_gap_set")
    assert tiny.verdict is gap.verdict is ClaimVerdict.DISAGREES
    assert "D27" in tiny.reason
    assert "D28" in gap.reason
    # Frozen's probe rows are equal; cohort and anchor differ by as much as the cohort's gains (0.0243).
    tables = load_published()
    rows = [row for row in tables["probe"].rows if row["Checkpoint"] == "Frozen"]
    assert {tuple(row[h] for h in tables["probe"].head[2:]) for row in rows} == {tuple(rows[0].values())[2:]}
    assert "printed twice" in found_in(published()[0], "probe[3407 Frozen, Valid / 256]").reason
    beside = found_in(published()[0], "anchor_equal_horizon").neighbour
    assert float(beside.rpartition("= ")[2]) == pytest.approx(0.0243, abs=5e-5)
    assert "50 of 52" in found_in(published()[0], "frontier_positive_tail").reason
    for name in ("drift_42", "drift_3407", "drift_1926000", "heldout_sizes"):
        assert found_in(published()[0], name).verdict is ClaimVerdict.NEEDS_RUN


def report(directory: Path, native: str) -> Path:
    """A report with three seeds of Frozen and of Native, and one table in long form."""
    head = "Condition,Seed,Final best\n"
    frozen = "frozen,1,-5.0\nfrozen,2,-5.0\nfrozen,3,-5.0\n"
    (directory / "core_seeds.csv").write_text(head + frozen + native)
    (directory / "other.csv").write_text("row,column,value,spread,n\nnative,Gain,0.25,0.5,3\n")
    return directory


def test_our_estimate_stands_beside(tmp_path: Path) -> None:
    tables = load_report(report(tmp_path, "native,1,-4.9\nnative,2,-5.2\nnative,3,-4.7\n"))
    alone = {finding.entry.id: finding for finding in judge_published()}
    both = {finding.entry.id: finding for finding in judge_published(None, tables)}
    said = "same direction in 2 of 3 seeds, opposite in 1, tied in 0; ours 0.0666667 (n = 3, -0.2 to 0.3)"
    assert both["gain_final_native"].estimate == Estimate(Direction.UNDECIDED, said)
    assert [f.verdict for f in both.values()] == [f.verdict for f in alone.values()]
    assert both["gain_final_tail"].estimate == Estimate(
        Direction.MISSING, "table core_seeds has no row with Condition=tail_weighted"
    )
    assert all(finding.estimate is None for finding in alone.values())
    keys = {"row": "native", "Condition": "native", "Seed": "", "Part": ""}
    assert tables["other"].rows == ({**keys, "Gain": "0.25", "Gain sd": "0.5", "Gain n": "3"},)
    tables = load_report(report(tmp_path, "native,1,-4.9\nnative,2,-5.2\nnative,4,-4.7\n"))
    found = {finding.entry.id: finding for finding in judge_published(None, tables)}
    assert found["gain_final_native"].estimate == Estimate(
        Direction.MISSING, "a check pairs the seeds 1, 2, 4 with 1, 2, 3"
    )


def test_awaited_runs_leave_directions_undecided(tmp_path: Path) -> None:
    """What so few seeds say stands there, as no direction; the verdicts on the paper are the same."""
    seeds = "".join(f"frozen,{seed},-5.0\nnative,{seed},-4.9\n" for seed in range(6))
    (tmp_path / "core_seeds.csv").write_text(f"Condition,Seed,Final best\n{seeds}")
    tables = load_report(tmp_path)
    whole, awaited = (judge_published(None, tables, awaited=awaited) for awaited in (False, True))
    decided = {Direction.SAME, Direction.OPPOSITE, Direction.TIED, Direction.HOLDS, Direction.FAILS}
    assert decided & {finding.estimate.direction for finding in whole if finding.estimate}
    assert not decided & {finding.estimate.direction for finding in awaited if finding.estimate}
    (ours,) = (finding.estimate for finding in awaited if finding.entry.id == "gain_final_native")
    assert ours is not None
    assert ours.text.startswith("runs are awaited; so far same direction in 6 of 6 seeds")
    assert [finding.verdict for finding in whole] == [finding.verdict for finding in awaited]


def test_long_rows_are_found_by_condition_seed_and_part(tmp_path: Path) -> None:
    labels = ("tail_weighted-s42/injection", "my-s.map:x-s7", "native-s42 minus frozen-s42")
    lines = "".join(f"{label},Gain,1.0,,1\n" for label in labels)
    (tmp_path / "gains.csv").write_text("row,column,value,spread,n\n" + lines)
    rows = load_report(tmp_path)["gains"].rows
    assert [(row["Condition"], row["Seed"], row["Part"]) for row in rows] == [
        ("tail_weighted", "42", "injection"),
        ("my-s.map:x", "7", ""),
        ("native minus frozen", "42", ""),
    ]


def test_a_smoke_report_estimates_nothing(tmp_path: Path) -> None:
    (report(tmp_path, "") / "core_seeds.csv").rename(tmp_path / "smoke_core_seeds.csv")
    (tmp_path / "other.csv").unlink()
    estimates = {f.estimate for f in judge_published(None, load_report(tmp_path)) if f.estimate}
    missing = Estimate(Direction.MISSING, "the report is of a smoke run, which estimates nothing")
    assert estimates == {missing}


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("breadth.csv", "Coder,Native", "Coder,Factorized", "line 644 has the label Native"),
        ("probe.csv", "3407,Native", "3407,Frozen", "tab:common-context"),
        ("core_seeds.csv", "Final best,AUC", "AUC,Final best", "tab:core-seeds: line 589"),
        ("anchor.csv", "Online final,Frozen final", "Frozen final,Online final", "tab:gate4-resource"),
        ("hardware.csv", "A100 host,", "Shared host,", "tab:hardware"),
        ("labels.csv", "645,CVRP DeepSeek", "645,TSP DeepSeek", "tab:live-breadth: line 645"),
    ],
)
def test_a_label_that_moves_is_noticed(edited: Edit, name: str, old: str, new: str, said: str) -> None:
    directory = edited(name, old, new)
    ledger = msgspec.structs.replace(published()[0], tables=load_published(directory))
    assert any(said in problem for problem in find_uncovered(ledger, load_numbers(directory), directory))


@pytest.mark.parametrize(
    ("name", "old", "new", "entry"),
    [
        ("core_seeds.csv", "60.85,-10.7900,3.35,", "60.85,-10.7900,60.90,", "core_seeds[Frozen 42, Improve]"),
        ("core_seeds.csv", "-6.1771,-6.2015", "-6.1771,-6.1769", "core_seeds[Native 42, Final best]"),
        ("core_seeds.csv", "7900,3.35,0.40,0", "7900,3.35,0.40,-2", "core_seeds[Frozen 42, Training tokens]"),
        ("probe.csv", "12.12,3.12", "12.12,9.38", "probe[3407 Factorized, Improve | valid (%)]"),
        ("probe.csv", "5113,12.12,3.12", "5113,27.27,3.12", "probe[3407 Factorized, Best-of-4 improve (%)]"),
        ("anchor.csv", "883,-6.2176,-6.2167", "883,-6.2176,-6.2169", "anchor[42 Native, Frozen final]"),
        ("api.csv", "82.05,-9.0526,3.25,0.25", "82.05,-9.0526,3.25,3.30", "api[42, Improve (%)]"),
        ("claims.toml", 'value = "2540"', 'value = "3652"', "admissions_frozen"),
        ("claims.toml", 'value = "26.32"', 'value = "24.21"', "idle_positive_tail"),
        ("claims.toml", 'value = "3.98"', 'value = "5.20"', "frontier_tail"),
        ("claims.toml", 'value = "-10.98"', 'value = "-110.00"', "unique_responses_native"),
    ],
)
def test_a_broken_relation_is_found(edited: Edit, name: str, old: str, new: str, entry: str) -> None:
    assert found(edited(name, old, new), entry).verdict is ClaimVerdict.INCONSISTENT


def test_numbers_that_fit_alone_and_not_together(edited: Edit) -> None:
    """0.0056 meets each of its own checks, and cannot be right together with all others."""
    assert published()[1].conflicts == ()
    directory = edited("claims.toml", 'value = "0.0054"', 'value = "0.0056"')
    ledger = load_ledger(directory)
    assert ClaimVerdict.INCONSISTENT not in {finding.verdict for finding in judge_claims(ledger)}
    found = check_feasibility(ledger)
    assert found.conflicts
    assert found.summary().startswith("JOINTLY IMPOSSIBLE")


def test_a_sentence_that_its_equation_contradicts(edited: Edit) -> None:
    old = '{ id = "zero_differs", at = "238", quantity = "Factorized leaves more'
    new = f'{{ id = "tiny", at = "433", quantity = "tiny", disagrees = "2 * 0.1 / 0.3 > 0.5" }},\n{old}'
    ledger = load_ledger(edited("claims.toml", old, new))
    finding = next(f for f in judge_claims(ledger) if f.entry.id == "tiny")
    assert finding.verdict is ClaimVerdict.DISAGREES
    assert "2 * 0.1 / 0.3 > 0.5 is true of the equation" in finding.reason
    assert finding in misfits(judge_claims(ledger))


def test_numbers_of_a_cell_are_read_as_a_person_reads_them() -> None:
    """Words, plus signs, separators and commands do not matter to a comparison; decimals do."""
    printed = ("Three", "+0.0240", "1,282", "-9.20")
    assert [plain_text(text) for text in printed] == ["3", "0.0240", "1282", "-9.20"]
    assert numbers_in("5×10^-5, alpha 64 of w5") == ["5", "10", "-5", "64", "5"]
    assert numbers_in("$5\\times10^{-5}$, $0.37$--$4.95\\%$") == ["5", "10", "-5", "0.37", "4.95"]
    assert words_in("Gap above $F_t$, \\tfrac12v") == ["Gap", "above", "F", "t", "v"]
