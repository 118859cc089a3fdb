"""The comparison of hosts: an honest stand-in agrees, and every changed fact is found by name."""

import csv
import functools
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.command import Command
from tests.unit.search.hosts.mutants import MUTANTS

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.cli import main
from search_to_signal.problems import get_problem
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.hosts.released.checkout import opened
from search_to_signal.search.hosts.released.trainer import changed
from search_to_signal.verify.conformance import comparison
from search_to_signal.verify.conformance.comparison import CHECKS, PAPER, conform
from search_to_signal.verify.conformance.pair import Agreement, HostFinding, Verdict

pytestmark = pytest.mark.slow

Sabotage = Callable[[str, str, str], Path]


def findings(path: Path, *checks: str, draws: int = 300) -> list[HostFinding]:
    """What the comparison of bin packing says of the small split."""
    words = path / "words.toml"
    asked = conform(path, ["obp"], checks, programs=3, draws=draws, split="embedded", words=words)
    return [finding for _, _, finding in asked]


def agreements(found: list[HostFinding]) -> set[Agreement]:
    return {finding.verdict.agreement for finding in found}


def test_the_standin_agrees(calm: Path) -> None:
    found = findings(calm, *CHECKS)
    assert [finding for finding in found if finding.verdict.agreement is not Agreement.EQUAL] == []
    assert len({finding.subject for finding in found}) > 100


@pytest.mark.usefixtures("one_pool")
def test_draws_are_seeded(calm: Path) -> None:
    first, second = (findings(calm, "operators", "parents", draws=100) for _ in range(2))
    assert first == second


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[EvaluationPool]:
    """Our evaluator of the small split, started once."""
    with EvaluationPool(get_problem("obp"), "embedded", EvaluationSettings(replay="off")) as pool:
        yield pool


@pytest.fixture
def one_pool(shared_pool: EvaluationPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let comparisons evaluate with the pool that is there."""
    monkeypatch.setattr(comparison, "EvaluationPool", lambda *given: nullcontext(shared_pool))


@pytest.fixture
def small_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command start a pool of the small split, which scores the seed in a twentieth of the time."""
    settings = EvaluationSettings(replay="off")
    small = functools.partial(EvaluationPool, get_problem("obp"), "embedded", settings)
    monkeypatch.setattr(comparison, "EvaluationPool", lambda *given: small())


# How many draws show a change of frequencies that 300 do not show.
DRAWS = {
    "an unfair coin": 600,
    "a coin of 0.4": 1000,
    "equal second parents redrawn": 1300,
    "like second parents redrawn": 1300,
    "ranks from two": 2000,
    "steeper ranks": 3000,
    "repeated words counted": 600,
    "words between blanks": 3500,
    "words of letters": 1300,
    "a head of nine": 2000,
    "unequal wordings": 1300,
    "a counter from one": 450,
}
# Of each family and file one that few draws show; the others are proofs.
QUICK = [name for name in MUTANTS if name not in DRAWS]
FIRST = {(MUTANTS[name][0], MUTANTS[name][2]): name for name in reversed(QUICK)}
CASES = [n if n in FIRST.values() else pytest.param(n, marks=pytest.mark.proof) for n in MUTANTS]


@pytest.mark.usefixtures("one_pool")
@pytest.mark.parametrize("name", CASES)
def test_every_mutant_is_found(sabotaged: Sabotage, name: str) -> None:
    check, subject, file, old, new = MUTANTS[name]
    found = findings(sabotaged(file, old, new), check, draws=DRAWS.get(name, 300))
    differing = [one for one in found if one.verdict is Verdict.DIFFERS]
    assert any(one.subject.startswith(subject) for one in differing), found
    assert all(one.detail for one in differing)


@pytest.mark.usefixtures("one_pool")
def test_injection_of_a_later_version_is_named(sabotaged: Sabotage) -> None:
    found = findings(
        sabotaged("calm_trainer.py", "= max(weights.values())", "= max(weights.values()) + 1"),
        "operators",
        draws=600,
    )
    details = {one.subject: one.detail for one in found if one.verdict is Verdict.DIFFERS}
    assert "1 members" in details
    assert all(
        detail.endswith("injection has the largest weight plus one (9)") for detail in details.values()
    )


@pytest.mark.usefixtures("one_pool")
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("args.py", "-0.95", "-0.94"), ("calm_trainer.py", "None, args.reward_code", "None, -0.94")],
)
def test_a_changed_severity_is_no_matter_of_parsing(
    sabotaged: Sabotage, file: str, old: str, new: str
) -> None:
    found = findings(sabotaged(file, old, new), "parsing")
    assert not [one for one in found if one.verdict is Verdict.DIFFERS]
    unknown = {one.detail for one in found if one.verdict is Verdict.UNKNOWN}
    assert unknown <= {"its reward of -0.94 is no severity that the checkout's options name"}
    assert bool(unknown) == (file == "calm_trainer.py")


