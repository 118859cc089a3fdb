"""OpenEvolve's checkpoints: ``checkpoints/checkpoint_N/metadata.json`` and the ``programs/*.json`` beside it.

Read: algorithmicsuperintelligence/openevolve, openevolve/database.py (``save``, ``_save_program``,
``migrate_programs``, ``_sample_exploration_parent``), controller.py (``_save_checkpoint``) and
utils/metrics_utils.py (``get_fitness_score``), 411fb59c886c18704caaffb611e17cf9e7d824d2, 2026-07-18.

Every run writes them. A checkpoint holds the programs of the population at that time, so the last one is
read; what the population had dropped before is in none, or in an earlier one. A program copied to another
island has a new id and ``migrant`` in its metadata, or the generation of its parent: it is no candidate. The
fitness is that of ``openevolve``, and the features of the map are those of ``feature_stats``. Metrics may be
Infinity, NaN or texts. The archive takes any program until it is full, a failed one too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers import openevolve
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.candidates import COPIES, REPEATED, Tally, Told, candidates, ended
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.lines import first_record, parse_json
from search_to_signal.audit.importers.rows import (
    RolloutRow,
    batches,
    consecutive,
    count,
    digest,
    number,
    numbers,
    rows_of,
)
from search_to_signal.audit.importers.streams import start_of
from search_to_signal.errors import RecordError, reason

Program = dict[str, Any]
_SAYS = (
    "a group is one program of the last checkpoint: those that the population had dropped are not in it; "
    "improvement is over the parent, admission is to the archive"
)
_EMPTY = Told("empty_islands", "islands of the checkpoint hold no program", ("empty", "islands"))
_GONE = Told("archive", "ids of the archive are of no program in the checkpoint", ("unknown", "archived"))


@dataclass(frozen=True)
class _Checkpoint:
    """Programs by id, in the order in which they were found, and what the metadata say of them."""

    programs: Mapping[str, Program]
    archive: frozenset[str]
    features: frozenset[str]

    def parent(self, program: Program) -> Program | None:
        parent = program.get("parent_id")
        return None if parent is None else self.programs.get(str(parent))

    def is_copy(self, program: Program) -> bool:
        """A program that migrated, or one that was put on an empty island: a child is a generation on."""
        parent, generation = self.parent(program) or {}, program.get("generation")
        same = generation is not None and parent.get("generation") == generation
        return bool(_metadata(program).get("migrant")) or (same and parent.get("code") == program.get("code"))


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Programs of the checkpoint whose metadata file is given, in the order in which they were found.

    Raises RecordError for a damaged file, and for a checkpoint without programs.
    """
    metadata = first_record(path)
    known = [_program(file) for file in sorted((path.parent / "programs").glob("*.json"))]
    refuse_unknown_label(path, next(iter(known), {}), options.label)
    _refuse_unknown_reward(path, known, options.reward)
    programs: dict[str, Program] = {}
    for program in sorted(known, key=_order):
        programs.setdefault(str(program.get("id")), program)
    checkpoint = _Checkpoint(
        programs,
        frozenset(map(str, _part(path, metadata, "archive", list))),
        frozenset(_part(path, metadata, "feature_stats", dict)),
    )
    tally = _tally(checkpoint, _part(path, metadata, "islands", list), len(known))
    own = [program for program in programs.values() if not checkpoint.is_copy(program)]
    rows = rows_of(path, enumerate(own), lambda program, at: _row(program, at, checkpoint, options, tally))
    yield from batches(str(path.parent), consecutive(rows), options.rows, candidates(_SAYS, tally))


def _program(file: Path) -> Program:
    try:
        program = parse_json(start_of(file, -1))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{file}: no program ({reason(error)}); copy the checkpoint again") from error
    if not isinstance(program, dict):
        raise RecordError(f"{file}: no program, which is a JSON object; copy the checkpoint again")
    return program


def _order(program: Program) -> tuple[int, float, str]:
    return count(program.get("iteration_found")), number(program.get("timestamp")), str(program.get("id"))


def _part(path: Path, metadata: Mapping[str, Any], name: str, kind: type) -> Any:
    """A list or object of the metadata; empty where it is null or missing."""
    value = metadata.get(name)
    if value is not None and not isinstance(value, kind):
        what = "list" if kind is list else "object"
        raise RecordError(f"{path}: {name} is no {what}, as a checkpoint has it; copy the checkpoint again")
    return kind() if value is None else value


def _metadata(program: Program) -> Mapping[str, Any]:
    metadata = program.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _refuse_unknown_reward(path: Path, programs: Sequence[Program], name: str | None) -> None:
    metrics = [numbers(program.get("metrics")) for program in programs]
    if name is not None and not any(name in measured for measured in metrics):
        names = ", ".join(dict.fromkeys(key for measured in metrics for key in measured))
        raise RecordError(f"{path} has no reward {name}: choose one of {names or 'those it has'}")


def _tally(checkpoint: _Checkpoint, islands: Sequence[object], files: int) -> Tally:
    """What stands in the checkpoint beside its candidates."""
    tally = Tally((COPIES, REPEATED, _EMPTY, _GONE, openevolve.EARLIER_RULE))
    copies = [name for name, program in checkpoint.programs.items() if checkpoint.is_copy(program)]
    held = [
        isinstance(island, list) and any(str(name) in checkpoint.programs for name in island)
        for island in islands
    ]
    tally.counts.update(
        {
            "copies": len(copies),
            "copies in the archive": len(checkpoint.archive.intersection(copies)),
            "repetitions": files - len(checkpoint.programs),
            "islands": len(held),
            "empty": held.count(False),
            "archived": len(checkpoint.archive),
            "unknown": len(checkpoint.archive.difference(checkpoint.programs)),
        }
    )
    return tally


def _row(
    program: Program, position: int, checkpoint: _Checkpoint, options: ReadOptions, tally: Tally
) -> RolloutRow:
    parent, metrics = checkpoint.parent(program), program.get("metrics")
    before = _metadata(program).get("parent_metrics") if parent is None else parent.get("metrics")
    code, time = program.get("code"), program.get("timestamp")
    own, improvement = openevolve.compared(metrics, before, time, options.reward, checkpoint.features, tally)
    return RolloutRow(
        group=position,
        position=position,
        step=count(program.get("iteration_found")),
        reward=own,
        response=digest(code if isinstance(code, str) else None),
        label=value_at(program, options.label),
        status=ended(openevolve.status(metrics), own),
        improvement=improvement,
        admitted=int(str(program.get("id")) in checkpoint.archive),
        metrics=numbers(metrics),
    )


FORMAT = Format(
    name="openevolve-checkpoint",
    container=JSONL,
    needs=("islands", "archive", "best_program_id", "island_generations"),
    patterns=(
        "metadata.json",
        "checkpoint_*/metadata.json",
        "checkpoints/checkpoint_*/metadata.json",
        "*/checkpoints/checkpoint_*/metadata.json",
    ),
    read=read,
    several=True,
    newest=True,
    run=r".*(?=checkpoint_[^/]*/metadata\.json)",
    writer="algorithmicsuperintelligence/openevolve openevolve/database.py "
    "411fb59c886c18704caaffb611e17cf9e7d824d2 2026-07-18",
    met="real writer: ProgramDatabase.save, called with given programs",
)
