"""Make the pictures of README and docs.

``python -m tests.docs.picture`` draws docs/course.png from the shipped courses.csv; with ``results/embedded``
the signal figure of its report, made small, becomes docs/signal.png.
"""

import re
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from search_to_signal.records.amendments import closed_studies, read_amendments
from search_to_signal.records.plan import PLAN, read_plan
from search_to_signal.report.figures.cohort import COURSES, Planned, draw_side_by_side
from search_to_signal.report.figures.plot import CsvFrame, draw_from_csv
from search_to_signal.sandbox.programs import sha256_text
from search_to_signal.study.page import planned_seeds

ROOT = Path(__file__).parents[2]
SIGNAL, COURSE = ROOT / "docs" / "signal.png", ROOT / "docs" / "course.png"
EVIDENCE = ROOT / "artifact" / "evidence" / "pretrained"
SHIPPED = EVIDENCE / "report" / "figures" / f"{COURSES}.csv"
DRAWN_FROM = "SHA-256 of courses.csv and its planned seeds"
WIDTH = 1000
# Inches, narrow: letters stay readable where a telephone makes the picture as wide as itself.
_TWO_COLUMNS, _PER_COLUMN, _HEIGHT = 4.7, 1.8, 6.1


def draw_course(text: str, planned: dict[str, Planned], picture: Path) -> None:
    """Draw the courses of several models side by side; the picture says what it was drawn from."""
    columns = len(CsvFrame.read(text).names("cohort"))
    size = (max(_TWO_COLUMNS, _PER_COLUMN * columns), _HEIGHT)
    with TemporaryDirectory() as temporary:
        png = draw_from_csv(COURSES, text, partial(draw_side_by_side, planned), size, Path(temporary))
        _shrink(png, picture, {DRAWN_FROM: drawn_from(text, planned)})


def drawn_from(text: str, planned: dict[str, Planned]) -> str:
    """What a picture of the courses depends on, besides the code that draws it."""
    counts = sorted((name, tuple(seeds)) for name, seeds in planned.items())
    return sha256_text(f"{text}{counts}")


def shipped_course() -> tuple[str, dict[str, Planned]]:
    """The courses of the pretrained plan's cohorts and of our own, and the planned seeds of each.

    The runs of ``distinct`` are beside their controls: the model is the same.
    """
    plan, ours = (read_plan(EVIDENCE.parent / name / PLAN.name) for name in (EVIDENCE.name, "distinct"))
    closed = closed_studies(read_amendments(EVIDENCE / PLAN.name, plan))
    text = SHIPPED.read_text(encoding="utf-8")
    for profile in ours.profiles:
        text = re.sub(f"^{profile},", f"{ours.controls[0]},", text, flags=re.MULTILINE)
    return text, planned_seeds(plan, closed)


def _shrink(figure: Path, picture: Path, notes: dict[str, str]) -> None:
    """Make a figure as wide as the README's pictures, in few colours."""
    info = PngInfo()
    for name, note in notes.items():
        info.add_text(name, note)
    with Image.open(figure) as image:
        height = round(image.height * WIDTH / image.width)
        small = image.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
    small.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True, pnginfo=info)


if __name__ == "__main__":
    if sys.argv[1:]:
        _shrink(Path(sys.argv[1]) / "report" / "figures" / "learner_path.png", SIGNAL, {})
    else:
        draw_course(*shipped_course(), COURSE)
