"""What a backend of ``backends_benchmark`` left, read from its records, and the table of it."""

import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import mean, median
from types import TracebackType
from typing import Any

import msgspec

from search_to_signal.records.provenance import visible_cards
from search_to_signal.records.reader import GENERATIONS, STEPS, TIMINGS, read_records
from search_to_signal.records.schema import GenerationRecord, StepRecord, StepTiming

# An update that takes so many times the median also captured or compiled something.
_FIRST_TIME = 3.0


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One group: completion tokens, seconds by phase, valid completions where they were evaluated."""

    tokens: int
    completions: int
    generation: float
    update: float
    total: float
    valid: int | None = None


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend's groups in order. ``torch_peak_mib`` is what torch allocated at most, ``card_peak_mib`` what
    the card held at most beyond what it held before; ``error`` is empty where the backend ended well.
    """

    name: str
    groups: tuple[Group, ...]
    torch_peak_mib: int | None = None
    card_peak_mib: int | None = None
    error: str = ""

    def settled(self) -> list[int]:
        """The groups after the first in whose update nothing was captured or compiled."""
        usual = median([group.update for group in self.groups]) if self.groups else 0.0
        return [i for i, group in enumerate(self.groups) if i and group.update <= _FIRST_TIME * usual]


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend's process writes into DIR/NAME.extra.json: the stock trainer has no other records."""

    torch_peak_mib: int | None
    groups: tuple[Group, ...] = ()


def _extra(out: Path, name: str) -> Extra:
    path = out / f"{name}.extra.json"
    return msgspec.json.decode(path.read_bytes(), type=Extra) if path.exists() else Extra(torch_peak_mib=None)


def of_stock(out: Path, name: str) -> Backend:
    """The stock trainer's groups."""
    extra = _extra(out, name)
    return Backend(name=name, groups=extra.groups, torch_peak_mib=extra.torch_peak_mib)


def of_run(out: Path, name: str) -> Backend:
    """The groups of a live run, also of one that ended before its time."""
    run = out / name
    if not all((run / file).exists() for file in (TIMINGS, GENERATIONS, STEPS)):
        return Backend(name=name, groups=())
    records = zip(
        read_records(run / TIMINGS, StepTiming),
        read_records(run / GENERATIONS, GenerationRecord),
        read_records(run / STEPS, StepRecord),
        strict=False,
    )
    groups = tuple(
        Group(
            tokens=sum(map(len, generation.completion_ids)),
            completions=len(generation.completion_ids),
            generation=timing.seconds["generation"],
            update=timing.seconds["update"],
            total=timing.seconds["total"],
            valid=step.valid,
        )
        for timing, generation, step in records
    )
    return Backend(name=name, groups=groups, torch_peak_mib=_extra(out, name).torch_peak_mib)


class CardMemory:
    """The most memory that the first card held while this was open, beyond what it held before, in MiB.

    Asked of NVML every 50 ms, or of nvidia-smi every second; None where neither tells.
    """

    def __init__(self) -> None:
        self._nvml = _nvml()
        self._before = self._held()
        self._most = self._before
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    @property
    def peak_mib(self) -> int | None:
        """The peak so far."""
        return None if self._most is None or self._before is None else self._most - self._before

    def __enter__(self) -> "CardMemory":
        if self._before is not None:
            self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._watch.is_alive():
            self._watch.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05 if self._nvml else 1.0):
            held = self._held()
            self._most = max(held, self._most) if held is not None and self._most is not None else self._most

    def _held(self) -> int | None:
        if self._nvml:
            return (
                int(self._nvml.nvmlDeviceGetMemoryInfo(self._nvml.nvmlDeviceGetHandleByIndex(0)).used) >> 20
            )
        return next((-card.free_mib for card in visible_cards()), None)


def _nvml() -> Any:
    """The library with the card's counters, None where it or the card is missing."""
    try:
        library = import_module("pynvml")
        library.nvmlInit()
    except Exception:  # noqa: BLE001 - the library raises classes of its own, which are not here without it
        return None
    return library


