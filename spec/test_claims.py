"""The ledger of published numbers: rounding as intervals, and evidence layers that never mix."""

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from search_to_signal.base.errors import LedgerError
from search_to_signal.claims import intervals
from search_to_signal.claims.directions import Counterpart, Direction, make_estimate
from search_to_signal.claims.expressions import Scope, evaluate, is_mean_share, is_share, is_share_change
from search_to_signal.claims.feasibility import check_feasibility, linear_system
from search_to_signal.claims.intervals import Interval, rounded
from search_to_signal.claims.ledger import Checks, ClaimEntry, ClaimLayer, Ledger, check, load_ledger
from search_to_signal.claims.page import ClaimVerdict, judge_claims
from search_to_signal.claims.tables import ClaimTable
from search_to_signal.records.layers import in_paper_order

LAYERS = tuple(layer.key for layer in in_paper_order() if layer.row)

exact = st.decimals(-1000, 1000, places=6).map(Fraction)
decimals = st.integers(0, 4)
TINY = Fraction(1, 10**15)
OPERATIONS = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}


def mean(values: Sequence[Fraction]) -> Fraction:
    """The mean, exactly."""
    return sum(values, Fraction(0)) / len(values)


def variance(values: Sequence[Fraction]) -> Fraction:
    """The sample variance, exactly."""
    return sum(((value - mean(values)) ** 2 for value in values), Fraction(0)) / (len(values) - 1)


def printed(value: Fraction, places: int) -> str:
    """A number as a paper prints it."""
    return f"{Decimal(round(value * 10**places)).scaleb(-places):f}"


def published(value: Fraction, places: int) -> Interval:
    """What a reader knows of a number that was printed with so many places."""
    return rounded(printed(value, places), Fraction(1, 10**places))


def entry(name: str, layer: str, value: str, **checks: str) -> ClaimEntry:
    """An entry of the running text."""
    return ClaimEntry(
        id=name,
        where="",
        at="1:1",
        quantity="",
        value=value,
        unit="",
        published=rounded(value) if value else None,
        layer=layer,
        checks=Checks(**checks),
    )


def ledger(*entries: ClaimEntry, contrasts: tuple[str, ...] = ()) -> Ledger:
    """A ledger without tables."""
    layers = {name: ClaimLayer(contrasts=contrasts) for name in (*LAYERS, "protocol")}
    return Ledger(entries, layers, {})


@given(value=exact, places=decimals)
def test_truth_is_inside(value: Fraction, places: int) -> None:
    """R-CLM-01: The interval of a printed number holds the number that was rounded."""
    interval = published(value, places)
    assert interval.lo <= value <= interval.hi
    assert interval.hi - interval.lo == Fraction(1, 10**places)


@given(values=st.tuples(exact, exact, exact), places=decimals, data=st.data())
def test_arithmetic_holds_the_truth(
    values: tuple[Fraction, Fraction, Fraction], places: int, data: st.DataObject
) -> None:
    """R-CLM-02: A formula on intervals holds the value of the formula on the numbers that were rounded."""
    first, second = (data.draw(st.sampled_from(sorted(OPERATIONS))) for _ in range(2))
    a, b, c = values
    truth = OPERATIONS[second](OPERATIONS[first](a, b), c)
    claims = {name: published(value, places) for name, value in zip("abc", values, strict=True)}
    found = evaluate(f"(a {first} b) {second} c", Scope({}, claims)).one()
    assert found.lo <= truth <= found.hi
    if claims["c"].lo > 0 or claims["c"].hi < 0:
        quotient = evaluate("abs(a / c)", Scope({}, claims)).one()
        assert quotient.lo <= abs(a / c) <= quotient.hi


@given(values=st.lists(exact, min_size=2, max_size=5), places=decimals)
def test_deviation_holds_the_truth(values: list[Fraction], places: int) -> None:
    """R-CLM-03: Mean and sample deviation of printed numbers hold those of the numbers that were rounded."""
    boxes = [published(value, places) for value in values]
    assert intervals.mean(boxes).lo <= mean(values) <= intervals.mean(boxes).hi
    deviation = intervals.sd(boxes)
    assert deviation.lo**2 <= variance(values) <= deviation.hi**2


@given(boxes=st.lists(st.tuples(exact, st.fractions(0, 5)), min_size=2, max_size=4))
def test_deviation_is_tight(boxes: list[tuple[Fraction, Fraction]]) -> None:
    """R-CLM-04: No number between the bounds of a deviation could be left out: some choice reaches each."""
    items = [Interval(low, low + width) for low, width in boxes]
    found = intervals.sd(items)
    most = max(variance(corner) for corner in product(*((item.lo, item.hi) for item in items)))
    assert (found.hi - TINY) ** 2 <= most or found.hi <= TINY
    ends = [end for item in items for end in (item.lo, item.hi)]
    step = (max(ends) - min(ends)) / 20
    grid = [min(ends) + k * step for k in range(21)]
    near = min(variance([min(max(c, item.lo), item.hi) for item in items]) for c in grid)
    assert found.lo**2 <= near <= (found.lo + 2 * step + TINY) ** 2


