"""What another setting would have made of the same rollouts: counted, not guessed."""

from dataclasses import dataclass

from search_to_signal.audit.applying import apply
from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.distinctions import group_facts
from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.measuring import greatest


@dataclass(frozen=True)
class Alternative:
    """Largest gain and advantage of an entry, over the ``groups`` that it takes; ``tight`` are amplified."""

    groups: int = 0
    tight: int = 0
    gain: float = 0.0
    largest: float = 0.0

    def __add__(self, more: "Alternative") -> "Alternative":
        return Alternative(
            self.groups + more.groups,
            self.tight + more.tight,
            max(self.gain, more.gain),
            max(self.largest, more.largest),
        )


def alternative(name: str, groups: RewardGroups) -> Alternative:
    """What the entry of that name makes of whole steps."""
    facts = group_facts(groups, apply(get_entry(name), groups))
    return Alternative(
        groups=int((facts.largest >= 0).sum()),
        tight=int(facts.flags["amplified"].sum()),
        gain=greatest(facts.gain),
        largest=greatest(facts.largest),
    )
