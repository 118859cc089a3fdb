"""Evidence layer "resource anchor": Frozen search with the time that training took.

The paper derives group budgets from setup-excluded loop times and fixes them before any efficacy result. Here
the contract is derived as soon as the cohort is complete, from ``timings.jsonl`` alone. It counts processor
seconds unless the profile asks for wall time (D30): trained runs are executed first and Frozen ones last, in
parallel with others, so wall time would compare loads of the machine.
"""

from collections.abc import Sequence
from pathlib import Path

from search_to_signal.base.errors import ContractError
from search_to_signal.base.progress import Task
from search_to_signal.layers.settings import AnchorSettings
from search_to_signal.records import anchor
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.conditions import FROZEN, run_name
from search_to_signal.records.layers import ANCHOR
from search_to_signal.records.manifest import REPORT
from search_to_signal.records.reader import TIMINGS
from search_to_signal.run.config import RunConfig
from search_to_signal.run.planned_runs import LOADING, Reproduction, finished_cohort
from search_to_signal.run.profile import Profile


def derive(cohort: Path, seeds: Sequence[int], settings: AnchorSettings) -> anchor.AnchorContract:
    """Return the contract of a cohort, from the ``timings.jsonl`` of its runs alone.

    Raises ContractError as ``loop_seconds`` does.
    """
    names = {(seed, c): run_name(c, seed) for seed in seeds for c in (FROZEN, *settings.conditions)}
    seconds = {key: anchor.loop_seconds(cohort / name, settings.clock) for key, name in names.items()}
    budgets = tuple(
        anchor.budget(seed, condition, seconds[seed, condition], seconds[seed, FROZEN])
        for seed in seeds
        for condition in settings.conditions
    )
    return anchor.AnchorContract(
        formula=anchor.formula(settings.clock),
        clock=settings.clock,
        margin=settings.margin,
        budgets=budgets,
        run_groups=anchor.run_groups(budgets, settings.margin),
        timings_sha256={name: sha256_file(cohort / name / TIMINGS) for name in sorted(names.values())},
    )


def fix_contract(
    profile: Profile, settings: AnchorSettings, results: Path, plan: str | None = None
) -> anchor.AnchorContract:
    """Return the contract of a finished cohort, and write it where it is missing.

    Raises ContractError when an existing one follows from other timings or settings, or when there is a
    report already: a contract has to precede the results.
    """
    out = results / ANCHOR
    contract = derive(finished_cohort(profile, results, plan), profile.seeds, settings)
    if (out / anchor.CONTRACT).exists():
        if anchor.read_contract(out) != contract:
            raise ContractError(
                f"{out / anchor.CONTRACT} was made from other timings or settings: give another --out"
            )
    elif (results / REPORT).exists():
        raise ContractError(
            f"{results / REPORT} was written before the anchor's budgets were fixed, and they have to be "
            "fixed before results are known: run the profile into another --out"
        )
    else:
        anchor.write_contract(out, contract)
    return contract


def anchors(profile: Profile, contract: anchor.AnchorContract) -> list[RunConfig]:
    """Return one Frozen run per seed, long enough for its largest budget."""
    return [
        profile.run(FROZEN, seed, layer="anchor", groups=contract.run_groups[str(seed)])
        for seed in profile.seeds
    ]


def tasks(profile: Profile) -> list[Task]:
    """The contract is derived later: a guess of twice the cohort's groups."""
    return [
        Task(f"anchor/{run_name(FROZEN, seed)}", 2 * profile.groups, setup=LOADING, is_run=True)
        for seed in profile.seeds
    ]


def run(reproduction: Reproduction) -> None:
    """Run the anchors of a profile; raises ContractError as ``fix_contract`` does."""
    profile = reproduction.profile
    contract = fix_contract(
        profile, profile.anchor or AnchorSettings(), reproduction.results, reproduction.execution.plan
    )
    reproduction.run_all({reproduction.results / ANCHOR: anchors(profile, contract)})
