"""The memory of injected components."""

from collections.abc import Iterator
from dataclasses import replace

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, attempted, things
from search_to_signal.hosts.conformance.questions import answer
from search_to_signal.programs.markers import COMPONENT_AFTER, COMPONENT_BEFORE, OPENING
from search_to_signal.records.schema import Operator
from search_to_signal.search.state import SearchState

_KNOWN = "a known part"


def components(bench: Bench) -> Iterator[Finding]:
    """What is stored after one answer, by where and how it announces a component (15 and 19)."""
    code, score = bench.child
    idea = f"{OPENING} do what the code says."
    state = replace(bench.members([score + 1.0, score - 1.0]), injected=(_KNOWN,))
    equal = replace(bench.members([score + 1.0, score]), injected=(_KNOWN,))
    broken = f"{code}\nraise ValueError"
    texts = {
        "in the idea": answer(code, f"{idea} {_said('part')}"),
        "before the idea": f"{_said('part')}\n{answer(code)}",
        "after the code": f"{answer(code)}\n{_said('part')}",
        "apostrophe and hyphen": f"{answer(code)}\n{_said(chr(39) + 'half-open' + chr(39))}",
        "round brackets": f"{answer(code)}\n{_said('part (a)')}",
        "square brackets": f"{answer(code)}\n{_said('part [a]')}",
        "a digit": f"{answer(code)}\n{_said('part 2')}",
        "known before": f"{answer(code)}\n{_said(_KNOWN)}",
        "without code": f"{{{{{idea}}}}}\n{_said('part')}",
        "of a program that does not load": f"{answer(broken)}\n{_said('part')}",
    }
    asked = [(name, state, Operator.INJECTION, text) for name, text in texts.items()]
    asked.append(("of a child not admitted", equal, Operator.INJECTION, texts["after the code"]))
    asked.append(("after a replacement", state, Operator.REPLACEMENT, texts["after the code"]))
    for subject, before, operator, text in asked:
        yield from attempted(subject, _stored, bench, subject, before, operator, text)


def _stored(bench: Bench, subject: str, before: SearchState, operator: Operator, text: str) -> Finding:
    ours, theirs = bench.both(before, bench.asked(before, subject, operator), (text,))
    return things(subject, ours.after.injected, theirs.after.injected)


def _said(component: str) -> str:
    return f"{COMPONENT_BEFORE} {component} {COMPONENT_AFTER}."
