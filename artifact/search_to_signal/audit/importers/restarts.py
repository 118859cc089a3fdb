"""Where a run that was resumed into its own log samples steps again, by the order of what it wrote.

Its steps fall back, and the groups or the number of rows of the step that comes again are those of a whole
step. Writers in turn fall back as well, and write what others left out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median

from search_to_signal.audit.groups import UNKNOWN

# Rows of each group of a step.
_Rows = Counter[int]


def restarts_of(groups: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """The runs of rows, by number, that sample a step again, with that step; given is group, step and size.

    A step that comes again is sampled again where most groups that it had come whole, or where it would have
    half as many rows again as a step has.
    """
    usual, step_rows = _usual(groups, sizes), _step_rows(steps, sizes)
    in_turn = sum(after < before for before, after in _pairs(steps)) > len(set(steps))
    found: dict[int, int] = {}
    held: dict[int, _Rows] = {}
    last = UNKNOWN
    for step, numbers in _of_steps(steps):
        if step < last and step in held and not in_turn:
            rows = Counter[int]()
            for number in numbers:
                rows[groups[number]] += sizes[number]
            if _is_again(held[step], rows, usual, step_rows):
                found[numbers[0]] = step
                held = {earlier: had for earlier, had in held.items() if earlier < step}
        last = step if step != UNKNOWN else last
        for number in numbers:
            if sizes[number] == usual and groups[number] in held.get(step, ()):
                found[number] = step
                held.pop(step)
            held.setdefault(step, Counter())[groups[number]] += sizes[number]
    return found


def _is_again(before: _Rows, rows: _Rows, usual: int | None, step_rows: float | None) -> bool:
    shared = before.keys() & rows.keys()
    whole = [rows[one] == (usual or before[one]) > 1 for one in shared]
    if shared and 2 * sum(whole) >= len(shared):
        return True
    had, has = before.total(), rows.total()
    return step_rows is not None and 2 * has >= had and 2 * (had + has) > 3 * step_rows


def _usual(groups: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The size of most groups whose rows stand together; None where it is 1, or most have another."""
    runs = Counter(groups)
    together = Counter(size for group, size in zip(groups, sizes, strict=True) if runs[group] == 1)
    size, count = max(together.items(), key=lambda item: item[1], default=(1, 0))
    return size if size > 1 and 2 * count >= together.total() else None


def _step_rows(steps: Sequence[int], sizes: Sequence[int]) -> float | None:
    """How many rows a step has whose rows stand together; None where there is no such step."""
    rows: dict[int, list[int]] = {}
    for step, numbers in _of_steps(steps):
        rows.setdefault(step, []).append(sum(sizes[number] for number in numbers))
    together = [counts[0] for step, counts in rows.items() if len(counts) == 1 and step != UNKNOWN]
    return median(together) if together else None


def _of_steps(steps: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Each run of one step, with the numbers of its runs."""
    for step, numbers in groupby(range(len(steps)), key=steps.__getitem__):
        yield step, list(numbers)


def _pairs(steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    known = [step for step, _ in groupby(steps) if step != UNKNOWN]
    return pairwise(known)
