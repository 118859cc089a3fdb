"""What the checkout is set to, beside the paper and our profile of it, each by name.

The other families compare rules under the checkout's own options, so none of them would notice another one.
"""

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.conformance.findings import HostFinding, Verdict, attempted, things
from search_to_signal.conformance.host_pair import HostPair
from search_to_signal.conformance.questions import answer
from search_to_signal.generators.settings import GenerationSettings
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.released.host import TIME_LIMIT_S
from search_to_signal.hosts.released.trainer import changed, settings_of, severities_of
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.package_data import PROFILES
from search_to_signal.rewards.base import SEVERITY

PAPER = {
    "prompts per step": 1,
    "generations": 4,
    "steps": 500,
    "population size": 10,
    "operator weight of simplification": 1,
    "operator weight of injection": 1,
    "operator weight of replacement": 2,
    "operator weight of crossover": 4,
    "collapse threshold": 25,
    "learning rate": 5e-5,
}
"""The paper's values (supplement, table of parameters); it does not give a collapse speed."""


def options(hosts: HostPair) -> Iterator[HostFinding]:
    """Numbers, severities of failures, template, time limit, and what the log is."""
    ours, theirs = _ours(), _theirs(hosts.options)
    for name in ours:
        yield from attempted(name, _compared, name, ours[name], theirs[name])
    for failure, value in severities_of(hosts.options).items():
        yield _compared(f"severity of {failure.value}", SEVERITY[failure], value, SEVERITY[failure])
    yield from attempted("template", _template, hosts)
    yield from attempted("time limit", _time_limit, hosts)
    yield from attempted("log_dir", _log, hosts)


def _compared(name: str, ours: float, theirs: Any, paper: float | None = None) -> HostFinding:
    paper = PAPER.get(name, paper)
    if float(theirs) == ours and paper in (None, ours):
        return HostFinding(name, Verdict.EXACT)
    paper_part = "" if paper is None else f"paper {paper}, "
    return HostFinding(name, Verdict.DIFFERS, f"{paper_part}ours {ours}, checkout {theirs}")


@cache
def _ours() -> dict[str, float]:
    """The values of our profile of the paper."""
    profile = msgspec.toml.decode((PROFILES / "paper.toml").read_bytes())
    return {
        "prompts per step": 1,
        "generations": msgspec.convert(profile["generation"], GenerationSettings).group_size,
        "steps": profile["groups"],
        **_searched(msgspec.convert(profile["search"], SearchSettings)),
        "learning rate": msgspec.convert(profile["learner"], LearnerSettings).learning_rate,
    }


def _theirs(given: Any) -> dict[str, Any]:
    return {
        "prompts per step": given.n_prompts,
        "generations": given.n_generations,
        "steps": given.max_steps,
        **_searched(settings_of(given)),
        "learning rate": given.lr,
    }


def _searched(settings: SearchSettings) -> dict[str, float]:
    return {
        "population size": settings.population_size,
        "operator weight of simplification": settings.simplification,
        "operator weight of injection": settings.injection,
        "operator weight of replacement": settings.replacement,
        "operator weight of crossover": settings.crossover,
        "collapse speed": settings.collapse_speed,
        "collapse threshold": settings.collapse_threshold,
    }


def _template(hosts: HostPair) -> Iterator[HostFinding]:
    """Names and order of the arguments, and what is returned, without annotations; the name apart (32)."""
    names, shapes = zip(*map(_shape, (hosts.problem.template, hosts.template)), strict=True)
    yield things("template", *shapes)
    finding = things("name of the template's function", *names)
    if finding.verdict is Verdict.DIFFERS:
        finding = replace(finding, detail=f"{finding.detail}: HOST.md, point 32, says what decides it")
    yield finding


def _shape(template: str) -> tuple[str, str]:
    """The functions' names, and each in one line, with whatever else stands there but imports and notes."""
    tree = ast.parse(template)
    kept = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)]
    names = ", ".join(node.name for node in kept if isinstance(node, ast.FunctionDef))
    return names, "; ".join(
        _signature(node) if isinstance(node, ast.FunctionDef) else ast.unparse(node) for node in kept
    )


def _signature(function: ast.FunctionDef) -> str:
    names = ", ".join(argument.arg for argument in function.args.args)
    body = [node for node in function.body if not isinstance(node, ast.Pass | ast.Expr)]
    return f"({names}): {'; '.join(map(ast.unparse, body))}"


def _time_limit(hosts: HostPair) -> HostFinding:
    """What an evaluation is given in a round: as seen in this process, else by default."""
    state = hosts.members([hosts.seed.score])
    asked = hosts.asked(state, "time limit")
    with _time_limits(hosts.theirs.policy) as seen:
        hosts.theirs.play(state, asked, (answer(hosts.child[0]),))
    default = [*inspect.signature(hosts.theirs.policy.run_one_episode_sync).parameters.values()][2].default
    limits = [limit for limit in (*seen, default) if isinstance(limit, int | float)]
    if not limits:
        return HostFinding("time limit", Verdict.UNKNOWN, "heuristic.py: evaluations were given none here")
    return things("time limit", f"{TIME_LIMIT_S:g} s", f"{limits[0]:g} s")


@contextmanager
def _time_limits(kind: type[Any]) -> Iterator[list[Any]]:
    """The time limits of every evaluation in this process meanwhile."""
    seen: list[Any] = []
    run = kind.run_one_episode_sync
    shape = inspect.signature(run)

    def remember(self: Any, *arguments: Any, **named: Any) -> Any:
        bound = shape.bind(self, *arguments, **named)
        bound.apply_defaults()
        seen.append(list(bound.arguments.values())[2])
        return run(self, *arguments, **named)

    with changed(kind, run_one_episode_sync=remember):
        yield seen


def _log(hosts: HostPair) -> HostFinding:
    """Whether the log of a round is a file (HOST.md, point 27)."""
    state = hosts.members([hosts.seed.score])
    hosts.theirs.play(state, hosts.asked(state, "log"), ("nothing",))
    log = Path(hosts.theirs.trainer.log_dir)
    if not log.exists():
        return HostFinding("log_dir", Verdict.UNKNOWN, "the host wrote no log in a round")
    return things("log_dir", "a file", "a file" if log.is_file() else "a directory")
