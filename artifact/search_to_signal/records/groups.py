"""Groups as arrays, ours or from outside: the form in which mappings and normalizers read them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import UNREADABLE, IllFormedGroupError, RecordError
from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.records.files import files_named, read_lines, refuse_special_files
from search_to_signal.records.manifest import INTERRUPTED
from search_to_signal.records.reader import COMPLETIONS, read_groups, read_records
from search_to_signal.records.schema import CREATION, CompletionRecord, Outcome

# Groups as arrays: the form in which reward mappings and normalizers read records.
#
# N groups of equal size G. Mappings see this and nothing else, so that a live run, a replay and a
# stranger's file are one and the same to them.

OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)
VALID_CODE = OUTCOMES.index(Outcome.VALID)
_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES)}


@dataclass(frozen=True)
class GroupBatch:
    """N well-formed groups of G completions, with their pre-generation context (D22).

    outcome          (N, G) int8     index into OUTCOMES
    score            (N, G) float64  higher is better; NaN where the completion is not valid
    bases            (N, B) float64  scores of the prompt's base heuristics, padded with NaN
    frontier         (N,)   float64  best score before the group; NaN for an empty archive
    archive_gap      (N, G) float64  distance to the nearest archived score; NaN where absent
    exposure         (N, G) float64  one-step parent exposure in [0, 1]; NaN where absent
    response         (N, G) int64    equal numbers within a row mean identical response texts
    matches_base_code (N, G) bool    canonical code equals that of a prompt base (D02 alternative)

    The arrays are read-only views of those given.
    """

    outcome: NDArray[np.int8]
    score: Floats
    bases: Floats
    frontier: Floats
    archive_gap: Floats
    exposure: Floats
    response: NDArray[np.int64]
    matches_base_code: Bools

    def __post_init__(self) -> None:
        for field in fields(self):
            # Every mapping is given the same arrays: what one writes the next would read.
            array = getattr(self, field.name).view()
            array.flags.writeable = False
            object.__setattr__(self, field.name, array)
        # Raise IllFormedGroupError unless shapes agree and every value is in its documented range.
        shape = self.outcome.shape
        rows = (self.score, self.archive_gap, self.exposure, self.response, self.matches_base_code)
        gap, exposure, context = self.archive_gap, self.exposure, (self.bases, self.frontier)
        known = (self.outcome >= 0) & (self.outcome < len(OUTCOMES))
        faults = {
            "groups are not (N, G) arrays with G >= 1": len(shape) != 2 or shape[1] < 1,
            "arrays disagree in shape": any(row.shape != shape for row in rows)
            or self.bases.shape[:1] != shape[:1]
            or self.frontier.shape != shape[:1],
            "an outcome code is unknown": not known.all(),
            "a valid completion lacks a finite score (a non-finite score is a runtime failure, D17), "
            "or a failed one has a score": not np.array_equal(self.valid, np.isfinite(self.score)),
            "a base score or frontier is infinite": any(np.isinf(values).any() for values in context),
            "an archive gap is negative": bool((gap < 0.0).any()),
            "an exposure is outside [0, 1]": bool(((exposure < 0.0) | (exposure > 1.0)).any()),
        }
        for fault, present in faults.items():
            if present:
                raise IllFormedGroupError(f"{fault}: repair the record or the code that made this group")

    @property
    def valid(self) -> Bools:
        """(N, G): the completion ran and has a finite score."""
        valid: Bools = self.outcome == VALID_CODE
        return valid

    @property
    def evaluated(self) -> Bools:
        """(N, G): the completion reached the evaluator, whatever came of it there."""
        return np.array([outcome.evaluated for outcome in OUTCOMES])[self.outcome]

    @property
    def best_base(self) -> Floats:
        """(N,): b_t, the best score among the prompt's bases; NaN without a comparator (D05)."""
        best = np.fmax.reduce(self.bases, axis=1, initial=-np.inf)
        return np.where(np.isneginf(best), np.nan, best)

    @property
    def eligible(self) -> Bools:
        """(N, G): valid, in a group whose prompt gives a comparator (D05)."""
        compared: Bools = ~np.isnan(self.best_base)
        return self.valid & compared[:, None]

    def at(self, groups: Bools | NDArray[np.int64] | slice) -> "GroupBatch":
        """Some of the groups: a mask (N,), positions, or a slice."""
        return GroupBatch(**{field.name: getattr(self, field.name)[groups] for field in fields(self)})


