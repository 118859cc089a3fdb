"""What the search found, on the page: code, lineage and a tour, all of them as recorded."""

import shutil
from pathlib import Path

import msgspec
import pytest

from search_to_signal.analysis.evidence import read_evidence
from search_to_signal.analysis.figures import draw_all
from search_to_signal.analysis.page.lineage import best_lineage
from search_to_signal.experiments.tours import record_tours, tour_problems
from search_to_signal.problems import get_problem
from search_to_signal.records.reader import HEURISTICS, read_groups
from search_to_signal.records.tours import TOURS, read_tours


def test_the_lineage_leads_from_the_seed_to_the_best(results: Path) -> None:
    """It begins with the seed, ends with the best of all runs, and each had the one before as parent."""
    lineage = best_lineage(read_evidence(results))
    assert lineage is not None
    assert lineage.seed.operator is None
    stored = [
        msgspec.json.decode(line)["score"]
        for file in (results / "cohort").glob(f"*/{HEURISTICS}")
        for line in file.read_bytes().splitlines()
    ]
    assert lineage.best.score == max(stored)
    groups = list(read_groups(results / lineage.run))
    for before, after in zip(lineage.ancestors, lineage.ancestors[1:], strict=False):
        (record,) = [r for group in groups for r in group if (r.step, r.index) == (after.step, after.index)]
        assert before.id in record.parents


def test_the_page_shows_the_code_of_both(results: Path) -> None:
    """Seed and best stand on it, escaped, with their scores."""
    page = (results / "report" / "report.html").read_text()
    lineage = best_lineage(read_evidence(results))
    assert lineage is not None
    for one in (lineage.seed, lineage.best):
        assert f"{one.score:.4f}" in page
        assert one.code.splitlines()[0] in page


@pytest.fixture(scope="module")
def toured(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results with tours of two real heuristics: the seed of the problem, as seed and as best."""
    place = Path(shutil.copytree(results, tmp_path_factory.mktemp("toured") / "results"))
    seed = get_problem("tsp").seed.code
    for file in (place / "cohort").glob(f"*/{HEURISTICS}"):
        rows = [{**msgspec.json.decode(line), "code": seed} for line in file.read_bytes().splitlines()]
        file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    assert record_tours(place)
    return place


def test_recorded_tours_are_those_of_the_objective(toured: Path) -> None:
    """Order and score agree, and a figure is drawn of them; a changed order is a problem."""
    assert list(tour_problems(toured)) == []
    found = read_tours(toured)
    assert sorted(found.best.order) == list(range(len(found.coordinates)))
    drawn = draw_all(read_evidence(toured), toured / "figures")
    assert drawn.figures[0][0].name == "tours"
    assert f"{found.seed.score:.4f}" in drawn.figures[0][0].caption
    order = list(found.best.order)
    order[1], order[2] = order[2], order[1]
    for other in (order, order[1:]):
        best = msgspec.structs.replace(found.best, order=tuple(other))
        (toured / TOURS).write_bytes(msgspec.json.encode(msgspec.structs.replace(found, best=best)))
        assert len(list(tour_problems(toured))) == 1
