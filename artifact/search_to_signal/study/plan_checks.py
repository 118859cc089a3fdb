"""Recorded evidence beside its plan: what has to hold, a page's first table, and deviations as sentences."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path

from search_to_signal.base.errors import RunDirectoryError, reason
from search_to_signal.base.progress import counted
from search_to_signal.records.amendments import AMENDMENTS, Amendment
from search_to_signal.records.checksums import SUMS, read_sums, sha256_file
from search_to_signal.records.conditions import run_name, split_run_name
from search_to_signal.records.files import read_regular
from search_to_signal.records.layers import PROBE
from search_to_signal.records.manifest import (
    ROSTER,
    Accelerator,
    Manifest,
    finished_manifest,
    read_manifest,
    read_roster,
    run_directories,
    runs_below,
)
from search_to_signal.records.plan import PLAN, Plan, Question, Study
from search_to_signal.records.probe import INITIAL, read_probe
from search_to_signal.study.verdicts import NO_CLOSED_STUDIES, QuestionOutcome

_SHOWN = 3


def plan_problems(
    root: Path, unpacked: Path, plan: Plan, sha256: str, outcomes: Sequence[QuestionOutcome]
) -> Iterator[str]:
    """Yield differences between packed evidence and its plan; ``sha256`` is that of the plan's file.

    The plan alone determines the runs: a roster that names fewer, and seeds out of the plan's order, are
    problems, and so is a run in the place of another. A later study of which nothing is recorded is none: the
    plan's page lists it.
    """
    if read_sums(root).get(PLAN.name) != sha256:
        yield f"{PLAN.name}: {SUMS} does not list it with these bytes: the plan was changed; restore it"
    listed, file = read_sums(root).get(AMENDMENTS), root / AMENDMENTS
    if listed != (sha256_file(file) if file.is_file() else None):
        yield f"{AMENDMENTS}: {SUMS} does not list it as it is here: it was changed; restore both"
    closed = {outcome.study.key for outcome in outcomes if outcome.closed and not outcome.answered_elsewhere}
    short = {outcome.study.key for outcome in outcomes if outcome.closed_short}
    for study in sorted(closed - short):
        yield f"{AMENDMENTS}: it closes {study}, of which every seed is recorded: leave that study out"
    places = (run.relative_to(unpacked) for run in runs_below(unpacked))
    own = (place for place in places if place.parts[0] not in plan.controls)
    manifests = {place.as_posix(): read_manifest(unpacked / place) for place in own}
    if names := [name for name, manifest in manifests.items() if manifest.plan_sha256 != sha256]:
        count = counted(len(names), "run")
        yield f"{PLAN.name}: {count} recorded under another plan, or none: {shortened(names)}"
    for name, manifest in manifests.items():
        # Tables take a run for what its place says.
        facts, parts = manifest.facts, name.split("/")
        if (facts.layer, facts.name) != (parts[1], parts[-1]):
            yield f"{name} has the configuration of {facts.layer}/{facts.name}: restore the run that it names"
    planned = planned_sides(plan)
    first = {side for question in plan.studies[0].questions for side, _ in _sides(plan, question)}
    for side, runs in planned.items():
        yield from _side_problems(unpacked, side, runs, side in first)


def planned_sides(plan: Plan) -> dict[str, dict[str, int]]:
    """Return the runs of every condition that a plan asks for, seeds by name in its order.

    A condition is named ``PROFILE/LAYER/CONDITION``; of several questions the one with the most seeds counts.
    """
    planned: dict[str, dict[str, int]] = defaultdict(dict)
    for study in plan.studies:
        for question in study.questions:
            for side, seeds in _sides(plan, question):
                planned[side] = seeds if len(seeds) > len(planned[side]) else planned[side]
    return planned


def planned_orders(plan: Plan, profile: str) -> list[list[str]]:
    """Return the places of the runs that a plan asks of a profile, below its results, a condition each."""
    sides = ((side.rpartition("/")[0], runs) for side, runs in planned_sides(plan).items())
    return [
        [f"{layer.removeprefix(f'{profile}/')}/{run}" for run in runs]
        for layer, runs in sides
        if layer.startswith(f"{profile}/")
    ]


def _sides(plan: Plan, question: Question) -> Iterator[tuple[str, dict[str, int]]]:
    seeds = plan.seeds.seeds[: question.seeds]
    for side in dict.fromkeys(side for pair in question.pairs for side in pair):
        yield side, {run_name(side.rpartition("/")[2], seed): seed for seed in seeds}


def _side_problems(top: Path, side: str, planned: dict[str, int], first: bool) -> Iterator[str]:
    folder = side.rpartition("/")[0]
    directory = top / folder
    if not directory.is_dir() and not first:
        return
    if directory.name == PROBE:
        recorded = {checkpoint.name for checkpoint in read_probe(directory).checkpoints}
        names = [INITIAL] if side.endswith(f"/{INITIAL}") else list(planned)
        if lacking := [name for name in names if name not in recorded]:
            count = f"{len(lacking)} of {len(names)}"
            yield f"{side}: the probe lacks {count} planned checkpoints: {shortened(lacking)}"
        return
    roster = set(read_roster(directory))
    if lacking := [name for name in planned if name not in roster]:
        yield f"{folder}/{ROSTER} lacks {len(lacking)} of {len(planned)} planned runs: {shortened(lacking)}"
    finished = [name for name in planned if finished_manifest(directory / name) is not None]
    if skipped := [name for name in list(planned)[: len(finished)] if name not in finished]:
        number = len(finished)
        yield f"{side}: recorded seeds are not the plan's first {number}: {shortened(skipped)} missing"
    condition = side.rpartition("/")[2]
    runs = [run.name for run in run_directories(directory) if split_run_name(run.name)[0] == condition]
    if unplanned := [name for name in runs if name not in planned]:
        count = counted(len(unplanned), "run")
        yield f"{side}: {count} of seeds that the plan does not ask for: {shortened(unplanned)}"


def table_problems(page: Path, answers: Sequence[str], required: str) -> Iterator[str]:
    """Yield row by row the differences between a page's tables and rebuilt answers.

    An answer is a heading over a pipe table. The page may contain any of them completely, and has to contain
    the ``required`` one. Raises RunDirectoryError for a page that cannot be read.
    """
    try:
        lines = [line.strip() for line in read_regular(page).decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(f"cannot read {page} ({reason(error)}): restore the file") from error
    rebuilt = [_rows(answer) for answer in answers]
    blocks = [
        list(takewhile(lambda line: line.startswith("|"), lines[start:]))
        for start, line in enumerate(lines)
        if any(line == rows[0] for rows in rebuilt)
    ]
    closest = [max(rebuilt, key=lambda rows: len({*rows} & {*block})) for block in blocks]
    if _rows(required) not in closest:
        lacking = (row for row in _rows(required) if row not in lines)
        yield from (f"{page.name}: its table lacks the rebuilt row {row}" for row in lacking)
    for block, rows in zip(blocks, closest, strict=True):
        yield from (f"{page.name}: its table lacks the rebuilt row {row}" for row in rows if row not in block)
        yield from (
            f"{page.name}: its table has a row that is not rebuilt: {row}" for row in block if row not in rows
        )
        if set(block) == set(rows) and block != rows:
            yield f"{page.name}: its table has the rebuilt rows in another order, or twice"


def _rows(answer: str) -> list[str]:
    return [line.strip() for line in answer.splitlines() if line.startswith("|")]


def shortened(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")


# Deviations from the plan, as sentences; small ones are listed too.

NOTHING = "nothing of it is packed"


def read_recorded_runs(root: Path) -> dict[str, Manifest]:
    """Return the manifests of all finished runs below ``root``, by path relative to it."""
    manifests = ((run, finished_manifest(run)) for run in runs_below(root))
    return {run.relative_to(root).as_posix(): manifest for run, manifest in manifests if manifest is not None}


def find_deviations(
    plan: Plan,
    sha256: str,
    runs: dict[str, Manifest],
    outcomes: Sequence[QuestionOutcome],
    closed: Mapping[str, Amendment] = NO_CLOSED_STUDIES,
    amendments: Sequence[Amendment] = (),
) -> dict[str, list[str]]:
    """Return sentences by study key; the key "" has those that concern the whole plan.

    ``sha256`` is the plan's own hash, ``runs`` are manifests by path, ``closed`` the amendments that closed
    studies, by study; of ``amendments`` notes are said. A list is empty where nothing deviates.
    """
    notes = [
        f"{', '.join(one.studies)}, note of {one.date.isoformat()}: {one.why.strip().rstrip('.')}"
        for one in amendments
        if one.what == "notes"
    ]
    wide = _plan_wide_deviations(plan, sha256, runs, outcomes)
    lines = {"": [*_say_closings(plan, closed), *notes, *wide]}
    for study in plan.studies:
        own = [outcome for outcome in outcomes if outcome.study.key == study.key]
        amendment = closed.get(study.key)
        why = f"{amendment.words} closes it: {amendment.why.strip().rstrip('.')}" if amendment else ""
        sentences = [*([why] if why else []), *_study_deviations(study, runs, own, amendment)]
        lines[study.key] = list(dict.fromkeys((*sentences, *_shared_answers(own))))
    return lines


def _say_closings(plan: Plan, closed: Mapping[str, Amendment]) -> Iterator[str]:
    """How many studies were closed, which of them ask primary questions, and which stood before open ones."""
    if not closed:
        return
    keys = [study.key for study in plan.studies]
    primary = [
        study.key
        for study in plan.studies
        if study.key in closed and any(question.role == "primary" for question in study.questions)
    ]
    early = [key for at, key in enumerate(keys) if key in closed and not closed.keys() >= {*keys[at:]}]
    yield f"amendments closed {len(closed)} of {len(keys)} studies: " + ", ".join(
        key for key in keys if key in closed
    )
    if primary:
        yield f"the primary questions of {', '.join(primary)} have no answer, since these studies are closed"
    if early:
        yield f"closed although later studies of the plan were recorded: {', '.join(early)}"


def _plan_wide_deviations(
    plan: Plan, sha256: str, runs: dict[str, Manifest], outcomes: Sequence[QuestionOutcome]
) -> Iterator[str]:
    other = [
        place
        for place, manifest in runs.items()
        if manifest.plan_sha256 != sha256 and place.partition("/")[0] not in plan.controls
    ]
    if other:
        yield f"{len(other)} runs were not recorded under this plan: {shortened(other)}"
    sources = Counter(manifest.source.sha256[:12] for manifest in runs.values())
    if len(sources) > 1:
        counts = ", ".join(f"{number} by {name}" for name, number in sources.most_common())
        mixed = _mixed_seeds({place: manifest.source.sha256 for place, manifest in runs.items()})
        yield f"several versions of the source recorded these runs: {counts}{mixed}"
    unclean = [place for place, manifest in runs.items() if manifest.source.clean is False]
    if unclean:
        yield f"{len(unclean)} runs were recorded from a checkout with changes: {shortened(unclean)}"
    machines = {place: manifest.environment.cpu for place, manifest in runs.items()}
    held = ((place, manifest.environment.accelerator) for place, manifest in runs.items())
    cards = {place: card.kind for place, card in held if isinstance(card, Accelerator)}
    for what, kinds in (("processors", machines), ("kinds of cards", cards)):
        if len(set(kinds.values())) > 1:
            counts = ", ".join(f"{number} runs on {kind}" for kind, number in Counter(kinds.values()).items())
            yield f"several {what}: {counts}{_mixed_seeds(kinds)}"
    seeds = set(plan.seeds.seeds)
    strange = [place for place, manifest in runs.items() if manifest.facts.seed not in seeds]
    if strange:
        yield f"{len(strange)} runs have seeds that the plan does not name: {shortened(strange)}"
    unplanned = sorted({place.split("/")[0] for place in runs} - set(plan.profiles))
    if unplanned:
        yield f"recorded although the plan does not name it: {', '.join(unplanned)}"
    incomplete: list[str] = []
    for study in plan.studies:
        if incomplete and _begun(study, runs, outcomes):
            yield (
                f"{study.key} was recorded before all of {', '.join(incomplete)}, which come first in the "
                "plan"
            )
        own = (one for one in outcomes if one.study.key == study.key and not one.answered_elsewhere)
        if any(len(outcome.values) < outcome.planned for outcome in own):
            incomplete.append(study.key)


def _mixed_seeds(kinds: Mapping[str, str]) -> str:
    """Say in how many seeds of each layer runs differ in their kind; ``kinds`` are by path.

    Differences are taken within seeds: only there does a kind lie between the two sides.
    """
    by_seed: dict[str, dict[str, set[str]]] = {}
    for place, kind in kinds.items():
        layer, _, name = place.rpartition("/")
        by_seed.setdefault(layer, {}).setdefault(split_run_name(name)[1], set()).add(kind)
    mixed = {layer: [len(found) > 1 for found in seeds.values()] for layer, seeds in by_seed.items()}
    named = [f"{sum(of)} of {counted(len(of), 'seed')} of {layer}" for layer, of in mixed.items() if any(of)]
    return f"; within {', '.join(named)} the two sides differ in it" if named else ""


def _begun(study: Study, runs: dict[str, Manifest], outcomes: Sequence[QuestionOutcome]) -> bool:
    """Whether the study's folders contain a run or a record that its questions read."""
    folders = tuple(f"{profile}/{layer}/" for profile in study.profiles for layer in study.layers)
    places_read = (side.place for outcome in outcomes for pair in outcome.pairs for side in pair.sides)
    return any(place.startswith(folders) for place in (*runs, *places_read))


