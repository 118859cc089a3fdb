"""Whether a published percentage can come from whole counts (the GRIM test, Brown and Heathers 2017)."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod

from search_to_signal.claims.intervals import Interval, truth
from search_to_signal.errors import LedgerError

_MOST_TRIED = 100_000


def is_share(percent: Interval, total: Interval) -> Interval:
    """Return whether k / n gives this percentage for a whole n in ``total`` and a whole 0 <= k <= n."""
    return _possible(Interval(max(percent.lo, Fraction(0)), min(percent.hi, Fraction(100))), total)


def is_share_change(points: Interval, total: Interval) -> Interval:
    """Return whether two shares of one whole n in ``total`` can differ by this, so -n <= k <= n."""
    return _possible(Interval(max(points.lo, Fraction(-100)), min(points.hi, Fraction(100))), total)


def is_mean_share(percent: Interval, totals: Sequence[Interval]) -> Interval:
    """Return whether this percentage can be the mean of shares, one whole count of each total."""
    sizes = sorted(_whole(total) for total in totals)
    if not sizes or prod(size + 1 for size in sizes[:-1]) > _MOST_TRIED:
        raise LedgerError(f"is_mean_share is given totals of {sizes}: give small counts")
    *tried, largest = sizes
    sums = (
        sum((Fraction(100 * k, size) for k, size in zip(counts, tried, strict=True)), Fraction(0))
        for counts in product(*(range(size + 1) for size in tried))
    )
    whole = Interval(percent.lo * len(sizes), percent.hi * len(sizes))
    possible = any(_within(whole, others, largest) for others in sums)
    return truth(possible, possible)


def _possible(percent: Interval, total: Interval) -> Interval:
    totals = range(ceil(total.lo), floor(total.hi) + 1)
    if len(totals) > _MOST_TRIED:
        raise LedgerError(f"a share is of a total of {total}: give a count")
    possible = percent.lo <= percent.hi and any(_some_count(percent, Fraction(n, 100)) for n in totals)
    return truth(possible, possible)


def _some_count(percent: Interval, scale: Fraction) -> bool:
    return ceil(percent.lo * scale) <= floor(percent.hi * scale)


def _within(whole: Interval, others: Fraction, total: int) -> bool:
    """Whether a share of ``total`` can be the rest of the whole after the other shares."""
    rest = Interval(max(whole.lo - others, Fraction(0)), min(whole.hi - others, Fraction(100)))
    return rest.lo <= rest.hi and _some_count(rest, Fraction(total, 100))


def _whole(total: Interval) -> int:
    if ceil(total.lo) != floor(total.hi) or total.lo <= 0:
        raise LedgerError(f"a total of {total} is no single count: give totals that are")
    return ceil(total.lo)
