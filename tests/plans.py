"""A small plan for tests, as text."""

import hashlib

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
