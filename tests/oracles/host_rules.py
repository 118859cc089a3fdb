"""The host's rules once more, in plain Python, from artifact/calm/HOST.md and the paper alone.

Nothing here is shared with the package, not even names of outcomes, so that equal bits mean something.
"""

import re
from dataclasses import dataclass, field

OPENING = "The idea of the algorithm is to"
FAILED = {
    "missing_rationale": -1.0,
    "missing_code": -0.95,
    "missing_function": -0.90,
    "runtime_failure": -0.85,
    "randomness": -0.75,
}


def native_reward(outcome: str, score: float, bases: list[float]) -> float:
    """Reward of one completion: points 6, 16 and 23, and the branches of the paper."""
    if outcome in FAILED:
        return FAILED[outcome]
    if not bases:
        return 0.0
    best = bases[0]
    for base in bases[1:]:
        if base > best:
            best = base
    if score == best:
        return 0.0
    smaller = abs(score) if abs(score) < abs(best) else abs(best)
    change = 1.0
    if smaller > 0.0:
        change = abs(score - best) / smaller
        if change > 1.0:
            change = 1.0
        elif change < 1e-10:
            change = 1e-10
    if score > best:
        return 1.0 + change
    for base in bases:
        if abs(score - base) < 1e-7:
            return -(1.0 / 5.0 + 2.0 / 5.0)
    return -3.0 * change / 8.0


def idea_of(text: str) -> str:
    """The idea that a response states: points 1 and 20."""
    braced = re.search(r"\{\{(.*?)\}\}", text, re.DOTALL)
    if braced:
        return braced.group(1)
    loose = re.search(re.escape(OPENING) + r".*?(?=\n```|\Z)", text, re.DOTALL)
    return loose.group(0).strip() if loose else ""


def component_of(text: str) -> str:
    """The component that a response announces, or nothing: points 15 and 19."""
    told = re.search(r"The new component([A-Za-z()'\- ]*?)has been introduced", text)
    return told.group(1).strip() if told else ""


@dataclass
class Archive:
    """Heuristics as (idea, score): points 6 to 8, 13 to 15, 19, 21 and 25."""

    listed: list[tuple[str, float]]
    size: int
    threshold: int
    seeds: list[tuple[str, float]] = field(default_factory=list)
    components: list[str] = field(default_factory=list)
    stuck: int = 0

    def begin(self) -> bool:
        """Before a prompt: collapse if the counter is at the threshold, then list; whether it collapsed."""
        collapses = self.stuck >= self.threshold
        if collapses:
            best = self.listed[0]
            for kept in self.listed[1:]:
                if kept[1] > best[1]:
                    best = kept
            self.listed = [best] + [seed for seed in self.seeds if not abs(seed[1] - best[1]) < 1e-7]
            self.stuck = 0
        # Sorting in reverse would keep ties in order; the host reverses them.
        self.listed = sorted(self.listed, key=lambda kept: kept[1])[::-1]
        return collapses

    def end(self, injection: bool, group: list[tuple[str, float | None]]) -> None:
        """After a group of (response, score or None)."""
        best = max(score for _, score in self.listed)
        full = len(self.listed) >= self.size
        beaten = False
        for text, score in group:
            if score is None:
                continue
            beaten = beaten or score > best
            if all(abs(score - other) >= 1e-7 for _, other in self.listed):
                self.listed.append((idea_of(text), score))
            told = component_of(text)
            if injection and told and told not in self.components:
                self.components.append(told)
        self.stuck = 0 if beaten else self.stuck + (1 if full else 0)