def _study_deviations(
    study: Study, runs: dict[str, Manifest], outcomes: Sequence[QuestionOutcome], closed: Amendment | None
) -> Iterator[str]:
    if not _begun(study, runs, outcomes):
        yield NOTHING
        return
    # Missing seeds of a shared answer are listed under the question that gives it.
    answered_here = (outcome for outcome in outcomes if not outcome.answered_elsewhere)
    for question, same in groupby(answered_here, key=lambda outcome: outcome.question):
        comparisons = list(same)
        uneven = len({len(outcome.values) for outcome in comparisons}) > 1
        for outcome in comparisons if uneven else comparisons[:1]:
            if len(outcome.values) < question.seeds:
                name = f"{question.key}, {outcome.name}" if uneven else question.key
                recorded = f"{len(outcome.values)} of {counted(question.seeds, 'seed')}"
                state = f"closed: {recorded}, {closed.words}" if closed else f"{recorded}: no verdict"
                yield f"{name}: {state}"
        seeds_by_remark: dict[str, list[int]] = {}
        for pair in (pair for outcome in comparisons for pair in outcome.pairs if pair.remark):
            seeds_by_remark.setdefault(pair.remark, []).append(pair.seed)
        for remark, seeds in seeds_by_remark.items():
            number = len(set(seeds))
            seed_names = f"seed {seeds[0]}" if number == 1 else counted(number, "seed")
            yield f"{question.key}, {seed_names}: {remark}"


def _shared_answers(outcomes: Sequence[QuestionOutcome]) -> Iterator[str]:
    """Yield the comparisons that take another question's answer, and how that question differs."""
    for outcome in outcomes:
        if outcome.answered_elsewhere:
            asked, answer = outcome.question, outcome.source
            line = f"{asked.key}, {outcome.name}: {answer.key} answers it"
            if answer.seeds != asked.seeds:
                line += f", over {counted(answer.seeds, 'seed')} instead of {asked.seeds}"
            if answer.comparisons != asked.comparisons:
                level = counted(answer.comparisons, "comparison")
                line += f", corrected for {level} instead of {asked.comparisons}"
            yield line
