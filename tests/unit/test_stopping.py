"""The first signal asks a run to stop after its group, the next ends it; those that come together are one."""

import signal
from collections.abc import Iterator

import pytest

from search_to_signal.base import processes
from search_to_signal.base.processes import StopRequest, install, interruptible

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def _each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals count one by one, however fast they come."""
    monkeypatch.setattr(processes, "_TOGETHER_S", 0.0)


@pytest.mark.parametrize(("first", "second"), [SIGNALS, SIGNALS[::-1]])
def test_signals_that_come_together_are_one(
    first: signal.Signals, second: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal and a parent, or ``timeout``, may each send one; what comes later counts again."""
    with interruptible() as signals:
        assert not signals.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        assert signals.asked
        signal.raise_signal(second)
        signal.raise_signal(first)
        monkeypatch.setattr(processes, "_TOGETHER_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(second)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_each_alone")
def test_a_run_in_a_group_is_asked_first() -> None:
    """It is told once; the second signal ends it, and no SIGTERM breaks off what that begins."""
    told: list[str] = []
    install(stop := StopRequest())
    stop.tell = lambda: told.append("stopping")
    signal.raise_signal(signal.SIGINT)
    assert (stop.asked, told) == (True, ["stopping"])
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert told == ["stopping"]


@pytest.mark.usefixtures("_each_alone")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_that_is_in_no_group_ends_at_once(number: signal.Signals) -> None:
    """While it loads or is done nothing is lost by it."""
    install(StopRequest())
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    signal.raise_signal(signal.SIGTERM)


def test_a_stop_needs_nobody_who_listens() -> None:
    """Where the reader of a run's lines is gone, it stops in order all the same."""

    def tell() -> None:
        raise BrokenPipeError

    install(stop := StopRequest())
    stop.tell = tell
    signal.raise_signal(signal.SIGTERM)
    assert stop.asked


def test_an_ignored_interrupt_stays_ignored() -> None:
    """A shell's background job is not for Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_what_a_run_left_behind_is_no_such_context() -> None:
    """A handler that a run installed has no say in what is interruptible later in its process."""
    install(stop := StopRequest())
    with interruptible() as signals, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signals.asked
    assert not stop.asked
    assert signal.getsignal(signal.SIGTERM) is stop


def test_one_context_within_another_is_that_one() -> None:
    """What is asked of the inner one is known to the outer one, whose handlers stay."""
    with interruptible() as outer:
        with interruptible() as inner, pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert outer.asked
        assert inner is outer
        assert signal.getsignal(signal.SIGTERM) is outer


def test_a_process_is_stopped_in_order_once() -> None:
    """The first SIGTERM is Ctrl-C; another one breaks nothing off that this began."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        processes.end_in_order()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
