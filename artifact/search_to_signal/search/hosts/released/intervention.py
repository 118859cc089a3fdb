"""The released host with our rewards: its own evaluation and search, observed, then another number returned.

The subclass stands in for the released trainer before ``main`` is imported; everything else of the host is
used as it is. Native through the wrapper is the host's own list, untouched.
"""

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import msgspec

from search_to_signal.base.errors import HostError, S2SError
from search_to_signal.base.processes import answering, variables
from search_to_signal.base.progress import one_line
from search_to_signal.credit import RewardMapping, get_mapping
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.models.api import UnusableAnswer, completion_of
from search_to_signal.records.files import RecordWriter, RunFiles, storage_errors
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import GenerationRecord, RequestRecord, StepTiming
from search_to_signal.search.hosts.calm.state import SearchState
from search_to_signal.search.hosts.released import trainer
from search_to_signal.search.hosts.released.checkout import ReleasedCheckout
from search_to_signal.search.hosts.released.plan import ReleasedPlan

# What an endpoint reports of its answers, read on the way: the released host keeps their texts alone.
#
# The host asks a relay on this machine, which passes every request and every answer on as it is. No header is
# kept, so no key is.

# What one connection says to the next hop alone, or follows from the bytes that are sent on.
_OWN = {
    *("connection", "keep-alive", "host", "transfer-encoding", "te", "trailer", "upgrade"),
    *("content-length", "content-encoding", "accept-encoding", "date", "server"),
}
_NO_PROXY = ("NO_PROXY", "no_proxy")
_HERE = "127.0.0.1"


@dataclass
class RequestRelay:
    """An endpoint's address here, and its answers since they were last taken."""

    url: str = ""
    pending: list[tuple[str, RequestRecord]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, body: bytes) -> None:
        """Keep what an answer says of its one completion; anything else is the host's to see to."""
        with suppress(UnusableAnswer):
            completion = completion_of(body, None)
            if completion.request is not None:
                with self.lock:
                    self.pending.append((completion.text.strip(), completion.request))

    def taken(self, texts: Sequence[str]) -> tuple[RequestRecord, ...]:
        """What was reported of these texts, one each, and forget the rest; empty where one is missing."""
        with self.lock:
            pending, self.pending = self.pending, []
        requests: list[RequestRecord] = []
        for text in texts:
            place = next((i for i, (known, _) in enumerate(pending) if known == text.strip()), None)
            if place is None:
                return ()
            requests.append(pending.pop(place)[1])
        return tuple(requests)


@contextmanager
def relayed(address: str) -> Iterator[RequestRelay]:
    """Pass requests to ``address`` on while the context lasts; yields what to ask instead."""
    parts, relay = urlsplit(address), RequestRelay()
    with httpx.Client(timeout=None, follow_redirects=True) as client:
        handler = _handler(client, f"{parts.scheme}://{parts.netloc}", relay)
        server = ThreadingHTTPServer((_HERE, 0), handler)
        relay.url = f"http://{_HERE}:{server.server_address[1]}{parts.path}"
        # No proxy stands between the host and this machine.
        direct = {name: ",".join(filter(None, (os.environ.get(name), _HERE))) for name in _NO_PROXY}
        with answering(server), variables(**direct):
            yield relay


def _handler(client: httpx.Client, origin: str, relay: RequestRelay) -> type[BaseHTTPRequestHandler]:
    class RelayHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            try:
                answer = client.request(self.command, origin + self.path, content=body, headers=headers)
            except httpx.HTTPError as error:
                self._send(502, {}, f"the endpoint does not answer ({type(error).__name__})".encode())
                return
            if answer.status_code == httpx.codes.OK and self.command == "POST":
                relay.note(answer.content)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
            self._send(answer.status_code, kept, answer.content)

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            # A host that no longer waits has reported it itself.
            with suppress(ConnectionError):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: requests are in the records."""

    return RelayHandler


# Ctrl-C and SIGTERM end a command, even where the host swallows what they raise, or Ray takes them over.

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class StopSignal:
    """Whether a signal asked for the end; ``arm`` installs the handlers again."""

    asked: bool = False
    arm: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise KeyboardInterrupt, again where the host went on after the first, if a signal asked for it."""
        self.arm()
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[StopSignal]:
    """Context in which both signals raise KeyboardInterrupt, even if other handlers are set meanwhile.

    Ray sets two as it starts. The one in Python ends its processes and raises SystemExit: a host with a bare
    except goes on without them. The one in C aborts this process, and Python does not see it come: every
    ``check`` takes its place. Child processes set what they like. Off the main thread there is nothing to
    set.
    """
    stop, owner = StopSignal(), os.getpid()

    def end(number: int, frame: object) -> None:
        stop.asked = True
        raise KeyboardInterrupt

    if not _is_main():
        yield stop
        return
    set_handler = signal.signal

    def keep(number: int, handler: Any) -> Any:
        ours = number in _SIGNALS and os.getpid() == owner
        return signal.getsignal(number) if ours else set_handler(number, handler)

    def arm() -> None:
        if _is_main():
            for number in _SIGNALS:
                set_handler(number, end)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    stop.arm = arm
    try:
        arm()
        with trainer.changed(signal, signal=keep):
            yield stop
    finally:
        stop.arm = lambda: None
        for number, handler in before.items():
            set_handler(number, handler)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