@pytest.mark.usefixtures("one_pool")
def test_the_files_that_options_name(calm: Path) -> None:
    config = calm / "configs/obp/local.yaml"
    text = config.read_text()
    seed = (calm / "configs/obp/seed.py").read_text()
    (calm / "other.py").write_text(seed.replace("score[1:] -= score", "score[1:] += score"))
    config.write_text(text.replace("seed_algo_fp: ''", "seed_algo_fp: other.py"))
    found = findings(calm, "evaluators")
    differing = [one.subject for one in found if one.verdict is Verdict.DIFFERS]
    assert differing == ["our seed as the released one"]
    config.write_text(text.replace("template_fp: ''", "template_fp: gone.py"))
    (unknown,) = findings(calm, "options")
    assert unknown.detail == "configs/obp/local.yaml: template_fp names gone.py, which is not there"


def test_the_paper_is_quoted_as_published() -> None:
    """The values that options are compared with are those of the paper's table of parameters."""
    with (PUBLISHED / "parameters.csv").open(encoding="utf-8", newline="") as file:
        table = {row["Parameter"]: row["Value"] for row in csv.DictReader(file)}
    weights = "; ".join(
        f"{name} {PAPER[f'operator weight of {name}']}"
        for name in ("simplification", "injection", "replacement", "crossover")
    )
    assert table["Operator weights"] == weights
    assert table["Population size"] == str(PAPER["population size"])
    assert table["Stagnation threshold"] == f"{PAPER['collapse threshold']} groups"
    assert table["Prompts per step / group size"] == f"{PAPER['prompts per step']} / {PAPER['generations']}"
    assert table["Groups / completions"].split(" / ")[0] == str(PAPER["steps"])
    assert table["Learning rate"].split(",")[0] == "5×10^-5"
    assert PAPER["learning rate"] == 5e-5


OPTION_LINES = {
    "population size": (
        "population_size: int = 10",
        "population_size: int = 12",
        "paper 10, ours 10, checkout 12",
    ),
    "learning rate": ("lr: float = 5e-5", "lr: float = 1e-5", "paper 5e-05, ours 5e-05, checkout 1e-05"),
    "collapse speed": ("= 0.0005", "= 0.005", "ours 0.0005, checkout 0.005"),
}


@pytest.mark.usefixtures("one_pool")
def test_the_command_names_options(sabotaged: Sabotage, s2s: Command) -> None:
    """Each option that differs is a line with the paper's value, ours and the checkout's; exit code 1."""
    for old, new, _ in OPTION_LINES.values():
        calm = sabotaged("args.py", old, new)
    out = s2s("conformance", "--calm", calm, "--problem", "obp", "--check", "options", code=1).out
    for name, (_, _, said) in OPTION_LINES.items():
        assert f"obp   options      differs           {name} ({said})" in out.splitlines()
    assert f" {len(OPTION_LINES)} differ, 0 not compared" in out.splitlines()[-1]


def test_the_command_says_that_it_agrees(standin: Path, s2s: Command) -> None:
    command = ["--problem=obp", "--check=data", "--check=operators", "--draws=50"]
    told = s2s("conformance", "--calm", standin, *command)
    *findings, last = told.out.splitlines()
    assert last == "s2s: EQUAL: 11 equal, 0 differ, 0 not compared; of data 4, operators 7 (325 draws)"
    assert all(line.startswith("obp   ") for line in findings)
    first, *_, end = told.err.splitlines()  # more where it takes longer
    assert (first, end) == ("obp: 0/3 our evaluator and the seed", "obp: 3/3")


