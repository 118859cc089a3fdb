"""Where what was recorded departs from the plan, in words; nothing is left out because it is small."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from search_to_signal.analysis.plan.outcomes import NOT_CLOSED, Outcome
from search_to_signal.progress import counted
from search_to_signal.records.amendments import Amendment
from search_to_signal.records.manifest import Accelerator, Manifest, finished_manifest, runs_below
from search_to_signal.records.plan import Plan, Study

NOTHING = "nothing of it is recorded"
_SHOWN = 3


def recorded_runs(root: Path) -> dict[str, Manifest]:
    """The manifests of all finished runs below the recorded evidence, by place."""
    found = ((run, finished_manifest(run)) for run in runs_below(root))
    return {run.relative_to(root).as_posix(): manifest for run, manifest in found if manifest is not None}


def deviations(
    plan: Plan,
    sha256: str,
    runs: dict[str, Manifest],
    found: Sequence[Outcome],
    closed: Mapping[str, Amendment] = NOT_CLOSED,
) -> dict[str, list[str]]:
    """Sentences by the key of a study, and under "" those of all of them; empty lists where there is none.

    ``closed`` are the amendments that closed studies, by study.
    """
    lines = {"": list(_of_all(plan, sha256, runs, found))}
    for study in plan.studies:
        own, amendment = [one for one in found if one.study.key == study.key], closed.get(study.key)
        told = [*_closing(amendment), *_of_study(study, runs, own, amendment), *_answered_elsewhere(own)]
        lines[study.key] = list(dict.fromkeys(told))
    return lines


def _closing(amendment: Amendment | None) -> Iterator[str]:
    if amendment is not None:
        yield f"{amendment.words} closes it: {amendment.why.strip().rstrip('.')}"


def _of_all(plan: Plan, sha256: str, runs: dict[str, Manifest], found: Sequence[Outcome]) -> Iterator[str]:
    other = [place for place, manifest in runs.items() if manifest.plan_sha256 != sha256]
    if other:
        yield f"{len(other)} runs were not recorded under this plan: {_some(other)}"
    sources = Counter(manifest.source.sha256[:12] for manifest in runs.values())
    if len(sources) > 1:
        told = ", ".join(f"{number} by {name}" for name, number in sources.most_common())
        yield f"several versions of the source recorded these runs: {told}"
    unclean = [place for place, manifest in runs.items() if manifest.source.clean is False]
    if unclean:
        yield f"{len(unclean)} runs were recorded from a checkout with changes: {_some(unclean)}"
    machines = Counter(manifest.environment.cpu for manifest in runs.values())
    if len(machines) > 1:
        told = ", ".join(f"{number} runs on {cpu}" for cpu, number in machines.items())
        yield f"several processors: {told}"
    held = (manifest.environment.accelerator for manifest in runs.values())
    cards = Counter(card.name for card in held if isinstance(card, Accelerator))
    if len(cards) > 1:
        told = ", ".join(f"{number} runs on {card}" for card, number in cards.items())
        yield f"several kinds of cards: {told}"
    seeds = set(plan.seeds.seeds)
    strange = [place for place, manifest in runs.items() if manifest.facts.seed not in seeds]
    if strange:
        yield f"{len(strange)} runs have seeds that the plan does not name: {_some(strange)}"
    known = {name for study in plan.studies for name in study.profiles}
    unplanned = sorted({place.split("/")[0] for place in runs} - known)
    if unplanned:
        yield f"recorded and not in the plan: {', '.join(unplanned)}"
    yield from _out_of_order(plan, runs, found)


def _out_of_order(plan: Plan, runs: dict[str, Manifest], found: Sequence[Outcome]) -> Iterator[str]:
    """Studies that were begun while one before them lacked seeds."""
    short: list[str] = []
    for study in plan.studies:
        if short and _begun(study, runs, found):
            yield f"{study.key} was recorded before all of {', '.join(short)}, which the plan sets first"
        own = (one for one in found if one.study.key == study.key and not one.borrowed)
        if any(len(one.values) < one.planned for one in own):
            short.append(study.key)


def _begun(study: Study, runs: dict[str, Manifest], found: Sequence[Outcome]) -> bool:
    """Whether something lies in a folder of the study: a run, or what its questions read."""
    folders = tuple(f"{profile}/{layer}/" for profile in study.profiles for layer in study.layers)
    read = (side.place for one in found for pair in one.pairs for side in pair.sides)
    return any(place.startswith(folders) for place in (*runs, *read))


def _of_study(
    study: Study, runs: dict[str, Manifest], found: Sequence[Outcome], closed: Amendment | None
) -> Iterator[str]:
    if not _begun(study, runs, found):
        yield NOTHING
        return
    # What another question answers is told there.
    for question, same in groupby((o for o in found if not o.borrowed), key=lambda one: one.question):
        asked = list(same)
        uneven = len({len(one.values) for one in asked}) > 1
        for one in asked if uneven else asked[:1]:
            if len(one.values) < question.seeds:
                name = f"{question.key}, {one.name}" if uneven else question.key
                said = f"{len(one.values)} of {counted(question.seeds, 'seed')}"
                yield f"{name}: closed: {said}, {closed.words}" if closed else f"{name}: {said}: no verdict"
        remarked: dict[str, list[int]] = {}
        for pair in (pair for one in asked for pair in one.pairs if pair.remark):
            remarked.setdefault(pair.remark, []).append(pair.seed)
        for remark, seeds in remarked.items():
            number = len(set(seeds))
            told = f"seed {seeds[0]}" if number == 1 else counted(number, "seed")
            yield f"{question.key}, {told}: {remark}"


def _answered_elsewhere(found: Sequence[Outcome]) -> Iterator[str]:
    """Planned over fewer seeds than another question has: one comparison has one answer."""
    for one in found:
        if one.borrowed:
            seeds = f"its {counted(one.planned, 'seed')}, not over {one.question.seeds}"
            yield f"{one.question.key}, {one.name}: answered as {one.source.key} is, over {seeds}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
