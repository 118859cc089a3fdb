"""The corpus tests run over every problem that the grammar speaks."""

import pytest

from recipe.pairs import PairSource, sources

SOURCES = {name: sources([name])[0] for name in ("tsp", "cvrp", "obp", "op")}


@pytest.fixture(params=SOURCES, scope="module")
def source(request: pytest.FixtureRequest) -> PairSource:
    """A problem with its vocabulary."""
    return SOURCES[request.param]
