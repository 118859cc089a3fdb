"""Logs of which a line is a whole batch, a list of completions under each column, or a row of one.

Read: modelscope/ms-swift, swift/rlhf_trainers/grpo_trainer.py (``log``),
swift/megatron/trainers/grpo_trainer.py (``_build_log_table``), swift/ray/megatron/base_trainer.py
(``_maybe_log_completions``, rows) and swift/utils/io_utils.py (``JsonlWriter``, which appends),
3602360a562313afbf2ef6065fdf61f271a2c5b9, 2026-08-22; alibaba/ROLL, roll/pipeline/rlvr/utils.py
(``dump_rollout_to_specific_path``), 8eb27cc2dc34c4d1310b169d9b86d339004d811a, 2026-08-19.

ms-swift: step (a text; gen_step under Megatron and Ray), prompt, completion, a column for each reward
function, advantages, then solution, num_turns and entropy. What was logged before is logged again where
nothing was sampled since. ROLL: one line a file, with global_step, prompt, responses, scores and no
advantages. Neither has weights or a group id: rows of a group stand together, as in TRL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.gathering import sampled_again
from search_to_signal.audit.importers.lines import first_record, read_lines
from search_to_signal.audit.importers.rows import count
from search_to_signal.audit.importers.trl import FIXED, Table, contents_of, read_of
from search_to_signal.errors import RecordError

# What columns are called in the form of TRL's, which reads them.
_NAMES = {
    "gen_step": "step",
    "global_step": "step",
    "advantages": "advantage",
    "responses": "completion",
    "messages": "prompt",
}
_EXTRA = ("solution", "num_turns", "entropy", "difficulty", "image", "images")
_AGAIN = "a line with the rows of the one before it is the same batch logged again, and is left out"


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of a file; raises RecordError for a line whose lists differ in length."""
    table = _Table(path)
    rows = rows_of_line(path, 1, first_record(path))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [name for name in columns if name not in (*FIXED, *_EXTRA) and _is_number(rows, name)]
    last: RewardGroups | None = None
    opened = Table(path, columns, numeric, table.records)
    for batch in read_of([path], options, lambda _: opened)(path, options):
        if last is not None:
            yield last
        last = batch
    if last is not None:
        yield replace(last, assumptions=(*last.assumptions, *table.notes()))


@dataclass
class _Table:
    """The lines of a file, how many were logged again, and the steps to which a run went back."""

    path: Path
    again: int = 0
    restarts: list[int] = field(default_factory=list)

    def records(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line and row of each completion; what is seen of the lines is counted anew."""
        self.again, self.restarts = 0, []
        before, step = b"", UNKNOWN
        for number, record in read_lines(self.path):
            if not (rows := rows_of_line(self.path, number, record)):
                continue
            contents = contents_of(rows)
            if contents == before and len(rows) > 1:
                self.again += 1
                continue
            if count(rows[0].get("step")) < step:
                self.restarts.append(count(rows[0]["step"]))
            before, step = contents, count(rows[0].get("step"))
            yield from ((number, row) for row in rows)

    def notes(self) -> Iterator[Assumption]:
        """What was seen of the lines."""
        if self.again:
            yield Assumption("repeated_lines", _AGAIN, {"lines": self.again})
        if self.restarts:
            yield sampled_again(f"step {self.restarts[0]} comes again after later ones", len(self.restarts))


def rows_of_line(path: Path, number: int, record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row with TRL's names for each entry of the lists of a line, or the line itself where it has none."""
    kept = ((name, value) for name, value in record.items() if _NAMES.get(name) not in record)
    named = {_NAMES.get(name, name): value for name, value in kept}
    if not isinstance(named.get("step"), list):
        return [named]
    size = len(named["step"])
    lists = {name: values for name, values in named.items() if isinstance(values, list)}
    odd = [name for name, values in lists.items() if len(values) != size]
    if set(odd) - set(_EXTRA):
        raise RecordError(
            f"{path}:{number}: {', '.join(odd)} has not the {size} entries of step; leave the line out"
        )
    return [
        named | {name: values[at] for name, values in lists.items() if name not in odd} for at in range(size)
    ]


def _is_number(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return all(row.get(name) is None or isinstance(row[name], int | float) for row in rows)


FORMAT = Format(
    name="ms-swift",
    container=JSONL,
    needs=("prompt", "completion", "advantages"),
    patterns=("completions.jsonl",),
    read=read,
    splits=True,
    writer="modelscope/ms-swift swift/rlhf_trainers/grpo_trainer.py "
    "3602360a562313afbf2ef6065fdf61f271a2c5b9 2026-08-22",
    met="reconstruction: by its JsonlWriter",
    sums=True,
)
RAY_FORMAT = replace(FORMAT, name="ms-swift-ray", needs=("gen_step", "prompt", "completion", "reward"))
ROLL_FORMAT = replace(
    FORMAT,
    name="roll",
    needs=("global_step", "responses", "scores"),
    patterns=("rollout_dump_data.step_*.jsonl",),
    writer="alibaba/ROLL roll/pipeline/rlvr/utils.py 8eb27cc2dc34c4d1310b169d9b86d339004d811a 2026-08-19",
    met="reconstruction: by its write_to_json_process",
)
