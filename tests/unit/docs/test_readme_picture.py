"""The README's picture is drawn from the shipped courses of the last plan, and says how many seeds it has."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.docs.picture import COURSE, DRAWN_FROM, draw_course, drawn_from, shipped_course

from search_to_signal.report.figures.course import Planned

ROOT = Path(__file__).parents[3]
PIXEL = 255.0


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image.Image]:
    path = tmp_path_factory.mktemp("picture") / "course.png"
    draw_course(*shipped_course(), path)
    with Image.open(path) as image:
        yield image


@pytest.mark.slow
def test_the_picture_is_of_the_shipped_table(again: Image.Image) -> None:
    with Image.open(COURSE) as shipped:
        assert shipped.info[DRAWN_FROM] == drawn_from(*shipped_course()), "python -m tests.docs.picture"
        assert shipped.size == again.size
        ours, now = (np.asarray(image.convert("L"), dtype=float) for image in (shipped, again))
    assert np.abs(ours - now).mean() < PIXEL / 1000, "python -m tests.docs.picture"


def test_the_readme_shows_it() -> None:
    assert "](docs/course.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
    text, planned = shipped_course()
    rows = [line.split(",") for line in text.splitlines()[1:]]
    models = dict.fromkeys(row[1] for row in rows)
    assert next(iter(models)).startswith("qwen2.5-coder")
    assert list(models)[-1] == "qwen2-2.1m"
    for model in models:
        measures = {row[5] for row in rows if row[1] == model}
        assert measures == {"valid (%)", "mean valid score", "distinct programs (%)", "best score so far"}
    assert planned["pretrained-1.5b"].seeds == 8


def test_another_seed_or_plan_is_another_picture(tmp_path: Path) -> None:
    text, planned = shipped_course()
    fewer = "\n".join(text.splitlines()[:-1]) + "\n"
    told = {
        drawn_from(text, planned),
        drawn_from(fewer, planned),
        drawn_from(text, planned | {"main": Planned(30, "PARTIAL")}),
    }
    assert len(told) == 3
