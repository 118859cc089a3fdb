"""prime-rl's episodes, one per line: what was sampled, joined with what was trained.

Read: PrimeIntellect-ai/prime-rl, src/prime_rl/monitors/file.py, orchestrator/train_sink.py, orchestrator.py,
metrics.py and algo/, 559b44772e471d1538537b8805cc77f3824a5e64, 2026-08-21; since prime-rl#3444 and #3465,
monitors/file/monitor.py, 048a6e23428ea9b47feaba3c9fa75376e89a383e, monitors/file/traces/chunks.py,
551bfc39ba61d9f0aec59780d4a3d7e5395f1fdc, traces/update.py, 65a185848115523d2feb2e110d04d05cfbea3a08, and
orchestrator/annotations.py, 96e0cf478d0de87a1a3475f51dcf85ed3bbc00cb, all of September 2026;
PrimeIntellect-ai/verifiers, verifiers/v1/episode.py and trace.py, a60a606ecc4d309247edf9ff92c3eabca362781f,
2026-08-21.

``rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl``: ``all`` gets an episode when it arrives, under
the step whose batch is being collected; ``effective`` gets the traces that a batch trained, with their
advantage. ``monitors/file/traces/stream.jsonl``, later ``stream/NNNNN.jsonl``, sealed as ``.zst``: every
episode once, evaluations among them; ``annotations`` beside it say what was trained, with which advantage.
Token floats are rounded to four decimals there; the advantage of a trace is not.

Of a run both are read: a trace that no batch trained is masked, and a group belongs to the step that trained
it, else to the first that trained anything after it had arrived. Groups that arrived after the last batch
still wait and are left out. A file by itself is read as it is. Missing: why a trace was left out, and its
advantage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.lines import first_record
from search_to_signal.audit.importers.prime_rl_cohorts import Cohorts, of_files
from search_to_signal.audit.importers.prime_rl_groups import groups_of, plan_of
from search_to_signal.audit.importers.rows import Group, batches, evaluated

_SURVIVORS = (
    "these are traces that were trained: what was sampled and filtered before is in `all`, if that was kept "
    "beside `effective` (give the run's directory), and is no waste here"
)
_FILTERED = "a trace that was sampled and that no batch trained teaches nothing: filtered, stale or failed"
_WAITING = "groups that arrived after the last batch may still be trained, and are left out"
_EVALUATIONS = "evaluations stand among the episodes, and are left out"


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of a file, a stream with its annotations; raises RecordError for a line that cannot be read."""
    return _read(of_files([path], whole=False), options)


def read_run(files: Sequence[Path], options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of the run that files belong to; errors as in ``read``."""
    return _read(of_files(files, whole=True), options)


def _read(cohorts: Cohorts, options: ReadOptions) -> Iterator[RewardGroups]:
    path = cohorts.sources[0].path
    first = first_record(path)
    refuse_unknown_label(path, {**first, **_first_trace(first)}, options.label)
    plan = plan_of(cohorts)
    groups = groups_of(cohorts, plan, options)
    notes = evaluated(0 if plan.training else len(plan.rows))
    if plan.waiting:
        notes = (*notes, Assumption("waiting", _WAITING, {"groups": plan.waiting}))
    if plan.evaluations:
        notes = (*notes, Assumption("evaluations", _EVALUATIONS, {"traces": plan.evaluations}))
    evidence = partial(_evidence, cohorts)
    made = batches(str(cohorts.place), groups, options.rows, evidence, options.prompts)
    for number, batch in enumerate(made):
        yield batch if number else replace(batch, assumptions=(*batch.assumptions, *notes))


def _first_trace(episode: dict[str, Any]) -> dict[str, Any]:
    """The first trace of an episode that has one."""
    found = episode.get("traces")
    first = found[0] if isinstance(found, list) and found else {}
    return first if isinstance(first, dict) else {}


def _evidence(cohorts: Cohorts, groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """What the file cannot show, or how much of what was sampled no batch trained."""
    masked = sum(one.masked for group in groups for one in group)
    if cohorts.known and masked:
        counts = {"traces": sum(map(len, groups)), "not trained": masked}
        return (Assumption("filtered", _FILTERED, counts),)
    trained = sum(any(one.advantage is not None for one in group) for group in groups)
    if trained and cohorts.survivors:
        return (Assumption("survivors", _SURVIVORS, {"groups": trained}),)
    return ()


FORMAT = Format(
    name="prime-rl",
    container=JSONL,
    needs=("id", "task", "ok", "traces"),
    patterns=(
        *(
            f"{below}{stream}"
            for stream in ("stream/[0-9]*.jsonl", "stream.jsonl")
            for below in ("monitors/file/traces/", "file/traces/", "traces/", "")
        ),
        *(
            f"{below}{folder}/traces.jsonl"
            for folder in ("train/effective", "train/all", "eval/effective", "eval/all")
            for below in ("rollouts/step_*/", "step_*/", "")
        ),
        "effective/traces.jsonl",
        "all/traces.jsonl",
        "traces.jsonl",
        "[0-9]*.jsonl",
    ),
    read=read,
    joined=read_run,
    writer="PrimeIntellect-ai/prime-rl src/prime_rl/monitors/file.py "
    "559b44772e471d1538537b8805cc77f3824a5e64 2026-08-21; src/prime_rl/monitors/file/monitor.py "
    "048a6e23428ea9b47feaba3c9fa75376e89a383e 2026-09",
    met="real writer: FileMonitor.log_episodes, called with given episodes of verifiers 0.4.1.dev86; "
    "reconstruction: streams and annotations after the writer's source",
)
