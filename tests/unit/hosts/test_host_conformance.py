"""The comparison of hosts: an honest stand-in agrees, and every changed fact is found by name."""

import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from search_to_signal.cli import main
from search_to_signal.hosts.conformance.comparison import CHECKS, conform
from search_to_signal.hosts.conformance.findings import Agreement, Finding, Verdict
from search_to_signal.hosts.released.checkout import opened
from search_to_signal.hosts.released.trainer import changed

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
    "a severity": ("rewards", "no code", "args.py", "-0.95", "-0.94"),
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
        "simplification, numbers",
        "utils.py",
        "return str(int(abs(number) * 1000) / 1000)",
        'return f"{int(abs(number) * 1000) / 1000:.3f}"',
    ),
    "rounded performance": (
        "prompts",
        "crossover, numbers",
        "utils.py",
        "int(abs(number) * 1000) / 1000",
        "round(abs(number), 3)",
    ),
    "the task last": ("prompts", "task first", "calm_trainer.py", "[task, *shown]", "[*shown, task]"),
    "worst first": (
        "prompts",
        "crossover, order",
        "calm_trainer.py",
        "key=lambda algo: -algo.perf), start",
        "key=lambda algo: algo.perf), start",
    ),
    "eleven components named": ("prompts", "injection, components", "calm_trainer.py", "[-10:]", "[-11:]"),
    "the same prompt again": (
        "prompts",
        "a round of four",
        "calm_trainer.py",
        "if drawn.text not in [used.text for used in self.used_prompts]",
        "if True",
    ),
}


def findings(path: Path, *checks: str) -> list[Finding]:
    """What the comparison of bin packing says of the small split."""
    asked = conform(path, ["obp"], checks, programs=3, draws=600, split="embedded")
    return [finding for _, _, finding in asked]


def agreements(found: list[Finding]) -> set[Agreement]:
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


@pytest.mark.parametrize(("check", "subject", "file", "old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_every_mutant_is_found(
    sabotaged: Sabotage, check: str, subject: str, file: str, old: str, new: str
) -> None:
    """The check that a changed fact belongs to says that it differs, and names it."""
    found = findings(sabotaged(file, old, new), check)
    differing = [one.subject for one in found if one.verdict is Verdict.DIFFERS]
    assert any(one.startswith(subject) for one in differing), found
    assert all(one.detail for one in found if one.verdict is Verdict.DIFFERS)


def test_the_command_says_that_it_agrees(standin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the real training instances; a line per finding, one that counts, and exit code 0."""
    code = main(["conformance", "--calm", str(standin), "--problem", "obp", "--check", "data"])
    assert code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "s2s: EQUAL: 4 equal, 0 differ, 0 not compared"


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
    assert len(unknown) == 8
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
        sabotaged("calm_trainer.py", "args.max_steps // 20 if limit == -1 else limit", "limit"), "collapse"
    )
    assert [one.subject for one in found if one.verdict.agreement is not Agreement.EQUAL] == ["threshold -1"]
    assert agreements(found) == {Agreement.EQUAL, Agreement.NOT_COMPARED}


FAILING = """    def started(self, prompt, answer):
        print(prompt.text)
        raise KeyError(prompt.text)

"""


def test_no_prompt_is_printed(sabotaged: Sabotage, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither findings, nor the reasons of failures, nor the host itself print what it asks."""
    calm = sabotaged("calm_trainer.py", "    def started(", f"{FAILING}    def unused(")
    checks = [f"--check={name}" for name in ("stagnation", "collapse", "operators", "prompts")]
    command = ["conformance", "--calm", str(calm), "--problem=obp", "--draws=50", "--programs=1"]
    assert main([*command, *checks]) == 11
    out, err = capfd.readouterr()
    assert "KeyError in calm_trainer.py" in out
    tasks = re.findall(r'["\']([A-Z][^"\']{20,})', (calm / "calm_trainer.py").read_text(encoding="utf-8"))
    assert len(tasks) >= 6
    assert not [task for task in tasks if task in out + err]


def test_what_workers_print_stays_out(sabotaged: Sabotage, capsys: pytest.CaptureFixture[str]) -> None:
    """A thread of Ray's repeats what its workers print, at any time: the report has its own lines alone."""
    talking = """        import threading
        for wait in (0.01, 0.1):
            threading.Timer(wait, print, [f"(evaluate_code pid=1)\\nTraceback of {code}"]).start()
"""
    old = "        policy = HeuristicPolicy(function_in(code), "
    calm = sabotaged("calm_trainer.py", old, talking + old)
    checks = ["--problem=obp", "--check=rewards", "--check=operators", "--draws=600"]  # the last runs nothing
    assert main(["conformance", "--calm", str(calm), *checks]) == 1  # of other instances
    captured = capsys.readouterr()
    *findings, last = captured.out.splitlines()
    assert captured.err == ""
    assert len(findings) > 20
    assert all(re.match(r"obp   (rewards|operators) ", line) for line in findings)
    assert last.startswith("s2s: ")


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
    assert captured.err == "s2s: stopped\n"
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
    assert out.splitlines()[-1].endswith(" 0 differ, 2 not compared")
    assert main(["conformance", "--calm", str(standin), "--problem", "op"]) == 12
    assert "problems/op_aco.py is missing" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "name"), [("--check", "luck"), ("--problem", "chess")])
def test_unknown_names(standin: Path, capsys: pytest.CaptureFixture[str], option: str, name: str) -> None:
    """An unknown check or problem is refused with those that are known."""
    assert main(["conformance", "--calm", str(standin), option, name]) == 2
    assert f"{option} {name}: give one of " in capsys.readouterr().err
