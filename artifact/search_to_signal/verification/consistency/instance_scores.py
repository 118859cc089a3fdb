"""The scores of the instances, where a run's host asks for them: their mean is the score, everywhere."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from search_to_signal.problems.base import mean_score
from search_to_signal.records.reader import HEURISTICS, Group
from search_to_signal.records.schema import CompletionRecord, HeuristicRecord


def instance_problems(group: Group, instances: int) -> Iterator[str]:
    """What a group says otherwise; ``instances`` is how many the seed was scored on, 0 where none are due."""
    for record in group:
        for text in _problems(record, instances if record.score is not None else 0):
            yield f"step {record.step}, completion {record.index}: {text}"


def heuristic_problems(heuristics: Sequence[HeuristicRecord], asked: bool) -> Iterator[str]:
    """The same of stored heuristics; ``asked`` says whether the run's host asks for instance scores."""
    instances = instances_of(heuristics)
    if bool(instances) is not asked:
        mismatch = f"the seed has {instances} instance scores, the host asks for {_ASKED[asked]}"
        yield f"{HEURISTICS}: {mismatch}"
        return
    for heuristic in heuristics:
        for text in _problems(heuristic, instances):
            yield f"{HEURISTICS}: step {heuristic.step}, completion {heuristic.index}: {text}"


_ASKED = ("none", "them")


def instances_of(heuristics: Sequence[HeuristicRecord]) -> int:
    """How many instances the seed has scores of."""
    return _count(heuristics[0]) if heuristics else 0


def _count(record: CompletionRecord | HeuristicRecord) -> int:
    return 0 if record.instance_scores is UNSET else len(record.instance_scores)


def _problems(record: CompletionRecord | HeuristicRecord, due: int) -> Iterator[str]:
    if _count(record) != due:
        yield f"{_count(record)} instance scores, where {due} are due"
    elif record.instance_scores is not UNSET and mean_score(record.instance_scores) != record.score:
        mean = mean_score(record.instance_scores)
        yield f"score is {record.score}, the mean of its instance scores is {mean}"
