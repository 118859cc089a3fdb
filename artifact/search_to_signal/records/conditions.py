"""What a run is trained by, as configurations, records, plans and the names of runs write it."""

from dataclasses import dataclass

FROZEN = "frozen"
_WITH = "+"
_SEED = "-s"


@dataclass(frozen=True)
class Condition:
    """``frozen``, a reward mapping, or ``mapping+normalizer``; its text is ``str`` of it.

    ``normalizer`` is None where the run's own setting says which it is.
    """

    mapping: str
    normalizer: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """The condition of that text; every text is that of one condition."""
        mapping, separator, normalizer = text.partition(_WITH)
        return cls(mapping, normalizer if separator else None)

    def __str__(self) -> str:
        return self.mapping if self.normalizer is None else f"{self.mapping}{_WITH}{self.normalizer}"

    def normalizer_or(self, default: str) -> str:
        """The normalizer that it names, else the given one."""
        return self.normalizer or default


def run_name(condition: str, seed: int) -> str:
    """The directory name of a run by its condition's text."""
    return f"{file_name(condition)}{_SEED}{seed}"


def split_run_name(name: str) -> tuple[str, str]:
    """The part of a run's name that is its condition's, and its seed; empty where a name has no such part."""
    condition, _, seed = name.rpartition(_SEED)
    return condition, seed


def file_name(name_or_path: str) -> str:
    """A name or pkg.mod:obj as part of a file's name."""
    return name_or_path.replace(":", ".")
