"""The archive after a group."""

from collections.abc import Iterator

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, attempted, numbers, things
from search_to_signal.hosts.conformance.questions import crowded_state, groups
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.search.state import SearchState


def transition(bench: Bench) -> Iterator[Finding]:
    """Whom a group brings into an archive of one, a growing and a full one, and what is kept of it."""
    played = groups(bench.codes, bench.seed_code)
    for size, texts in zip((1, 6, 12), played, strict=True):
        subject = f"{size} members"
        yield from attempted(subject, _moved, bench, subject, size, texts)


def _moved(bench: Bench, subject: str, size: int, texts: tuple[str, ...]) -> Iterator[Finding]:
    state = crowded_state(bench.problem, bench.seed, size)
    ours, theirs = bench.both(state, bench.asked(state, f"transition {size}"), texts)
    yield from compared(subject, ours.after, theirs.after)


def compared(subject: str, ours: SearchState, theirs: SearchState) -> Iterator[Finding]:
    """Two archives: their size or scores, who is in them, with which idea and from which operator."""
    both = [[member.score for member in state.archive] for state in (ours, theirs)]
    if len(both[0]) != len(both[1]):
        yield things(f"{subject}, archive size", len(both[0]), len(both[1]))
        return
    yield numbers(f"{subject}, archive", both[0], both[1])
    yield things(f"{subject}, members and their order", *(_ids(state) for state in (ours, theirs)))
    yield things(f"{subject}, ideas", *(_ideas(state) for state in (ours, theirs)))
    yield things(f"{subject}, operators", *(_operators(state) for state in (ours, theirs)))


def _ids(state: SearchState) -> list[str]:
    return [member.id[:8] for member in state.archive]


def _ideas(state: SearchState) -> list[str]:
    return [sha256_text(member.idea)[:8] for member in state.archive]


def _operators(state: SearchState) -> list[str]:
    return [member.operator.value if member.operator else "seed" for member in state.archive]
