"""A run of the released host under one of our mappings: a run directory like any other."""

import hashlib
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from search_to_signal.base.errors import ConfigError, ModelFileError, RunDirectoryError, StoppedError
from search_to_signal.base.progress import Progress
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.credit import RewardMapping, get_mapping
from search_to_signal.credit.normalizers import DEFAULT
from search_to_signal.models.api import listed_models
from search_to_signal.models.files import model_directory
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import score_unit
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.files import RecordWriter, storage_errors
from search_to_signal.records.manifest import Checkout, Manifest, read_manifest
from search_to_signal.records.schema import ANY_FENCE, HostFacts, IdeaEnd
from search_to_signal.run.clock import StepClock
from search_to_signal.run.directory import (
    begin,
    finish,
    is_begun,
    lock_directory,
    read_timing,
    refuse_occupied,
    run_files,
    set_aside,
)
from search_to_signal.run.resuming import first_manifest
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.hosts import RELEASED
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState
from search_to_signal.search.hosts.released.checkout import (
    opened,
    pinned,
    require_checkout,
    require_interface,
    require_pinned,
    revision_of,
)
from search_to_signal.search.hosts.released.host import seeded
from search_to_signal.search.hosts.released.intervention import (
    AGAIN,
    HOST,
    Observer,
    intervene,
    play,
    relayed,
    stoppable,
)
from search_to_signal.search.hosts.released.plan import (
    ReleasedPlan,
    import_later,
    import_main,
    planned,
    require_model,
    require_packages,
)
from search_to_signal.search.hosts.released.trainer import Count, count_with
from search_to_signal.search.member import frontier

# Where the host works, and where its logs, algorithms and checkpoints stay.
PLACE = "host"
# Where an attempt that failed says why.
ERROR = "error.txt"

_ALWAYS = (
    "max_stuck_threshold comes to 0 (a negative one is a twentieth of max_steps): the archive collapses "
    "before every prompt"
)


class GroupSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of how the released host samples."""

    group_size: int


class ReleasedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known to decide the records of a run of the released host.

    ``configuration`` is the host's own file, ``options`` what it says, without keys. ``condition`` is the
    mapping whose rewards the host was given; behind an endpoint (``served``) nothing is trained with them.
    ``search.prompts`` is ``released``: the host's own, in its words. ``idea_end`` is the host's (D37).
    """

    host: Literal["released"] = "released"
    purpose: Literal["formal", "smoke"]
    layer: str = "cohort"
    problem: str
    split: str = "train"
    model: str
    served: bool
    condition: str
    normalizer: Literal["group"] = "group"
    seed: int
    groups: int
    search: SearchSettings
    generation: GroupSize
    idea_end: IdeaEnd = ANY_FENCE
    configuration: str
    options: dict[str, str | int | float | bool | None]


@dataclass(frozen=True)
class Order:
    """What to run: a checkout with one of its configurations, or one of this package's, under a mapping.

    ``problem`` is the expected one, None for the configuration's. Without ``any_revision`` a checkout that
    says that it is another revision than the pinned one is refused.
    """

    calm: Path
    config: str
    out: Path
    mapping: str = "native"
    normalizer: str = DEFAULT
    problem: str | None = None
    seed: int = 42
    any_revision: bool = False


def run_released(order: Order, progress: Progress) -> Manifest:
    """Run the released host into an empty directory; an unfinished attempt that is there is set aside.

    Raises HostError, with nothing left behind, for a checkout or configuration that cannot run; HostError
    also when the run goes wrong: its directory then stays, unfinished, with what the host wrote. Raises
    RunDirectoryError for a directory that holds anything else, ConfigError for an unknown mapping and for
    another normalizer than the host's own.
    """
    if order.normalizer != DEFAULT:
        raise ConfigError(
            f"normalizer {order.normalizer!r}: the trainer of the released host can only use {DEFAULT!r}; "
            "leave --normalizer out, or train with our host (s2s run)"
        )
    mapping, out = get_mapping(order.mapping), order.out.resolve()
    if is_begun(out) and read_manifest(out).status == "complete":
        raise RunDirectoryError(f"{out} holds a complete run: give another --out, or move it away")
    with stoppable() as stop:
        try:
            plan = checked_plan(order, progress)
            config, calm = _config(order, plan), order.calm.resolve()
            unit = score_unit(get_problem(plan.problem))
            facts: dict[str, Any] = {"host": RELEASED, "checkout": _checkout(calm), "score_unit": unit}
            facts["host_facts"] = HostFacts(calm=True, own_loop=True, exposures=True, database="none")
            if plan.settings.collapse_threshold == 0:
                progress.say(f"warning: {_ALWAYS}")
            set_aside(out)
            refuse_occupied(out, False)
            with storage_errors(out, AGAIN), _remove_unstarted(out), lock_directory(out) as descriptor:
                refuse_occupied(out, False)
                with _write_error(out), _observer(plan, mapping, out) as observer:
                    observer.stop = stop
                    observer.after_round = partial(
                        _report_round, progress, f"released/{order.mapping}", plan.groups
                    )
                    with opened(calm, out / PLACE) as checkout:
                        import_later(checkout, plan)
                        intervene(checkout, observer, order.seed)
                        import_main(checkout)
                        manifest = first_manifest(config, canonical_sha256(config), {}, **facts)
                        begin(out, descriptor, config, manifest)
                        options = planned(checkout, plan.config, plan.problem).options
                        with _reporting(options, observer, plan.served), seeded(order.seed):
                            play(checkout, options, observer, plan.groups)
                assert manifest.checkout is not None
                counted = msgspec.structs.replace(manifest.checkout, tokenizer=observer.counted_by)
                manifest = msgspec.structs.replace(
                    manifest, status="complete", timing=read_timing(out), checkout=counted
                )
                finish(out, manifest)
            progress.say(f"native rewards have equal bits in {observer.agreeing} of {plan.groups} groups")
            return manifest
        except KeyboardInterrupt:
            raise StoppedError(f"stopped; {AGAIN}") from None


