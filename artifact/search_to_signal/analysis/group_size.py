"""What smaller groups would have seen: recorded groups subsampled, rewards and advantages computed anew.

The paper names ties in groups of four as a limit. Subsampling answers only what the recorded completions
can say about it: not what a search with other groups would have generated.
"""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from search_to_signal.analysis.aggregate import Parts, summarized
from search_to_signal.analysis.metrics.credit import CandidateClass, count_credit, credit_table
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, NoTableError, Table, percent_cell
from search_to_signal.analysis.tables.credit import OVER_SEEDS, class_cells, trained
from search_to_signal.errors import ConfigError, MappingError
from search_to_signal.normalizer import group_advantages
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import find_mapping, rewards_of
from search_to_signal.seeding import stream

DRAWS = 8
_SHOWN = (CandidateClass.NON_IMPROVING, CandidateClass.PARENT_IMPROVING, CandidateClass.STRICT_FRONTIER)
COLUMNS = (
    "Zero advantage (%)",
    "Credit mass valid_non_improving (%)",
    *(f"Enrichment {name.value}" for name in _SHOWN),
)
_BY_COMPLETION = ("outcome", "score", "archive_gap", "exposure", "response", "matches_base_code")


def subsampled(batch: GroupBatch, size: int, rng: np.random.Generator) -> GroupBatch:
    """The same groups with ``size`` of their completions, drawn without replacement, in their order."""
    order = rng.permuted(np.tile(np.arange(batch.outcome.shape[1]), (len(batch.outcome), 1)), axis=1)
    chosen = np.sort(order[:, :size], axis=1)
    parts = {name: np.take_along_axis(getattr(batch, name), chosen, axis=1) for name in _BY_COMPLETION}
    return replace(batch, **parts)


def size_parts(run: RecordedRun) -> Parts:
    """COLUMNS of a run for every group size from 2 to its own."""
    return {f"G={size}": _cells(run, size) for size in range(2, run.batch.outcome.shape[1] + 1)}


def group_size(results: Results) -> Table:
    """Zero-advantage share and credit by class as the group shrinks, under each run's own mapping."""
    note = f"Recorded groups, {DRAWS} subsamples each below full size. {OVER_SEEDS}"
    try:
        rows = summarized(trained(results), size_parts)
    except (ConfigError, MappingError) as error:
        raise NoTableError(str(error)) from error
    return Table("group_size", "Group size", "cohort", COLUMNS, rows, "Condition/size", note)


def _cells(run: RecordedRun, size: int) -> tuple[Cell, ...]:
    mapping, rng = find_mapping(run.condition), stream(run.seed, "group_size", size)
    whole = size == run.batch.outcome.shape[1]
    samples = [run.batch] if whole else [subsampled(run.batch, size, rng) for _ in range(DRAWS)]
    rewards = [rewards_of(mapping, sample).reward for sample in samples]
    counts = [count_credit(s, group_advantages(r)) for s, r in zip(samples, rewards, strict=True)]
    total = reduce(add, counts)
    origin = run.everything
    rows = {e.candidate_class: class_cells(total, e, origin) for e in credit_table(total)}
    zero = percent_cell(total.zero_groups, total.groups, "groups without any advantage / groups", origin)
    return (zero, rows[_SHOWN[0]][2], *(rows[name][3] for name in _SHOWN))
