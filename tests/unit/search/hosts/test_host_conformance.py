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
from tests.unit.search.hosts.rule_mutants import RULES
from tests.unit.search.hosts.settings_mutants import SETTINGS

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

MUTANTS = {
    "other instances": ("data", "instances", "problems/obp.py", "seed(2027)", "seed(2028)"),
    "another seed": (
        "evaluators",
        "our seed as the released one",
        "configs/obp/seed.py",
        "score[1:] -= score",
        "score[1:] += score",
    ),
    "another score": ("evaluators", "our seed", "problems/obp.py", "-(100 *", "-(100.0001 *"),
    "another bin": ("evaluators", "released seed", "problems/obp.py", "room >= item", "room > item"),
    "state carried over": (
        "evaluators",
        "a global count",
        "heuristic.py",
        "instance.play(fresh(self.step_func))",
        "instance.play(self.step_func)",
    ),
    "a shorter idea": (
        "parsing",
        "ten characters of idea",
        "utils.py",
        "len(OPENING) + 10",
        "len(OPENING) + 9",
    ),
    "a loose idea ends within a line": (
        "parsing",
        "loose idea with ticks",
        "utils.py",
        "(?:\\n```|",
        "(?:```|",
    ),
    "a loose idea passes a tagged fence": (
        "parsing",
        "loose idea of a word, then code",
        "utils.py",
        "(?:\\n```|",
        "(?:```\\n|",
    ),
    "a loose idea is not stripped": (
        "parsing",
        "loose idea and blanks",
        "utils.py",
        ".group(1).strip()\n    else",
        ".group(1)\n    else",
    ),
    "the first block": ("parsing", "two blocks", "calm_trainer.py", "if len(codes) > 1:", "if False:"),
    "no randomness rule": (
        "parsing",
        "random in a comment",
        "calm_trainer.py",
        '"random" in policy.code',
        "False",
    ),
    "a severity": ("rewards", "severity, no code", "args.py", "-0.95", "-0.94"),
    "a severity of its own": (
        "rewards",
        "severity, no code",
        "calm_trainer.py",
        "None, args.reward_code",
        "None, -0.94",
    ),
    "a steeper reward": (
        "rewards",
        "replacement, worse",
        "calm_trainer.py",
        "-3 * change / 8",
        "-3 * change / 7",
    ),
    "a rounded copy constant": (
        "rewards",
        "crossover, a copy",
        "calm_trainer.py",
        "-(1 / 5 + 2 / 5)",
        "-0.6",
    ),
    "injection earns nothing": (
        "rewards",
        "injection, better",
        "calm_trainer.py",
        "if prompt.kind in TASKS",
        'if prompt.kind not in ("injection", "creation")',
    ),
    "simplification earns nothing": (
        "rewards",
        "simplification, better",
        "calm_trainer.py",
        "if prompt.kind in TASKS",
        'if prompt.kind[0] in "irc"',
    ),
    "creation earns something": (
        "rewards",
        "creation, a valid child",
        "calm_trainer.py",
        "in TASKS else 0.0",
        "in TASKS else 1.0",
    ),
    "creation raises": (
        "rewards",
        "creation, a valid child",
        "calm_trainer.py",
        "if prompt.kind in TASKS else 0.0",
        "if bases else max(bases)",
    ),
    "creation without the template": (
        "prompts",
        "creation, template shown",
        "calm_trainer.py",
        "{self.algorithm_template.strip()}",
        "...",
    ),
    "another name in the template": (
        "options",
        "name of the template's function",
        "configs/obp/template.py",
        "def step",
        "def rate",
    ),
    "components in the idea alone": (
        "components",
        "after the code",
        "calm_trainer.py",
        "component_in(answer)",
        "component_in(policy.idea)",
    ),
    "square brackets": ("components", "square brackets", "utils.py", "[A-Za-z()'", "[A-Za-z()\\[\\]'"),
    "components of the admitted": (
        "components",
        "of a child not admitted",
        "calm_trainer.py",
        'if prompt.kind == "injection" else',
        'if prompt.kind == "injection" and policy in self.algos else',
    ),
    "components twice": (
        "components",
        "known before",
        "calm_trainer.py",
        "if new and new not in self.injected_components",
        "if new",
    ),
    "components of any prompt": (
        "components",
        "after a replacement",
        "calm_trainer.py",
        'if prompt.kind == "injection" else None',
        "",
    ),
    "copies admitted": (
        "transition",
        "1 members, archive",
        "calm_trainer.py",
        "if not any(abs(algo.perf - policy.perf) < SAME for algo in self.algos)",
        "if True",
    ),
    "a bounded archive": (
        "transition",
        "12 members, archive",
        "calm_trainer.py",
        "            self.algos.append(policy)",
        "            self.algos = [*self.algos, policy][-12:]",
    ),
    "always counting": (
        "stagnation",
        "archive below",
        "calm_trainer.py",
        "self.age_stuck + full",
        "self.age_stuck + 1",
    ),
    "a reset by the admitted alone": (
        "stagnation",
        "child above the best by less than equality",
        "calm_trainer.py",
        "any(perf > top for perf in ran)",
        "any(perf >= top + SAME for perf in ran)",
    ),
    "a reset by the bases": (
        "stagnation",
        "child above its base alone",
        "calm_trainer.py",
        "any(perf > top for perf in ran)",
        "any(reward > 1 for reward in rewards)",
    ),
    "never a reset": (
        "stagnation",
        "child above the best",
        "calm_trainer.py",
        "0 if any(perf > top for perf in ran) else ",
        "",
    ),
    "seeds lost": (
        "collapse",
        "best and seed",
        "calm_trainer.py",
        "*(seed for seed in self.seed_algos",
        "*(s for s in []",
    ),
    "components forgotten": (
        "collapse",
        "best and seed, injected",
        "calm_trainer.py",
        "self.used_prompts, self.age_stuck = [], 0",
        "self.used_prompts, self.injected_components, self.age_stuck = [], [], 0",
    ),
    "an early collapse": (
        "collapse",
        "at counter 10",
        "calm_trainer.py",
        "speed_collapse * self",
        "speed_collapse * 20 * self",
    ),
    "another default threshold": (
        "collapse",
        "threshold -1",
        "calm_trainer.py",
        "args.max_steps // 20",
        "args.max_steps // 10",
    ),
    "a default for -1 alone": (
        "collapse",
        "threshold -2",
        "calm_trainer.py",
        "limit < 0 else",
        "limit == -1 else",
    ),
    "late crossover": ("operators", "2 members", "calm_trainer.py", "if size < 2", "if size < 6"),
    "no first fill": (
        "operators",
        "5 members",
        "calm_trainer.py",
        '"injection"] = max(weights.values())',
        '"x"] = 0',
    ),
    "one more than the largest weight": (
        "operators",
        "1 members",
        "calm_trainer.py",
        "= max(weights.values())",
        "= max(weights.values()) + 1",
    ),
    "parents without rank": ("parents", "5 members", "calm_trainer.py", "1 / rank for", "1 for"),
    "an unfair coin": (
        "parents",
        "14 members",
        "calm_trainer.py",
        "random.random() < 0.5 else",
        "random.random() < 0.9 else",
    ),
    "padded performance": (
        "prompts",
        "simplification, layout",
        "utils.py",
        "return str(int(abs(number) * 1000) / 1000)",
        'return f"{int(abs(number) * 1000) / 1000:.3f}"',
    ),
    "rounded performance": (
        "prompts",
        "crossover, layout",
        "utils.py",
        "int(abs(number) * 1000) / 1000",
        "round(abs(number), 3)",
    ),
    "the task last": (
        "prompts",
        "replacement, task first",
        "calm_trainer.py",
        "[task, *shown]",
        "[*shown, task]",
    ),
    "worst first": (
        "prompts",
        "crossover, layout",
        "calm_trainer.py",
        "key=lambda algo: algo.perf)[::-1], start",
        "key=lambda algo: algo.perf), start",
    ),
    "eleven components named": ("prompts", "injection, components", "calm_trainer.py", "[-10:]", "[-11:]"),
    "the same prompt again": (
        "prompts",
        "a round of four",
        "calm_trainer.py",
        "if drawn is not None and drawn.text not in [used.text for used in self.used_prompts]",
        "if True",
    ),
}


