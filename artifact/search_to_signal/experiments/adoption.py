"""How a learner's adapter reaches a sampler: the two rooms meet here, and know nothing of each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_to_signal.learner.adapter import publish, save_adapter


@dataclass(frozen=True)
class LearnedAdapter:
    """The adapter of a learner's model, as ``generators.base.Adapter`` asks for it."""

    model: Any

    def merge_into(self, plain: Any) -> None:
        """Make a plain copy of the base model compute what the adapted one computes."""
        publish(self.model, plain)

    def save(self, directory: Path) -> None:
        """Write the adapter in PEFT's form."""
        save_adapter(self.model, directory)
