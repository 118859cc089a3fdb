"""Prompts hold what the host's prompts hold (HOST.md, Prompts), and nothing that it leaves out."""

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.problems import PROBLEMS, get_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records.schema import CALM_OPERATORS, Operator
from search_to_signal.run.profile import load_profile
from search_to_signal.sandbox.programs import COMPONENT_AFTER, COMPONENT_BEFORE, OPENING, Proposal, parse
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    REPLACEMENT,
    REPLACEMENT_VARIANTS,
    SIMPLIFICATION,
    build_prompt,
    truncated_score,
)
from search_to_signal.search.hosts.calm.state import component
from search_to_signal.search.member import PromptForm

TSP = get_problem("tsp")
FORMS: tuple[PromptForm, ...] = ("compact", "released")
ONE_PARENT = (SIMPLIFICATION, INJECTION, REPLACEMENT)


@dataclass(frozen=True)
class Shown:
    idea: str
    code: str
    score: float


GOOD = Shown(f"{OPENING} be good.", "def good():\n    return 1\n", -6.78999)
BAD = Shown(f"{OPENING} be bad.", "\ndef bad():\n    return 2", -7.5)


def task(user: str) -> str:
    """What a prompt asks for, below the heuristics that it shows."""
    return user.split("\n")[-1]


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_system_message_states_problem_and_form(problem: Problem) -> None:
    system = build_prompt(problem, CREATION, ()).system
    for part in (problem.title, problem.description, "double braces", OPENING, "python code block"):
        assert part in system
    for word in (
        "given algorithms",
        "self-contained",
        "original",
        "without reference to earlier ideas or code",
        "same name, inputs, outputs and types",
        "deterministic",
        "without usage examples",
        "without needless tuned constants",
        "nothing else",
    ):
        assert word in system


def test_the_system_message_never_changes() -> None:
    systems = {
        build_prompt(TSP, operator, (GOOD, BAD)[: 2 if operator == CROSSOVER else 1]).system
        for operator in CALM_OPERATORS
    } | {build_prompt(TSP, INJECTION, (BAD,), injected=("x",)).system}
    assert len(systems) == 1


@pytest.mark.parametrize("operator", ONE_PARENT)
def test_a_heuristic_is_shown_whole(operator: Operator) -> None:
    user = build_prompt(TSP, operator, (GOOD,)).user
    assert user.startswith(
        f"Algorithm 1, rank 1, tour length 6.789\n{{{{{GOOD.idea}}}}}\n"
        "```python\ndef good():\n    return 1\n```\n"
    )


def test_crossover_shows_both_best_first() -> None:
    first, second = (build_prompt(TSP, CROSSOVER, pair).user for pair in ((GOOD, BAD), (BAD, GOOD)))
    assert first == second
    assert first.index("Algorithm 1, rank 1, tour length 6.789") < first.index("def good")
    assert first.index("def good") < first.index("Algorithm 2, rank 2, tour length 7.500")
    assert first.index("tour length 7.500") < first.index("def bad")
    assert "both" in task(first)
    assert "any instance" in task(first)


@given(st.floats(-1000, 1000, allow_nan=False))
def test_numbers_are_cut_not_rounded(value: float) -> None:
    """Three decimals of the absolute value that never exceed it and stay within a thousandth."""
    assert re.fullmatch(r"\d+\.\d{1,3}", str(truncated_score(value)))
    assert -1e-9 <= abs(value) - truncated_score(value) < 1e-3 + 1e-9


@pytest.mark.parametrize(
    ("value", "padded", "plain"),
    [
        (-6.7899, "6.789", "6.789"),
        (5.9999, "5.999", "5.999"),
        (-14.5401, "14.540", "14.54"),
        (-0.0009, "0.000", "0.0"),
        (12.0, "12.000", "12.0"),
    ],
)
def test_cut_numbers_by_hand(value: float, padded: str, plain: str) -> None:
    shown = Shown(GOOD.idea, GOOD.code, value)
    compact, released = (build_prompt(TSP, SIMPLIFICATION, (shown,), form=form).user for form in FORMS)
    assert f"tour length {padded}\n" in compact
    assert f"Algorithm 1, {plain} tour length, rank 1\n" in released


