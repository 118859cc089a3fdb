"""The resource anchor's contract: how many Frozen groups a trained run's time buys, fixed before any result.

Paper, attribution protocol, and supplement "Timing-derived Frozen-search anchors". The contract is written
from timings alone. Whoever computes an endpoint of the anchor reads it through ``read_contract``, which
refuses a missing or altered one.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np

from search_to_signal.base.errors import UNREADABLE, ContractError, RecordError
from search_to_signal.base.settings import canonical_json
from search_to_signal.records.files import read_lines, read_regular, write_atomically
from search_to_signal.records.manifest import Accelerator, Manifest, finished_manifest
from search_to_signal.records.reader import STEPS, TIMINGS, read_records
from search_to_signal.records.schema import StepTiming

CONTRACT = "contract.json"
CONTRACT_SUM = "contract.sha256"

Clock = Literal["processor", "wall"]
CLOCKS: Mapping[Clock, str] = {
    "processor": "processor seconds of the run's process tree",
    "wall": "wall seconds, which load on the machine lengthens",
}

Item = TypeVar("Item")


class AnchorBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trained run of the cohort, and the ``groups`` of Frozen search that its time buys."""

    seed: int
    condition: str
    online_groups: int
    online_seconds: float
    frozen_groups: int
    frozen_seconds: float
    groups: int


