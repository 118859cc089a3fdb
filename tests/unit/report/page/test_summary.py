"""What the page says first follows from the tables of its directory, with their n."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.few_tables import few_tables
from tests.synthetic_results import write_synthetic_results

from search_to_signal.credit import MAPPINGS, rewards_of
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.records.amendments import Gap, Partial, write_partial
from search_to_signal.report.results import Results
from search_to_signal.report.summary import PageFinding, build_findings
from search_to_signal.report.tables.catalogue import Evidence, read_evidence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(evidence: Evidence) -> dict[str, PageFinding]:
    """The findings by the tables that their commands name."""
    findings = build_findings(evidence)
    return {command.split()[-1]: finding for finding in findings for command in finding.commands}


def test_the_endpoint_is_counted_seed_by_seed(results: Path, found: dict[str, PageFinding]) -> None:
    best = {(run.condition, run.seed): float(run.best[-1]) for run in Results(results).cohort}
    seeds = sorted({seed for _, seed in best})
    for condition in ("native", "factorized"):
        above = sum(best[condition, seed] > best["frozen", seed] for seed in seeds)
        assert f"{condition} in {above} of {len(seeds)} seeds" in found["paired_signs"].answer
    assert "cannot go below p = 0.5" in found["paired_signs"].answer


@pytest.mark.parametrize(
    ("layer", "closed", "counted"),
    [("cohort", "", False), ("cohort", "amendment of 2026-11-25", True), ("restart", "", True)],
)
def test_endpoints_are_not_counted_while_seeds_are_awaited(
    results: Path, tmp_path: Path, layer: str, closed: str, counted: bool
) -> None:
    cohort = shutil.copytree(results, tmp_path / "results")
    write_partial(cohort, Partial({layer: Gap(2, 9, closed)}))
    with few_tables():
        findings = build_findings(read_evidence(cohort))
    (answer,) = (finding.answer for finding in findings if "Did search" in finding.question)
    assert ("ended above frozen" in answer) == counted
    assert ("Seeds are awaited" in answer) != counted
    assert ("2 of 9 planned runs" in answer) != counted


def test_trained_mappings_are_compared_and_nothing_that_did_not_run(
    evidence: Evidence, found: dict[str, PageFinding]
) -> None:
    groups = sum(len(run.groups) for run in evidence.results.cohort)
    table = evidence.tables["replay_pairs"]
    share = table.cell("cohort/native, factorized", "Equivalent (%)").text()
    assert f"in {share} % (native and factorized) of the same {groups} groups" in found["replay_pairs"].answer
    assert "tail" not in found["replay_pairs"].answer
    table = evidence.tables["reward_changes"]
    answer = found["reward_changes"].answer
    assert "over 2 seeds" in answer
    for column in table.columns:
        cells = {one: table.cell(one, column) for one in ("native", "factorized")}
        low, high = sorted(cells, key=lambda one: cells[one].number or 0.0)
        least, most = (f"{cells[one].text()} %" for one in (low, high))
        assert (f": {least}" if least == most else f": {least} ({low}) to {most} ({high})") in answer
    assert "matched_mappings" not in found


def test_equality_says_how_much_of_it_could_not_be_otherwise(
    results: Path, found: dict[str, PageFinding]
) -> None:
    gaps, turned, lined = [], 0, 0
    for run in Results(results).cohort:
        rewards = [rewards_of(MAPPINGS[name], run.batch).reward for name in ("native", "factorized")]
        first, second = (group_advantages(one) for one in rewards)
        for a, b, x, y in zip(*rewards, first, second, strict=True):
            gaps.append(max(abs(x - y)))
            turned += any((x[:, None] < x).ravel() != (y[:, None] < y).ravel())
            flat = [np.ptp(one) == 0 for one in (a, b)]
            fits = all(flat) or (not any(flat) and np.corrcoef(a, b)[0, 1] > 1 - 1e-9)
            lined += bool(fits and gaps[-1] <= 0.001)
    n, answer = len(gaps), found["replay_pairs"].answer
    assert f"Of these, {lined} of {sum(gap <= 0.001 for gap in gaps)} over all pairs are equal" in answer
    assert f"are within 0.05 in {100 * sum(gap <= 0.05 for gap in gaps) / n:.2f} % (native" in answer
    assert f"in another order or with other ties in {100 * turned / n:.2f} % (native" in answer
    assert f"largest difference is {np.median(gaps):.3f} (native" in answer


def test_a_smoke_run_finds_nothing(tmp_path: Path) -> None:
    smoke = write_synthetic_results(tmp_path / "smoke", seeds=(1,), groups=12, purpose="smoke")
    with few_tables():
        assert build_findings(read_evidence(smoke)) == []
