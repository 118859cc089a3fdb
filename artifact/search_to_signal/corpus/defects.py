"""Realistic defects: how a small model's answers go wrong, one family per typed failure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from search_to_signal.corpus.grammar import Exchange, Slips
from search_to_signal.programs.markers import OPENING
from search_to_signal.records.schema import Outcome


@dataclass(frozen=True)
class Answer:
    """The two parts of an answer before it is written down."""

    idea: str
    code: str


Defect = Callable[[Answer], str]

_FORM = "{{{{{idea}}}}}\n```python\n{code}\n```"
_NO_IDEA = "```python\n{code}\n```"
_IDEA_ONLY = "{{{{{idea}}}}}"
_UNTAGGED_FENCE = "{{{{{idea}}}}}\n```\n{code}\n```"


def write(answer: Answer) -> str:
    """The answer in the form that prompts ask for."""
    return _laid_out(_FORM, answer)


def _exchanged(exchange: Exchange, answer: Answer) -> str:
    return write(Answer(answer.idea, answer.code.replace(*exchange, 1)))


def _other_opening(answer: Answer) -> str:
    return write(Answer(answer.idea.replace(OPENING, "This algorithm aims to"), answer.code))


def _idea_as_comment(answer: Answer) -> str:
    words = answer.idea.removeprefix(OPENING).strip()
    return f"```python\n# {words}\n{answer.code}\n```"


def _laid_out(form: str, answer: Answer) -> str:
    return form.format(idea=answer.idea, code=answer.code)


def _unclosed_bracket(answer: Answer) -> str:
    before, _, after = answer.code.rpartition(")")
    return write(Answer(answer.idea, before + after))


def _usage_example(usage: str, answer: Answer) -> str:
    return write(Answer(answer.idea, f"{answer.code}\n\n{usage}"))


_MISSING_COLON = ("):\n", ")\n")
_TWO_FUNCTIONS = ("def ", "def normalize(values):\n    return values / values.max()\n\ndef ")
_UNDEFINED_NAME = ("    score =", "    score = bias +")
_NOISE = ("    return", "    score += 0.01 * np.random.rand(*score.shape)\n    return")


def defects(slips: Slips) -> Mapping[Outcome, tuple[Defect, ...]]:
    """Every defect of a problem's answers, by the typed failure that it ends in."""

    def exchanges(*pairs: Exchange) -> tuple[Defect, ...]:
        return tuple(partial(_exchanged, pair) for pair in pairs)

    return {
        Outcome.MISSING_RATIONALE: (_other_opening, partial(_laid_out, _NO_IDEA), _idea_as_comment),
        Outcome.MISSING_CODE: (partial(_laid_out, _IDEA_ONLY), partial(_laid_out, _UNTAGGED_FENCE)),
        Outcome.MISSING_FUNCTION: (
            _unclosed_bracket,
            partial(_usage_example, slips.usage),
            *exchanges(_MISSING_COLON, _TWO_FUNCTIONS),
        ),
        Outcome.RUNTIME_FAILURE: exchanges(_UNDEFINED_NAME, *slips.mistakes),
        Outcome.RANDOMNESS: exchanges(_NOISE, *slips.chance),
    }


FAMILY_SHARES: Mapping[Outcome, float] = {
    Outcome.MISSING_RATIONALE: 0.15,
    Outcome.MISSING_CODE: 0.10,
    Outcome.MISSING_FUNCTION: 0.25,
    Outcome.RUNTIME_FAILURE: 0.35,
    Outcome.RANDOMNESS: 0.15,
}


def spoil(answer: Answer, slips: Slips, rng: np.random.Generator) -> str:
    """Write the answer down with one defect, its family drawn by FAMILY_SHARES."""
    families = list(FAMILY_SHARES)
    family = families[int(rng.choice(len(families), p=list(FAMILY_SHARES.values())))]
    choices = defects(slips)[family]
    return choices[int(rng.integers(len(choices)))](answer)
