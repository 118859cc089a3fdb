"""What a prompt shows, in which order, and by fingerprints its words, which are never printed.

May differ: the name, the description and the unit of the problem, blanks and line ends, braces around a shown
idea, a fence around the template, and whether the announcement of a component is asked for before or after
the heuristic. Whatever else differs between two prompts is a finding.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from search_to_signal.problems.base import HasStatement
from search_to_signal.records.schema import Operator
from search_to_signal.sandbox.programs import OPENING, sha256_text
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    REPLACEMENT,
    REPLACEMENT_VARIANTS,
    build_prompt,
)
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.hosts.released.host import ONE_PARENT, words_of
from search_to_signal.search.hosts.released.trainer import content, load
from search_to_signal.search.member import Member
from search_to_signal.verify.conformance.pair import (
    HostFinding,
    HostPair,
    Verdict,
    attempted,
    crossovers,
    frequencies,
    things,
)
from search_to_signal.verify.conformance.rules import HEAD

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
        yield from attempted(operator, _compared, hosts, state, operator)
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


def _compared(hosts: HostPair, state: SearchState, operator: Operator) -> Iterator[HostFinding]:
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
    """What is asked where no other prompt can be made (12)."""
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
