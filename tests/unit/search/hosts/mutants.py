"""Changes of the stand-in that mutants.txt lists."""

import re
from pathlib import Path


def texts_of(change: str) -> tuple[str, str]:
    """The text before and after a change that is written with what is replaced, ``head⟦old→new⟧tail``."""
    found = re.fullmatch(r"(.*?)⟦(.*?)→(.*?)⟧(.*)", change, re.DOTALL)
    assert found is not None, change
    head, old, new, tail = found.groups()
    return f"{head}{old}{tail}", f"{head}{new}{tail}"


def read_mutants() -> dict[str, tuple[str, str, str, str, str]]:
    """By name, as (family, beginning of the finding's subject, file, old text, new text)."""
    found, family, file = {}, "", ""
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            family, file = line.strip("[]").split()
        elif line and not line.startswith("#"):
            name, subject, change = line.split(" :: ", 2)
            assert name not in found, name
            found[name] = (family, subject, file, *texts_of(change.replace("⏎", "\n")))
    return found


MUTANTS = read_mutants()
