"""Every test computes with the kernels that every command fixes; no property has a time limit per example."""

import gc
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from spec import profiles
from tests.disk import unsynced

from search_to_signal.base.processes import fix_kernels, wait_without_spinning

wait_without_spinning()  # as commands do: of two workers, spinning threads take ten times what they compute
fix_kernels()  # before numpy is loaded, so that bits agree
gc.set_threshold(100_000, 50, 50)  # a fifth of the time of a property went into looking for cycles
profiles.register()
settings.load_profile("quick")

# A module all of whose tests are slow; it need not be loaded where none of them runs.
SLOW = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow\b", re.MULTILINE)
# Below these, tests share what was recorded or drawn once.
SHARING = ("tests/integration/", "tests/unit/report/", "tests/isolation/")


@pytest.fixture(scope="session", autouse=True)
def _disk() -> Iterator[None]:
    """Tests do not wait for the disk."""
    with unsynced():
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without slow tests, leave modules that have no others alone: they load the largest libraries."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return bool(SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out proofs, which repeat at length what other tests hold: ``pytest -m proof`` runs them."""
    if "proof" in config.option.markexpr:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("proof")])
    items[:] = [item for item in items if not item.get_closest_marker("proof")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile`` the tests of a file, and of a directory that shares, go to one worker.

    What is slow goes first, whatever the number of its tests: at the end no worker waits for another.
    """
    from xdist.scheduler import LoadFileScheduling

    class LoadSharing(LoadFileScheduling):
        _ordered = False

        def _split_scope(self, nodeid: str) -> str:
            shared = (place for place in SHARING if nodeid.startswith(place))
            return next(shared, None) or super()._split_scope(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            if not self._ordered:
                slow_first = sorted(
                    self.workqueue.items(), key=lambda unit: not _slow(config.rootpath / unit[0])
                )
                self.workqueue, self._ordered = OrderedDict(slow_first), True
            super()._assign_work_unit(node)

    return LoadSharing(config, log) if config.getvalue("dist") == "loadfile" else None


def _slow(scope: Path) -> bool:
    return scope.is_dir() or "mark.slow" in scope.read_text(encoding="utf-8")
