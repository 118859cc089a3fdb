"""All checks on a checkout, problem by problem."""

import ast
import inspect
import re
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.package_data import PROFILES
from search_to_signal.base.progress import PlainProgress, Progress, counted
from search_to_signal.credit.base import SEVERITY
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.settings import GenerationSettings
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import HasStatement, euclidean
from search_to_signal.problems.op import fused_euclidean
from search_to_signal.records.schema import Operator
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import OPENING, sha256_text
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    REPLACEMENT,
    REPLACEMENT_VARIANTS,
    build_prompt,
)
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.hosts.released.checkout import (
    NAMES,
    ReleasedCheckout,
    known_words,
    offered,
    opened,
    require_checkout,
    require_interface,
    require_pinned,
)
from search_to_signal.search.hosts.released.host import (
    ONE_PARENT,
    TIME_LIMIT_S,
    quiet,
    released_host,
    words_of,
)
from search_to_signal.search.hosts.released.trainer import changed, content, load, settings_of, severities_of
from search_to_signal.search.member import Member
from search_to_signal.verify.conformance.answers import evaluators, parsing, rewards
from search_to_signal.verify.conformance.pair import (
    HostFinding,
    HostPair,
    ReferenceSide,
    Verdict,
    answer,
    arrays,
    attempted,
    crossovers,
    frequencies,
    reason,
    things,
)
from search_to_signal.verify.conformance.rules import (
    HEAD,
    collapse,
    components,
    operators,
    parents,
    stagnation,
    ties,
    transition,
)

# What a prompt shows, in which order, and by fingerprints its words, which are never printed.
#
# May differ: the name, the description and the unit of the problem, blanks and line ends, braces around an
# idea, a fence around the template, and whether the announcement of a component is asked for before or after
# the heuristic. Whatever else differs between two prompts is a finding.

_SCORES = [-14.54, -27.03984]
"""The first would be padded to three decimals, the second rounded up to them."""
_INJECTED = tuple(f"part {letter}" for letter in "abcdefghijkl")
_ROUND, _ROUNDS = 4, 25
_MARKS = {
    "opening phrase between double braces": rf"\{{\{{{OPENING}",
    "layout of the code": "```python",
    "an original idea": "(?i)original",
    "an idea that explains itself": "(?i)self-?contained|its own|itself",
    "no reference to others": "(?i)(prior|previous|earlier|existing|other) (ideas?|codes?|algorithms?)",
    "one function": "(?i)(single|one)( python)? function",
    "the same inputs and outputs": "(?is)input.*output",
    "deterministic": "(?i)deterministic",
    "no usage examples": "(?i)usage example",
    "no tuned constants": "(?i)tuned|hyper-?parameter",
    "nothing else": "(?i)nothing else|additional|anything else",
}
"""What stands for each request of the system message, in our words as in others (HOST.md, Prompts)."""


def prompts(hosts: HostPair) -> Iterator[HostFinding]:
    """Layout, exclusions, wordings, roles, words, and that a round asks nothing twice (12 and 28)."""
    state = replace(hosts.members(_SCORES), injected=_INJECTED)
    for operator in (*ONE_PARENT, CROSSOVER):
        yield from attempted(operator, _prompt_compared, hosts, state, operator)
    yield from attempted("a lesser parent", _shown, hosts, state, ONE_PARENT[0], (1,), "a lesser parent")
    yield from attempted("creation", _creation, hosts)
    yield from attempted("task first", _tasks, hosts, state)
    yield from attempted("wordings of replacement", _wordings, hosts, state)
    yield from attempted("equal parents", _equal, hosts)
    yield from attempted("messages", _messages, hosts)
    yield from attempted("system text", _system, hosts, state)
    for name in (*ONE_PARENT, CROSSOVER, CREATION, "system"):
        yield from attempted(f"words of {name}", _words, hosts, state, name)
    yield from attempted("a round of four", _distinct, hosts)
    yield from attempted("a prompt of an earlier round", _again, hosts)


