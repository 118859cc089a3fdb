"""The text of a released prompt around its heuristics: enough to name its operator.

Its words are not known here, so they are learned: one operator alone is given weight, and what the prompts
then say is that operator's. Nothing of it is kept or printed.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_to_signal.errors import HostError
from search_to_signal.hosts.calm.operators import CREATION, CROSSOVER, REPLACEMENT
from search_to_signal.records.schema import Operator
from search_to_signal.search.member import Member


@dataclass(frozen=True)
class Wording:
    """The operators of one parent, by what their prompts say; without it, all count as replacements."""

    known: dict[str, Operator] | None

    def operator(self, prompt: str, shown: Sequence[Member]) -> Operator:
        """The operator of a prompt; raises HostError for words that no operator was seen to use."""
        if len(shown) != 1:
            return CROSSOVER if shown else CREATION
        if self.known is None:
            return REPLACEMENT
        try:
            return self.known[words_of(prompt, shown)]
        except KeyError:
            raise HostError("calm_trainer.py: a prompt of one parent is worded as none before") from None


def words_of(prompt: str, shown: Sequence[Member]) -> str:
    """A prompt without the ideas, the codes and any number."""
    for member in shown:
        prompt = prompt.replace(member.code.strip(), "").replace(member.idea, "")
    return re.sub(r"[\d.]+", "", prompt)


def learn_wording(prompts: Mapping[Operator, Sequence[str]], shown: Member) -> Wording:
    """The words of each operator, from as many prompts of each that show one member.

    A host may keep weights of its own: words belong to the operator that says them most often. Raises
    HostError when two say them as often.
    """
    said = {name: Counter(words_of(text, [shown]) for text in texts) for name, texts in prompts.items()}
    known: dict[str, Operator] = {}
    for words in sorted({words for counted in said.values() for words in counted}):
        first, second, *_ = sorted(said, key=lambda operator: -said[operator][words])
        if said[first][words] == said[second][words]:
            raise HostError("calm_trainer.py: prompts of two operators say the same")
        known[words] = first
    return Wording(known)
