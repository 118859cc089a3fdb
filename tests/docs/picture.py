"""Make the README's picture from a report: ``python -m tests.docs.picture results/embedded``."""

import sys
from pathlib import Path

from PIL import Image

PICTURE = Path(__file__).parents[2] / "docs" / "signal.png"
WIDTH = 1000


def main(report: Path) -> None:
    """Shrink the signal figure of a results directory's report, in few colours, to docs/signal.png."""
    with Image.open(report / "figures" / "learner_path.png") as figure:
        height = round(figure.height * WIDTH / figure.width)
        small = figure.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
    small.quantize(256, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "report")