@pytest.mark.usefixtures("one_pool")
def test_words_that_nobody_knows_are_not_compared(calm: Path, tmp_path: Path) -> None:
    words = tmp_path / "none.toml"
    words.write_text("")
    asked = [*conform(calm, ["obp"], ["prompts"], programs=1, draws=50, split="embedded", words=words)]
    unknown = [one for _, _, one in asked if one.verdict is Verdict.UNKNOWN]
    assert len(unknown) == 6
    for line in (calm / "words.toml").read_text().splitlines()[2:]:
        name, fingerprint = line.replace('"', "").split(" = ")
        assert [fingerprint in one.detail for one in unknown if one.subject == f"words of {name}"] == [True]
    words.write_text("words = 3")
    with pytest.raises(ConfigError):
        next(conform(calm, ["obp"], ["prompts"], programs=1, draws=50, words=words))


@pytest.mark.usefixtures("one_pool")
@pytest.mark.parametrize(
    ("wanted", "verdict", "said"),
    [
        ("None.strip()", Verdict.DIFFERS, "theirs wanted a base: AttributeError in calm_trainer.py:"),
        ("[][0]", Verdict.DIFFERS, "theirs wanted a base: IndexError in calm_trainer.py:"),
        ("self.bonus", Verdict.UNKNOWN, "no attribute 'bonus': it wanted what only the host's constructor"),
    ],
)
def test_a_creation_that_fails_says_what_it_wanted(
    sabotaged: Sabotage, wanted: str, verdict: Verdict, said: str
) -> None:
    calm = sabotaged("calm_trainer.py", "in TASKS else 0.0", f"in TASKS else {wanted}")
    (found,) = (one for one in findings(calm, "rewards") if one.subject == "creation, a valid child")
    assert found.verdict is verdict
    assert said in found.detail


@pytest.mark.usefixtures("one_pool")
def test_a_difference_and_nothing_else_are_told_apart(sabotaged: Sabotage, s2s: Command) -> None:
    calm = sabotaged("args.py", "-0.95", "-0.94")
    command = ["conformance", "--calm", str(calm), "--problem", "obp", "--check", "rewards"]
    said = s2s(*command, code=1)
    assert said.out.splitlines()[-1].startswith("s2s: DIFFERS: ")
    sabotaged("args.py", "-0.94", "-0.95")
    sabotaged("calm_trainer.py", "        top = max(", "        self.gone\n        top = max(")
    lines = s2s(*command, code=11).out.splitlines()
    assert lines[-1].startswith("s2s: NOT COMPARED: 0 equal, 0 differ, ")
    assert all("no attribute 'gone'" in line for line in lines[:-1])


@pytest.mark.usefixtures("one_pool")
def test_what_raises_is_not_compared_and_the_rest_goes_on(sabotaged: Sabotage) -> None:
    old = "        self.age_stuck = 0 if any"
    calm = sabotaged("calm_trainer.py", old, f"        1 / (self.age_stuck - 3)\n{old}")
    found = findings(calm, *CHECKS, draws=50)
    unknown = [one for one in found if one.verdict is Verdict.UNKNOWN]
    assert len(unknown) == 11
    assert all(re.fullmatch(r"ZeroDivisionError in calm_trainer.py:\d+", one.detail) for one in unknown)
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}


@pytest.mark.usefixtures("one_pool")
def test_a_time_out_is_no_difference(sabotaged: Sabotage) -> None:
    found = findings(
        sabotaged("heuristic.py", "TIME_LIMIT_S = 60", "TIME_LIMIT_S = 0"), "evaluators", "rewards"
    )
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}
    unknown = [one for one in found if one.verdict is Verdict.UNKNOWN]
    assert "replacement, better" in {one.subject for one in unknown}
    assert all("time limit" in one.detail for one in unknown)


@pytest.mark.usefixtures("one_pool")
def test_an_evaluator_that_fails_on_its_own_seed_says_nothing(sabotaged: Sabotage) -> None:
    old = "        began, perfs ="
    calm = sabotaged("heuristic.py", old, f"        self.not_here\n{old}")
    found = findings(calm, "evaluators", "rewards", "stagnation")
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}
    details = {one.detail for one in found if one.verdict is Verdict.UNKNOWN}
    assert any("no attribute 'not_here'" in detail for detail in details)
    assert any("its own seed heuristic a runtime failure" in detail for detail in details)


