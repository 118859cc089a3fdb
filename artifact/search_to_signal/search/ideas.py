"""The word sets of an archive's ideas as arrays, so that a distance to thousands costs one pass.

Ideas are stored in order of arrival and read in listing order; a new state shares the arrays of the
old one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

WordSet = frozenset[str]


def idea_distance(words: WordSet, known: WordSet) -> float:
    """Share of ``words`` that ``known`` lacks; 0 without words (host point 11)."""
    return len(words - known) / len(words) if words else 0.0


@dataclass(frozen=True)
class Ideas:
    """n word sets. ``number`` numbers the words; ``order`` (n,) has the stored row of each listed idea.

    Stored row r has the words ``words[ends[r] : ends[r + 1]]`` in numbers.
    """

    number: Mapping[str, int]
    words: NDArray[np.int32]
    ends: NDArray[np.int64]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    def extended(self, word_sets: Iterable[WordSet]) -> "Ideas":
        """These ideas, and then ``word_sets``."""
        number = dict(self.number)
        rows = [[number.setdefault(word, len(number)) for word in sorted(words)] for words in word_sets]
        new = np.array([word for row in rows for word in row], dtype=np.int32)
        ends = self.ends[-1] + np.cumsum([len(row) for row in rows], dtype=np.int64)
        stored = len(self.ends) - 1
        return Ideas(
            number=number,
            words=np.concatenate((self.words, new)),
            ends=np.concatenate((self.ends, ends)),
            order=np.concatenate((self.order, np.arange(stored, stored + len(rows)))),
        )

    def taken(self, positions: NDArray[np.int64]) -> "Ideas":
        """The same ideas, listed in the order of ``positions``."""
        return replace(self, order=self.order[positions])

    def distances(self, known: WordSet) -> NDArray[np.float64]:
        """(n,) idea_distance of every idea to ``known``, in listing order."""
        is_known = np.zeros(len(self.number), dtype=np.bool_)
        is_known[[self.number[word] for word in known if word in self.number]] = True
        unknown = np.concatenate(([0], np.cumsum(~is_known[self.words])))
        sizes = np.diff(self.ends)
        share: NDArray[np.float64] = np.diff(unknown[self.ends]) / np.maximum(sizes, 1)
        return share[self.order]


def ideas_of(word_sets: Iterable[WordSet]) -> Ideas:
    """The given word sets, listed as given."""
    empty = Ideas({}, np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int64))
    return empty.extended(word_sets)
