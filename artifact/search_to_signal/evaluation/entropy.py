"""Unseeded generators draw from a fixed stream, because a worker has no entropy.

The host runs such programs and types them by their text afterwards, so they must not fail here. Replay
uses another stream, which is how their decisions show as nondeterministic.
"""

import _random
import random
from typing import Any

import numpy as np

_new: Any = _random.Random.__new__


def replace_entropy(seed: int) -> None:
    """Seed the global generators, and give unseeded ones a stream that depends on ``seed`` alone."""
    source = random.Random(f"entropy {seed}")
    original = random.Random.seed

    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        original(self, source.getrandbits(64) if a is None else a, version)

    def created(cls: type[random.Random], *arguments: Any, **keywords: Any) -> Any:
        return _new(cls, 0)

    random.Random.__new__ = created  # type: ignore[method-assign, assignment]
    random.Random.seed = seeded  # type: ignore[method-assign]
    random.seed = vars(random)["_inst"].seed
    vars(np.random.bit_generator)["randbits"] = source.getrandbits
    reseed(seed)
    np.random.seed(seed)


def reseed(seed: int) -> None:
    """Seed the standard library's global generator again: CPython reseeds it in every forked child."""
    random.seed(seed)
