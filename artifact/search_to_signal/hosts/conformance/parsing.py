"""From an answer to its typed outcome."""

from collections.abc import Iterator

from search_to_signal.hosts.compared import PlayedGroup
from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, attempted, things
from search_to_signal.hosts.conformance.questions import odd_answers
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.search.state import state_of


def parsing(bench: Bench) -> Iterator[Finding]:
    """The typed outcome of every odd answer, judged alone, and the idea that is kept of it."""
    for name, text in odd_answers(bench.problem, bench.codes[0]).items():
        yield from attempted(name, _judged, bench, name, text)


def _judged(bench: Bench, subject: str, text: str) -> Iterator[Finding]:
    state = state_of([bench.seed], [bench.seed])
    ours, theirs = bench.both(state, bench.asked(state, "parsing"), (text,))
    yield things(subject, ours.outcomes[0].value, theirs.outcomes[0].value)
    if _idea(ours) or _idea(theirs):
        yield things(f"{subject}, idea kept", _idea(ours), _idea(theirs))


def _idea(played: PlayedGroup) -> str:
    """Length and hash of the idea of what was admitted: an idea is nothing to print."""
    ideas = [member.idea for member in played.after.archive if member.operator]
    return f"{len(ideas[0])} characters, {sha256_text(ideas[0])[:8]}" if ideas else ""
