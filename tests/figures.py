"""What the proofs printed, in one file that the pages quote: ``tests/proofs/figures.json``.

    python tests/figures.py NAME COMMAND PRINTED        (for shell scripts)

A proof prints its last line through ``print_figure``; an entry is never written by hand.
"""

import json
import sys
from pathlib import Path

FIGURES = Path(__file__).parent / "proofs" / "figures.json"


def read_figures() -> dict[str, dict[str, str]]:
    """By name of the proof: the command that ran, and what it printed last."""
    found: dict[str, dict[str, str]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found


def print_figure(name: str, command: str, printed: str) -> None:
    """Print a line and note it; where the checkout cannot be written, as in the image, only print it."""
    print(printed)
    known = read_figures() if FIGURES.exists() else {}
    text = json.dumps({**known, name: {"command": command, "printed": printed}}, indent=2, sort_keys=True)
    try:
        FIGURES.write_text(f"{text}\n", encoding="utf-8")
    except OSError:
        print(f"(not noted: {FIGURES.name} cannot be written)")


if __name__ == "__main__":
    print_figure(*sys.argv[1:4])
