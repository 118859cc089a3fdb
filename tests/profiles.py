"""Small profiles for tests, made or as the text of their first keys."""

import json
from typing import Any

from search_to_signal.run.profile import Profile


def plain_profile(**changes: Any) -> Profile:
    """A smoke profile of one seed, two conditions and four groups, with whatever else is asked for."""
    parts = {"purpose": "smoke", "problem": "tsp", "split": "embedded", "model": "m", "seeds": (1,)}
    return Profile(**{**parts, "conditions": ("frozen", "native"), "groups": 4, **changes})


def profile_head(
    *conditions: str,
    groups: int,
    seed: int = 1,
    problem: str = "tsp",
    split: str = "embedded",
    model: str = "qwen2-2.1m",
) -> str:
    """The keys that every profile has, a line each; other keys and then tables may be appended."""
    facts = {"purpose": "smoke", "problem": problem, "split": split, "model": model}
    facts |= {"conditions": conditions, "seeds": [seed], "groups": groups}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items())
