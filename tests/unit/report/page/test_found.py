"""What the search found, on the page: code, lineage and a tour, all of them as recorded."""

import html
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.few_tables import few_tables

from search_to_signal.layers.reproduction import record_tours, tour_problems
from search_to_signal.problems import get_problem
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.files import RecordWriter
from search_to_signal.records.heldout import TOURS, read_tours
from search_to_signal.records.manifest import read_manifest, write_manifest
from search_to_signal.records.reader import HEURISTICS, read_groups
from search_to_signal.records.schema import ArchiveEvent, HeuristicRecord
from search_to_signal.report.build import report
from search_to_signal.report.figures import draw_all
from search_to_signal.report.summary import find_best_lineage
from search_to_signal.report.tables.catalogue import Evidence, read_evidence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _few_tables(evidence: Evidence) -> Iterator[None]:
    """Once the evidence that all tests share has all of them."""
    with few_tables():
        yield


@pytest.fixture(scope="module")
def found(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results with heuristics: a seed and what was admitted, all with the code of the problem's seed."""
    place = Path(shutil.copytree(results, tmp_path_factory.mktemp("found") / "results"))
    seed = get_problem("tsp").seed
    for run in (place / "cohort").glob("*-s*"):
        records = [record for group in read_groups(run) for record in group]
        first = records[0]
        admitted = [r for r in records if r.archive_event is ArchiveEvent.ADMITTED and r.score is not None]
        rows = [(first.parents[0], 0, 0, None, first.base_scores[0])]
        rows += [(r.program_sha256, r.step, r.index, r.operator, r.score) for r in admitted]
        with RecordWriter(run / HEURISTICS) as writer:
            for name, step, index, operator, score in rows:
                writer.write(
                    HeuristicRecord(
                        id=name,
                        step=step,
                        index=index,
                        operator=operator,
                        idea=seed.idea,
                        code=seed.code,
                        score=score,
                    )
                )
    return place


def test_the_lineage_leads_to_the_best(found: Path) -> None:
    lineage = find_best_lineage(read_evidence(found))
    assert lineage is not None
    stored = [
        msgspec.json.decode(line)["score"]
        for file in (found / "cohort").glob(f"*/{HEURISTICS}")
        for line in file.read_bytes().splitlines()
    ]
    assert lineage.best.score == max(stored)
    groups = list(read_groups(found / lineage.run))
    for before, after in zip(lineage.ancestors, lineage.ancestors[1:], strict=False):
        (record,) = [r for group in groups for r in group if (r.step, r.index) == (after.step, after.index)]
        assert before.id in record.parents


def test_the_page_shows_seed_and_best(found: Path, results: Path, evidence: Evidence, tmp_path: Path) -> None:
    report(found, tmp_path / "out")
    page = html.unescape((tmp_path / "out" / "report.html").read_text())
    lineage = find_best_lineage(read_evidence(found))
    assert lineage is not None
    for one in (lineage.seed, lineage.best):
        assert f"{one.score:.4f} with the" in page
        assert one.code in page
    assert find_best_lineage(evidence) is None
    assert 'id="found"' not in (results / "report" / "report.html").read_text()


def test_recorded_tours_are_those_of_the_objective(found: Path, tmp_path: Path) -> None:
    toured = Path(shutil.copytree(found, tmp_path / "results"))
    assert record_tours(toured)
    assert list(tour_problems(toured)) == []
    tours = read_tours(toured)
    assert sorted(tours.best.order) == list(range(len(tours.coordinates)))
    drawn = draw_all(read_evidence(toured), toured / "figures")
    assert drawn.figures[0][0].name == "tours"
    assert f"{tours.seed.score:.4f}" in drawn.figures[0][0].caption
    order = list(tours.best.order)
    order[1], order[2] = order[2], order[1]
    for other in (order, order[1:]):
        best = msgspec.structs.replace(tours.best, order=tuple(other))
        (toured / TOURS).write_bytes(msgspec.json.encode(msgspec.structs.replace(tours, best=best)))
        assert len(list(tour_problems(toured))) == 1


def test_tours_and_page_name_the_problem_as_its_runs_do(
    found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_tours.py").write_text(
        "from search_to_signal.problems.tsp import Tsp\n\nproblem = Tsp()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    get_problem("my_tours:problem")
    own = tmp_path / "results"
    shutil.copytree(found / "cohort", own / "cohort")
    for run in (own / "cohort").iterdir():
        manifest = read_manifest(run)
        config = manifest.config | {"problem": "my_tours:problem"}
        write_manifest(run, msgspec.structs.replace(manifest, config=config))
        write_sums(run)
    assert record_tours(own)
    assert read_tours(own).problem == "my_tours:problem"
    assert list(tour_problems(own)) == []
    report(own, tmp_path / "out")
    assert "of my_tours:problem search with" in (tmp_path / "out" / "report.html").read_text()
