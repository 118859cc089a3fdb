"""What an optimizer step has to learn from, as numbers for a trainer's own log; and the step as a log.

>>> from search_to_signal.audit import live
>>> live.numbers(rewards=[0, 1, 1, 1], groups=[7, 7, 8, 8], advantages=[-1, 1, 0, 0])["signal/dead_share"]
0.5

One line in a trainer that holds the rewards and advantages of a batch is enough: the hooks in docs/examples
show where it goes in verl, OpenRLHF, slime, NeMo-RL and SkyRL. Arrays, lists and tensors are all taken.
``Following`` gives each step of a log that is still being written in one line as it comes.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.audit.agreement import apply, step_batches
from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.groups import (
    UNKNOWN,
    Floats,
    RewardGroups,
    numbered,
    of_arrays,
    part,
    spans,
    whole_steps,
)
from search_to_signal.audit.importers import USUAL, find, read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.signal import SignalSums, logged, signal
from search_to_signal.base.errors import ConfigError, IllFormedGroupError, RecordError
from search_to_signal.records.files import storage_errors, write_atomically

PREFIX = "signal/"
DEAD, NAN, BATCH, GAIN, SHARE = (
    f"{PREFIX}{name}" for name in ("dead_share", "nan_share", "effective_batch", "largest_gain", "share/")
)

# What the greatest and the least reward are, one batch does not say.
_OF_A_RUN = ("all_right_share", "all_wrong_share")
_KNOWN = frozenset(f"{PREFIX}{name}" for name in logged(SignalSums()) if name not in _OF_A_RUN)


def numbers(
    rewards: Any,
    groups: Any,
    advantages: Any = None,
    *,
    mask: Any = None,
    components: Mapping[str, Any] | None = None,
    weights: Mapping[str, float] | None = None,
    normalizer: str = "group",
) -> dict[str, float]:
    """The numbers of one batch, for ``metrics.update(...)``.

    rewards (n,), or (n, tokens), which are added. groups (n,): equal for the completions of one group,
    wherever they stand. advantages (n,), or (n, tokens) with ``mask`` (n, tokens), whose mean over the tokens
    of the mask counts; without them those of ``normalizer``, an entry of the atlas, are taken.
    components: name: (n,), parts of the reward before their ``weights`` (1).

    Returned, by names that begin with ``signal/``: dead_share (groups that teach nothing), nan_share
    (completions whose advantage is NaN or infinite), effective_batch (completions with an advantage other
    than 0 and a trained token; 0 where an advantage is NaN, since the loss is NaN then), largest_gain
    (advantage per reward within a group), largest_advantage, and share/NAME, each component's share of the
    variance of the advantages, negative for one that works against the rest. A completion without a token in
    its ``mask`` does not enter the loss. Raises IllFormedGroupError for columns that do not fit.
    """
    batch = grouped(rewards, groups, advantages, mask=mask, components=components, weights=weights)
    return _numbers_of(batch, None if advantages is not None else normalizer)


def _numbers_of(groups: RewardGroups, normalizer: str | None) -> dict[str, float]:
    """As ``numbers``: under the logged advantages without a normalizer."""
    given = groups.advantage if normalizer is None else apply(get_entry(normalizer), step_batches(groups))
    named = logged(signal(groups, given))
    return {f"{PREFIX}{name}": value for name, value in named.items() if name not in _OF_A_RUN}


def grouped(
    rewards: Any,
    groups: Any,
    advantages: Any = None,
    *,
    mask: Any = None,
    components: Mapping[str, Any] | None = None,
    weights: Mapping[str, float] | None = None,
) -> RewardGroups:
    """The batch as ``audit.audit`` takes it; arguments and errors as in ``numbers``."""
    reward = _of_sequences(rewards)
    parts = {name: _of_sequences(part) for name, part in (components or {}).items()}
    places, names = numbered(_listed(groups))
    trained = None if mask is None else np.array(_listed(mask), dtype=np.float64) > 0
    tokens = np.full(len(reward), UNKNOWN) if trained is None else trained.sum(axis=1)
    advantage: Floats = np.full(len(reward), np.nan) if advantages is None else of_tokens(advantages, mask)
    columns = [reward, advantage, tokens, *parts.values()]
    if not len(places) or any(len(column) != len(places) for column in columns):
        raise IllFormedGroupError(
            "columns are empty or differ in length: give one value of each per completion"
        )
    order = np.argsort(places, kind="stable")
    return of_arrays(
        reward[order],
        np.bincount(places),
        source="live",
        components={name: part[order] for name, part in parts.items()},
        weights=weights,
        step=np.zeros(len(names)),
        position=order,
        advantage=advantage[order],
        has_advantage=np.full(len(order), advantages is not None),
        tokens=tokens[order],
    )


def _listed(values: Any) -> list[Any]:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _of_sequences(values: Any) -> Floats:
    """(n,), where tokens are added: a token-level reward is 0 but at its end."""
    array = np.array(_listed(values), dtype=np.float64)
    return array.sum(axis=1) if array.ndim == 2 else array


def of_tokens(values: Any, mask: Any) -> Floats:
    """(n,): the advantage of a sequence, the mean over the tokens of its mask; 0 without any."""
    array = np.array(_listed(values), dtype=np.float64)
    if array.ndim < 2:
        return array
    if mask is None:
        raise IllFormedGroupError("advantages are per token: also give their mask")
    trained = np.array(_listed(mask), dtype=np.float64) > 0
    count = trained.sum(axis=1)
    total = np.where(trained, array, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.zeros(len(array)), where=count > 0)


def numbers_of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers of rows of the neutral form, which are one batch; components where there are several."""
    weights = dict(rows[0].get("weights") or {})
    parts = {name: [row["components"][name] for row in rows] for name in weights}
    known = any(row["advantage"] is not None for row in rows)
    return numbers(
        [row["reward"] for row in rows],
        [row["group"] for row in rows],
        [row["advantage"] for row in rows] if known else None,
        mask=[[row.get("tokens", UNKNOWN) != 0] for row in rows],
        components=parts if len(parts) > 1 else None,
        weights=weights if len(parts) > 1 else None,
    )