# Turns the rounds of the released host into records, and keeps the first error of any of them.

HOST = "host.jsonl"
NATIVE = "native"
AGAIN = "give the same command again, which sets this attempt aside"
PATIENCE = 10
"""Errors of the host between two recorded rounds, after which it would go on for ever."""


class HostRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Native rewards of one group: as the released host returned them, and as our records give them."""

    step: int
    native: tuple[float, ...]
    recomputed: tuple[float, ...]


class Clock(Protocol):
    """The time of steps, split by phase."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...
    def timing(self, step: int) -> StepTiming: ...


@dataclass
class Observer:
    """Turns what a trainer did with a group into records and into the mapping's rewards.

    ``host`` takes the host's own rewards.
    ``rescore`` evaluates a program where the host does not say how well it did. ``count`` counts tokens where
    neither trainer nor endpoint does (``requests``); ``counted_by`` says whose the last ones were.
    ``error`` is the first that came up in a call of the reward function: the host goes on after any, and is
    refused every further round then. ``missed`` is the first that the host met elsewhere in a round; with
    too many of these and no round between them, the last is ``error``. ``stop`` says that a signal asked for
    the end. ``agreeing`` counts the groups whose native rewards follow from our records to the bit.
    """

    plan: ReleasedPlan
    mapping: RewardMapping
    files: RunFiles
    host: RecordWriter
    clock: Clock
    rescore: trainer.Rescore
    count: trainer.Count | None = None
    requests: trainer.Requests = lambda texts: ()
    counted_by: trainer.CountedBy | None = None
    after_round: Callable[[int, SearchState], None] = lambda done, after: None
    step: int = 0
    agreeing: int = 0
    last: SearchState | None = field(default=None, repr=False)
    error: BaseException | None = None
    missed: BaseException | None = None
    missed_since: list[BaseException] = field(default_factory=list, repr=False)
    stop: StopSignal = field(default_factory=StopSignal)

    def refuse(self) -> None:
        """Raise again what ends the run, where there is such a thing."""
        self.stop.check()
        if self.error is not None:
            raise self.error

    @contextmanager
    def run_errors(self) -> Iterator[None]:
        """Within it every error is the run's; raises the first again where there was one."""
        self.refuse()
        try:
            yield
        except BaseException as error:
            self.error = error
            raise

    @contextmanager
    def host_errors(self) -> Iterator[None]:
        """Within it an error is the host's own affair; raises the first of the run where there was one."""
        self.refuse()
        try:
            yield
        except Exception as error:
            self.missed = self.missed or error
            if error not in self.missed_since:  # it may pass through here twice
                self.missed_since.append(error)
            if self.error is None and len(self.missed_since) >= PATIENCE:
                self.error = error
            raise

    def observe(self, played: trainer.ReleasedRound) -> list[float]:
        """Write the records of a group, and return what the learner shall see."""
        completions, heuristics = trainer.round_records(played, self.plan.problem, self.rescore)
        records = assign_credit(completions, self.mapping, group_advantages)
        again = get_mapping(NATIVE)(batch_of([records])).reward[0]
        native = tuple(float(reward) for reward in played.native)
        recomputed = tuple(float(reward) for reward in again)
        requests = tuple(length.request for length in played.lengths if length.request is not None)
        generation = GenerationRecord(
            step=played.step,
            prompt=played.sent,
            prompt_ids=(),
            completion_ids=tuple(length.ids for length in played.lengths),
            completions=played.texts,
            requests=requests,
        )
        with storage_errors(self.files.directory, AGAIN):
            for record in records:
                self.files.completions.write(record)
            for heuristic in heuristics:
                self.files.heuristics.write(heuristic)
            self.files.generations.write(generation)
            self.host.write(HostRecord(step=played.step, native=native, recomputed=recomputed))
            # Behind an endpoint the rewards reach no learner.
            tokens = 0 if self.plan.served else sum(record.completion_tokens for record in records)
            self.files.steps.write(trainer.step_of(played, records, self.last, self.mapping.name, tokens))
            self.files.timings.write(self.clock.timing(played.step))
        self.agreeing += native == recomputed
        self.step, self.last, self.missed_since = self.step + 1, played.after, []
        self.after_round(self.step, played.after)
        if self.mapping.name == NATIVE:
            return list(played.native)
        return [record.reward or 0.0 for record in records]