def floats(values: Sequence[object]) -> Floats:
    """An array of rows of numbers, NaN for None."""
    return np.array(values, dtype=np.float64)


def padded(rows: Sequence[Sequence[float]]) -> Floats:
    """Rows of several lengths as one array, filled with NaN."""
    width = max((len(row) for row in rows), default=0)
    out = np.full((len(rows), width), np.nan)
    for target, row in zip(out, rows, strict=True):
        target[: len(row)] = row
    return out


def _context(r: CompletionRecord) -> tuple[object, ...]:
    return r.step, r.prompt_sha256, r.operator, r.base_scores, r.frontier


def _response_codes(group: Sequence[CompletionRecord]) -> list[int]:
    first: dict[str, int] = {}
    return [first.setdefault(record.response_sha256, len(first)) for record in group]


def batch_of(groups: Sequence[Sequence[CompletionRecord]]) -> GroupBatch:
    """Stack groups of one size into arrays.

    Raises IllFormedGroupError when there is no group, sizes differ, or a group mixes contexts.
    """
    if len({len(group) for group in groups}) != 1 or not groups[0]:
        raise IllFormedGroupError(
            f"cannot stack groups of sizes {sorted({len(g) for g in groups})}: "
            "pass at least one group, all of the same size G >= 1"
        )
    for group in groups:
        context = _context(group[0])
        if any(_context(record) != context for record in group[1:]):
            raise IllFormedGroupError(
                f"step {group[0].step} mixes completions of several prompts or search states: "
                "a group is the set of completions of one prompt; group the records by step first"
            )
    heads = [group[0] for group in groups]
    bases = [() if h.operator == CREATION else h.base_scores for h in heads]
    return GroupBatch(
        outcome=np.array([[_CODE[r.outcome] for r in g] for g in groups], dtype=np.int8),
        # A typed failure has none, even where its evaluation returned one.
        score=floats([[r.score if r.outcome is Outcome.VALID else None for r in g] for g in groups]),
        bases=padded(bases),
        frontier=floats([h.frontier for h in heads]),
        archive_gap=floats([[r.archive_gap for r in g] for g in groups]),
        exposure=floats([[r.exposure for r in g] for g in groups]),
        response=np.array([_response_codes(g) for g in groups], dtype=np.int64),
        matches_base_code=np.array([[r.matches_base_code for r in g] for g in groups], dtype=np.bool_),
    )


# Groups from outside: JSON Lines, one group per line, as in ``group.schema.json`` in this directory.

SCHEMA = Path(__file__).with_name("group.schema.json")
_EXTERNAL_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES)}


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One evaluated completion; equal ``response`` strings within a group mean identical responses."""

    outcome: Outcome
    score: float | None = None
    response: str | None = None
    archive_gap: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    exposure: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    matches_base_code: bool = False


class ExternalGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The completions of one prompt with their pre-generation context (D22).

    ``archive`` holds the archived scores; where it is given, frontier and archive gaps follow from it.
    """

    candidates: tuple[Candidate, ...]
    group: str = ""
    problem: str = ""
    bases: tuple[float, ...] = ()
    frontier: float | None = None
    archive: tuple[float, ...] | None = None


def read_external(path: Path) -> Iterator[ExternalGroup]:
    """Yield the groups of a file in order.

    Raises RecordError, naming file and line, for a line that does not follow the schema.
    """
    decoder = msgspec.json.Decoder(ExternalGroup)
    for number, line in enumerate(read_lines(path), start=1):
        try:
            group = decoder.decode(line)
        except UNREADABLE as error:
            raise RecordError(f"{path}:{number}: not a group ({error}); see {SCHEMA.name}") from error
        if not group.candidates:
            raise RecordError(f"{path}:{number}: the group has no candidates; remove the line")
        if any((c.outcome is Outcome.VALID) != (c.score is not None) for c in group.candidates):
            raise RecordError(f"{path}:{number}: give a score to every valid candidate and to no other")
        yield group


