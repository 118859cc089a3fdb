"""Directions of our own numbers beside published ones: what has one, how many share it, what is missing."""

import re
from collections.abc import Mapping

import pytest
from tests.synthetic_results import write_synthetic_results

from search_to_signal.base.errors import LedgerError
from search_to_signal.claims.directions import (
    NEGATIVE,
    Counterpart,
    Direction,
    load_counterparts,
    make_estimate,
)
from search_to_signal.claims.expressions import Scope
from search_to_signal.claims.intervals import rounded
from search_to_signal.claims.page import judge_published, page, published
from search_to_signal.claims.tables import ClaimTable, load_report
from search_to_signal.report.build import report


def ours(**conditions: list[str]) -> dict[str, ClaimTable]:
    """A report of one table: seeds of some conditions."""
    rows = [
        {"Condition": name, "Seed": str(seed), "Score": score}
        for name, scores in conditions.items()
        for seed, score in enumerate(scores)
    ]
    return {"t": ClaimTable("t", ("Condition", "Seed", "Score"), tuple(rows))}


TABLES = ours(
    up=["1", "2", "0"],
    down=["-1", "-2", "3"],
    flat=["1", "-1", "0"],
    high=["1.5", "2", "1.2"],
    rising=[*map(str, range(1, 9)), "-1"],
    falling=[*map(str, range(-9, 0))],
    above=["1.5"] * 6,
    below=["0.9"] * 6,
)
UP, DOWN, FLAT, HIGH, RISING, FALLING, ABOVE, BELOW = (
    f't["Score", "Condition={name}"]'
    for name in ("up", "down", "flat", "high", "rising", "falling", "above", "below")
)


def found(value: str, report: Mapping[str, ClaimTable] = TABLES, **fields: str) -> tuple[Direction, str]:
    """The estimate beside a published value."""
    counterpart = Counterpart(**fields)  # type: ignore[arg-type]
    claims = {"value": rounded(value), "frozen": rounded("0.5")} if value else {}
    given = make_estimate(counterpart, Scope({}, claims), report)
    return given.direction, given.text


COMPARED = """
0.2 | difference | UP | undecided | same direction in 2 of 3 seeds, opposite in 0, tied in 1
0.2 | difference | RISING | same direction | same direction in 8 of 9 seeds, opposite in 1, tied in 0
-0.2 | difference | UP | undecided | same direction in 0 of 3 seeds, opposite in 2
-0.2 | difference | RISING | opposite direction | same direction in 1 of 9 seeds, opposite in 8
0.2 | difference | FLAT | tied | same direction in 1 of 3 seeds, opposite in 1
0.0 | difference | UP | not comparable | as printed, the published number has no direction
0.2 | difference | [UP, RISING] | same direction | 10 of 12 comparisons, opposite in 1, tied in 1; ours 3.16
0.2 | difference | [UP, RISING] | same direction | (12 numbers of 9
1.3 | ratio | HIGH | undecided | 3 of 3 seeds
1.3 | ratio | ABOVE | same direction | 6 of 6 seeds
0.9 | ratio | ABOVE | opposite direction | opposite in 6
0.7 | ratio | BELOW | same direction | 6 of 6 seeds
0.7 | level | UP | undecided | same direction in 2 of 3 | against=DOWN, reference=frozen
0.7 | level | RISING | same direction | same direction in 8 of 9 | against=FALLING, reference=frozen
0.3 | level | RISING | opposite direction | opposite in 8 | against=FALLING, reference=frozen
1 | seeds | DOWN | undecided | same direction in 2 of 3 | reference=3 / 2
1 | seeds | FALLING | same direction | same direction in 9 of 9 | reference=3 / 2
0.2 | end | RISING | same direction | ours 8 (n = 9, -1 to 8) | whole=max(RISING)
0.2 | end | RISING | opposite direction | ours -1 (n = 9, -1 to 8) | whole=min(RISING)
7 | value | sd(RISING) | not comparable | a spread; ours 2.93447 (of 9 seeds) | why=a spread
7 | value | UP | not comparable | a count; ours 1 (n = 3, 0 to 2) | why=a count
 | every | HIGH | holds for ours | every: 3 of 3 seeds above
 | every | UP | does not hold for ours | every: 2 of 3 seeds above, 0 below, 1 equal
 | most | UP | holds for ours | most: 2 of 3
 | most | FLAT | does not hold for ours | most: 1 of 3
 | mixed | FLAT | holds for ours | mixed: 1 of 3 seeds above, 1 below
 | mixed | UP | does not hold for ours | mixed: 2 of 3
 | not every | UP | holds for ours | not every: 2 of 3
 | not every | HIGH | does not hold for ours | not every: 3 of 3
"""
"""Published value, kind of comparison, our numbers by their names above, direction, words, further fields."""


