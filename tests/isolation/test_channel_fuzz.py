"""Whatever a worker writes, the parent sees a typed ending: never a crash, never a wrong answer."""

import random
import socket
import time

import numpy as np
import pytest

from search_to_signal.sandbox import wire_format
from search_to_signal.sandbox.dialogues import Channel, WorkerGoneError
from search_to_signal.sandbox.outcomes import CandidateError, Isolation

ENDINGS = (CandidateError, WorkerGoneError)


def ask(raw: bytes) -> object:
    """Ask for a tour of three nodes and let ``raw`` be all that ever comes back."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours, 5.0)
        channel.ask(wire_format.TOURS)
        _, _, number = wire_format.QUESTION.unpack(theirs.recv(wire_format.QUESTION.size))
        theirs.sendall(raw.replace(b"NONCE..!", number.to_bytes(8, "little", signed=True)))
        theirs.shutdown(socket.SHUT_WR)
        try:
            return channel.array((3,), ("<i8",))
        except ENDINGS as error:
            return error


def answer(kind: int, length: int, value: int, payload: bytes) -> bytes:
    """A frame that answers the question asked."""
    head = wire_format.ANSWER.pack(kind, length, 0, 0)[:8]
    return head + b"NONCE..!" + value.to_bytes(8, "little") + payload


def test_a_right_answer_arrives() -> None:
    """The fuzz below is not vacuous: the exact frame is accepted."""
    tour = np.array([0, 2, 1])
    received = ask(answer(wire_format.DATA, 24, 0, tour.tobytes()))
    assert isinstance(received, np.ndarray)
    assert received.tolist() == [0, 2, 1]


def test_random_bytes_are_typed() -> None:
    """Noise of any length is a protocol error or the end of the worker."""
    draw = random.Random(1)
    for _ in range(1500):
        assert isinstance(ask(draw.randbytes(draw.randrange(200))), ENDINGS)


def test_nearly_right_frames_are_typed() -> None:
    """With the right nonce, every field wrong in turn or at random, an array is exactly the right bytes."""
    draw = random.Random(2)
    for _ in range(3000):
        kind = draw.choice([0, 1, 2, 3, 3, 3, 4, 4, 2**32 - 1])
        length = draw.choice([0, 1, 23, 24, 24, 25, 200, 201, 2**32 - 1])
        value = draw.choice([0, 0, 1, 5, 6, 2**63])
        raw = answer(kind, length, value, draw.randbytes(draw.choice([0, 1, 23, 24, 25, 300])))
        received = ask(raw)
        if not isinstance(received, ENDINGS):
            assert (kind, length, value) == (wire_format.DATA, 24, 0)
            assert raw[24:48] == received.tobytes()


def test_failure_text_is_cleaned_and_limited() -> None:
    """A failure that a worker reports is shown in printable ASCII of limited length, or refused."""
    shown = ask(answer(wire_format.FAILED, 200, 2, bytes(range(56, 256))))
    assert isinstance(shown, CandidateError)
    assert shown.isolation is Isolation.EXCEPTION
    assert shown.detail.isascii()
    assert shown.detail.isprintable()
    longer = ask(answer(wire_format.FAILED, 201, 2, b"x" * 201))
    assert isinstance(longer, CandidateError)
    assert longer.isolation is Isolation.PROTOCOL


def test_a_dribbling_worker_meets_the_deadline() -> None:
    """Single bytes do not extend the time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours, 0.2)
        channel.ask(wire_format.TOURS)
        theirs.send(b"x" * 10)
        time.sleep(0.25)
        theirs.send(b"x")
        with pytest.raises(CandidateError) as caught:
            channel.value()
    assert caught.value.isolation is Isolation.TIMEOUT