def external_batch(groups: Sequence[ExternalGroup]) -> GroupBatch:
    """Stack external groups of one size into arrays. Raises IllFormedGroupError when they do not stack."""
    sizes = {len(group.candidates) for group in groups}
    if len(sizes) != 1:
        raise IllFormedGroupError(f"cannot stack groups of sizes {sorted(sizes)}: pass groups of one size")
    return GroupBatch(
        outcome=np.array([[_EXTERNAL_CODE[c.outcome] for c in g.candidates] for g in groups], dtype=np.int8),
        score=floats([[c.score for c in g.candidates] for g in groups]),
        bases=padded([group.bases for group in groups]),
        frontier=floats([_frontier(group) for group in groups]),
        archive_gap=floats([_gaps(group) for group in groups]),
        exposure=floats([[c.exposure for c in g.candidates] for g in groups]),
        response=np.array([_responses(group) for group in groups], dtype=np.int64),
        matches_base_code=np.array([[c.matches_base_code for c in g.candidates] for g in groups], dtype=bool),
    )


def _frontier(group: ExternalGroup) -> float | None:
    if group.frontier is not None or not group.archive:
        return group.frontier
    return max(group.archive)


def _gaps(group: ExternalGroup) -> list[float | None]:
    if not group.archive:
        return [candidate.archive_gap for candidate in group.candidates]
    archive = group.archive
    scores = (candidate.score for candidate in group.candidates)
    return [None if score is None else min(abs(score - old) for old in archive) for score in scores]


def _responses(group: ExternalGroup) -> list[int]:
    """Row-wise codes: a response without a text equals no other."""
    first: dict[str, int] = {}
    return [
        index if c.response is None else first.setdefault(c.response, index)
        for index, c in enumerate(group.candidates)
    ]


BATCH = 4096

Group = TypeVar("Group")


def record_files(inputs: Sequence[Path]) -> list[Path]:
    """The record files among the inputs: files themselves, and every completions.jsonl below a directory.

    Unfinished runs that a cohort set aside below a directory are left out.
    Raises RecordError for a path without any, and RunDirectoryError for a link or pipe in a directory.
    """
    all_files: list[Path] = []
    for path in inputs:
        files = _below(path) if path.is_dir() else [path] if path.exists() else []
        if not files:
            raise RecordError(f"{path} holds no {COMPLETIONS}: give run directories or JSON Lines of groups")
        all_files += files
    return all_files


def _below(directory: Path) -> list[Path]:
    refuse_special_files(directory)
    files = files_named(directory, COMPLETIONS)
    return [file for file in files if INTERRUPTED not in file.relative_to(directory).parts]


def read_batches(files: Sequence[Path], size: int = BATCH) -> Iterator[tuple[str, GroupBatch]]:
    """Yield (problem, batch) of at most ``size`` groups of one problem and one G, file by file."""
    for file in files:
        # A line of this package has no candidates, a line from outside must have them.
        if b'"candidates"' in next(read_lines(file), b""):
            groups = read_external(file)
            yield from _batched(groups, lambda g: (g.problem, len(g.candidates)), external_batch, size)
        else:
            records = read_groups(file)
            yield from _batched(records, lambda g: (g[0].problem, len(g)), batch_of, size)


def _batched(
    groups: Iterable[Group],
    key: Callable[[Group], tuple[str, int]],
    stack: Callable[[Sequence[Group]], GroupBatch],
    size: int,
) -> Iterator[tuple[str, GroupBatch]]:
    waiting: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        kind = key(group)
        queue = waiting.setdefault(kind, [])
        queue.append(group)
        if len(queue) == size:
            yield kind[0], stack(waiting.pop(kind))
    for (problem, _), queue in waiting.items():
        yield problem, stack(queue)


# Exposures of recorded completions under the other readings of D13, and how to read them back.

EXPOSURES = "exposures.jsonl"


class ExposureRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One group of a run, G values each in [0, 1], None for an invalid completion.

    ``unconditional`` inserts every valid completion, also what the archive would refuse; ``sampled`` is the
    share of draws of the parent sampler that the recorded exposure gives.
    """

    run: str
    step: int
    unconditional: tuple[float | None, ...]
    sampled: tuple[float | None, ...]


def read_exposures(path: Path) -> dict[str, dict[str, Floats]]:
    """By run and reading (T, G) exposures, NaN where absent; empty without a file. Raises RecordError."""
    by_run: dict[str, list[ExposureRecord]] = {}
    for record in read_records(path, ExposureRecord) if path.is_file() else ():
        by_run.setdefault(record.run, []).append(record)
    return {
        run: {
            "exposure_unconditional": np.array(
                [record.unconditional for record in records], dtype=np.float64
            ),
            "exposure_sampled": np.array([record.sampled for record in records], dtype=np.float64),
        }
        for run, records in by_run.items()
    }
