"""The common-context table: counts by hand, and answers that are not the recorded ones."""

from pathlib import Path

import pytest
from tests.probes import write_synthetic_probe

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.layers.probe.tables import probe
from search_to_signal.report.results import Results

ANSWERS = {
    "initial": [(-7.0, None), (None, None)],
    "native-s1": [(-5.0, -6.0), (-1.0, None)],
}


@pytest.fixture
def probed(tmp_path: Path) -> Path:
    """A complete probe of two checkpoints; the first prompt has bases, the second none."""
    write_synthetic_probe(tmp_path / "probe", [(-6.0, -8.0), ()], ANSWERS)
    return tmp_path


def test_probe_by_hand(probed: Path) -> None:
    """Native: three of four valid, one above both bases; without bases an answer never improves."""
    table = probe(Results(probed))
    shown = {row.label: [cell.value for cell in row.cells] for row in table.rows}
    assert shown["initial"] == [4, 1, 25.0, -7.0, 0.0, 0.0]
    assert shown["native-s1"] == pytest.approx([4, 3, 75.0, -4.0, 100 / 3, 50.0])
    assert table.cell("native-s1", "Valid").origins[0].path == "probe/native-s1.jsonl"


def test_altered_and_unfinished_answers_are_refused(probed: Path) -> None:
    for name in ("native-s1.jsonl", "bank.jsonl"):
        file = probed / "probe" / name
        kept = file.read_bytes()
        file.write_bytes(kept.replace(b"-6.0", b"-5.9"))
        with pytest.raises(RunDirectoryError, match=name):
            probe(Results(probed))
        file.write_bytes(kept)
    file = probed / "probe" / "probe.json"
    file.write_bytes(file.read_bytes().replace(b'"complete"', b'"running"'))
    with pytest.raises(RunDirectoryError, match="unfinished"):
        probe(Results(probed))
