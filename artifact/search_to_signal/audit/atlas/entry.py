"""What the atlas says of a normalizer, as data: ``entries.toml`` decoded strictly; and as a table."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import load_toml

ENTRIES = Path(__file__).parent / "entries.toml"

Property = Literal["order", "negative_mean", "offset", "scale", "ties", "tiny_spread"]
Aggregation = Literal[
    "token_mean",
    "token_sum",
    "sequence_mean",
    "sequence_sum",
    "constant_length",
    "constant_length_sum",
    "prompt_mean",
    "rollout_mean",
    "backend",
    "unread",
]


class NormalizerSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a framework was read. ``read`` is the day; empty when nobody could read it."""

    framework: str
    version: str
    repository: str
    commit: str = ""
    date: str = ""
    read: str = ""


class DeviationScale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A division by a deviation.

    ``over``: whose deviation. ``at``: where epsilon stands: added to the deviation, added to the variance, or
    the least variance. ``zero``: whether a deviation of 0 divides too. ``measured``: of which squares the
    variance is made, which shows where rewards are close to each other and far from 0:

    centred            those of the centred values, in the precision of the framework
    exact              in float64 around the exact mean, as torch.std of several rows
    rounded mean       in float64 around the mean as it was rounded, as torch.std of one row
    one row rounded    ``rounded mean`` where the batch is one group, else ``exact``: torch.std over dim 1
    mean of squares    E[x^2] - E[x]^2
    sum of squares     (sum x^2 - (sum x)^2 / n) / (n - 1)

    Of a whitening, ``shift`` takes the mean off, and ``more`` is added to the number of tokens.
    """

    deviation: Literal["sample", "population"]
    over: Literal["group", "batch", "sequences", "tokens"] = "group"
    epsilon: float = 0.0
    at: Literal["deviation", "variance", "least variance", "least variance and deviation", "none"] = (
        "deviation"
    )
    zero: Literal["divided", "unscaled"] = "divided"
    measured: Literal[
        "centred", "exact", "rounded mean", "one row rounded", "mean of squares", "sum of squares"
    ] = "centred"
    shift: bool = True
    more: float = 0.0


class NormalizerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One normalizer of one framework at one commit.

    First stage: the baseline is taken off and ``scale`` divides, or ``formula`` names a function of
    formulas.py with its ``options``. ``whiten`` then centres and scales over the batch. ``aggregation`` is
    the framework's usual second stage, from advantages to weights of tokens; ``aggregations`` are its others.
    ``leaving``: how a member is left out of the baseline ``others``. ``sums``: the order in which rewards
    of a group are added (``batch.SUMS``).
    ``singleton``, ``flat``, ``nan``, ``uneven``: what such groups get before any whitening. ``breaks``: the
    properties that do not hold.
    """

    name: str
    algorithm: str
    source: str
    path: str
    function: str
    singleton: Literal["zero", "reward", "reward / epsilon", "nan", "refused", "own formula"]
    nan: Literal["row", "group", "batch", "ignored", "as zero", "refused"]
    aggregation: Aggregation
    flat: Literal["zero", "rounding", "reward"] = "rounding"
    uneven: Literal["by group", "whole batch", "refused"] = "by group"
    scope: Literal["group", "batch"] = "group"
    dtype: Literal["float32", "float64"] = "float32"
    order: str = "mean, centre, deviation, divide"
    baseline: Literal["mean", "others", "lengths", "none"] = "mean"
    leaving: Literal["centred", "subtracted", "both scaled", "multiplied"] = "centred"
    sums: Literal["blocked", "in turn", "pairwise"] = "blocked"
    scale: DeviationScale | None = None
    whiten: DeviationScale | None = None
    formula: str = ""
    options: Mapping[str, float] = {}
    components: bool = False
    domain: Literal["real", "binary"] = "real"
    aggregations: tuple[Aggregation, ...] = ()
    also: tuple[str, ...] = ()
    breaks: tuple[Property, ...] = ()
    note: str = ""

    @property
    def deviation(self) -> str:
        """The deviation that the first stage divides by, in a word."""
        if self.formula:
            return _STEPS.get(self.formula, ("none", ""))[0]
        return self.scale.deviation if self.scale else "none"

    @property
    def epsilon(self) -> float:
        """The stabilizer of the first stage, else of the second; 0 where there is none."""
        if self.formula:
            return self.options.get("epsilon", 0.0)
        stage = self.scale or self.whiten
        return 0.0 if stage is None else stage.epsilon

    @property
    def epsilon_at(self) -> str:
        """Where the stabilizer stands."""
        if not self.epsilon:
            return "none"
        if self.formula:
            return _STEPS[self.formula][1]
        stage = self.scale or self.whiten
        return "none" if stage is None else stage.at