def findings(path: Path, *checks: str, draws: int = 600) -> list[HostFinding]:
    """What the comparison of bin packing says of the small split."""
    words = path / "words.toml"
    asked = conform(path, ["obp"], checks, programs=3, draws=draws, split="embedded", words=words)
    return [finding for _, _, finding in asked]


def agreements(found: list[HostFinding]) -> set[Agreement]:
    """What the findings amount to."""
    return {finding.verdict.agreement for finding in found}


def test_the_standin_agrees(calm: Path) -> None:
    """Every check of an honest stand-in on its default configuration agrees."""
    found = findings(calm, *CHECKS)
    assert [finding for finding in found if finding.verdict.agreement is not Agreement.EQUAL] == []
    assert len({finding.subject for finding in found}) > 100


def test_draws_are_seeded(calm: Path) -> None:
    """Two comparisons draw the same prompts: their findings are the same to the last digit."""
    assert findings(calm, "operators", "parents") == findings(calm, "operators", "parents")


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


ALL = {**MUTANTS, **SETTINGS, **RULES}
DRAWS = {"parents": 5000, "operators": 2000, "prompts": 3000, "collapse": 2000}


@pytest.mark.usefixtures("one_pool")
@pytest.mark.parametrize(("check", "subject", "file", "old", "new"), ALL.values(), ids=ALL)
def test_every_mutant_is_found(
    sabotaged: Sabotage, check: str, subject: str, file: str, old: str, new: str
) -> None:
    """The check that a changed fact belongs to says that it differs, and names it."""
    calm = sabotaged(file, old, new)
    # A coin that is hardly unfair shows in many draws, most other frequencies in few.
    for draws in (300, DRAWS.get(check, 300)):
        found = findings(calm, check, draws=draws)
        differing = [one for one in found if one.verdict is Verdict.DIFFERS]
        if any(one.subject.startswith(subject) for one in differing):
            break
    assert any(one.subject.startswith(subject) for one in differing), found
    assert all(one.detail for one in differing)


