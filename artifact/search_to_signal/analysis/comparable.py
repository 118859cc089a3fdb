"""Which runs may be compared: of one seed, one protocol and one horizon (paper, equal-horizon effects).

Every difference in a table and every pair in a figure comes through here.
"""

from collections.abc import Iterable, Sequence

from search_to_signal.analysis.protocols import SHARED, protocol
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import NoTableError
from search_to_signal.errors import RunDirectoryError


def require_comparable(
    first: RecordedRun, second: RecordedRun, contract: tuple[int, int] | None = None
) -> None:
    """Refuse two runs whose difference would mean something else than their conditions.

    Horizons are equal, or in groups those that a ``contract`` fixed before any result.
    Raises RunDirectoryError where problem, model, search, source or seed differ, NoTableError where horizons
    do: such runs are whole, and still tell about themselves.
    """
    one, other = protocol(first.manifest), protocol(second.manifest)
    keys = (*SHARED, "source", "model files")
    different = [key for key in keys if one.get(key) != other.get(key)]
    if different or first.seed != second.seed:
        what = ", ".join(different or ["seed"])
        raise RunDirectoryError(f"{first.path} and {second.path} differ in {what}: they are not matched")
    found = (len(first.groups), len(second.groups))
    if found != (contract or found[:1] * 2):
        raise NoTableError(
            f"{first.path} has {groups_of([first])} and {second.path} {groups_of([second])}: "
            "runs of unequal horizons are not compared"
        )


def at_one_horizon(runs: Sequence[RecordedRun]) -> tuple[RecordedRun, ...]:
    """Runs of several layers as they may be compared; smoke runs are cut to the shortest.

    Raises NoTableError for formal runs of unequal horizons.
    """
    lengths = {len(run.groups) for run in runs}
    if len(lengths) < 2:
        return tuple(runs)
    if any(run.config["purpose"] != "smoke" for run in runs):
        raise NoTableError(f"runs of {groups_of(runs)} are not compared: give them one horizon")
    return tuple(run.first(min(lengths)) for run in runs)


def groups_of(runs: Iterable[RecordedRun]) -> str:
    """The horizon of some runs in words, from the shortest to the longest where they differ."""
    return in_groups(len(run.groups) for run in runs)


def in_groups(lengths: Iterable[int]) -> str:
    """Numbers of groups in words."""
    found = sorted(set(lengths))
    return f"{found[0]} groups" if len(found) == 1 else f"{found[0]} to {found[-1]} groups"
