"""Live gains beside those of restarts: when the statement holds, is not tested, and has no counterexample."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import read_manifest
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables.catalogue import build

HOLDS = "holds: 1 of 2 gains are not the checkpoint's alone"
Write = Callable[[Sequence[tuple[float, float]]], Results]


@pytest.fixture
def results(make_run: Callable[..., Path], tmp_path: Path) -> Write:
    """Results whose seeds gain so much, live and restarted, per group over the frozen run of their seed."""

    def write(gains: Sequence[tuple[float, float]]) -> Results:
        for seed, (live, again) in enumerate(gains):
            cohort = {"layer": "cohort"}
            make_run(tmp_path / "cohort" / f"frozen-s{seed}", "frozen", seed, config=cohort)
            one = make_run(tmp_path / "cohort" / f"native-s{seed}", "native", seed, shift=live, config=cohort)
            adapter = read_manifest(one).final_adapter_sha256
            parent = {"run": f"../../cohort/{one.name}", "adapter_sha256": adapter}
            config = {"layer": "restart", "parent": {**parent, "completions_sha256": ""}}
            again_at = tmp_path / "restart" / one.name
            reshape(make_run(again_at, "frozen", seed, shift=again, config=config), adapter)
        return Results(tmp_path)

    return write


def reshape(directory: Path, adapter: str | None) -> None:
    """Make a frozen run the restart of a native one."""
    path = directory / "manifest.json"
    text = path.read_text().replace('"condition": "frozen"', '"condition": "native"')
    text = text.replace('"initial_adapter_sha256": null', f'"initial_adapter_sha256": "{adapter}"')
    path.write_text(text)
    write_sums(directory)


@pytest.mark.parametrize(
    ("gains", "counts", "statement"),
    [
        (
            [(0.1, -0.05), (0.1, 0.1), (-0.05, 0.1)],
            (2, 1),
            "holds: 1 of 2 gains are not the checkpoint's alone",
        ),
        ([(0.1, 0.1), (0.1, 0.05)], (2, 0), "no counterexample in 2: every restart is above frozen, too"),
        ([(0.0, 0.1), (-0.05, 0.1)], (0, 0), "not tested: no live run ended above frozen"),
    ],
)
def test_the_statement_is_judged_by_seeds(
    results: Write, gains: list[tuple[float, float]], counts: tuple[int, int], statement: str
) -> None:
    table = build(results(gains), "endpoints")
    row = {column: table.cell("native", column) for column in table.columns}
    assert (row["Live above frozen"].value, row["Of these the restart is not"].value) == counts
    assert row["Statement"].value == statement
    assert row["Seeds"].value == len(gains)
    expected = 4 * sum(live for live, _ in gains) / len(gains)
    assert row["Live minus frozen"].value == pytest.approx(expected)


def test_without_restarts_there_is_no_table(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """The cohort alone cannot tell a population from a checkpoint."""
    make_run(tmp_path / "cohort" / "frozen-s0", "frozen", 0, config={"layer": "cohort"})
    with pytest.raises(NoTableError, match="restart has not run"):
        build(Results(tmp_path), "endpoints")