def test_injection_of_a_later_version_is_named(sabotaged: Sabotage) -> None:
    """Frequencies that the largest weight plus one explains are said to come from it."""
    found = findings(
        sabotaged("calm_trainer.py", "= max(weights.values())", "= max(weights.values()) + 1"), "operators"
    )
    details = {one.subject: one.detail for one in found if one.verdict is Verdict.DIFFERS}
    assert "1 members" in details
    assert all(
        detail.endswith("injection has the largest weight plus one (9)") for detail in details.values()
    )


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("args.py", "-0.95", "-0.94"), ("calm_trainer.py", "None, args.reward_code", "None, -0.94")],
)
def test_a_changed_severity_is_no_matter_of_parsing(
    sabotaged: Sabotage, file: str, old: str, new: str
) -> None:
    """Parsing differs nowhere; with a severity that no option names it is not compared, and says why."""
    found = findings(sabotaged(file, old, new), "parsing")
    assert not [one for one in found if one.verdict is Verdict.DIFFERS]
    unknown = {one.detail for one in found if one.verdict is Verdict.UNKNOWN}
    assert unknown <= {"its reward of -0.94 is no severity that the checkout's options name"}
    assert bool(unknown) == (file == "calm_trainer.py")


def test_the_files_that_options_name(calm: Path) -> None:
    """A seed or template that an option names is the one compared; one that is not there is named."""
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
def test_the_command_names_options(sabotaged: Sabotage, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option that differs is a line with the paper's value, ours and the checkout's; exit code 1."""
    for old, new, _ in OPTION_LINES.values():
        calm = sabotaged("args.py", old, new)
    assert main(["conformance", "--calm", str(calm), "--problem", "obp", "--check", "options"]) == 1
    out = capsys.readouterr().out
    for name, (_, _, said) in OPTION_LINES.items():
        assert f"obp   options      differs           {name} ({said})" in out.splitlines()
    assert f" {len(OPTION_LINES)} differ, 0 not compared" in out.splitlines()[-1]


def test_the_command_says_that_it_agrees(standin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the real training instances: a line per finding, one that counts them by family, exit code 0.

    Standard error says how far it is, and nothing of it gets into the findings.
    """
    command = ["--problem=obp", "--check=data", "--check=operators", "--draws=50"]
    assert main(["conformance", "--calm", str(standin), *command]) == 0
    told = capsys.readouterr()
    *findings, last = told.out.splitlines()
    assert last == "s2s: EQUAL: 11 equal, 0 differ, 0 not compared; of data 4, operators 7 (325 draws)"
    assert all(line.startswith("obp   ") for line in findings)
    assert told.err.splitlines() == ["obp: 0/3 our evaluator and the seed", "obp: 3/3"]


def test_words_that_nobody_knows_are_not_compared(calm: Path, tmp_path: Path) -> None:
    """Without their fingerprints no words count as equal; a finding prints what to write down."""
    words = tmp_path / "none.toml"
    words.write_text("")
    asked = [*conform(calm, ["obp"], ["prompts"], programs=1, draws=50, split="embedded", words=words)]
    unknown = [one for _, _, one in asked if one.verdict is Verdict.UNKNOWN]
    assert len(unknown) == 6
    for line in (calm / "words.toml").read_text().splitlines()[2:]:
        name, fingerprint = line.replace('"', "").split(" = ")
        assert [fingerprint in one.detail for one in unknown if one.subject == f"words of {name}"] == [True]
    words.write_text("words = 3")
    with pytest.raises(ConfigError, match="no table words"):
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
    """A missing base is a rule of the host; what only its constructor sets is a lack of the comparison."""
    calm = sabotaged("calm_trainer.py", "in TASKS else 0.0", f"in TASKS else {wanted}")
    (found,) = (one for one in findings(calm, "rewards") if one.subject == "creation, a valid child")
    assert found.verdict is verdict
    assert said in found.detail


@pytest.mark.usefixtures("one_pool")
def test_a_difference_and_nothing_else_are_told_apart(
    sabotaged: Sabotage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 where something differs, 11 where something was not compared and nothing differs."""
    calm = sabotaged("args.py", "-0.95", "-0.94")
    command = ["conformance", "--calm", str(calm), "--problem", "obp", "--check", "rewards"]
    assert main(command) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("s2s: DIFFERS: ")
    sabotaged("args.py", "-0.94", "-0.95")
    sabotaged("calm_trainer.py", "        top = max(", "        self.gone\n        top = max(")
    assert main(command) == 11
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("s2s: NOT COMPARED: 0 equal, 0 differ, ")
    assert all("no attribute 'gone'" in line for line in lines[:-1])


def test_what_raises_is_not_compared_and_the_rest_goes_on(sabotaged: Sabotage) -> None:
    """A failure of the host in one round is one finding with its reason; the other checks go on."""
    old = "        self.age_stuck = 0 if any"
    found = findings(sabotaged("calm_trainer.py", old, f"        1 / (self.age_stuck - 3)\n{old}"), *CHECKS)
    unknown = [one for one in found if one.verdict is Verdict.UNKNOWN]
    assert len(unknown) == 11
    assert all(re.fullmatch(r"ZeroDivisionError in calm_trainer.py:\d+", one.detail) for one in unknown)
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}


def test_a_time_out_is_no_difference(sabotaged: Sabotage) -> None:
    """Programs that the host's wall clock stops are not compared; its own scores of them still are."""
    found = findings(
        sabotaged("heuristic.py", "TIME_LIMIT_S = 60", "TIME_LIMIT_S = 0"), "evaluators", "rewards"
    )
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}
    unknown = [one for one in found if one.verdict is Verdict.UNKNOWN]
    assert "replacement, better" in {one.subject for one in unknown}
    assert all("time limit" in one.detail for one in unknown)


def test_an_evaluator_that_fails_on_its_own_seed_says_nothing(sabotaged: Sabotage) -> None:
    """Where this machine stops the released seed too, no program is said to differ."""
    old = "        began, perfs ="
    calm = sabotaged("heuristic.py", old, f"        self.not_here\n{old}")
    found = findings(calm, "evaluators", "rewards", "stagnation")
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}
    details = {one.detail for one in found if one.verdict is Verdict.UNKNOWN}
    assert any("no attribute 'not_here'" in detail for detail in details)
    assert any("its own seed heuristic a runtime failure" in detail for detail in details)


