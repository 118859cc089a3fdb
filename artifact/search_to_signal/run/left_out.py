"""Credit left out: the classes of a run's completions, and its advantages as if a class had taught nothing.

A completion of the class gets the advantage 0. The others keep theirs as recorded: the statistics of its
group's normalizer stay, since the run had them. So the learner sees the same tokens in the same order, is
held to the base model by its KL term as before, and is pushed neither to nor from that class. The search is
not asked again: what the run would have sampled without the class is another question.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.numerics import Floats
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.probe import ProbeRecord
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, Group, read_groups, read_records
from search_to_signal.records.schema import (
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    Outcome,
)
from search_to_signal.sandbox.programs import Proposal, differ_in_numbers, parse

COPIES, CONSTANTS, FORMS, FAILED = "copies", "constants", "forms", "failed"
KINDS = (COPIES, CONSTANTS, FORMS, FAILED)
"""The classes of completions: each completion is of exactly one, so all credit is that of these four."""
VALIDITY, ALL_VALID = "validity", "all-valid"
NOTHING = "nothing"
CLASSES: Mapping[str, str] = {
    COPIES: "valid programs that a parent in the prompt already was",
    CONSTANTS: "valid programs that are a parent with other numbers",
    FORMS: "all other valid programs",
    FAILED: "completions without a score",
    VALIDITY: "the contrast of valid and failed completions within a group",
    ALL_VALID: "groups in which every completion is valid",
}
# What is left of equal advantages when their mean is taken off.
_ROUNDING = 1e-12


def checked_classes(what: str) -> str:
    """A class of ``CLASSES``, several joined by ``+``, or ``nothing``; raises ConfigError for another."""
    if unknown := [name for name in what.split("+") if name not in (*CLASSES, NOTHING)]:
        raise ConfigError(f"there is no class of credit {unknown[0]!r}: choose one of {', '.join(CLASSES)}")
    return what


@dataclass(frozen=True)
class Programs:
    """What tells the class of a completion: the run's heuristics by id, and how its texts are read."""

    run: Path
    codes: Mapping[str, str]
    idea_end: IdeaEnd

    def kind(self, record: CompletionRecord | ProbeRecord, text: str, parents: Sequence[str]) -> str:
        """The class of a completion by its text and its prompt's parents, one of ``KINDS``.

        Raises RecordError for a parent that the run has not recorded.
        """
        if record.outcome is not Outcome.VALID:
            return FAILED
        if unknown := [parent for parent in parents if parent not in self.codes]:
            raise RecordError(f"{self.run}/{HEURISTICS} lacks the parent {unknown[0]}: restore it")
        if record.program_sha256 in parents:
            return COPIES
        proposal = parse(text, self.idea_end)
        code = proposal.code if isinstance(proposal, Proposal) else ""
        changed = any(differ_in_numbers(code, self.codes[parent]) for parent in parents)
        return CONSTANTS if changed else FORMS

    def kinds(self, group: Group, texts: GenerationRecord) -> list[str]:
        """The classes of a group's completions."""
        pairs = zip(group, texts.completions, strict=True)
        return [self.kind(record, text, record.parents) for record, text in pairs]


def programs_of(run: Path) -> Programs:
    """Read what tells the classes of a run; raises RecordError for records that cannot be read."""
    heuristics = read_records(run / HEURISTICS, HeuristicRecord)
    codes = {heuristic.id: heuristic.code for heuristic in heuristics}
    return Programs(run, codes, read_manifest(run).facts.idea_end)


def advantages_without(advantages: Floats, kinds: Sequence[str], what: str) -> Floats:
    """Advantages (G,) of a group as if ``what`` had taught nothing; ``kinds`` are its completions' classes.

    ``validity`` takes the mean advantage off the valid completions and off the failed ones, so that what is
    left compares each with its like. ``all-valid`` leaves out the whole group.
    """
    return reduce(lambda left, name: _without_one(left, np.array(kinds), name), what.split("+"), advantages)


def _without_one(advantages: Floats, kinds: "np.ndarray[tuple[int], np.dtype[np.str_]]", name: str) -> Floats:
    failed = kinds == FAILED
    if name == ALL_VALID:
        return advantages if failed.any() else np.zeros_like(advantages)
    if name != VALIDITY:
        return np.where(kinds == name, 0.0, advantages)
    left = advantages.copy()
    for part in (failed, ~failed):
        left[part] -= advantages[part].mean() if part.any() else 0.0
    return np.where(np.abs(left) < _ROUNDING, 0.0, left)


@dataclass(frozen=True)
class CreditedGroup:
    """A group of a run with its texts and tokens, and the classes of its completions."""

    group: Group
    texts: GenerationRecord
    kinds: Sequence[str]

    @property
    def advantages(self) -> Floats:
        """As recorded, NaN where the run was frozen."""
        return np.array([record.advantage for record in self.group], dtype=np.float64)


def credited_groups(run: Path) -> Iterator[CreditedGroup]:
    """Yield the groups of a run; raises RecordError for records that are not those of one run."""
    programs = programs_of(run)
    texts = read_records(run / GENERATIONS, GenerationRecord)
    for generation, group in zip(texts, read_groups(run), strict=False):
        if generation.step != group[0].step or len(generation.completions) != len(group):
            raise RecordError(f"{run}: step {group[0].step} lacks its texts: restore the records")
        yield CreditedGroup(group, generation, programs.kinds(group, generation))