def _prompt_compared(hosts: HostPair, state: SearchState, operator: Operator) -> Iterator[HostFinding]:
    bases = (0, 1) if operator == CROSSOVER else (0,)
    texts = _texts(hosts, state, operator, bases)
    yield _shown(hosts, state, operator, bases, operator)
    yield things(f"{operator}, components named", *(re.findall(r"part [a-l]\b", text) for text in texts))
    if operator != INJECTION:
        ends = [_bare(text.rpartition(state.archive[bases[-1]].code.strip())[2]) for text in texts]
        yield things(f"{operator}, words after the last heuristic", *map(bool, ends))


def _texts(
    hosts: HostPair, state: SearchState, operator: Operator, bases: tuple[int, ...]
) -> tuple[str, str]:
    shown = [state.archive[position] for position in bases]
    ours = build_prompt(hosts.problem, operator, shown, injected=state.injected, form="released").user
    return ours, hosts.asked(state, f"prompt {operator} {bases}", operator, bases).prompt


def _shown(
    hosts: HostPair, state: SearchState, operator: Operator, bases: tuple[int, ...], name: str
) -> HostFinding:
    units = (hosts.problem.unit, str(hosts.theirs.trainer.problem.unit))
    members = [state.archive[position] for position in bases]
    texts = zip(_texts(hosts, state, operator, bases), units, strict=True)
    return things(f"{name}, layout", *(_layout(text, members, unit) for text, unit in texts))


def _number(unit: str) -> str:
    return rf"(?<![\w.])[-\u2212]?\d+(?:\.\d+)?(?:\s*{re.escape(unit)})?"


def _layout(text: str, shown: Sequence[Member], unit: str) -> str:
    """Every number with its sign and unit, every idea and every fenced code of a prompt, in order."""
    for i, member in sorted(enumerate(shown), key=lambda item: -len(item[1].idea)):
        code = member.code.strip()
        text = re.sub(rf"```python\s*{re.escape(code)}\s*```", f"\0code {i}\0", text)
        text = text.replace(code, f"\0bare code {i}\0").replace(member.idea, f"\0idea {i}\0")
    found = re.findall(rf"\0[^\0]*\0|{_number(unit)}", text)
    return ", ".join(part.strip("\0").replace(unit, "unit") for part in found)


def _bare(text: str) -> str:
    return " ".join(re.findall(r"[^\W\d_]+", text))


def _creation(hosts: HostPair) -> HostFinding:
    _, asked = hosts.creation()
    return things("creation, template shown", 1, asked.prompt.count(hosts.template.strip()))


def _tasks(hosts: HostPair, state: SearchState) -> Iterator[HostFinding]:
    """Whether there are other words before the first heuristic than the head that every heuristic has."""
    first, second = state.archive
    both = _texts(hosts, state, CROSSOVER, (0, 1))
    heads = [_bare(text.partition(first.code.strip())[2].partition(second.idea)[0]) for text in both]
    for operator in (*ONE_PARENT, CROSSOVER):
        texts = both if operator == CROSSOVER else _texts(hosts, state, operator, (0,))
        before = [_bare(text.partition(first.idea)[0]) for text in texts]
        asks = [bool(words.removesuffix(head)) for words, head in zip(before, heads, strict=True)]
        yield things(f"{operator}, task first", *asks)


def _wordings(hosts: HostPair, state: SearchState) -> Iterator[HostFinding]:
    best = state.archive[0]
    with hosts.seeded("wordings"):
        drawn = hosts.theirs.worded(best, (), REPLACEMENT, hosts.draws)
    counted = Counter(words_of(text, [best]) for text in drawn)
    yield things("wordings of replacement", REPLACEMENT_VARIANTS, len(counted))
    expected = dict.fromkeys(counted, 1 / len(counted))
    yield frequencies("wordings of replacement, how often", counted, expected)