class AnchorContract(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every budget with its derivation; ``timings_sha256`` names the files that were read, all of them.

    ``clock`` says which seconds they are (D30); contracts of earlier versions knew wall seconds alone.
    """

    formula: str
    clock: Clock = "wall"
    margin: float
    budgets: tuple[AnchorBudget, ...]
    run_groups: dict[str, int]
    timings_sha256: dict[str, str]


def formula(clock: Clock) -> str:
    """How budgets follow from the seconds of a clock, in words."""
    return (
        "groups = max(online_groups, floor(online_seconds / (frozen_seconds / frozen_groups))); seconds are "
        f"{CLOCKS[clock]}, summed over the steps of the cohort runs of one seed, set-up excluded; the frozen "
        "run of a seed lasts ceil((1 + margin) * its largest groups); a realized match is the longest prefix "
        "of that run whose own steps sum to at most online_seconds"
    )


def loop_seconds(run: Path, clock: Clock) -> list[float]:
    """Seconds of every step of a run, from its timings alone; set-up is in none of them.

    Raises ContractError where the timings lack those of the clock.
    """
    file = run / TIMINGS
    steps = read_records(file, StepTiming)
    seconds = [step.seconds["total"] if clock == "wall" else step.processor_seconds for step in steps]
    known = [second for second in seconds if second is not None]
    if len(known) < len(seconds):
        raise ContractError(
            f"{file} has no processor seconds: an earlier version wrote it, or the kernel lists no child "
            'processes; set anchor.clock = "wall" in the profile'
        )
    return known


@dataclass(frozen=True)
class FrozenSeconds:
    """Seconds of a Frozen run's steps that compare with an online run's; None where there are none.

    ``scale`` is what its own were multiplied by; ``remark`` says why, and is empty where they are its own.
    """

    seconds: Sequence[float] | None
    scale: float = 1.0
    remark: str = ""


def seconds_beside(online: Path, frozen: Path, clock: Clock) -> FrozenSeconds:
    """The seconds that a Frozen run's steps would have taken where the online run was recorded (D63).

    Its own do where both have one processor, one card and one version of the source. Else the shorter Frozen
    run of the same name beside the online run is the measure: its own seconds stand for the groups that both
    did, the others are scaled as those were. Raises ContractError as ``loop_seconds`` does.
    """
    own = loop_seconds(frozen, clock)
    here, there = finished_manifest(online), finished_manifest(frozen)
    if here is None or there is None or recorder(here) == recorder(there):
        return FrozenSeconds(seconds=own)
    machines = dict.fromkeys(
        " with ".join(filter(None, recorder(manifest)[:2])) for manifest in (here, there)
    )
    sources = " and ".join(machines) if len(machines) > 1 else "two versions of the source"
    why, shared = f"{sources} took the times, which do not compare", online.parent / frozen.name
    measure = finished_manifest(shared)
    if measure is None or recorder(measure) != recorder(here) or not _begins_with(frozen, shared):
        return FrozenSeconds(seconds=None, remark=why)
    first = loop_seconds(shared, clock)
    taken = sum(own[: len(first)])
    if not taken:
        return FrozenSeconds(seconds=None, remark=f"{why}, and {frozen.name} has none")
    scale = sum(first) / taken
    return FrozenSeconds(
        seconds=[*first, *(scale * second for second in own[len(first) :])],
        scale=scale,
        remark=f"{why}: the longer frozen run's are scaled by the groups that the cohort's did too (D63)",
    )


def recorder(manifest: Manifest) -> tuple[str, str, str]:
    """What a run's speed depends on: processor, card and source."""
    environment = manifest.environment
    card = environment.accelerator
    name = card.kind if isinstance(card, Accelerator) else ""
    return environment.cpu, name, manifest.source.sha256


def _begins_with(long: Path, short: Path) -> bool:
    """Whether a run's first groups are those of a shorter one."""
    lines = read_lines(long / STEPS)
    return all(line == next(lines, b"") for line in read_lines(short / STEPS))


def budget(seed: int, condition: str, online: Sequence[float], frozen: Sequence[float]) -> AnchorBudget:
    """How many Frozen groups the time of a trained run buys, never fewer than it had itself."""
    bought = math.floor(sum(online) / (sum(frozen) / len(frozen)))
    return AnchorBudget(
        seed=seed,
        condition=condition,
        online_groups=len(online),
        online_seconds=sum(online),
        frozen_groups=len(frozen),
        frozen_seconds=sum(frozen),
        groups=max(len(online), bought),
    )


def run_groups(budgets: Sequence[AnchorBudget], margin: float) -> dict[str, int]:
    """The groups of the frozen run of every seed: its largest budget and the margin, rounded up."""
    longest: dict[int, int] = {}
    for planned in budgets:
        longest[planned.seed] = max(planned.groups, longest.get(planned.seed, 0))
    return {str(seed): math.ceil((1 + margin) * groups) for seed, groups in longest.items()}


def write_contract(directory: Path, contract: AnchorContract) -> None:
    """Write the contract in canonical form and its SHA-256 (GNU form); the sum comes last."""
    directory.mkdir(parents=True, exist_ok=True)
    text = canonical_json(contract) + b"\n"
    write_atomically(directory / CONTRACT, text)
    write_atomically(directory / CONTRACT_SUM, _sum_line(text))


def read_contract(directory: Path) -> AnchorContract:
    """The contract of an anchor directory; raises ContractError when it is missing, altered or unreadable."""
    try:
        text, line = read_regular(directory / CONTRACT), read_regular(directory / CONTRACT_SUM)
    except FileNotFoundError as error:
        raise ContractError(
            f"{directory} has no anchor contract: run 's2s run --layer anchor' before the cohort "
            "is evaluated, because budgets have to be fixed before any endpoint is computed"
        ) from error
    if line != _sum_line(text):
        raise ContractError(
            f"{directory / CONTRACT} is not what {CONTRACT_SUM} says: one of them was changed later; "
            "restore both files"
        )
    try:
        return msgspec.json.decode(text, type=AnchorContract)
    except UNREADABLE as error:
        raise ContractError(f"cannot read {directory / CONTRACT}: {error}; restore the file") from error


def prefix(groups: Sequence[Item], count: int) -> Sequence[Item]:
    """The first ``count`` stored groups exactly; raises RecordError when fewer are stored."""
    if len(groups) < count:
        raise RecordError(f"{count} groups are needed, but only {len(groups)} are recorded")
    return groups[:count]


def realized_groups(seconds: Sequence[float], budget_s: float) -> int:
    """How many first steps fit into a time: the longest prefix whose sum is at most ``budget_s``."""
    return int(np.searchsorted(np.cumsum(seconds), budget_s, side="right"))


def _sum_line(text: bytes) -> bytes:
    return f"{hashlib.sha256(text).hexdigest()}  {CONTRACT}\n".encode()