@given(values=st.tuples(exact, exact, exact), places=st.integers(1, 4))
def test_true_tables_are_consistent(values: tuple[Fraction, Fraction, Fraction], places: int) -> None:
    """R-CLM-05: Rows and their mean, rounded from the same numbers, are never called inconsistent."""
    rows = [entry(f"row{i}", "cohort", printed(value, places)) for i, value in enumerate(values)]
    total = entry("total", "cohort", printed(mean(values), places), equals="mean([row0, row1, row2])")
    assert judge_claims(ledger(*rows, total))[-1].verdict is ClaimVerdict.CONSISTENT


@given(values=st.tuples(exact, exact, exact), places=st.integers(1, 4), off=st.integers(3, 50))
def test_a_wrong_mean_is_found(values: tuple[Fraction, Fraction, Fraction], places: int, off: int) -> None:
    """R-CLM-06: A mean that is off by three units or more fits no rounding of its rows."""
    rows = [entry(f"row{i}", "cohort", printed(value, places)) for i, value in enumerate(values)]
    wrong = mean(values) + Fraction(off, 10**places)
    total = entry("total", "cohort", printed(wrong, places), equals="mean([row0, row1, row2])")
    assert judge_claims(ledger(*rows, total))[-1].verdict is ClaimVerdict.INCONSISTENT


@given(
    first=st.sampled_from(LAYERS),
    second=st.sampled_from(LAYERS),
    kind=st.sampled_from(("equals", "possible")),
)
def test_layers_are_not_compared(first: str, second: str, kind: str) -> None:
    """R-CLM-07: A claim of one evidence layer is never checked with numbers of another."""
    built = ledger(entry("ours", first, "1.0", **{kind: "theirs > 0"}), entry("theirs", second, "1.0"))
    if first == second:
        check(built)
        return
    with pytest.raises(LedgerError, match=f"ours is of layer {first} and its check reads {second}"):
        check(built)


@pytest.mark.parametrize("aggregate", ["mean", "sd", "sum", "min", "max", "all"])
def test_layers_are_not_pooled(aggregate: str) -> None:
    """R-CLM-08: Even where the paper defines a difference of two layers, no aggregate takes both."""
    live, ours = entry("live", "cohort", "1.0"), entry("restarted", "restart", "2.0")
    gain = entry("gain", "restart", "1.0", equals="restarted - live")
    check(ledger(live, ours, gain, contrasts=("cohort",)))
    pooled = entry("pooled", "restart", "1.5", equals=f"{aggregate}([restarted, live])")
    with pytest.raises(LedgerError, match="pools the layers cohort, restart"):
        check(ledger(live, ours, pooled, contrasts=("cohort",)))


def test_every_entry_has_its_layer() -> None:
    """R-CLM-09: Every published number is of a setting or of one of the eight layers, each with its claim."""
    found = load_ledger()
    assert set(found.layers) == {*LAYERS, "protocol"}
    claims = {found.strongest_claim(name) for name in LAYERS}
    assert len(claims) == len(LAYERS)
    assert {finding.entry.layer for finding in judge_claims(found)} == set(found.layers)


@given(total=st.integers(1, 3000), places=st.integers(0, 2), data=st.data())
def test_true_shares_are_possible(total: int, places: int, data: st.DataObject) -> None:
    """R-CLM-10: The percentage of a real count is possible, alone and as a mean over seeds."""
    count = data.draw(st.integers(0, total))
    share = published(Fraction(100 * count, total), places)
    assert is_share(share, intervals.exactly(total)) == intervals.truth(True, True)
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    shares = [Fraction(100 * data.draw(st.integers(0, size)), size) for size in sizes]
    totals = [intervals.exactly(size) for size in sizes]
    assert is_mean_share(published(mean(shares), places), totals) == intervals.truth(True, True)


@given(total=st.integers(1, 3000), places=st.integers(0, 2), data=st.data())
def test_shares_stay_inside_the_whole(total: int, places: int, data: st.DataObject) -> None:
    """R-CLM-12: No share is negative or above the whole; a change of shares goes from -100 to 100 points."""
    of = intervals.exactly(total)
    never = intervals.truth(False, False)
    outside = data.draw(st.integers(total + 1, 3 * total + 1).map(lambda count: Fraction(100 * count, total)))
    far = published(outside, places)
    if far.lo > 100:
        assert is_share(far, of) == is_share_change(far, of) == is_share_change(-far, of) == never
    change = Fraction(100 * data.draw(st.integers(-total, total)), total)
    assert is_share_change(published(change, places), of) == intervals.truth(True, True)
    if published(change, places).hi < 0:
        assert is_share(published(change, places), of) == never


