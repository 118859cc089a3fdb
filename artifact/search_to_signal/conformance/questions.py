"""Programs and answers that two hosts are asked about: the same for everyone, drawn from named streams."""

from collections.abc import Sequence

from search_to_signal.corpus.grammar import draw_program, render_code
from search_to_signal.corpus.pairs import sources
from search_to_signal.hosts.calm.state import SearchState, state_of
from search_to_signal.problems.base import Problem
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.programs.markers import COMPONENT_AFTER, COMPONENT_BEFORE, OPENING
from search_to_signal.search.member import Member
from search_to_signal.seeding import stream


def programs(problem: Problem, count: int) -> list[str]:
    """Programs that run, drawn from the grammar of the training corpus."""
    (source,) = sources([problem.name])
    words = source.vocabulary
    rng = stream(0, "conformance", "bank", problem.name)
    return [render_code(words, draw_program(words, rng)).strip() for _ in range(count)]


def answer(code: str, idea: str = f"{OPENING} do what the code says.") -> str:
    """A completion that proposes a program."""
    return f"{{{{{idea}}}}}\n\n```python\n{code}\n```\n"


def odd_answers(problem: Problem, code: str) -> dict[str, str]:
    """Completions at the edges of what counts as a proposal, by what is odd about them."""
    head = problem.template.split("    return")[0]
    plain = answer(code)
    return {
        "nothing": "",
        "no idea": f"```python\n{code}\n```",
        "another opening": plain.replace(OPENING, "My idea is to"),
        "ten characters of idea": answer(code, f"{OPENING}0123456789"),
        "eleven characters of idea": answer(code, f"{OPENING}0123456789a"),
        "blank before the opening": answer(code, f" {OPENING} do what the code says."),
        "idea without braces": f"{OPENING} do what the code says.\n\n```python\n{code}\n```",
        "loose idea of a word, then code": f"{OPENING} wait\n```python\n{code}\n```",
        "loose idea of a word, then a fence": f"{OPENING} wait\n```\na note\n```\n```python\n{code}\n```",
        "loose idea with ticks": f"{OPENING} be ```so``` and so.\n```\na note\n```\n```python\n{code}\n```",
        "loose idea and blanks": f"{OPENING} wait{' ' * 12}\n```\na note\n```\n```python\n{code}\n```",
        "single braces": plain.replace("{{", "{").replace("}}", "}"),
        "no code": plain.split("```")[0],
        "untagged block": plain.replace("```python", "```"),
        "capital tag": plain.replace("```python", "```PYTHON"),
        "open block": plain.rstrip().removesuffix("```"),
        "two blocks": f"{plain}\n```python\n{code}\n```",
        "no function": answer("x = 1"),
        "two functions": answer(f"{code}\n\ndef another():\n    return 1"),
        "a helper class": answer(f"{code}\n\n\nclass Helper:\n    pass"),
        "a helper as lambda": answer(f"{code}\n\nhelp = lambda x: x"),
        "syntax error": answer("def broken(:\n    return 1"),
        "an error while loading": answer(f"{code}\nnothing.here"),
        "an error while running": answer(f"{head}    raise ValueError"),
        "a wrong answer": answer(f"{head}    return None"),
        "random in a comment": answer(f"{code}\n# random"),
    }


def crowded_state(problem: Problem, seed: Member, size: int) -> SearchState:
    """A state of the seed and ``size - 1`` made-up members, never evaluated.

    Each idea has the words of the one before and another, so distances are zero or differ. Scores lie on
    both sides of the seed's, and the best beats any program, so that groups degrade and stagnate as well.
    """
    members = [seed]
    for number in range(1, size):
        idea = f"{OPENING} {' '.join(f'word{i}' for i in range(number))}"
        code = f"{problem.template.split('    return')[0]}    return {number}"
        score = seed.score + abs(seed.score) * (0.97 - 1.9 * (number - 1) / (size - 1))
        members.append(Member(idea, code, score, None, number, 0, program_sha256(code)))
    return state_of(members, [seed]).listed()


def groups(codes: Sequence[str], seed: str) -> list[tuple[str, ...]]:
    """Groups of four for transitions: new programs, one twice, the seed again, and announced components."""
    announced = f"{OPENING} do more. {COMPONENT_BEFORE} part (%d) {COMPONENT_AFTER}."
    first, second, third, *rest = [*codes, *codes, *codes]
    return [
        (answer(seed), answer(first), answer(first), "nothing"),
        (answer(second, announced.replace("%d", "a")), answer(third, announced.replace("%d", "a")), "", ""),
        (answer(rest[0], announced.replace("%d", "b")), answer(first), answer(seed), answer("x = 1")),
    ]