def numbers(backend: Backend) -> dict[str, Any]:
    """The figures of the table, None for what was not measured."""
    groups, settled = backend.groups, [backend.groups[i] for i in backend.settled()]
    evaluated = [group for group in groups if group.valid is not None]
    return {
        "backend": backend.name,
        "groups": len(groups),
        "valid share": _share(
            sum(group.valid or 0 for group in evaluated), sum(group.completions for group in evaluated)
        ),
        "completion tokens": sum(group.tokens for group in groups),
        "generation s": sum(group.generation for group in groups) if groups else None,
        "tokens/s": _share(sum(g.tokens for g in groups), sum(g.generation for g in groups)),
        "tokens/s settled": _share(sum(g.tokens for g in settled), sum(g.generation for g in settled)),
        "update s, first": groups[0].update if groups else None,
        "update s, mean": mean(group.update for group in groups) if groups else None,
        "update s, median": median(group.update for group in groups) if groups else None,
        "update s, mean settled": mean(group.update for group in settled) if settled else None,
        "settled groups": len(settled),
        "s per group": mean(group.total for group in groups) if groups else None,
        "s per group settled, without evaluation": (
            mean(group.generation + group.update for group in settled) if settled else None
        ),
        "torch peak MiB": backend.torch_peak_mib,
        "card peak MiB": backend.card_peak_mib,
        "error": backend.error,
    }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def summary(backend: Backend) -> str:
    """One line for who waits."""
    if backend.error:
        return f"{len(backend.groups)} groups, {backend.error}"
    found = numbers(backend)
    return ", ".join(f"{key} {_text(found[key])}" for key in ("groups", "tokens/s", "update s, median"))


# The heading of a column and its figure.
_COLUMNS = {
    "backend": "backend",
    "groups": "groups",
    "valid": "valid share",
    "completion tokens": "completion tokens",
    "generation, s": "generation s",
    "tokens/s": "tokens/s",
    "settled": "tokens/s settled",
    "update, median s": "update s, median",
    "mean": "update s, mean",
    "mean settled": "update s, mean settled",
    "whole group, s": "s per group",
    "generation and update, settled": "s per group settled, without evaluation",
    "torch's peak, MiB": "torch peak MiB",
    "the card's, MiB": "card peak MiB",
}


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}" if value < 10 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(backends: Sequence[Backend]) -> str:
    """The table in Markdown, and a line for each backend that failed; times are means unless they say more.

    A group is settled that is not the first and in whose update nothing was captured or compiled.
    """
    rows = [
        f"| {' | '.join(_COLUMNS)} |",
        f"| :-- |{' --: |' * (len(_COLUMNS) - 1)}",
        *(
            f"| {' | '.join(_text(found[key]) for key in _COLUMNS.values())} |"
            for found in map(numbers, backends)
        ),
    ]
    failed = [f"{one.name}: {one.error}" for one in backends if one.error]
    return "\n".join([*rows, *(["", *failed] if failed else [])])


def ratios(backends: Sequence[Backend]) -> list[str]:
    """How many times as long the stock trainer took as local to generate and update the same groups."""
    known = {backend.name: backend for backend in backends}
    local = known.get("local")
    lines = []
    for name in ("trl", "trl-checkpointed"):
        stock = known.get(name)
        if local is None or stock is None:
            continue
        every = range(min(len(local.groups), len(stock.groups)))
        both = sorted({*local.settled()} & {*stock.settled()})
        for label, chosen in (("all", every), ("settled in both", both)):
            ours, theirs = (_seconds(one, chosen) for one in (local, stock))
            if ours:
                lines.append(
                    f"{name} against local, generation and update of {len(chosen)} groups ({label}): "
                    f"{theirs:.1f} s against {ours:.1f} s, {theirs / ours:.2f} times"
                )
    return lines


def _seconds(backend: Backend, chosen: Sequence[int]) -> float:
    return sum(backend.groups[i].generation + backend.groups[i].update for i in chosen)
