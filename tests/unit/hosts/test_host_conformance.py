"""The comparison of hosts: a stand-in that agrees is said to agree, and every sabotage is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from search_to_signal.cli import main
from search_to_signal.hosts.conformance import CHECKS, conform
from search_to_signal.hosts.findings import Finding, Verdict

Sabotage = Callable[[str, str, str], Path]

SABOTAGES = {
    "other instances": ("data", "problems/obp.py", "seed(2027)", "seed(2028)"),
    "another seed": ("seeds", "configs/obp/seed.py", "score[1:] -= score", "score[1:] += score"),
    "another score": ("seeds", "problems/obp.py", "-100 *", "-100.0001 *"),
    "another bin": ("bank", "problems/obp.py", "room >= item", "room > item"),
    "a shorter idea": ("parsing", "utils.py", "len(OPENING) + 10", "len(OPENING) + 9"),
    "the last block": ("parsing", "calm_trainer.py", "len(codes) > 1 or", ""),
    "no randomness rule": ("parsing", "calm_trainer.py", '"random" in policy.code', "False"),
    "a steeper reward": ("rewards", "calm_trainer.py", "-3 * change / 8", "-3 * change / 7"),
    "a severity": ("rewards", "args.py", "-0.95", "-0.94"),
    "parents without rank": ("sampling", "calm_trainer.py", "1 / rank for", "1 for"),
    "late crossover": ("sampling", "calm_trainer.py", "if size < 2", "if size < 6"),
    "no first fill": ("sampling", "calm_trainer.py", '"injection"] = max(weights.values())', '"x"] = 0'),
    "copies admitted": ("transitions", "calm_trainer.py", "abs(algo.perf - policy.perf) < SAME", "False"),
    "always counting": ("transitions", "calm_trainer.py", "self.age_stuck + full", "self.age_stuck + 1"),
    "components twice": ("transitions", "calm_trainer.py", "new not in self.injected_components", "True"),
    "seeds lost": ("transitions", "calm_trainer.py", "*(seed for seed in self.seed_algos", "*(s for s in []"),
}


def findings(path: Path, *checks: str) -> list[Finding]:
    """What the comparison of bin packing says of the small split."""
    asked = conform(path, ["obp"], checks, programs=3, draws=600, split="embedded")
    return [finding for _, _, finding in asked]


def test_the_standin_agrees(calm: Path) -> None:
    """All checks of an honest stand-in agree: frequencies within tolerance, everything else bit for bit."""
    found = findings(calm, *CHECKS)
    assert len(found) > 50
    assert [finding for finding in found if not finding.agrees] == []
    assert sum(finding.verdict is Verdict.CLOSE for finding in found) == 3


def test_the_command_says_that_it_agrees(standin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the real training instances; a line per finding, one for all, and exit code 0."""
    code = main(["conformance", "--calm", str(standin), "--problem", "obp", "--check", "data"])
    assert code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "s2s: AGREES: 4 bit for bit"


@pytest.mark.parametrize(("check", "file", "old", "new"), SABOTAGES.values(), ids=SABOTAGES)
def test_every_sabotage_is_found(sabotaged: Sabotage, check: str, file: str, old: str, new: str) -> None:
    """The check that a difference belongs to finds it."""
    found = findings(sabotaged(file, old, new), check)
    assert Verdict.DIFFERS in {finding.verdict for finding in found}


def test_a_missing_method_is_not_compared(sabotaged: Sabotage) -> None:
    """What the checkout lacks is said, and does not count as agreement; the other checks go on."""
    found = findings(sabotaged("calm_trainer.py", "def reward_func", "def other_name"), "rewards", "seeds")
    assert [finding.verdict for finding in found if not finding.agrees] == [Verdict.UNKNOWN]
    assert "reward_func" in next(finding.detail for finding in found if not finding.agrees)
    assert len(found) == 4


def test_a_module_that_does_not_import_is_not_compared(
    calm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trainer that needs what is not here is one finding, with the reason, and exit code 1."""
    (calm / "calm_trainer.py").write_text("import a_library_that_is_not_here\n")
    code = main(["conformance", "--calm", str(calm), "--problem", "obp", "--check", "data"])
    out = capsys.readouterr().out
    assert code == 1
    assert "a_library_that_is_not_here" in out
    assert out.splitlines()[-1] == "s2s: DIFFERS: 1 not compared"


def test_a_directory_that_is_no_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another directory is refused with what it lacks."""
    assert main(["conformance", "--calm", str(tmp_path)]) == 12
    assert "it lacks calm_trainer.py" in capsys.readouterr().err
