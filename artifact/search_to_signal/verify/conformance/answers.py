"""What an answer is worth: the scores of its program, its typed outcome, its native reward."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from search_to_signal.base.errors import HostError
from search_to_signal.problems.base import Problem
from search_to_signal.records.schema import Operator
from search_to_signal.sandbox.programs import sha256_text
from search_to_signal.search.hosts.calm.prompts import CROSSOVER, INJECTION, REPLACEMENT, SIMPLIFICATION
from search_to_signal.search.hosts.calm.state import state_of
from search_to_signal.search.hosts.released.host import PlayedGroup
from search_to_signal.verify.conformance.pair import (
    HostFinding,
    HostPair,
    Verdict,
    answer,
    attempted,
    numbers,
    odd_answers,
    reason,
    things,
)

_TWO_WAYS = {
    "tsp": (21, "min(unvisited_nodes, key=lambda node: sign * distance_matrix[current_node][node])"),
    "obp": (21, "-sign * remaining_capacity"),
    "cvrp": (1, "distance_matrix ** -sign"),
    "op": (1, "prize[np.newaxis, :] / distance if sign > 0 else 1 / distance"),
}
"""After how many calls a counting program turns round, and its answer by sign, which is 1.0 or -1.0."""

_COUNTS = {
    "a global count": ("count = [0]", "", "    count[0] += 1\n    calls = count[0]"),
    "a count in a default": ("", ", *, count=[0]", "    count[0] += 1\n    calls = count[0]"),
    "a count on the function": ("", "", "    {name}.count = calls = getattr({name}, 'count', 0) + 1"),
}


def stateful(problem: Problem) -> dict[str, str]:
    """Programs that count their calls and turn round after some, by where they keep the count.

    A host that takes a fresh function for every instance never carries a count over (HOST.md, point 18).
    """
    (head,) = re.findall(r"^def (\w+)\((.*)\):$", problem.template, re.MULTILINE)
    limit, value = _TWO_WAYS[problem.name]
    return {
        where: (
            f"import numpy as np\n\n{before}\n\ndef {head[0]}({head[1]}{default}):\n"
            f"{count.format(name=head[0])}\n"
            f"    sign = 1.0 if calls <= {limit} else -1.0\n    return {value}"
        )
        for where, (before, default, count) in _COUNTS.items()
    }


_FORMS = {
    "tsp": {
        "the place is an int": "type(current_node) is int",
        "the destination is the int 0": "type(destination_node) is int and destination_node == 0",
        "the unvisited are a set of ints": "{*map(type, [unvisited_nodes, *unvisited_nodes])} == {set, int}",
        "the distances are floats": "type(distance_matrix) is np.ndarray and distance_matrix.dtype == float",
        "no node is its own neighbour": "distance_matrix[current_node, current_node] == 0.0",
        "nothing written stays": "distance_matrix.min() >= 0.0 and destination_node not in unvisited_nodes",
    },
    "obp": {
        "the size is a float": "type(item_size) is float",
        "the capacities are floats": "type(remaining_capacity) is np.ndarray "
        "and remaining_capacity.dtype == float",
        "every capacity fits": "remaining_capacity.ndim == 1 and remaining_capacity.min() >= item_size",
        "nothing written stays": "remaining_capacity.min() > 0.0",
    },
    "cvrp": {
        "arguments": "distance_matrix.dtype == demands.dtype == float and coordinates.shape == (51, 2) "
        "and demands.shape == (51,) and demands[0] == 0 and capacity == 50"
    },
    "op": {
        "arguments": "prize.dtype == distance.dtype == float and distance.shape == (50, 50) "
        "and prize.shape == (50,) and maxlen == 3"
    },
}
"""What holds of the arguments of every call; a program asserts it, and then writes into them."""

_SPOILED = {
    "tsp": "distance_matrix[:] = -1.0\n    unvisited_nodes.add(destination_node)",
    "obp": "remaining_capacity[:] = -1.0",
}


def forms(problem: Problem) -> dict[str, str]:
    """Programs that run where the arguments of every call have the form that ours have."""
    (head,) = re.findall(r"^def .*:$", problem.template, re.MULTILINE)
    limit, value = _TWO_WAYS[problem.name]
    return {
        f"arguments, {name}": f"import numpy as np\n\n\n{head}\n    assert {what}\n    sign = 1.0\n"
        f"    answer = {value}\n    {_SPOILED.get(problem.name, 'pass')}\n    return answer"
        for name, what in _FORMS[problem.name].items()
    }


_ANSWERS = {
    "tsp": {
        "the first of the set": "next(iter(unvisited_nodes))",
        "a node as text": "str(min(unvisited_nodes))",
        "a fraction": "min(unvisited_nodes) + 0.9",
        "the last node by -1": "-1",
        "a node as float": "float(min(unvisited_nodes))",
        "a visited node": "0",
    },
    "obp": {
        "priorities as list": "list(-remaining_capacity)",
        "one priority for all": "np.zeros_like(remaining_capacity)",
        "the middle bin": "-abs(np.arange(len(remaining_capacity)) - len(remaining_capacity) // 2)",
        "priorities that are no numbers": "remaining_capacity * np.nan",
        "one number": "1.0",
        "a priority too few": "remaining_capacity[1:]",
    },
    "cvrp": {
        "one column": "1 / distance_matrix[:, :1]",
        "a row too many": "np.vstack([1 / distance_matrix, distance_matrix[:1]])",
        "a row too few": "1 / distance_matrix[1:]",
        "not finite": "np.full(distance_matrix.shape, np.inf)",
    },
    "op": {
        "no positive weight": "np.zeros(distance.shape) - 1",
        "not finite": "np.full(distance.shape, np.nan)",
    },
}


def edges(problem: Problem) -> dict[str, str]:
    """Programs that give one odd answer (HOST.md, sections 1 and 7), and those that keep a state."""
    (head,) = re.findall(r"^def .*:$", problem.template, re.MULTILINE)
    plain = {
        name: f"import numpy as np\n\n\n{head}\n    return {value}"
        for name, value in _ANSWERS[problem.name].items()
    }
    return {**plain, **stateful(problem), **forms(problem)}


def evaluators(hosts: HostPair) -> Iterator[HostFinding]:
    """The released seed, ours in its place, generated programs, and odd ones, some with a state (18).

    Nothing is said of other programs where the released evaluator cannot run its own seed here.
    """
    own = hosts.problem.seed.code
    codes = {"our seed": own}
    codes |= {f"program {number}": code for number, code in enumerate(hosts.codes)}
    codes |= edges(hosts.problem)
    yield from attempted("released seed", _seed, hosts, "released seed", hosts.seed_code)
    for name, code in codes.items():
        yield from attempted(name, _scored, hosts, name, code)
    yield from attempted("seeds", _seed, hosts, "our seed as the released one", own)


def _seed(hosts: HostPair, subject: str, code: str) -> HostFinding:
    return numbers(subject, hosts.ours.scores(code), hosts.released_seed)


def _scored(hosts: HostPair, subject: str, code: str) -> HostFinding:
    if hosts.released_seed is None:
        return HostFinding(subject, Verdict.UNKNOWN, "the released evaluator cannot run its own seed here")
    return numbers(subject, hosts.ours.scores(code), hosts.theirs.scores(code))


def parsing(hosts: HostPair) -> Iterator[HostFinding]:
    """The typed outcome of every odd answer, judged alone, and the idea that is kept of it."""
    for name, text in odd_answers(hosts.problem, hosts.codes[0]).items():
        yield from attempted(name, _judged, hosts, name, text)


def _judged(hosts: HostPair, subject: str, text: str) -> Iterator[HostFinding]:
    state = state_of([hosts.seed], [hosts.seed])
    ours, theirs = hosts.both(state, hosts.asked(state, "parsing"), (text,))
    (own,), (other,) = ours.outcomes, theirs.outcomes
    if own is None or other is None:
        what = f"its reward of {theirs.rewards[0]} is no severity that the checkout's options name"
        yield HostFinding(subject, Verdict.UNKNOWN, what)
    else:
        yield _explained(subject, things(subject, own.value, other.value))
    if _idea(ours) or _idea(theirs):
        yield _explained(subject, things(f"{subject}, idea kept", _idea(ours), _idea(theirs)))


def _explained(subject: str, finding: HostFinding) -> HostFinding:
    """Where an idea without braces ends is read off copies, not off the pinned revision (20)."""
    if finding.verdict is Verdict.DIFFERS and subject.startswith("loose idea"):
        return replace(finding, detail=f"{finding.detail}: HOST.md, point 20, says what decides it")
    return finding


def _idea(played: PlayedGroup) -> str:
    """Length and hash of the idea of what was admitted: an idea is nothing to print."""
    ideas = [member.idea for member in played.after.archive if member.operator]
    return f"{len(ideas[0])} characters, {sha256_text(ideas[0])[:8]}" if ideas else ""


_SEVERITIES = ("nothing", "no code", "two blocks", "an error while running", "random in a comment")


def rewards(hosts: HostPair) -> Iterator[HostFinding]:
    """Rewards of each failure, and of a child beside bases whose scores were chosen for it.

    Children of a simplification and an injection are among them: a port of the host gives those 0 (29).
    """
    odd = odd_answers(hosts.problem, hosts.child[0])
    for name in _SEVERITIES:
        subject = f"severity, {name}"
        yield from attempted(subject, rewarded, hosts, subject, REPLACEMENT, [hosts.child[1]], odd[name])
    text, score = answer(hosts.child[0]), hosts.child[1]
    for subject, operator, bases in _cases(score):
        yield from attempted(subject, rewarded, hosts, subject, operator, bases, text)
    far = 0.3 * abs(score) or 1.0
    for subject, other, shown in (("better", score - far, (1,)), ("worse, equal to another", score, (0,))):
        subject, bases = f"{subject}, beside a member not shown", [score + far, other]
        yield from attempted(subject, rewarded, hosts, subject, REPLACEMENT, bases, text, shown)
    yield from attempted("creation", _created, hosts)


def _created(hosts: HostPair) -> HostFinding:
    """A valid child of a creation prompt: it has no base, and a host may fail over that (16)."""
    (state, asked), text = hosts.creation(), answer(hosts.child[0])
    hosts.both(state, hosts.asked(state, "beside a creation"), (text,))  # raises where any prompt does
    ours = hosts.ours.play(state, asked, (text,)).rewards
    try:
        theirs = hosts.theirs.play(state, asked, (text,)).rewards
    except HostError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the host raises without a base
        wanted = getattr(error, "obj", None)
        if wanted is hosts.theirs.trainer or wanted is hosts.theirs.trainer.calm_args:
            why = f"{reason(error)}: it wanted what only the host's constructor sets"
            return HostFinding("creation, a valid child", Verdict.UNKNOWN, why)
        raised = f"ours {ours}, theirs wanted a base: {reason(error)} (HOST.md, point 16)"
        return HostFinding("creation, a valid child", Verdict.DIFFERS, raised)
    return numbers("creation, a valid child", ours, theirs)


def _cases(score: float) -> Iterator[tuple[str, Operator, list[float]]]:
    """What a child of this score is beside the bases, the operator, and the scores of the bases."""
    far, near = 0.3 * abs(score) or 1.0, 5e-8
    bases = {"better": score - far, "equal": score, "worse": score + far}
    for operator in (SIMPLIFICATION, INJECTION, REPLACEMENT):
        for name, base in bases.items():
            yield f"{operator}, {name}", operator, [base]
    yield "better by almost nothing", REPLACEMENT, [score - near]
    yield "worse by almost nothing", REPLACEMENT, [score + near]
    yield "better by the last bit", REPLACEMENT, [float(np.nextafter(score, -np.inf))]
    yield "worse many times over", REPLACEMENT, [score + 9 * abs(score) + 1]
    yield "better many times over", REPLACEMENT, [score - 9 * abs(score) - 1]
    yield "beside a score of zero", REPLACEMENT, [0.0]
    yield "crossover, better", CROSSOVER, [score - far, score - 2 * far]
    yield "crossover, a copy of the lesser base", CROSSOVER, [score + far, score]
    yield "crossover, between the bases", CROSSOVER, [score + far, score - far]
    yield "crossover, worse", CROSSOVER, [score + 2 * far, score + far]


def rewarded(
    hosts: HostPair,
    subject: str,
    operator: Operator,
    bases: list[float],
    text: str,
    shown: tuple[int, ...] | None = None,
) -> HostFinding:
    """The rewards of one answer beside members of these scores; a prompt shows all unless ``shown``."""
    state = hosts.members(bases)
    asked = hosts.asked(state, subject, operator, tuple(range(len(bases))) if shown is None else shown)
    ours, theirs = hosts.both(state, asked, (text,))
    finding = numbers(subject, ours.rewards, theirs.rewards)
    if finding.verdict is Verdict.CLOSE and ours.scores == theirs.scores:
        return replace(finding, verdict=Verdict.DIFFERS)  # equal scores have equal rewards, to the bit (23)
    return finding
