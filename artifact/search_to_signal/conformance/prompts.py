"""What a prompt shows, and in which order; its words are neither compared nor printed."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os.path import commonprefix

from search_to_signal.conformance.findings import HostFinding, attempted, things
from search_to_signal.conformance.frequencies import frequencies
from search_to_signal.conformance.host_pair import HostPair
from search_to_signal.hosts.calm.operators import CREATION, CROSSOVER, REPLACEMENT
from search_to_signal.hosts.calm.prompts import REPLACEMENT_VARIANTS, build_prompt
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.hosts.released.host import ONE_PARENT
from search_to_signal.hosts.released.trainer import content, load
from search_to_signal.hosts.released.wording import words_of
from search_to_signal.problems.base import HasStatement, Problem
from search_to_signal.programs.markers import OPENING
from search_to_signal.records.schema import Operator
from search_to_signal.search.member import Member

_SCORES = [-14.54, -27.03984]
"""The first would be padded to three decimals, the second rounded up to them."""
_INJECTED = tuple(f"part {letter}" for letter in "abcdefghijkl")
_ROUND = 4
_MARKS = {
    "opening phrase between double braces": rf"\{{\{{{OPENING}",
    "layout of the code": "```python",
    "an original idea": "(?i)original",
    "the same inputs and outputs": "(?is)input.*output",
    "deterministic": "(?i)deterministic",
    "no usage examples": "(?i)usage example",
    "no tuned constants": "(?i)tuned|hyper-?parameter",
    "nothing else": "(?i)nothing else|additional|anything else",
}
"""What stands for each request of the system message, in our words as in others (HOST.md, Prompts)."""


def prompts(hosts: HostPair) -> Iterator[HostFinding]:
    """Order, numbers, exclusions, wordings, roles, and that a round asks nothing twice (12 and 28)."""
    state = replace(hosts.members(_SCORES), injected=_INJECTED)
    for operator in (*ONE_PARENT, CROSSOVER):
        yield from attempted(operator, _compared, hosts, state, operator)
    yield from attempted("creation", _creation, hosts)
    yield from attempted("task first", _task_first, hosts, state)
    yield from attempted("wordings of replacement", _wordings, hosts, state)
    yield from attempted("messages", _messages, hosts)
    yield from attempted("system text", _system, hosts, state)
    yield from attempted("a round of four", _distinct, hosts, state)


def _ours(problem: Problem, operator: Operator, shown: Sequence[Member], injected: tuple[str, ...]) -> str:
    return build_prompt(problem, operator, shown, injected=injected, form="released").user


def _compared(hosts: HostPair, state: SearchState, operator: Operator) -> Iterator[HostFinding]:
    bases = (0, 1) if operator == CROSSOVER else (0,)
    shown = [state.archive[position] for position in bases]
    asked = hosts.asked(state, f"prompt {operator}", operator, bases)
    texts = _ours(hosts.problem, operator, shown, state.injected), asked.prompt
    units = (hosts.problem.unit, str(hosts.theirs.trainer.problem.unit))
    name = operator
    yield things(f"{name}, order of the heuristics", *(_order(text, shown) for text in texts))
    yield things(f"{name}, numbers", *(_numbers(text, shown) for text in texts))
    yield things(f"{name}, ideas shown", *([member.idea in text for member in shown] for text in texts))
    yield things(f"{name}, unit shown", *(unit in text for unit, text in zip(units, texts, strict=True)))
    yield things(f"{name}, components named", *([part in text for part in _INJECTED] for text in texts))


def _creation(hosts: HostPair) -> HostFinding:
    """What is asked where no other prompt can be made (12)."""
    _, asked = hosts.creation()
    return things("creation, template shown", True, hosts.template.strip() in asked.prompt)


def _order(text: str, shown: Sequence[Member]) -> list[int]:
    """Positions of the shown members, in the order of their codes in a prompt."""
    return sorted(range(len(shown)), key=lambda i: text.find(shown[i].code.strip()))


def _numbers(text: str, shown: Sequence[Member]) -> list[str]:
    """The decimal numbers that a prompt prints outside of codes and ideas."""
    for member in shown:
        text = text.replace(member.code.strip(), "").replace(member.idea, "")
    return re.findall(r"\d+\.\d+", text)


def _task_first(hosts: HostPair, state: SearchState) -> HostFinding:
    """Whether prompts of two operators part before the first heuristic that they show."""
    (best, *_), known = state.archive, state.injected
    ours = [_ours(hosts.problem, operator, [best], known) for operator in ONE_PARENT]
    with hosts.seeded("task first"):
        theirs = [hosts.theirs.worded(best, known, operator)[0] for operator in ONE_PARENT]
    parted = [len(commonprefix(texts)) < texts[0].find(best.idea) for texts in (ours, theirs)]
    return things("task first", *parted)


def _wordings(hosts: HostPair, state: SearchState) -> Iterator[HostFinding]:
    best = state.archive[0]
    with hosts.seeded("wordings"):
        drawn = [hosts.theirs.worded(best, (), REPLACEMENT) for _ in range(5)]
    counted = Counter(words_of(text, [best]) for texts in drawn for text in texts)
    yield things("wordings of replacement", REPLACEMENT_VARIANTS, len(counted))
    expected = dict.fromkeys(counted, 1 / len(counted))
    yield frequencies("wordings of replacement, how often", counted, expected)


def _messages(hosts: HostPair) -> Iterator[HostFinding]:
    (chat,) = hosts.theirs.rows(1)
    yield things("messages", ["system", "user"], [str(message["role"]) for message in chat])


def _system(hosts: HostPair, state: SearchState) -> Iterator[HostFinding]:
    """What the system message says, by marks that stand for it, and that it is the same in every prompt."""
    texts = set()
    for operator in (*ONE_PARENT, CROSSOVER):
        texts.add(str(hosts.asked(state, f"system {operator}", operator).chat[0]["content"]))
    yield things("system text, how many there are", 1, len(texts))
    problem, module = hosts.problem, hosts.theirs.trainer.problem
    about = problem.statement if isinstance(problem, HasStatement) else problem.description
    ours = build_prompt(problem, CREATION, [], form="released").system
    for text in texts:
        yield things("system text, name of the problem", problem.title in ours, module.name in text)
        yield things("system text, description of the problem", about in ours, module.description in text)
        for name, mark in _MARKS.items():
            yield things(f"system text, {name}", *(bool(re.search(mark, system)) for system in (ours, text)))


def _distinct(hosts: HostPair, state: SearchState) -> HostFinding:
    """A round of four prompts on one member, of which five are possible."""
    lone_state = replace(state, archive=state.archive[:1])
    with hosts.seeded("a round"):
        load(hosts.theirs.trainer, hosts.theirs.policy, lone_state)
        rows = hosts.theirs.rows(_ROUND)
    return things("a round of four, different prompts", _ROUND, len({content(row) for row in rows}))