@pytest.mark.usefixtures("one_pool")
def test_a_threshold_made_elsewhere_is_not_compared(sabotaged: Sabotage) -> None:
    found = findings(
        sabotaged("calm_trainer.py", "args.max_steps // 20 if limit < 0 else limit", "limit"), "collapse"
    )
    unequal = [one.subject for one in found if one.verdict.agreement is not Agreement.EQUAL]
    assert unequal == ["threshold -1", "threshold -2"]
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}


FAILING = """    def started(self, prompt, answer):
        print(prompt.text)
        raise KeyError(prompt.text)

"""


@pytest.mark.usefixtures("one_pool")
def test_no_prompt_is_printed(sabotaged: Sabotage, capfd: pytest.CaptureFixture[str]) -> None:
    calm = sabotaged("calm_trainer.py", "    def started(", f"{FAILING}    def unused(")
    checks = [f"--check={name}" for name in ("stagnation", "collapse", "operators", "prompts")]
    command = ["conformance", "--calm", str(calm), "--problem=obp", "--draws=50", "--programs=1"]
    assert main([*command, f"--words={calm / 'words.toml'}", *checks]) == 11
    out, err = capfd.readouterr()
    assert "KeyError in calm_trainer.py" in out
    tasks = re.findall(r'["\']([A-Z][^"\']{20,})', (calm / "calm_trainer.py").read_text(encoding="utf-8"))
    assert len(tasks) >= 6
    assert not [task for task in tasks if task in out + err]


@pytest.mark.usefixtures("one_pool")
def test_what_workers_print_stays_out(sabotaged: Sabotage, s2s: Command) -> None:
    """A thread of Ray's repeats what its workers print, at any time: the report has its own lines alone."""
    talking = """        import threading
        for wait in (0.01, 0.1):
            threading.Timer(wait, print, [f"(evaluate_code pid=1)\\nTraceback of {code}"]).start()
"""
    old = "        policy = HeuristicPolicy(function_in(code), "
    calm = sabotaged("calm_trainer.py", old, talking + old)
    checks = ["--problem=obp", "--check=rewards", "--check=operators", "--draws=600"]  # the last runs nothing
    captured = s2s("conformance", "--calm", calm, *checks)
    *findings, last = captured.out.splitlines()
    assert all(line.startswith("obp: ") for line in captured.err.splitlines())
    assert len(findings) > 20
    assert all(re.match(r"obp   (rewards|operators) ", line) for line in findings)
    assert last.startswith("s2s: ")


@pytest.mark.usefixtures("small_instances")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_comparison(
    sabotaged: Sabotage, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    """Even where the host swallows it, and has a handler of its own, as Ray does; nothing stays behind."""
    stop = f"""        import os, signal
        signal.signal(signal.{name}, lambda *given: exit(1))
        try:
            os.kill(os.getpid(), signal.{name})
        except:
            pass
        top = max("""
    calm = sabotaged("calm_trainer.py", "        top = max(", stop)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with changed(tempfile, tempdir=str(tmp_path)):
        before = list(tmp_path.iterdir())
        assert main(["conformance", "--calm", str(calm), "--problem=obp", "--check=stagnation"]) == 130
        assert list(tmp_path.iterdir()) == before
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == "s2s: stopped"
    assert "s2s: " not in captured.out
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_session_of_ray_ends_with_the_checkout(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    stopped: list[str] = []
    ray = calm / "ray.py"
    ray.write_text(
        "stopped = []\n\n\ndef is_initialized():\n    return True\n\n\ndef shutdown():\n    pass\n"
    )
    with opened(calm) as checkout:
        monkeypatch.setattr(checkout.module("ray"), "shutdown", lambda: stopped.append(os.getcwd()))
    assert stopped
    assert stopped != [os.getcwd()]


def test_a_problem_that_the_checkout_lacks(standin: Path, s2s: Command) -> None:
    out = s2s("conformance", "--calm", standin, "--check", "data", code=11).out
    assert "the checkout has no problems/op_aco.py and no configs/op_aco" in out
    assert out.splitlines()[-1].endswith(" 0 differ, 2 not compared; of data 5, all 2")
    said = s2s("conformance", "--calm", standin, "--problem", "op", code=12)
    assert "problems/op_aco.py is missing" in said.err


@pytest.mark.parametrize(("option", "name"), [("--check", "luck"), ("--problem", "chess")])
def test_unknown_names(standin: Path, s2s: Command, option: str, name: str) -> None:
    said = s2s("conformance", "--calm", standin, option, name, code=2)
    assert f"{option} {name}: give one of " in said.err