@pytest.mark.parametrize("case", COMPARED.strip("\n").splitlines())
def test_directions(case: str) -> None:
    named = re.sub(r"\b[A-Z]{2,}\b", lambda name: str(globals()[name[0]]), case)
    value, kind, ours, direction, said, *more = map(str.strip, named.split(" | "))
    fields = dict(field.split("=", 1) for field in re.split(r", (?=\w+=)", more[0])) if more else {}
    assert found(value, kind=kind, ours=ours, **fields)[0] is Direction(direction)
    assert said in found(value, kind=kind, ours=ours, **fields)[1]


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ('u["Score"]', "the report has no table u"),
        ('t["Score", "Condition=gone"]', "table t has no row with Condition=gone"),
        ('t["Time"]', "table t has no column 'Time'"),
        ('t["Time|Score", "Condition=up"] - t["Score", "Condition=up", "Seed!=0"]', "pairs 3 numbers with 2"),
    ],
)
def test_what_is_missing_is_said(ours: str, said: str) -> None:
    direction, text = found("0.2", kind="difference", ours=ours)
    assert direction is Direction.MISSING
    assert said in text


def test_a_statement_says_which_conditions_it_lacks() -> None:
    _, text = found("", kind="every", ours='t["Score", "Condition=up|high|tail_weighted"]')
    assert text.endswith("without tail_weighted")


def test_numbers_of_one_seed_are_one_vote() -> None:
    direction, text = found("0.2", kind="difference", ours=f"[{HIGH}, {HIGH}]")
    assert direction is Direction.UNDECIDED
    assert "same direction in 6 of 6 comparisons" in text
    assert "6 numbers of 3 seeds" in text

    # Whichever way round, and in whatever words, a comparison is known again; another one is not.
    def numbers(ours: str) -> tuple[tuple[str, float], ...]:
        counterpart = Counterpart(kind="difference", ours=ours)
        return make_estimate(counterpart, Scope({}, {"value": rounded("0.2")}), TABLES).comparison

    assert numbers(f"{UP} - {DOWN}") == numbers(f"{DOWN} - {UP}") == numbers(f"{UP} + -{DOWN}")
    assert numbers(UP) != numbers(DOWN)
    assert found("", kind="mixed", ours='t["Score", "Condition=up", "Seed=1"]')[0] is Direction.NOT_COMPARABLE


def test_rules_meet_entries(edited) -> None:  # type: ignore[no-untyped-def]
    ids = [entry.id for entry in published()[0].entries]
    assert len(load_counterparts(ids)) > 400
    with pytest.raises(LedgerError, match="no entry is called 'gain_end_{trained}'"):
        load_counterparts(ids, edited("counterparts.toml", '"gain_final_{trained}"', '"gain_end_{trained}"'))
    with pytest.raises(LedgerError, match="has two counterparts"):
        load_counterparts(
            ids,
            edited(
                "counterparts.toml", '"gain_end_{trained}"', '"gain_final_{trained}", "gain_final_native"'
            ),
        )


@pytest.mark.slow
def test_every_layer_of_a_report_stands_beside(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("four") / "results"
    write_synthetic_results(root, groups=30)
    report(root, root / "report")
    findings = judge_published(None, load_report(root / "report"))
    shown = [f for f in findings if f.estimate and f.estimate.direction is not Direction.MISSING]
    assert len(shown) > 250
    assert {"cohort", "restart", "audit", "api"} <= {finding.entry.layer for finding in shown}
    text = (
        page(*published(), findings).partition("## Statements, compared with our runs")[2].partition("##")[0]
    )
    forms = [line.split(" | ")[2] for line in text.splitlines() if line.startswith("| ")][2:]
    assert sorted(forms, key=lambda form: form not in NEGATIVE) == forms
    assert {"mixed", "every"} <= set(forms)
