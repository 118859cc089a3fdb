"""A card with too little memory ends a run in one line that says how much there is, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cohorts import Told
from tests.fault.stand_ins import Generator, Training, assembled, configuration, records_of

from search_to_signal.base.errors import ConfigError
from search_to_signal.models.device import memory_errors, prepare_device
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import Parts, run

pytestmark = pytest.mark.slow  # it loads the largest libraries

GIB = 1 << 30


def no_memory(*_: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("part", [(Generator, "generate"), (Training, "update")], ids=["sampling", "update"])
def test_a_run_ends_in_one_line_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: tuple[type, str]
) -> None:
    """Neither phase leaves a traceback, and what was recorded is gone on with once there is memory."""
    config = configuration(tmp_path / "model")
    run(config, tmp_path / "whole", Told(), assemble=assembled)
    with monkeypatch.context() as crowded:
        crowded.setattr(*part, no_memory)
        with pytest.raises(ConfigError) as error:
            run(config, tmp_path / "run", Told(), assemble=assembled)
    assert str(error.value) == (
        "the card has too little free memory for this run: end what else runs on it, or lower jobs or "
        "generation.max_completion_tokens, or set learner.gradient_checkpointing"
    )
    run(config, tmp_path / "run", Told(), resume=True, assemble=assembled)
    assert records_of(tmp_path / "run") == records_of(tmp_path / "whole")


def test_another_failure_of_a_run_keeps_its_traceback(tmp_path: Path) -> None:
    """A mistake of ours is not told as lack of memory."""

    @contextmanager
    def mistaken(config: RunConfig) -> Iterator[Parts]:
        raise RuntimeError("shapes differ")
        yield

    with pytest.raises(RuntimeError, match="shapes differ"):
        run(configuration(tmp_path / "model"), tmp_path / "run", Told(), assemble=mistaken)


def test_the_line_says_how_much_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the card, and what this process holds of it: whether others have to go, or this one is too large."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB // 2, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 15 * GIB)
    told = r"for it \(0.5 of 80.0 GiB free, 15.0 held by this process\): end"
    with pytest.raises(ConfigError, match=told), memory_errors("it"):
        no_memory()


def test_a_card_that_no_longer_answers_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some errors the driver answers nothing more: the line comes without numbers."""

    def silent() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", silent)
    told = "for it: end what else runs on it, or buy a card$"
    with pytest.raises(ConfigError, match=told), memory_errors("it", "buy a card"):
        raise RuntimeError("CUDA error: out of memory")


@pytest.mark.parametrize(
    ("cuda", "share", "goes_on"), [("13.0", "40", False), ("12.4", "40", True), ("13.0", "100", True)]
)
def test_a_share_of_a_card_is_refused_where_it_computes_nonsense(
    monkeypatch: pytest.MonkeyPatch, cuda: str, share: str, goes_on: bool
) -> None:
    prepared = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", prepared.append)
    for setting in ("enable_cudnn_sdp", "enable_mem_efficient_sdp"):
        monkeypatch.setattr(torch.backends.cuda, setting, prepared.append)
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", share)
    with nullcontext() if goes_on else pytest.raises(ConfigError):
        prepare_device("cuda")
    assert bool(prepared) is goes_on
