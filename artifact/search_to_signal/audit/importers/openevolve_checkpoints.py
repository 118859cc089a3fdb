"""OpenEvolve's checkpoints: ``checkpoints/checkpoint_N/metadata.json`` and the ``programs/*.json`` beside it.

Read: codelion/openevolve, openevolve/database.py (``save``, ``_save_program``, ``migrate_programs``),
controller.py (``_save_checkpoint``) and utils/metrics_utils.py (``get_fitness_score``),
75bc29894b188b2434bf32c0db601f9dfbb41d5f, 2025-12-24.

Every run writes them. A checkpoint holds the programs of the population at that time, so the last one is
read; what the population had dropped before is in none, or in an earlier one. A program copied to another
island has a new id and ``migrant`` in its metadata: it is no candidate. The fitness is combined_score, and
without one the mean of the numbers that are no feature of the map. Metrics may be Infinity, NaN or texts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers import openevolve
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.candidates import candidates
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.lines import first_record, parse_json
from search_to_signal.audit.importers.rows import (
    NAN,
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
_EVIDENCE = candidates(
    "a group is one program of the last checkpoint: those that the population had dropped are not in it; "
    "improvement is over the parent, admission is to the archive"
)
_COPIED = "copies of a program on another island are no candidates, and are left out"


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Programs of the checkpoint whose metadata file is given, in the order in which they were found.

    Raises RecordError for a damaged file, and for a checkpoint without programs.
    """
    metadata = first_record(path)
    known = {file: _program(file) for file in sorted((path.parent / "programs").glob("*.json"))}
    refuse_unknown_label(path, next(iter(known.values()), {}), options.label)
    _refuse_unknown_reward(path, known, options.reward)
    programs = sorted(known.values(), key=_order)
    own = [program for program in programs if not value_at(program, "metadata.migrant")]
    scores = {
        str(program.get("id")): _fitness(program.get("metrics"), metadata, options.reward)
        for program in programs
    }
    archive = set(map(str, metadata.get("archive") or ()))
    rows = rows_of(
        path, enumerate(own), lambda program, at: _row(program, at, scores, archive, metadata, options)
    )
    copied = Assumption("migrants", _COPIED, {"copies": len(programs) - len(own)})
    for batch in batches(str(path.parent), consecutive(rows), options.rows, _EVIDENCE):
        yield replace(batch, assumptions=(*batch.assumptions, copied)) if copied.counts["copies"] else batch


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


def _refuse_unknown_reward(path: Path, programs: Mapping[Path, Program], name: str | None) -> None:
    metrics = [numbers(program.get("metrics")) for program in programs.values()]
    if name is not None and not any(name in measured for measured in metrics):
        names = ", ".join(dict.fromkeys(key for measured in metrics for key in measured))
        raise RecordError(f"{path} has no reward {name}: choose one of {names or 'those it has'}")


def _row(
    program: Program,
    position: int,
    scores: Mapping[str, float],
    archive: set[str],
    metadata: Mapping[str, Any],
    options: ReadOptions,
) -> RolloutRow:
    identity, parent = str(program.get("id")), program.get("parent_id")
    before = scores.get(str(parent)) if parent is not None else None
    if before is None and (inherited := program.get("metadata", {}).get("parent_metrics")):
        before = _fitness(inherited, metadata, options.reward)
    score = scores[identity]
    return RolloutRow(
        group=position,
        position=position,
        step=count(program.get("iteration_found")),
        reward=score,
        response=digest(program.get("code")),
        label=value_at(program, options.label),
        status=openevolve.status(program.get("metrics")),
        improvement=NAN if before is None else score - before,
        admitted=int(identity in archive),
        metrics=numbers(program.get("metrics")),
    )


def _fitness(metrics: object, metadata: Mapping[str, Any], name: str | None) -> float:
    """The named metric, or the framework's fitness, for which the features of the map do not count."""
    features = metadata.get("feature_stats") or {}
    rest = {key: value for key, value in metrics.items() if key not in features} if metrics else {}  # type: ignore[attr-defined]
    return openevolve.fitness(rest if name is None and numbers(rest) else metrics, name)


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
    writer="codelion/openevolve openevolve/database.py 75bc29894b188b2434bf32c0db601f9dfbb41d5f 2025-12-24",
    met="real writer: ProgramDatabase.save, called with given programs",
)