def test_the_released_form_shows_the_later_of_equal_parents_first() -> None:
    equal = (GOOD, Shown(BAD.idea, BAD.code, GOOD.score))
    compact, released = (build_prompt(TSP, CROSSOVER, equal, form=form).user for form in FORMS)
    assert compact.index("def good") < compact.index("def bad")
    assert released.index("def bad") < released.index("def good")


@pytest.mark.parametrize("operator", CALM_OPERATORS)
def test_the_released_form_asks_before_it_shows(operator: Operator) -> None:
    parents = {CROSSOVER: (GOOD, BAD), CREATION: ()}.get(operator, (GOOD,))
    compact, released = (
        build_prompt(TSP, operator, parents, injected=("a part",), form=form).user for form in FORMS
    )
    assert released.splitlines()[0].partition(": ")[2] == task(compact).partition(": ")[2]
    head = r"(rank \d), tour length (\d\.\d+?)0*\n"
    assert released.splitlines()[1:] == re.sub(head, r"\2 tour length, \1\n", compact).splitlines()[:-1]


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_released_form_shows_the_layout_and_no_calling_protocol(problem: Problem) -> None:
    """An example that would count as a proposal, and nothing of when and with what a function is called."""
    system = build_prompt(problem, CREATION, (), form="released").system
    layout = system[system.index("{{") :]
    assert isinstance(parse(layout), Proposal)
    assert problem.title in system
    for word in ("called", "once per instance", "arriving item a function", "step by step"):
        assert word not in system
    for word in ("original", "deterministic", "usage examples", "inputs, outputs and types", "nothing else"):
        assert word in system


def test_the_paper_profile_asks_in_the_released_form() -> None:
    """The shipped models keep the form that they were trained on (D36)."""
    forms = {name: load_profile(name).search.prompts for name in ("paper", "embedded", "cohort", "smoke")}
    assert forms == {"paper": "released", "embedded": "compact", "cohort": "compact", "smoke": "compact"}


def test_replacement_has_three_wordings() -> None:
    tasks = [
        task(build_prompt(TSP, REPLACEMENT, (GOOD,), variant=v).user) for v in range(REPLACEMENT_VARIANTS)
    ]
    assert REPLACEMENT_VARIANTS == 3
    for wording, words in zip(
        tasks,
        (
            ("fixed rule", "depends on the instance"),
            ("key constant", "justified"),
            ("tells apart", "equally"),
        ),
        strict=True,
    ):
        assert all(word in wording for word in words)


def test_injection_names_what_was_explored() -> None:
    components = tuple(f"part {chr(97 + k)}" for k in range(13))
    asked = task(build_prompt(TSP, INJECTION, (GOOD,), injected=components).user)
    assert asked.endswith(f"Already explored: {', '.join(components[3:])}.")
    assert not any(f"{old}," in asked for old in components[:3])
    assert "Already explored" not in build_prompt(TSP, INJECTION, (GOOD,)).user
    asked = task(build_prompt(TSP, INJECTION, (GOOD,), injected=("a", "b" * 4000, "c")).user)
    assert asked.endswith(f"Already explored: a, {'b' * 200}, c.")


def test_injection_asks_for_the_sentence_that_is_remembered() -> None:
    asked = task(build_prompt(TSP, INJECTION, (GOOD,)).user)
    match = re.search(rf'"({COMPONENT_BEFORE} \.\.\. {COMPONENT_AFTER})\."', asked)
    assert match is not None
    assert component(match.group(1).replace("...", "noise gate")) == "noise gate"
    for operator in set(CALM_OPERATORS) - {INJECTION}:
        assert COMPONENT_BEFORE not in build_prompt(TSP, operator, (GOOD, BAD)).user


def test_simplification_and_creation_ask() -> None:
    asked = task(build_prompt(TSP, SIMPLIFICATION, (GOOD,)).user)
    assert all(word in asked for word in ("simpler", "elegant", "core"))
    user = build_prompt(TSP, CREATION, ()).user
    assert f"```python\n{TSP.template.strip()}\n```" in user
    assert "inventive" in task(user)
    assert TSP.unit not in user
    assert "Algorithm 1" not in user