_LONGEST = 300


def intervene(checkout: ReleasedCheckout, observer: Observer, seed: int) -> type[Any]:
    """Put the observed trainer in the place of the released one, and return it.

    ``seed`` goes into training arguments that the trainer is made with, as TRL draws from theirs.
    """
    module = checkout.module("calm_trainer")
    policy = checkout.module("heuristic").HeuristicPolicy
    released = module.Trainer

    class ObservedTrainer(released):  # type: ignore[misc, valid-type]
        """The released trainer, whose rewards go by the observer."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            for value in (*arguments, *named.values()):
                if hasattr(value, "seed") and hasattr(value, "learning_rate"):
                    value.seed = seed
            super().__init__(*arguments, **named)
            observer.stop.check()  # Ray has begun by now
            if not observer.step:
                observer.clock.timing(0)  # what came before is set-up

        @property
        def log_step(self) -> int:
            """Rounds so far. The host asks for them between two rounds, where no except is in the way."""
            observer.refuse()
            return int(self.__dict__.get("log_step", 0))

        @log_step.setter
        def log_step(self, rounds: int) -> None:
            self.__dict__["log_step"] = rounds

        def reward_func(self, prompts: Any, completions: Any, **others: Any) -> list[float]:
            """Evaluate and move the population as released; return the observer's rewards."""
            with observer.run_errors():
                before, chat = trainer.snapshot(self), trainer.only_prompt(prompts)
                asked = trainer.asked_operator(self.used_prompts, trainer.content(chat))
                with trainer.heuristics_made(policy) as seen, observer.clock.phase("evaluation"):
                    native = super().reward_func(prompts=prompts, completions=completions, **others)
                observer.stop.check()  # the host may have taken it for a failure of a heuristic
                texts = tuple(trainer.content(completion) for completion in completions)
                lengths = trainer.lengths_of(self, chat, texts, others, observer.requests, observer.count)
                observer.counted_by = lengths.counted_by
                played = trainer.ReleasedRound(
                    step=observer.step,
                    chat=chat,
                    texts=texts,
                    native=tuple(native),
                    seen=tuple(seen),
                    before=before,
                    after=trainer.snapshot(self),
                    settings=observer.plan.settings,
                    asked=asked,
                    lengths=lengths.each,
                )
                return observer.observe(played)

    for name in ("prepare_dataset", "train", "query_all"):
        if hasattr(released, name):
            setattr(ObservedTrainer, name, _noting_errors(getattr(released, name), observer))
    for name in ("__name__", "__qualname__", "__module__"):  # pickled by name, as the released one is
        setattr(ObservedTrainer, name, getattr(released, name))
    vars(module)["Trainer"] = ObservedTrainer
    return ObservedTrainer


def _noting_errors(method: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @wraps(method)
    def noted(*arguments: Any, **named: Any) -> Any:
        with observer.host_errors():
            return method(*arguments, **named)

    return noted


def play(checkout: ReleasedCheckout, options: Any, observer: Observer, rounds: int) -> None:
    """Start the released ``main.run``; the observer writes the records.

    Raises the first error of a call of the reward function, after which the host goes on; HostError also
    where the host itself stops, and where another number of rounds than ``rounds`` was recorded.
    """
    stopped: BaseException | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the seed of TSP takes a mean of nothing
            checkout.module("main").run(options)
    except SystemExit as end:
        stopped = end if end.code else None
    except Exception as error:  # noqa: BLE001 - code of others: whatever stops it is what we report
        stopped = error
    observer.stop.check()
    first = observer.error or stopped
    if isinstance(first, S2SError | KeyboardInterrupt):
        raise first
    if first is not None:
        raise host_error(first, checkout.path, observer.step) from first
    if observer.step != rounds:
        missed = observer.missed
        why = (
            host_error(missed, checkout.path, observer.step)
            if missed
            else "its loop hides errors, so the cause is in its own output"
        )
        raise HostError(f"main.py ended with {observer.step} of {rounds} rounds recorded: {why}") from missed


def host_error(error: BaseException, directory: Path, step: int) -> HostError:
    """An error of the host, or within it, as one line that names the host's file and line."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if Path(frame.filename).is_relative_to(directory)]
    where = f"{Path(inside[-1].filename).relative_to(directory)}:{inside[-1].lineno}" if inside else "main.py"
    text = one_line(str(error), _LONGEST)
    return HostError(f"{where} raised {type(error).__name__} in round {step}{f': {text}' if text else ''}")