def exceeded(measured: Mapping[str, float], limits: Mapping[str, float]) -> dict[str, str]:
    """A sentence for each number over its limit, by its name, which may lack ``signal/``.

    Raises ConfigError for a limit on what is no number of these.
    """
    over = {}
    for name, limit in limits.items():
        full = name if name.startswith(PREFIX) else f"{PREFIX}{name}"
        if full not in _KNOWN and not full.startswith(SHARE):
            raise ConfigError(
                f"{name} cannot be limited: limit dead_share, nan_share, largest_gain or share/NAME"
            )
        value = measured.get(full, math.nan)
        if value > limit:
            over[full] = f"{full} is {value:.4g}, over {limit:g}"
    return over


def write(
    directory: str | Path, step: int, rewards: Any, groups: Any, advantages: Any = None, **more: Any
) -> Path:
    """Write a batch into a directory that ``s2s audit`` reads, as one whole file; returns the file.

    A second batch of a step is a second file. Arguments and errors as in ``grouped``; RunDirectoryError
    where the disk is full.
    """
    batch = grouped(rewards, groups, advantages, **more)
    names = _listed(groups)
    place = Path(directory)
    with storage_errors(place, "go on from the last checkpoint"):
        place.mkdir(parents=True, exist_ok=True)
        number = len(list(place.glob(f"rollouts_{step:08d}_*.jsonl")))
        rows = (
            {
                "group": name if isinstance(name := names[position], int) else str(name),
                "step": step,
                "reward": number_or_none(batch.reward[at]),
                "advantage": float(batch.advantage[at]) if batch.has_advantage[at] else None,
                **({} if batch.tokens[at] == UNKNOWN else {"tokens": int(batch.tokens[at])}),
                "components": {part: number_or_none(column[at]) for part, column in batch.components.items()},
                "weights": dict(batch.weights),
            }
            for at, position in enumerate(batch.position.tolist())
        )
        return write_rows(place, step, number, rows)


def write_rows(directory: Path, step: int, number: int, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write the rows of one batch, the ``number``-th of its step, as one whole file; returns the file."""
    path = directory / f"rollouts_{step:08d}_{number:04d}.jsonl"
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return path


def number_or_none(value: float) -> float | None:
    """A reward as JSON: None where no function gave one; an infinity is kept, as Python writes it."""
    return None if math.isnan(value) else float(value)


# Size and time of last change of a file.
Stamp = tuple[int, int]


@dataclass
class Following:
    """A file or directory that grows, and which of its steps were printed.

    A file is read once it has not changed between two looks, so that none is met half-written; one that still
    cannot be read then is reported and left until it changes.
    """

    path: Path
    format: str | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    normalizer: str | None = None
    _seen: dict[Path, Stamp] = field(default_factory=dict)
    _read: dict[Path, Stamp] = field(default_factory=dict)
    # Rows of each step of a file that were printed, and of each time that a resumed run sampled it.
    _printed: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _complaint: str = ""

    def look(self) -> list[str]:
        """A line for each step that is new or has grown since the last look, in order."""
        try:
            log_format, files = find(self.path, self.format, self.options.columns)
        except RecordError as error:
            # Nothing is there yet, nothing whole, or nothing known: reported once.
            before, self._complaint = self._complaint, str(error)
            return [] if before == self._complaint else [f"not read yet: {error}"]
        lines: list[str] = []
        for file in files:
            try:
                status = file.stat()
            except OSError:
                # Gone since it was found.
                continue
            stamp = status.st_size, status.st_mtime_ns
            settled = self._seen.get(file) == stamp
            self._seen[file] = stamp
            if settled and self._read.get(file) != stamp:
                self._read[file] = stamp
                lines.extend(self._lines(file, log_format.name))
        return lines

    def _lines(self, file: Path, format: str) -> Iterator[str]:
        name = self.normalizer or USUAL.get(format, "group")
        try:
            for batch in whole_steps(read(file, format, self.options)):
                for first, end in spans(batch):
                    step = part(batch, first, end)
                    sampling = 0 if step.sampling is None else int(step.sampling[0])
                    key = (step.source, int(step.step[0]), sampling)
                    if self._printed.get(key) != len(step.reward):
                        self._printed[key] = len(step.reward)
                        yield _line_of(step, name)
        except RecordError as error:
            yield f"not read yet: {error}"


def _line_of(step: RewardGroups, normalizer: str) -> str:
    found = _numbers_of(step, None if step.has_advantage.any() else normalizer)
    shares = [
        f"{name.removeprefix(SHARE)} {share:.0%}"
        for name, share in found.items()
        if name.startswith(SHARE) and len(step.weights) > 1
    ]
    nan = f", {found[NAN]:.1%} of advantages NaN" if found[NAN] else ""
    return (
        f"step {int(step.step[0])}: {len(step.step)} groups, {len(step.reward)} completions, "
        f"{found[DEAD]:.1%} of groups dead{nan}, effective batch {found[BATCH]:.0f}, "
        f"largest gain {found[GAIN]:.4g}{'; ' if shares else ''}{', '.join(shares)}"
    )
