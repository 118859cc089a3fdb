"""The head of a small profile for tests, as text."""

import json


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
