"""The word sets of an archive's ideas as arrays, so that a distance to thousands costs one pass.

Ideas are stored in order of arrival and read in listing order; a new state shares the arrays of the
old one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

WordSet = frozenset[str]
Integers = NDArray[np.intp]
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=1 << 14)
def words_of(idea: str) -> WordSet:
    """The distinct lower-cased words of an idea (HOST.md, point 11)."""
    return frozenset(_WORD.findall(idea.lower()))


def idea_distance(words: WordSet, known: WordSet) -> float:
    """Share of ``words`` that ``known`` lacks; 0 without words (HOST.md, point 11)."""
    return len(words - known) / len(words) if words else 0.0


@dataclass(frozen=True)
class Ideas:
    """n word sets. ``number`` numbers the words; ``order`` (n,) has the stored row of each listed idea.

    Stored row r has the words ``words[ends[r] : ends[r + 1]]``.
    """

    number: Mapping[str, int]
    words: Integers
    ends: Integers
    order: Integers

    def __len__(self) -> int:
        return len(self.order)

    def extended(self, word_sets: Sequence[WordSet]) -> "Ideas":
        """These ideas, and then ``word_sets``."""
        number = dict(self.number)
        words = [number.setdefault(word, len(number)) for known in word_sets for word in sorted(known)]
        sizes = np.array([len(known) for known in word_sets], dtype=np.intp)
        stored = np.arange(len(self), len(self) + len(sizes), dtype=np.intp)
        return Ideas(
            number=number,
            words=np.concatenate((self.words, np.array(words, dtype=np.intp))),
            ends=np.concatenate((self.ends, self.ends[-1] + np.cumsum(sizes))),
            order=np.concatenate((self.order, stored)),
        )

    def taken(self, positions: Integers) -> "Ideas":
        """The same ideas, listed in the order of ``positions``, a permutation."""
        return replace(self, order=self.order[positions])

    def distances(self, known: WordSet) -> NDArray[np.float64]:
        """(n,) idea_distance of every idea to ``known``, in listing order."""
        is_known = np.zeros(len(self.number), dtype=np.intp)
        is_known[[self.number[word] for word in known if word in self.number]] = 1
        shared = np.zeros(len(self.words) + 1, dtype=np.intp)
        np.cumsum(is_known.take(self.words), out=shared[1:])
        sizes = np.diff(self.ends)
        share: NDArray[np.float64] = (sizes - np.diff(shared[self.ends])) / np.maximum(sizes, 1)
        return share[self.order]


def ideas_of(word_sets: Sequence[WordSet]) -> Ideas:
    """The given word sets, listed as given."""
    empty = np.empty(0, dtype=np.intp)
    return Ideas({}, empty, np.zeros(1, dtype=np.intp), empty).extended(word_sets)
