"""A small plan for tests, as text, and synthetic runs under a plan."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from spec.synthetic_runs import write_synthetic_run

from search_to_signal.cli import main
from search_to_signal.records.manifest import write_roster

HEAD = """
title = "A small plan"
note = "For tests."
[analysis]
level = 0.95
power = 0.8
correction = "bonferroni"
[seeds]
rule = "counted"
first = [1]
name = "small"
seeds = [1, 2, 3, 4]
[pilot]
seeds = 2
completions = 80
metrics = []
[[studies]]
key = "main"
title = "Main"
profiles = ["main"]
layers = ["cohort"]
seeds = {seeds}
hours = 1
"""

STUDY = """
[[studies]]
key = "{key}"
title = "{title}"
profiles = ["{profile}"]
layers = ["{layer}"]
seeds = 3
hours = 1
"""

QUESTION = """
[[studies.questions]]
key = "{key}"
asks = "Is it so?"
role = "{role}"
metric = "{metric}"
estimator = "{estimator}"
interval = "{interval}"
pairs = {pairs}
horizon = {horizon}
seeds = {seeds}
comparisons = {comparisons}
match = "{match}"
counts_against = "an interval below zero"
"""

DEFAULTS = {
    "key": "main.q",
    "role": "primary",
    "metric": "valid_rate",
    "estimator": "mean_difference",
    "interval": "t",
    "pairs": '[["main/cohort/native", "main/cohort/frozen"]]',
    "horizon": 160,
    "seeds": 3,
    "comparisons": 1,
    "match": "completions",
}


def plan_text(*questions: dict[str, object], seeds: int = 3) -> str:
    """A plan of one study with these questions; what they leave out is ``DEFAULTS``."""
    return HEAD.format(seeds=seeds) + "".join(QUESTION.format(**{**DEFAULTS, **one}) for one in questions)


def text_sha256(text: str) -> str:
    """What the manifests of runs under that plan hold."""
    return hashlib.sha256(text.encode()).hexdigest()


def pack_study(
    top: Path,
    plan: str,
    evidence: Path,
    name: str = "main",
    after: Callable[[Path, str, int], None] = lambda run, condition, seed: None,
) -> None:
    """Record frozen and native runs of three seeds under a plan below ``top``, and pack them."""
    results, names = top / "results" / name, []
    for condition in ("frozen", "native"):
        for seed in (1, 2, 3):
            names.append(f"{condition}-s{seed}")
            run = results / "cohort" / names[-1]
            write_synthetic_run(run, condition, seed, plan_sha256=text_sha256(plan))
            after(run, condition, seed)
    write_roster(results / "cohort", names)
    assert main(["pack", str(results), "--into", str(evidence)]) == 0
    (evidence / "plan.toml").write_text(plan)