def checked_plan(order: Order, progress: Progress) -> ReleasedPlan:
    """Everything that can be known before the host's own modules run; raises HostError.

    Settings that a user may not expect are reported first.
    """
    calm = order.calm.resolve()
    require_checkout(calm)
    if not order.any_revision:
        require_pinned(calm)
    require_interface(calm, [])
    config = order.config if (calm / order.config).is_file() else str(Path(order.config).resolve())
    with opened(calm) as checkout:
        plan = planned(checkout, config, order.problem)
        for line in plan.remarks:
            progress.say(line)
        require_interface(calm, [plan.problem])
        require_packages(checkout, plan)
        require_model(plan, listed_models)
    return plan


def _config(order: Order, plan: ReleasedPlan) -> ReleasedConfig:
    revision = revision_of(order.calm.resolve())
    formal = revision is not None and revision[1].startswith(pinned())
    return ReleasedConfig(
        purpose="formal" if formal else "smoke",
        problem=plan.problem,
        model=plan.model,
        served=plan.served,
        condition=order.mapping,
        seed=order.seed,
        groups=plan.groups,
        search=plan.settings,
        generation=GroupSize(group_size=plan.group_size),
        configuration=order.config,
        options=plan.recorded(),
    )


def _checkout(calm: Path) -> Checkout:
    revision = revision_of(calm)
    names = (file.relative_to(calm) for file in sorted(calm.rglob("*")) if file.is_file())
    held = (name for name in names if not {".git", "__pycache__"} & set(name.parts))
    lines = "".join(f"{sha256_file(calm / name)}  {name}\n" for name in held)
    return Checkout(
        revision=revision[1] if revision else None, sha256=hashlib.sha256(lines.encode()).hexdigest()
    )


@contextmanager
def _observer(plan: ReleasedPlan, mapping: RewardMapping, out: Path) -> Iterator[Observer]:
    """An observer that writes into a run directory, with an evaluator for what the host does not report."""
    problem = get_problem(plan.problem)
    with (
        EvaluationPool(problem, "train", EvaluationSettings(replay="off")) as pool,
        run_files(out) as files,
        RecordWriter(out / HOST) as host,
    ):
        yield Observer(
            plan,
            mapping,
            files,
            host,
            StepClock(),
            rescore=lambda code: pool.evaluate([code])[0].score,
            count=_count(plan),
        )


@contextmanager
def _reporting(options: Any, observer: Observer, served: bool) -> Iterator[None]:
    """Within it an endpoint's answers come by way of us, with what it reports of them."""
    if not served or not options.base_url:
        yield
        return
    with relayed(options.base_url) as relay:
        options.base_url, observer.requests = relay.url, relay.taken
        yield


def _count(plan: ReleasedPlan) -> Count | None:
    """Count by the tokenizer of a served model whose directory is here; a trainer has its own."""
    if not plan.served:
        return None
    try:
        directory = model_directory(plan.model)
    except ModelFileError:
        return None
    # Only now: Unsloth wants to be imported before transformers.
    from search_to_signal.models.local import load_tokenizer

    return count_with(load_tokenizer(directory))


def _report_round(progress: Progress, task: str, groups: int, done: int, after: SearchState) -> None:
    progress.update(task, done, groups, f"best {frontier(after.archive):.4f} archive {len(after.archive)}")


@contextmanager
def _remove_unstarted(out: Path) -> Iterator[None]:
    """What stops before a run has begun leaves the disk as it was."""
    made = [path for path in (out, *out.parents) if not path.exists()]
    before = set(out.iterdir()) if out.exists() else set()
    try:
        yield
    except BaseException:
        if not is_begun(out):
            for path in set(out.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in made:
                path.rmdir()
        raise


@contextmanager
def _write_error(out: Path) -> Iterator[None]:
    """What stops a run that has begun stands in its directory, with every line that it came through."""
    try:
        yield
    except BaseException:
        if is_begun(out):
            (out / ERROR).write_text(traceback.format_exc(), encoding="utf-8")
        raise
