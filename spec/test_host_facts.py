"""What artifact/calm/HOST.md adds to the paper's rules, as properties."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.base.numerics import read_by_rows
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.ant_colony.colonies import best_prize
from search_to_signal.problems.base import InfeasibleAnswerError
from search_to_signal.problems.obp import gap_score
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import Run, merge_shards
from search_to_signal.sandbox.programs import OPENING, idea_span
from search_to_signal.search.hosts.calm.host import diversity_order
from search_to_signal.search.hosts.calm.prompts import CROSSOVER, SIMPLIFICATION, build_prompt
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import component, state_of, transition
from search_to_signal.search.member import Evaluated, Member
from spec.in_process import evaluate_in_process

COUNTER = (
    "calls = []\ndef f(here, destination, unvisited, distance, *, kept=[]):\n"
    "    calls.append(0); kept.append(0); f.n = getattr(f, 'n', 0) + 1\n"
    "    return sorted(unvisited)[(len(calls) + len(kept) + f.n) // 20 % 2 - 1]"
)
plain_text = st.text(st.sampled_from("ab{}`\n.5[]"), max_size=12)
phrases = st.text(st.sampled_from("aZ()'- "), min_size=1, max_size=8).filter(str.strip)


def member(score: float) -> Member:
    """A member with this score."""
    return Member("", "", score, CROSSOVER, step=0, index=0, id="")


@given(before=plain_text, phrase=phrases, after=plain_text, odd=st.sampled_from("[]5_.\n"))
def test_component(before: str, phrase: str, after: str, odd: str) -> None:
    """R-HOST-12: A component is read anywhere in a response, of letters and round brackets (D31)."""
    told = "{}The new component {} has been introduced{}"
    assert component(told.format(before, phrase, after)) == phrase.strip()
    assert component(told.format(before, f"{phrase}{odd}{phrase}", after)) is None


@given(best=st.floats(-1e6, -1e-6), hair=st.floats(0, 1e-7, exclude_max=True), full=st.booleans())
def test_reset(best: float, hair: float, full: bool) -> None:
    """R-HOST-13: Any valid child above the best resets the stagnation counter, admitted or not."""
    state = replace(state_of([member(best), member(best - 1)], []), stagnation=7)
    child = Evaluated(Outcome.VALID, score=best + hair)
    settings = SearchSettings(population_size=2 if full else 3)
    after, _ = transition(state, [child], operator=CROSSOVER, step=1, settings=settings)
    assert after.stagnation == (0 if best + hair > best else 7 + full)


@given(idea=st.text(st.sampled_from("ab` \n"), min_size=11, max_size=20), rest=plain_text)
def test_fallback(idea: str, rest: str) -> None:
    """R-HOST-14: Without braces an idea ends at a fence that begins a line, or at the end, stripped (D37)."""
    rest = rest.replace("{", "").replace("}", "")
    text = f"{OPENING} go to the nearest{idea}\n```python\nx\n```\n{rest}"
    lines = text.split("\n")
    fence = next(number for number, line in enumerate(lines) if line.startswith("```"))
    found = idea_span(text)
    assert found is not None
    assert text[slice(*found)].strip() == "\n".join(lines[:fence]).strip()


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=40))
def test_ties(distances: list[float]) -> None:
    """R-HOST-15: Of equally distant ideas that of the better listed member ranks first (D32)."""
    order = diversity_order(np.array(distances)).tolist()
    assert order == sorted(range(len(distances)), key=lambda position: (-distances[position], position))


@given(st.integers(1, 10_000))
def test_threshold(groups: int) -> None:
    """R-HOST-16: A threshold of -1 is a twentieth of the groups, rounded down (D35)."""
    threshold = SearchSettings(collapse_threshold=-1).over(groups).collapse_threshold
    assert 20 * threshold <= groups < 20 * (threshold + 1)


@given(st.permutations(range(4)))
def test_state(order: list[int]) -> None:
    """R-HOST-17: The score on an instance does not depend on the instances before it (D34)."""
    instances = PROBLEMS["tsp"].instances("embedded")[:4]
    alone = [evaluate_in_process(PROBLEMS["tsp"], COUNTER, [instance])[0] for instance in instances]
    together = evaluate_in_process(PROBLEMS["tsp"], COUNTER, [instances[i] for i in order])
    assert together == [alone[i] for i in order]


@given(rows=st.integers(1, 6), more=st.integers(0, 3), columns=st.integers(1, 6))
def test_shapes(rows: int, more: int, columns: int) -> None:
    """R-HOST-18: One column stands for all and rows too many are cut, where rows are taken by index."""
    shape, rng = (rows, columns), np.random.default_rng(rows)
    wide, narrow = rng.random((rows + more, columns)), rng.random((rows + more, 1))
    np.testing.assert_array_equal(read_by_rows(wide, shape), wide[:rows])
    np.testing.assert_array_equal(read_by_rows(narrow, shape), np.repeat(narrow[:rows], columns, axis=1))
    assert read_by_rows(wide[: rows - 1], shape).shape == (rows - 1, columns)


@given(st.integers(1, 10_000))
def test_lower_bound(bins: int) -> None:
    """R-HOST-19: A packing at the lower bound scores -0.0, and any other below it."""
    assert math.copysign(1.0, gap_score(bins, bins)) == -1.0
    assert gap_score(bins + 1, bins) < 0.0


@pytest.mark.parametrize("row", [0, 1, 2, 3])
def test_row_without_weight(row: int) -> None:
    """R-HOST-20: An orienteering ant that could go on but finds no positive weight is a failure."""
    distance = 1.0 - np.eye(4)
    matrix = np.ones((4, 4))
    assert best_prize(np.ones(4), distance, 9.0, matrix, 20, 1) == 4.0
    matrix[row] = np.nan
    with pytest.raises(InfeasibleAnswerError):
        best_prize(np.ones(4), distance, 9.0, matrix, 20, 1)


@given(st.integers(-99_999, 99_999))
def test_performance(thousandths: int) -> None:
    """R-HOST-21: The released form shows performance cut to three decimals and not padded (D36)."""
    shown = member(thousandths / 1000 + math.copysign(0.0004, thousandths))
    prompt = build_prompt(PROBLEMS["tsp"], SIMPLIFICATION, [shown], form="released").user
    assert prompt.splitlines()[1] == f"Algorithm 1, {abs(thousandths) / 1000} tour length, rank 1"


@given(count=st.integers(1, 20), slots=st.integers(1, 5))
def test_clock(count: int, slots: int) -> None:
    """R-HOST-22: By elapsed time the shares of the slots are one run, instances in order (D33)."""
    shares = [range(count)[start::slots] for start in range(min(slots, count))]
    runs = [Run(Isolation.OK, "", tuple(map(float, s)), tuple(map(str, s)), 1.0, 1.0) for s in shares]
    whole = merge_shards(runs)
    assert whole.scores == tuple(map(float, range(count)))
    assert (whole.cpu_s, whole.wall_s) == (float(len(shares)), 1.0)
