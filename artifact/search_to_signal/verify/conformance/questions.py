"""Programs and answers that two hosts are asked about: the same for everyone, drawn from named streams."""

import re
from collections.abc import Sequence

from search_to_signal.base.seeding import stream
from search_to_signal.problems.base import Problem
from search_to_signal.recipe.grammar import draw_program, render_code
from search_to_signal.recipe.pairs import sources
from search_to_signal.sandbox.programs import COMPONENT_AFTER, COMPONENT_BEFORE, OPENING, program_sha256
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.member import Member


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
    plain = answer(code)
    return {
        "nothing": "",
        **_odd_ideas(code, plain),
        "no code": plain.split("```")[0],
        "untagged block": plain.replace("```python", "```"),
        "capital tag": plain.replace("```python", "```PYTHON"),
        "a longer tag": plain.replace("```python", "```python3"),
        "a short tag": plain.replace("```python", "```py"),
        "a blank before the tag": plain.replace("```python", "``` python"),
        "code on the line of the tag": plain.replace("```python\n", "```python "),
        "open block": plain.rstrip().removesuffix("```"),
        "two blocks": f"{plain}\n```python\n{code}\n```",
        "an empty block": answer(""),
        "ticks within the code": answer(f"{code}\n# as `here`"),
        "returns at line ends": plain.replace("\n", "\r\n"),
        "tabs and blanks around the code": answer(f"\n  \n{code}\n \t\n"),
        **{name: answer(text) for name, text in _odd_codes(problem, code).items()},
    }


def _odd_ideas(code: str, plain: str) -> dict[str, str]:
    block = f"```python\n{code}\n```"
    return {
        "no idea": block,
        "another opening": plain.replace(OPENING, "My idea is to"),
        "a small opening": plain.replace(OPENING, OPENING.lower()),
        "ten characters of idea": answer(code, f"{OPENING}0123456789"),
        "eleven characters of idea": answer(code, f"{OPENING}0123456789a"),
        "eleven characters, most of them blank": answer(code, f"{OPENING} wait{' ' * 6}"),
        "blank before the opening": answer(code, f" {OPENING} do what the code says."),
        "words before the opening": answer(code, f"Well. {OPENING} do what the code says."),
        "an idea of two lines": answer(code, f"{OPENING} do\nwhat the code says."),
        "two ideas": f"{{{{{OPENING} begin with this one.}}}}\n{plain}",
        "an idea of another opening first": f"{{{{An idea.}}}}\n{plain}",
        "braces within the idea": answer(code, f"{OPENING} take {{a}} of {{{{b}}}} as c."),
        "three braces": f"{{{plain.replace('}}', '}}}', 1)}",
        "braces that never close": plain.replace("}}", ""),
        "braces that never open": plain.replace("{{", ""),
        "an idea after the code": f"{block}\n{plain.split('```')[0]}",
        "single braces": plain.replace("{{", "{").replace("}}", "}"),
        "idea without braces": f"{OPENING} do what the code says.\n\n{block}",
        "loose idea after words": f"Well. {OPENING} do what the code says.\n\n{block}",
        "loose idea, said twice": f"{OPENING} be. {OPENING} do what the code says.\n\n{block}",
        "loose idea of a word, then code": f"{OPENING} wait\n{block}",
        "loose idea of a word, then a fence": f"{OPENING} wait\n```\na note\n```\n{block}",
        "loose idea of a word, then a long fence": f"{OPENING} wait\n````\na note\n````\n{block}",
        "loose idea of a word, then a fence further in": f"{OPENING} wait\n  {block}",
        "loose idea of a word, then code on its line": f"{OPENING} wait {block}",
        "loose idea with ticks": f"{OPENING} be ```so``` and so.\n```\na note\n```\n{block}",
        "loose idea with a tick": f"{OPENING} be `so` and ``so``.\n{block}",
        "loose idea and blanks": f"{OPENING} wait{' ' * 12}\n```\na note\n```\n{block}",
        "loose idea after the code": f"{block}\n{OPENING} do what the code says.",
    }


def _odd_codes(problem: Problem, code: str) -> dict[str, str]:
    head = problem.template.split("    return")[0]
    (name, *_) = re.findall(r"def (\w+)", code)
    return {
        "no function": "x = 1",
        "two functions": f"{code}\n\ndef another():\n    return 1",
        "a helper class": f"{code}\n\n\nclass Helper:\n    pass",
        "a helper as lambda": f"{code}\n\nhelp = lambda x: x",
        "an imported function": f"from os.path import join\n{code}",
        "a second name": f"{code}\n\nagain = {name}",
        "syntax error": "def broken(:\n    return 1",
        "an error while loading": f"{code}\nnothing.here",
        "an end while loading": f"{code}\nraise SystemExit",
        "an error while running": f"{head}    raise ValueError",
        "an end while running": f"{head}    raise SystemExit",
        "a wrong answer": f"{head}    return None",
        "random in a comment": f"{code}\n# random",
        "Random in a comment": f"{code}\n# Random",
        "random within a word": f"{code}\n# randomly",
        "random that fails": f"{head}    raise ValueError  # random",
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


def groups(problem: Problem, codes: Sequence[str], seed: str) -> list[tuple[str, ...]]:
    """Groups of four for transitions: new programs, some twice, the seed again, components, failures."""
    head = problem.template.split("    return")[0]
    announced = f"{OPENING} do more. {COMPONENT_BEFORE} part (%d) {COMPONENT_AFTER}."
    first, second, third, *rest = [*codes, *codes, *codes]
    return [
        (answer(seed), answer(first), answer(first), "nothing"),
        (answer(second, announced.replace("%d", "a")), answer(third, announced.replace("%d", "a")), "", ""),
        (answer(rest[0], announced.replace("%d", "b")), answer(first), answer(seed), answer("x = 1")),
        (answer(f"{second}\n# random"), answer(f"{head}    raise ValueError"), answer(third), ""),
    ]
