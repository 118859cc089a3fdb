"""Credit left out: the classes of a run's completions, and its advantages as if a class had taught nothing.

A completion of the class gets the advantage 0, and the mean of the others is taken off theirs, as if the
group had been drawn without it; the deviation that its normalizer divided by stays. So the learner sees the
same tokens in the same order, is held to the base model by its KL term as before, and is pushed neither to
nor from that class. The search is not asked again: what the run would have sampled is another question.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.numerics import Floats
from search_to_signal.records.probe import ProbeRecord
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, Group, read_groups, read_records
from search_to_signal.records.schema import CompletionRecord, GenerationRecord, HeuristicRecord, Outcome
from search_to_signal.sandbox.programs import code_spans, differ_in_numbers

COPIES, CONSTANTS, FORMS, FAILED = "copies", "constants", "forms", "failed"
Mask = NDArray[np.bool_]
KINDS = (COPIES, CONSTANTS, FORMS, FAILED)
"""The classes of completions: each completion is of exactly one, so all credit is that of these four."""
VALIDITY, ALL_VALID = "validity", "all-valid"
NOTHING = "nothing"
CLASSES: Mapping[str, str] = {
    COPIES: "valid programs that a parent in the prompt already was",
    CONSTANTS: "valid programs that are a parent with other numbers",
    FORMS: "valid programs of another form than their parents",
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
    """What tells the class of a run's completions: its heuristics' programs by id."""

    run: Path
    codes: Mapping[str, str]

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
        codes = [text[start:end] for start, end in code_spans(text)]
        changed = any(differ_in_numbers(code, self.codes[parent]) for code in codes for parent in parents)
        return CONSTANTS if changed else FORMS

    def kinds(self, group: Group, texts: GenerationRecord) -> list[str]:
        """The classes of a group's completions; raises RecordError also where their texts are others."""
        if texts.step != group[0].step or len(texts.completions) != len(group):
            raise RecordError(f"{self.run}: step {group[0].step} lacks its texts: restore the records")
        pairs = zip(group, texts.completions, strict=True)
        return [self.kind(record, text, record.parents) for record, text in pairs]


def programs_of(run: Path) -> Programs:
    """Read what tells the classes of a run; raises RecordError for records that cannot be read."""
    heuristics = read_records(run / HEURISTICS, HeuristicRecord)
    return Programs(run, {heuristic.id: heuristic.code for heuristic in heuristics})


def classed_groups(run: Path) -> Iterator[tuple[Group, GenerationRecord, list[str]]]:
    """Yield the groups of a run with their texts and classes; raises RecordError as ``Programs`` does."""
    programs = programs_of(run)
    texts = read_records(run / GENERATIONS, GenerationRecord)
    for generation, group in zip(texts, read_groups(run), strict=False):
        yield group, generation, programs.kinds(group, generation)


def left_out(kinds: Sequence[str], what: str) -> Mask:
    """Which completions (G,) of a group of these classes have no advantage without ``what``."""
    names = what.split("+")
    whole = ALL_VALID in names and FAILED not in kinds
    return np.array([whole or kind in names for kind in kinds])


def advantages_without(advantages: Floats, kinds: Sequence[str], what: str) -> Floats:
    """Advantages (G,) of a group as if ``what`` had taught nothing; ``kinds`` are its completions' classes.

    Those left out get 0. The others keep their distances, and their mean is 0: otherwise a group that loses
    its best would only push away. ``validity`` does the same within the valid and within the failed.
    """
    gone, failed = left_out(kinds, what), np.array(kinds) == FAILED
    by_validity = VALIDITY in what.split("+")
    if not (gone.any() or by_validity):
        return advantages.copy()
    left = np.zeros_like(advantages)
    for part in (failed & ~gone, ~failed & ~gone) if by_validity else (~gone,):
        left[part] = advantages[part] - advantages[part].mean() if part.any() else 0.0
    left[np.abs(left) < _ROUNDING] = 0.0
    return left
