"""The stored program database, and what a manifest says that host and rule can."""

import ast
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import search_to_signal
from search_to_signal.base.errors import MappingError, RecordError
from search_to_signal.learner import RULES
from search_to_signal.learner.base import rule_facts
from search_to_signal.problems import get_problem
from search_to_signal.records.manifest import DATABASE, Database, read_database, read_manifest, write_database
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, STEPS, read_records
from search_to_signal.records.schema import (
    CALM_OPERATORS,
    HeuristicRecord,
    HostFacts,
    Outcome,
    RuleFacts,
    facts_of_host,
    facts_of_rule,
)
from search_to_signal.search.host import HostSetup, database_of, exposures_of, host_facts
from search_to_signal.search.hosts import HOSTS
from search_to_signal.search.member import Evaluated
from search_to_signal.verify.directory import file_problems
from search_to_signal.verify.records import database_problems, record_problems


@pytest.fixture
def run(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A run whose database has every heuristic on one of two islands, one of them waiting."""
    directory = make_run(tmp_path / "frozen-s42", "frozen", config={"host": "evotune"}, host="evotune")
    seed, *others = (h.id for h in read_records(directory / HEURISTICS, HeuristicRecord))
    islands = ((seed, *others[:-1]), (seed,))
    write_database(directory, Database(groups=4, islands=islands, waiting=((1, others[-1]),)))
    return directory


def problems(directory: Path) -> list[str]:
    """What is said of the database."""
    return list(database_problems(directory, read_manifest(directory)))


def changed(directory: Path, **changes: Any) -> None:
    """Write the database with other fields."""
    path = directory / DATABASE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_does_not_fit_is_named(run: Path, make_run: Callable[..., Path], tmp_path: Path) -> None:
    assert read_database(run).waiting[0][0] == 1
    assert problems(run) == []
    stored = msgspec.to_builtins(read_database(run))
    changed(run, islands=[*stored["islands"], ["f" * 64]])
    assert problems(run) == [f"database.json: program {'f' * 64} is not a heuristic of this run"]
    changed(run, islands=stored["islands"], waiting=[])
    assert problems(run) == ["database.json: it is not the database after the last step"]
    changed(run, waiting=stored["waiting"], groups=3)
    assert problems(run) == ["database.json: it is not the database after the last step"]
    plain = make_run(tmp_path / "plain")
    assert problems(plain) == []
    (plain / DATABASE).write_bytes((run / DATABASE).read_bytes())
    assert problems(plain) == ["database.json: the run's host has no database"]


@pytest.mark.parametrize("version", [0, 2, None])
def test_another_version_is_one_line(run: Path, version: int | None) -> None:
    found = json.loads((run / DATABASE).read_text())
    found["version"] = version
    if version is None:
        del found["version"]
    (run / DATABASE).write_text(json.dumps(found))
    with pytest.raises(RecordError, match=rf"of version {version or 0}, "):
        read_database(run)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": "one"}', "\xff"])
def test_a_damaged_database_is_one_line(run: Path, text: str) -> None:
    (run / DATABASE).write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError, match=r"database.json .*restore it"):
        read_database(run)
    (run / DATABASE).unlink()
    with pytest.raises(RecordError, match=r"there is no .*database.json: restore it"):
        read_database(run)


OURS = sorted(HOSTS.keys() - {"released"})
PACKAGE = Path(search_to_signal.__file__).parent
CONSTANTS = {"REFERENCE", "RELEASED", "GRPO", "FIRST_HOST", "FIRST_RULE"}
# The form of a prompt is a setting, whichever host asks with it.
FORMS = "search/hosts/calm/prompts.py"


@pytest.mark.parametrize("name", OURS)
def test_a_host_can_what_its_name_said_before(name: str) -> None:
    host = HOSTS[name](HostSetup(get_problem("tsp")))
    assert host_facts(host) == facts_of_host(name) != HostFacts()


@pytest.mark.parametrize(
    ("name", "settings"), [*((name, {}) for name in sorted(RULES)), ("entropic", {"groups_per_batch": 3})]
)
def test_a_rule_does_what_its_name_said_before(name: str, settings: dict[str, Any]) -> None:
    assert rule_facts(RULES[name], settings) == facts_of_rule(name, settings) != RuleFacts()


def test_nobody_knows_what_another_could_and_it_gives_what_it_promises() -> None:
    assert (facts_of_host("my_host:HillClimber"), facts_of_rule("my_rule:rule", {})) == (
        HostFacts(),
        RuleFacts(),
    )
    assert told([None, 0.5]) == (None, 0.5)
    for wrong in ([0.5], [0.5, 0.5], [None, None], [None, 1.5], [None, float("nan")]):
        with pytest.raises(MappingError, match=r"give one in \[0, 1\] for each that has a score"):
            told(wrong)
    with pytest.raises(MappingError, match=r"database is dict: give records\.database\.Database"):
        database_of(cast(Any, SimpleNamespace(database=lambda state: {})), None)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"host_facts": HostFacts()}, ["host_facts do not describe host reference"]),
        ({"rule_facts": RuleFacts()}, ["rule_facts do not describe learning rule grpo"]),
        ({"host_facts": facts_of_host("reference"), "rule_facts": facts_of_rule("grpo", {})}, []),
    ],
)
def test_facts_of_ours_are_not_forged(
    make_run: Callable[..., Path], tmp_path: Path, facts: dict[str, Any], said: list[str]
) -> None:
    """A manifest cannot spare one of our hosts or rules what its records are asked."""
    run = make_run(tmp_path / "native-s42", "native")
    manifest = msgspec.structs.replace(read_manifest(run), **facts)
    assert [line for line in file_problems(run, manifest) if "_facts" in line] == said


def test_a_host_of_ours_has_its_own_operators_alone(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run = make_run(tmp_path / "native-s42", "native")
    assert record_problems(run, read_manifest(run)) == []
    for name in (COMPLETIONS, STEPS, HEURISTICS):
        text = (run / name).read_text(encoding="utf-8")
        known = "|".join(CALM_OPERATORS)
        text = re.sub(rf'"operator":"({known})"', '"operator":"improvement"', text)
        (run / name).write_text(text, encoding="utf-8")
    told = [line for line in record_problems(run, read_manifest(run)) if "no operator improvement" in line]
    assert "step 0: host reference has no operator improvement" in told
    assert f"{HEURISTICS}: host reference has no operator improvement" in told


def told(exposures: Sequence[float | None]) -> tuple[float | None, ...]:
    """What is made of exposures that a host gives for a failure and a valid completion."""
    host = SimpleNamespace(exposures=lambda question, results: exposures)
    results = [Evaluated(Outcome.MISSING_CODE), Evaluated(Outcome.VALID, "i", "c", 1.0, "p", "t")]
    return exposures_of(cast(Any, host), cast(Any, None), results)


def branches(tree: ast.Module) -> list[int]:
    """Lines that compare something with the name of a host or rule of ours."""
    names = {*HOSTS, *RULES}
    return [
        node.lineno
        for comparison in ast.walk(tree)
        if isinstance(comparison, ast.Compare)
        for node in ast.walk(comparison)
        if (isinstance(node, ast.Constant) and node.value in names)
        or (isinstance(node, ast.Name) and node.id in CONSTANTS)
    ]


@pytest.mark.slow
def test_nothing_else_branches_on_a_name() -> None:
    """Whoever adds a host or a rule changes no reader of records."""
    files = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    found = {name: branches(ast.parse(path.read_text(encoding="utf-8"))) for name, path in files.items()}
    assert {name: lines for name, lines in found.items() if lines and name != FORMS} == {}
    assert found[FORMS]
