"""One tiny cohort with the shipped model, made once for the whole session, and its trained run once more."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cohorts import run_cohort
from tests.forked import Commands, Forking, forked_runs

from search_to_signal.base.progress import PlainProgress
from search_to_signal.models import device
from search_to_signal.run import execution
from search_to_signal.run.profile import Profile, load_profile

# As every command does, and before MKL computes in another test: then it chooses its kernels for good.
device._take_intel_kernels()


def tiny_profile() -> Profile:
    """The smoke profile with two groups per run."""
    return msgspec.structs.replace(load_profile("smoke"), groups=2)


@pytest.fixture(scope="session")
def server(commands: Commands) -> Forking:
    """What forks runs from the process that commands are forked from, once for all modules."""
    return Forking(commands.server)


@pytest.fixture(scope="module", autouse=True)
def _forked(server: Forking) -> Iterator[None]:
    """Runs that a test of this directory starts are forked; those of other directories are not."""
    with forked_runs(server):
        yield


@pytest.fixture(scope="session")
def profile() -> Profile:
    """The tiny profile that the cohorts below ran."""
    return tiny_profile()


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory, server: Forking) -> Path:
    """A finished tiny cohort; tests that change it work on a copy."""
    out = tmp_path_factory.mktemp("cohort") / "tiny"
    with forked_runs(server):
        run_cohort(tiny_profile(), out, PlainProgress())
    return out


@pytest.fixture(scope="session")
def cohort_again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its trained run a second time somewhere else, in a process that loads everything itself."""
    out = tmp_path_factory.mktemp("again") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "subprocess", subprocess)
        run_cohort(msgspec.structs.replace(tiny_profile(), conditions=("native",)), out, PlainProgress())
    return out