def test_a_threshold_made_elsewhere_is_not_compared(sabotaged: Sabotage) -> None:
    """Where the host replaces -1 in its constructor, which is not run, nothing is said of it."""
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
    """Neither findings, nor the reasons of failures, nor the host itself print what it asks."""
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
def test_what_workers_print_stays_out(sabotaged: Sabotage, capsys: pytest.CaptureFixture[str]) -> None:
    """A thread of Ray's repeats what its workers print, at any time: the report has its own lines alone."""
    talking = """        import threading
        for wait in (0.01, 0.1):
            threading.Timer(wait, print, [f"(evaluate_code pid=1)\\nTraceback of {code}"]).start()
"""
    old = "        policy = HeuristicPolicy(function_in(code), "
    calm = sabotaged("calm_trainer.py", old, talking + old)
    checks = ["--problem=obp", "--check=rewards", "--check=operators", "--draws=600"]  # the last runs nothing
    assert main(["conformance", "--calm", str(calm), *checks]) == 0
    captured = capsys.readouterr()
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
    """Workers that the host started import from a directory that goes away: they are stopped before."""
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


def test_a_problem_that_the_checkout_lacks(standin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Among all problems it is not compared; asked for by name it is an error that names the file."""
    assert main(["conformance", "--calm", str(standin), "--check", "data"]) == 11
    out = capsys.readouterr().out
    assert "the checkout has no problems/op_aco.py and no configs/op_aco" in out
    assert out.splitlines()[-1].endswith(" 0 differ, 2 not compared; of data 5, all 2")
    assert main(["conformance", "--calm", str(standin), "--problem", "op"]) == 12
    assert "problems/op_aco.py is missing" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "name"), [("--check", "luck"), ("--problem", "chess")])
def test_unknown_names(standin: Path, capsys: pytest.CaptureFixture[str], option: str, name: str) -> None:
    """An unknown check or problem is refused with those that are known."""
    assert main(["conformance", "--calm", str(standin), option, name]) == 2
    assert f"{option} {name}: give one of " in capsys.readouterr().err
