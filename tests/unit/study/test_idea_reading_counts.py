"""What the pages say of the evidence under the host's own reading is what the count says (D37)."""

from pathlib import Path

import pytest
from tests.proofs.idea_ends import main

pytestmark = [pytest.mark.slow, pytest.mark.proof]  # it reads every completion of the evidence

ROOT = Path(__file__).parents[3]


def test_the_pages_have_the_counted_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Completions, those read otherwise, and those of them that lose a valid outcome."""
    main()
    last = capsys.readouterr().out.splitlines()[-1]
    total, changed, alone, valid = (part.split()[0] for part in last.removeprefix("all: ").split(", "))
    assert alone == valid
    evidence, host = (
        " ".join((ROOT / page).read_text(encoding="utf-8").split())
        for page in ("artifact/evidence/NOTEBOOK.md", "artifact/calm/HOST.md")
    )
    assert f"would change {changed} of its {total} completions and the outcome of {valid}, both" in evidence
    assert f"of its {total} completions the host's reading changes {changed}," in host
    assert f"takes {valid} that are recorded as valid" in host