def _equal(hosts: HostPair) -> HostFinding:
    """Which of two equal parents a crossover shows first: the host lists both again before each prompt."""
    first, second = hosts.members([0.0, 0.0]).archive
    state = state_of([replace(first, idea="one"), replace(second, idea="other")], [hosts.seed])
    with hosts.seeded("equal parents"), hosts.theirs.sized(HEAD // 2):
        drawn = [next(hosts.theirs.asks(state, CROSSOVER, named=False)) for _ in range(hosts.draws // 4)]
    expected = crossovers(state.listed(), msgspec.structs.replace(hosts.settings, population_size=HEAD // 2))
    return frequencies("equal parents, order", Counter((one.operator, one.shown) for one in drawn), expected)


def _messages(hosts: HostPair) -> Iterator[HostFinding]:
    (chat,) = hosts.theirs.rows(1)
    yield things("messages", ["system", "user"], [str(message["role"]) for message in chat])


def _system(hosts: HostPair, state: SearchState) -> Iterator[HostFinding]:
    """What the system message says, by marks that stand for it, and that it is the same in every prompt."""
    texts = {_system_text(hosts, state, operator) for operator in (*ONE_PARENT, CROSSOVER)}
    yield things("system text, how many there are", 1, len(texts))
    problem, module = hosts.problem, hosts.theirs.trainer.problem
    about = problem.statement if isinstance(problem, HasStatement) else problem.description
    ours = build_prompt(problem, CREATION, [], form="released").system
    for text in sorted(texts):
        yield things("system text, name of the problem", problem.title in ours, module.name in text)
        yield things("system text, description of the problem", about in ours, module.description in text)
        for name, mark in _MARKS.items():
            yield things(f"system text, {name}", *(bool(re.search(mark, system)) for system in (ours, text)))


def _system_text(hosts: HostPair, state: SearchState, operator: Operator) -> str:
    return str(hosts.asked(state, f"system {operator}", operator).chat[0]["content"])


def _words(hosts: HostPair, state: SearchState, name: str) -> HostFinding:
    """The fingerprint of a text beside the known one (31); several wordings have one together."""
    module, best = hosts.theirs.trainer.problem, state.archive[0]
    if name == "system":
        texts = [_system_text(hosts, state, CROSSOVER)]
        parts = [str(module.description), str(module.name)]
    elif name == CREATION:
        texts, parts = [hosts.creation()[1].prompt], [hosts.template.strip()]
    else:
        parts = [part for one in state.archive for part in (one.code.strip(), one.idea)] + [*_INJECTED]
        texts = [_texts(hosts, state, CROSSOVER, (0, 1))[1]]
        if name != CROSSOVER:
            with hosts.seeded(name):
                texts = [text for known in ((), _INJECTED) for text in hosts.theirs.worded(best, known, name)]
    prints = sorted({_fingerprint(text, parts, str(module.unit)) for text in texts})
    found = prints[0] if len(prints) == 1 else _sha("".join(prints))
    known = hosts.words.get(name)
    if known is None:
        why = f"no fingerprint of them is known, here it is {found}: give it in the file of --words"
        return HostFinding(f"words of {name}", Verdict.UNKNOWN, why)
    said = f"known {known}, here {found}: HOST.md, point 31, says what decides it" * (found != known)
    return HostFinding(f"words of {name}", Verdict.DIFFERS if said else Verdict.EXACT, said)


def _fingerprint(text: str, parts: Iterable[str], unit: str) -> str:
    """Of a text without numbers and blanks, and without what a problem or a state puts in."""
    for part in sorted(parts, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", "#", text)
    return _sha(" ".join(re.sub(_number(unit), "#", text).split()))


def _sha(text: str) -> str:
    return sha256_text(text)[:16]


def _distinct(hosts: HostPair) -> HostFinding:
    """Rounds of four prompts on four members: each operator can make as many different ones."""
    state = hosts.members([-1.0, -2.0, -3.0, -4.0])
    with hosts.seeded("a round"):
        load(hosts.theirs.trainer, hosts.theirs.policy, state)
        rounds = [hosts.theirs.rows(_ROUND) for _ in range(_ROUNDS)]
    fewest = min(len({content(row) for row in rows}) for rows in rounds)
    return things("a round of four, different prompts", _ROUND, fewest)


def _again(hosts: HostPair) -> HostFinding:
    """More rounds on one member than it has prompts, each knowing those before: all show the member (12)."""
    state = hosts.members([-1.0])
    load(hosts.theirs.trainer, hosts.theirs.policy, state)
    with hosts.seeded("again"):
        texts = [content(hosts.theirs.rows(1, kept=True)[0]) for _ in range(_ROUNDS)]
    shows = all(state.archive[0].code.strip() in text for text in texts)
    return things("a prompt of an earlier round, asked again", True, shows and len(set(texts)) < _ROUNDS)


_FEWEST = 100


def data(hosts: HostPair) -> Iterator[HostFinding]:
    """Each of our arrays is sought among theirs by its shape, distances also from coordinates."""
    theirs = [array for given in hosts.theirs.arrays() for array in _with_distances(given)]
    for ours in hosts.ours.arrays():
        if ours.ndim < 2 and len(ours) < _FEWEST:
            continue
        subject = f"instances {ours.shape}"
        alike = [
            arrays(subject, *map(_without_diagonal, (ours, array)))
            for array in theirs
            if array.shape == ours.shape
        ]
        missing = HostFinding(subject, Verdict.UNKNOWN, "the released instances hold no array of that shape")
        best = min(alike, key=lambda finding: list(Verdict).index(finding.verdict), default=missing)
        yield best


def _with_distances(given: Floats) -> Iterator[Floats]:
    yield given
    if given.ndim == 3 and given.shape[2] in (2, 3):
        places = np.asarray(given[:, :, -2:], dtype=np.float64)
        yield from (places, euclidean(places), fused_euclidean(places))
        if given.shape[2] == 3:
            yield given[:, :, 0]


def _without_diagonal(array: Floats) -> Floats:
    """A copy whose diagonal is zero where the last two axes are one: hosts mark it in several ways."""
    array = np.array(array, dtype=np.float64)
    if array.ndim >= 2 and array.shape[-1] == array.shape[-2]:
        diagonal = np.arange(array.shape[-1])
        array[..., diagonal, diagonal] = 0.0
    return array


# What the checkout is set to, beside the paper and our profile of it, each by name.
#
# The other families compare rules under the checkout's own options, so none of them would notice another one.

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
        yield from attempted(name, _options_compared, name, ours[name], theirs[name])
    for failure, value in severities_of(hosts.options).items():
        yield _options_compared(f"severity of {failure.value}", SEVERITY[failure], value, SEVERITY[failure])
    yield from attempted("template", _template, hosts)
    yield from attempted("time limit", _time_limit, hosts)
    yield from attempted("log_dir", _log, hosts)


def _options_compared(name: str, ours: float, theirs: Any, paper: float | None = None) -> HostFinding:
    paper = PAPER.get(name, paper)
    if float(theirs) == ours and paper in (None, ours):
        return HostFinding(name, Verdict.EXACT)
    paper_part = "" if paper is None else f"paper {paper}, "
    return HostFinding(name, Verdict.DIFFERS, f"{paper_part}ours {ours}, checkout {theirs}")


@cache
def _ours() -> dict[str, float]:
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
    state = hosts.members([hosts.seed.score])
    hosts.theirs.play(state, hosts.asked(state, "log"), ("nothing",))
    log = Path(hosts.theirs.trainer.log_dir)
    if not log.exists():
        return HostFinding("log_dir", Verdict.UNKNOWN, "the host wrote no log in a round")
    return things("log_dir", "a file", "a file" if log.is_file() else "a directory")


Check = Callable[[HostPair], Iterator[HostFinding]]

_ALL: tuple[Check, ...] = (
    *(options, data, prompts, operators, parents, collapse, stagnation, ties, components, parsing),
    *(transition, rewards, evaluators),
)
CHECKS: dict[str, Check] = {check.__name__: check for check in _ALL}
"""By name, those that run many programs last."""


def conform(
    path: Path,
    problems: Iterable[str] | None,
    checks: Iterable[str] | None,
    programs: int,
    draws: int,
    split: str = "train",
    any_revision: bool = False,
    words: Path | None = None,
    progress: Progress | None = None,
) -> Generator[tuple[str, str, HostFinding], None, None]:
    """Yield (problem, check, finding) as they are made.

    Without ``problems`` or ``checks``, all; a problem of which the checkout has nothing is then not compared
    (D41). ``split`` names our instances; the released host has its training set. ``words`` is a file with
    fingerprints of the prompts' words, by default pin.toml (HOST.md, point 31). What cannot be compared,
    because the checkout raises there or its time is up, is a finding "not compared" with its reason, and the
    rest goes on. Raises ConfigError for an unknown name. Raises HostError, naming file and fact, before any
    code of the checkout runs, for another revision (unless ``any_revision``, D40) and another interface.
    """
    path, problems = path.resolve(), None if problems is None else list(problems)
    require_checkout(path)
    if not any_revision:
        require_pinned(path)
    available = offered(path)
    wanted = _known("--problem", problems, NAMES)
    asked = _known("--check", checks, CHECKS)
    if min(programs, draws) < 1:
        raise ConfigError("--programs and --draws count from 1")
    known = known_words(words)
    require_interface(path, [name for name in wanted if name in available or problems is not None])
    with opened(path) as checkout, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the seed of TSP takes a mean of nothing
        for name in wanted:
            if name not in available:
                missing = f"the checkout has no problems/{NAMES[name]}.py and no configs/{NAMES[name]}"
                yield name, "all", HostFinding("all", Verdict.UNKNOWN, missing)
                continue
            with ExitStack() as stack:
                pair = partial(_pair, stack, checkout, name, programs, draws, known, split)
                yield from _compared(pair, name, asked, progress)


def _known(option: str, given: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    names = list(known if given is None else given)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{option} {unknown[0]}: give one of {', '.join(known)}")
    return names


def _compared(
    made: Callable[[], HostPair], name: str, checks: list[str], progress: Progress | None
) -> Iterator[tuple[str, str, HostFinding]]:
    report = progress or PlainProgress(stream=None)
    report.update(name, 0, len(checks) + 1, "our evaluator and the seed")
    try:
        pair = made()
    except (Exception, SystemExit) as error:
        yield name, "all", HostFinding("all", Verdict.UNKNOWN, reason(error))
        return
    for done, check in enumerate(checks, start=1):
        for count, finding in enumerate(attempted("rest", CHECKS[check], pair)):
            report.update(name, done, len(checks) + 1, f"{check}, {counted(count + 1, 'finding')}")
            yield name, check, finding
    report.update(name, len(checks) + 1, len(checks) + 1)


def _pair(
    stack: ExitStack,
    checkout: ReleasedCheckout,
    name: str,
    count: int,
    draws: int,
    words: Mapping[str, str],
    split: str,
) -> HostPair:
    problem = get_problem(name)
    with quiet():
        theirs = released_host(checkout, name)
    given = checkout.options(name)  # the trainer's own are changed by what it is asked
    settings = settings_of(given)
    pool = stack.enter_context(EvaluationPool(problem, split, EvaluationSettings(replay="off")))
    ours = ReferenceSide(problem, pool, settings, split)
    seed, template = (checkout.named(name, given, option) for option in ("seed_algo_fp", "template_fp"))
    return HostPair(problem, ours, theirs, settings, given, seed, template, count, draws, words)