def test_impossible_shares() -> None:
    """R-CLM-11: 96.15 % is no share of 57, but the mean of shares of 12, 31 and 14; 96.10 % is neither."""
    seeds = [intervals.exactly(size) for size in (12, 31, 14)]
    never = intervals.truth(False, False)
    assert is_share(rounded("96.15"), intervals.exactly(57)) == never
    assert is_mean_share(rounded("96.15"), seeds) == intervals.truth(True, True)
    assert is_mean_share(rounded("96.10"), seeds) == never
    whole = intervals.exactly(2000)
    assert [is_share(rounded(text), whole) for text in ("181.00", "150.00", "-0.05")] == [never] * 3


@given(values=st.lists(exact, min_size=3, max_size=5), places=st.integers(1, 4))
def test_true_tables_are_jointly_possible(values: list[Fraction], places: int) -> None:
    """R-CLM-13: Rows, their mean and their deviation, rounded from the same numbers, can be right at once."""
    rows = [entry(f"row{i}", "cohort", printed(value, places)) for i, value in enumerate(values)]
    names = ", ".join(row.id for row in rows)
    total = entry("total", "cohort", printed(mean(values), places), equals=f"mean([{names}])")
    root = Fraction(math.sqrt(variance(values)))
    spread = entry("spread", "cohort", printed(root, places), equals=f"sd([{names}])")
    built = ledger(*rows, total, spread)
    assert check_feasibility(built).conflicts == ()
    truth = {**{row.id: value for row, value in zip(rows, values, strict=True)}, "spread": root}
    for relation in linear_system(built).relations:
        if relation.entry == "spread":
            above = relation.sum.constant + sum(w * truth[name] for name, w in relation.sum.weights.items())
            assert relation.hi is not None
            assert -1e-9 <= above <= relation.hi + Fraction(1, 10**9)


@given(
    scores=st.lists(st.integers(-1, 2), min_size=1, max_size=12),
    sign=st.sampled_from((-1, 1)),
    kind=st.sampled_from(("difference", "ratio")),
)
def test_directions_are_counted(scores: list[int], sign: int, kind: str) -> None:
    """R-CLM-14: Same, opposite and tied seeds add up to n; a direction is none that a coin gives."""
    turn = 1 if kind == "ratio" else 0
    rows = tuple({"Seed": str(i), "Score": str(score + turn)} for i, score in enumerate(scores))
    ours = {"t": ClaimTable("t", ("Seed", "Score"), rows)}
    published_value = rounded(f"{turn + 0.5 * sign:.1f}")
    counterpart = Counterpart(kind="ratio" if kind == "ratio" else "difference", ours='t["Score"]')
    found = make_estimate(counterpart, Scope({}, {"value": published_value}), ours)
    same, opposite = (sum(score * direction > 0 for score in scores) for direction in (sign, -sign))
    tied, n = scores.count(0), len(scores)
    assert f"in {same} of {n} seeds, opposite in {opposite}, tied in {tied};" in found.text
    most = Direction.SAME if same > opposite else Direction.OPPOSITE
    chance = binomtest(same, same + opposite).pvalue > 0.05 if same + opposite else True
    expected = Direction.TIED if same == opposite else Direction.UNDECIDED if chance else most
    assert found.direction is expected


def test_no_estimate_decides_a_verdict() -> None:
    """R-CLM-15: Whatever a report holds, every published number keeps the verdict that it has without it."""
    found = load_ledger()
    rows = tuple(
        {"Condition": name, "Seed": seed, "Part": "", "Final best": "1", "Valid (%)": "1"}
        for name in ("frozen", "native")
        for seed in ("1", "2")
    )
    tables = {"core_seeds": ClaimTable("core_seeds", tuple(rows[0]), rows)}
    both, alone = judge_claims(found, tables), judge_claims(found)
    assert any(finding.estimate and finding.estimate.direction is not Direction.MISSING for finding in both)
    assert [finding.verdict for finding in both] == [finding.verdict for finding in alone]


def test_a_sentence_against_its_equation() -> None:
    """R-CLM-16: A sentence is a finding about the paper exactly where its equation contradicts it."""
    entries = [
        entry(name, "audit", "", disagrees=text) for name, text in (("yes", "1 / 2 > 1 / 3"), ("no", "1 > 2"))
    ]
    verdicts = [finding.verdict for finding in judge_claims(ledger(*entries))]
    assert verdicts == [ClaimVerdict.DISAGREES, ClaimVerdict.CONSISTENT]
