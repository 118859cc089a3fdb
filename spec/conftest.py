"""Point the specification at a mapping or normalizer: ``pytest spec --mapping pkg.mod:obj``."""

import sys
from collections.abc import Callable

import numpy as np
import pytest

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.numerics import Floats
from search_to_signal.credit import MAPPINGS, RewardMapping, get_mapping
from search_to_signal.credit.normalizers import Normalizer, get_normalizer, group_advantages

CONSTRUCTIONS = ("native", "factorized", "tail_weighted", "search_exposure", "distinct")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options that point the suite at something else than the built-in objects."""
    parser.addoption("--mapping", help="name, entry point or pkg.mod:obj of the reward mapping to judge")
    parser.addoption("--normalizer", help="name, entry point or pkg.mod:obj of the normalizer to judge")


def pytest_configure(config: pytest.Config) -> None:
    """Find what is to be judged, also in the directory of the command; one line where it is not there."""
    sys.path.append(str(config.invocation_params.dir))
    mapping, normalizer = config.getoption("--mapping"), config.getoption("--normalizer")
    try:
        if mapping:
            get_mapping(mapping)
        if normalizer:
            get_normalizer(normalizer)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With something to judge, leave out the tests that judge nothing of it."""
    judging = {"judged"}
    judging |= {"mapping", *CONSTRUCTIONS} if config.getoption("--mapping") else set()
    judging |= {"normalizer"} if config.getoption("--normalizer") else set()
    if judging == {"judged"}:
        return
    others = [item for item in items if judging.isdisjoint(getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test the objects it judges.

    ``mapping`` takes every mapping; the name of a construction takes the mapping that bears that name,
    so that a stranger's mapping called "native" is judged as Native, and any other by the general rules.
    """
    chosen = metafunc.config.getoption("--mapping")
    mappings = [get_mapping(chosen)] if chosen else list(MAPPINGS.values())
    if "mapping" in metafunc.fixturenames:
        metafunc.parametrize("mapping", mappings, ids=[mapping.name for mapping in mappings])
    for name in CONSTRUCTIONS:
        if name in metafunc.fixturenames:
            bearers = [mapping for mapping in mappings if mapping.name == name]
            metafunc.parametrize(name, bearers, ids=[name] * len(bearers))
    if "normalizer" in metafunc.fixturenames:
        other = metafunc.config.getoption("--normalizer")
        judged = get_normalizer(other) if other else group_advantages
        metafunc.parametrize("normalizer", [judged], ids=[other or "group"])


@pytest.fixture(scope="session")
def judged(pytestconfig: pytest.Config) -> Callable[[str], RewardMapping | Normalizer | None]:
    """Find the mapping that bears a construction's name, or the normalizer; None where another is judged."""
    chosen, other = pytestconfig.getoption("--mapping"), pytestconfig.getoption("--normalizer")
    mappings = [get_mapping(chosen)] if chosen else list(MAPPINGS.values())
    named: dict[str, RewardMapping | Normalizer] = {mapping.name: mapping for mapping in mappings}
    named["normalizer"] = get_normalizer(other) if other else group_advantages
    return named.get


@pytest.fixture(scope="session")
def trl() -> Callable[[Floats], Floats]:
    """TRL 0.15.1's own expression on one group of float32 rewards, (1, G) -> (1, G)."""
    torch = pytest.importorskip("torch", reason="parity with TRL needs torch")

    def expression(rewards: Floats) -> Floats:
        single = torch.tensor(rewards, dtype=torch.float32).flatten()
        size = rewards.shape[1]
        mean = single.view(-1, size).mean(dim=1).repeat_interleave(size, dim=0)
        std = single.view(-1, size).std(dim=1).repeat_interleave(size, dim=0)
        result: Floats = ((single - mean) / (std + 1e-4)).numpy().astype(np.float64)[None, :]
        return result

    return expression