# Of a formula: the deviation in it, and what its epsilon is added to.
_STEPS = {
    "maxrl": ("none", "mean"),
    "gpg": ("none", "none"),
    "leave_one_out": ("leave-one-out", "deviation"),
    "best_of_group": ("sample", "deviation"),
    "passk_training": ("binomial", "deviation"),
    "entropic": ("none", "mean of the others"),
    "rvar": ("sample", "deviation and quantile distance"),
    "normalizer.group": ("sample", "deviation"),
    "normalizer.trl_float32": ("sample", "deviation"),
    "normalizer.batch": ("sample", "deviation"),
    "normalizer.rank": ("sample", "deviation"),
    "normalizer.gdpo": ("sample", "deviation"),
    "normalizer.entropic": ("none", "mean of the others"),
}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, NormalizerSource]
    entry: list[dict[str, Any]]


@cache
def _file() -> _File:
    return load_toml(ENTRIES, _File)


def sources() -> Mapping[str, NormalizerSource]:
    """Every source by its key, those that nobody could read included."""
    return _file().sources


@cache
def entries() -> Mapping[str, NormalizerEntry]:
    """Every entry that has a formula, by name, in the order of the file."""
    converted: dict[str, NormalizerEntry] = {}
    raw: dict[str, dict[str, Any]] = {}
    for table in _file().entry:
        whole = _whole(table, raw)
        raw[whole["name"]] = whole
        try:
            entry = msgspec.convert(whole, NormalizerEntry)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{ENTRIES.name}: entry {whole['name']}: {error}; correct that key") from error
        if entry.source not in sources():
            raise ConfigError(
                f"{ENTRIES.name}: entry {entry.name} is of no known source: add {entry.source!r}"
            )
        converted[entry.name] = entry
    return converted


def _whole(table: dict[str, Any], before: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """An entry that is ``like`` one before it states what differs, and what it is ``without``."""
    own = {key: value for key, value in table.items() if key not in ("like", "without")}
    if "like" not in table:
        return own
    if table["like"] not in before:
        raise ConfigError(
            f"{ENTRIES.name}: {table.get('name')} is like {table['like']!r}: write that one first"
        )
    model = before[table["like"]]
    return {**{key: value for key, value in model.items() if key not in table.get("without", ())}, **own}


def source_of(entry: NormalizerEntry) -> NormalizerSource:
    """Where an entry was read."""
    return sources()[entry.source]


def get_entry(name: str) -> NormalizerEntry:
    """Return an entry by name; raises ConfigError with the known names."""
    if name not in entries():
        raise ConfigError(f"the atlas has no normalizer {name!r}: use one of {', '.join(entries())}")
    return entries()[name]


def row(entry: NormalizerEntry) -> dict[str, str]:
    """The cells of an entry in the plain table."""
    source = source_of(entry)
    place = f"{source.repository}@{source.commit[:12]}" if source.commit else source.repository
    # Both stages of an entry that whitens are named, and whose deviation it is where it is not the group's.
    over = f" of {entry.scale.over}" if entry.scale and entry.scale.over != "group" else ""
    second = f", {entry.whiten.deviation} of {entry.whiten.over}" if entry.whiten else ""
    at = f" at {entry.epsilon_at}" if entry.epsilon else ""
    return {
        "name": entry.name,
        "framework": source.framework,
        "version": source.version,
        "deviation": f"{entry.deviation}{over}{second}",
        "epsilon": f"{entry.epsilon:g}{at}",
        "singleton": entry.singleton,
        "flat": entry.flat,
        "aggregation": entry.aggregation,
        "source": f"{place}:{entry.path}" if entry.path else place,
    }


def table(chosen: Iterable[NormalizerEntry]) -> str:
    """Entries, one or more, as aligned plain text, and beneath it the sources that nobody could read."""
    rows = [row(entry) for entry in chosen]
    cells = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    unread = [source.framework for source in sources().values() if source.repository == "unread"]
    return "\n".join([*lines, "", f"Not read in a source: {', '.join(unread)}."])


def document(chosen: Iterable[NormalizerEntry]) -> list[Mapping[str, Any]]:
    """Entries with everything that the atlas says of them, their source included, for JSON."""
    return [
        {
            **msgspec.to_builtins(entry),
            "deviation": entry.deviation,
            "epsilon": entry.epsilon,
            "epsilon_at": entry.epsilon_at,
            "source": msgspec.to_builtins(source_of(entry)),
        }
        for entry in chosen
    ]


def chosen(name: str | None) -> list[NormalizerEntry]:
    """The entries whose name or framework begins with ``name``, without regard to case; all without one."""
    wanted = (name or "").lower()
    return [
        entry
        for entry in entries().values()
        if entry.name.lower().startswith(wanted) or source_of(entry).framework.lower().startswith(wanted)
    ]
