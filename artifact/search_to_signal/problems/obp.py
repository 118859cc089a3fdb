"""Online bin packing: items arrive one at a time and go into a bin for good."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from search_to_signal.problems.base import (
    Array,
    Dialogue,
    Heuristic,
    InfeasibleAnswerError,
    Instance,
    check_sha256,
    frozen_instance,
    split_of,
)

ITEMS_SHA256 = {
    "train/5000": "ca5ccb490fcb70a6b59edf2e08c3b9bc428af678e5fe92bf675bbc1ccbfa8f92",
    "train/1000": "52628599496a063bfe7b6bd719a31d578e7684fddc29cf415e85c583f544d397",
    "heldout/5000": "9a5ba6c3d63c40fbd1c245d3430afc0f6934878dee42759c9eb5f98496758bca",
    "heldout/1000": "d8fbe6e3f89ba979f2323d84e14edc9be06f2bf9b915b6260c82b33b4d9b1d9e",
    "embedded/400": "cbc47ec4cff73ea4b633b5ccb15d72a912239b851ac05031f068f3621746cf35",
}

_TEMPLATE = """import numpy as np

def step(item_size, remaining_capacity):
    return priorities
"""

_SEED = """import numpy as np

def step(item_size, remaining_capacity):
    largest = np.max(remaining_capacity)
    score = (remaining_capacity - largest) ** 2 / item_size + remaining_capacity**2 / item_size**2
    score += remaining_capacity**2 / item_size**3
    score[remaining_capacity > item_size] = -score[remaining_capacity > item_size]
    score[1:] -= score[:-1]
    return score
"""


class Packing:
    """The parent's side of one instance: which item comes next, and what is left in every bin.

    There are as many bins as items. Bins from ``_untouched`` on were never opened; they are told
    apart from the rest so that a question costs what the open bins cost, not what all bins cost.
    """

    def __init__(self, items: Array, capacity: float) -> None:
        self._items = items.tolist()
        self._capacity = float(capacity)
        self._remaining = np.full(len(items), self._capacity)
        self._untouched = 0
        self._position = 0
        self._fitting = self._find_fitting()

    @property
    def done(self) -> bool:
        return self._position == len(self._items)

    @property
    def bins_used(self) -> int:
        """How many bins hold at least one item."""
        return int(np.count_nonzero(self._remaining[: self._untouched] < self._capacity))

    def question(self) -> tuple[float, Array]:
        """Return (item size, capacities left in the bins that fit it, in bin order), a fresh array."""
        fitting = self._remaining.take(self._fitting)
        return self._items[self._position], np.concatenate((fitting, self._remaining[self._untouched :]))

    def decide(self, choice: int) -> None:
        """Put the open item into the ``choice``-th bin of its question.

        Raises InfeasibleAnswerError when the question had no such bin.
        """
        chosen = self._bin(choice)
        self._remaining[chosen] -= self._items[self._position]
        if chosen >= self._untouched:
            self._untouched = chosen + 1
        self._position += 1
        self._fitting = self._find_fitting()

    def score(self) -> float:
        """Return minus the gap to the lower bound in percent."""
        return gap_score(self.bins_used, lower_bound(self._items, self._capacity))

    def _find_fitting(self) -> Array:
        if self.done:
            return np.empty(0, dtype=np.intp)
        opened = self._remaining[: self._untouched]
        fitting: Array = (opened >= self._items[self._position]).nonzero()[0]
        return fitting

    def _bin(self, choice: int) -> int:
        opened = len(self._fitting)
        if 0 <= choice < opened:
            return int(self._fitting[choice])
        unopened = self._untouched + choice - opened
        if choice < 0 or unopened >= len(self._remaining):
            raise InfeasibleAnswerError(f"item {self._position} has no {choice}-th bin that fits")
        return unopened


def lower_bound(items: Sequence[float], capacity: float) -> int:
    """Least number of bins that the total size of the items needs."""
    return math.ceil(sum(items) / capacity)


def gap_score(bins: int, bound: int) -> float:
    """Return minus the gap between the bins used and the lower bound, in percent of the bound.

    No gap is -0.0, as in the host (HOST.md, point 24).
    """
    return -(100 * (bins - bound) / bound)


class Obp:
    """CALM's online bin packing; score is minus the percentage of bins above the lower bound."""

    name = "obp"
    title = "Online Bin Packing Problem"
    description = (
        "Items of known size arrive one after another and each must be put, for good, into a bin that "
        "still has room for it, so that few bins are used in the end. For every arriving item a function "
        "gives a priority to each bin that fits, from the item's size and the room left in these bins, "
        "empty ones included; the item goes into the bin of the highest priority."
    )
    statement = (
        "Items of known size arrive one after another and each goes, for good, into a bin that has room for "
        "it. As few bins as possible should be used."
    )
    unit = "% above the lower bound on bins"
    maximized = False
    template = _TEMPLATE
    seed = Heuristic(
        idea=(
            "The idea of the algorithm is to rate each bin by how far its room lies below the largest room "
            "and by powers of its room relative to the item, to turn the sign where the item does not fill "
            "the bin, and to compare each bin with the one before it."
        ),
        code=_SEED,
    )
    dialogue: Dialogue = "stream"
    splits: tuple[str, ...] = ("train", "heldout", "embedded")

    def instances(self, split: str) -> tuple[Instance, ...]:
        """Return ``items`` (n,) and ``capacity`` () of every instance.

        ``train`` has (5000, 100), (5000, 500), (1000, 100), (1000, 500) items and capacity;
        ``heldout`` the same with another seed, ``embedded`` (200, 100) twice.
        """
        pairs: list[tuple[Array, int]] = split_of(self.name, _SPLITS, split)
        return tuple(frozen_instance(items=items, capacity=np.array(capacity)) for items, capacity in pairs)

    def open(self, instance: Instance) -> Packing:
        return Packing(instance["items"], float(instance["capacity"]))

    def score(self, instance: Instance, answer: Array) -> float:
        """Score one choice per item, (n,) integers, each an index into the bins that fit it.

        Raises InfeasibleAnswerError when there is no such bin.
        """
        packing = self.open(instance)
        if answer.shape != instance["items"].shape or answer.dtype.kind not in "iu":
            raise InfeasibleAnswerError("expected one integer choice per item")
        for choice in answer.tolist():
            packing.decide(choice)
        return packing.score()


def weibull_items(rng: np.random.RandomState, count: int) -> Array:
    """Draw item sizes: Weibull of shape 3 and scale 45, at most 100, rounded to whole numbers."""
    return np.round(np.minimum(rng.weibull(3, count) * 45, 100))


def _item_sets(split: str, seed: int, counts: tuple[int, ...]) -> list[Array]:
    rng = np.random.RandomState(seed)
    sets = [weibull_items(rng, count) for count in counts]
    for items in sets:
        name = f"{split}/{len(items)}"
        check_sha256(f"obp/{name} items", items, ITEMS_SHA256[name])
    return sets


def _host_sets(split: str, seed: int) -> list[tuple[Array, int]]:
    sets = _item_sets(split, seed, (5000, 1000))
    return [(items, capacity) for items in sets for capacity in (100, 500)]


_SPLITS: dict[str, Callable[[], list[tuple[Array, int]]]] = {
    "train": lambda: _host_sets("train", 1234),
    "heldout": lambda: _host_sets("heldout", 4321),
    "embedded": lambda: [(items, 100) for items in np.split(_item_sets("embedded", 2027, (400,))[0], 2)],
}
