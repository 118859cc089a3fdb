"""Evidence layer "resource anchor": what would Frozen search have found in the time that training took?

The paper derives group budgets from setup-excluded loop times and fixes them before any efficacy result. Here
the contract is derived as soon as the cohort is complete, from ``timings.jsonl`` and nothing else. It counts
processor seconds unless the profile asks for wall time (D30): trained runs come first and Frozen ones last,
beside other runs, so elapsed time would compare loads of the machine.
"""

from collections.abc import Sequence
from pathlib import Path

from search_to_signal.errors import ContractError
from search_to_signal.profiles.layer_settings import AnchorSettings
from search_to_signal.profiles.profile import Profile
from search_to_signal.profiles.run_config import FROZEN, RunConfig
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.anchor import (
    CONTRACT,
    AnchorContract,
    budget,
    formula,
    loop_seconds,
    read_contract,
    run_groups,
    write_contract,
)
from search_to_signal.records.layers import ANCHOR
from search_to_signal.records.manifest import REPORT, run_name
from search_to_signal.records.reader import TIMINGS
from search_to_signal.scheduling.run_slots import Reproduction, finished_cohort


def derive(cohort: Path, seeds: Sequence[int], settings: AnchorSettings) -> AnchorContract:
    """The contract of a cohort; opens the ``timings.jsonl`` of its runs and no other file.

    Raises ContractError as ``loop_seconds`` does.
    """
    names = {(seed, c): run_name(c, seed) for seed in seeds for c in (FROZEN, *settings.conditions)}
    seconds = {key: loop_seconds(cohort / name, settings.clock) for key, name in names.items()}
    budgets = tuple(
        budget(seed, condition, seconds[seed, condition], seconds[seed, FROZEN])
        for seed in seeds
        for condition in settings.conditions
    )
    return AnchorContract(
        formula=formula(settings.clock),
        clock=settings.clock,
        margin=settings.margin,
        budgets=budgets,
        run_groups=run_groups(budgets, settings.margin),
        timings_sha256={name: sha256_file(cohort / name / TIMINGS) for name in sorted(names.values())},
    )


def fix_contract(
    profile: Profile, settings: AnchorSettings, results: Path, plan: str | None = None
) -> AnchorContract:
    """The contract of a finished cohort, written now if it is not there yet.

    Raises ContractError when the one that is there follows from other timings or settings, or when there is a
    report already: a contract written after the results would be none.
    """
    out = results / ANCHOR
    contract = derive(finished_cohort(profile, results, plan), profile.seeds, settings)
    if (out / CONTRACT).exists():
        if read_contract(out) != contract:
            raise ContractError(
                f"{out / CONTRACT} follows from other timings or settings: give another --out"
            )
    elif (results / REPORT).exists():
        raise ContractError(
            f"{results / REPORT} was written before the anchor's budgets were fixed: a contract would come "
            "after the results; run the profile into another --out"
        )
    else:
        write_contract(out, contract)
    return contract


def anchors(profile: Profile, contract: AnchorContract) -> list[RunConfig]:
    """One Frozen run per seed, long enough for its largest budget."""
    return [
        profile.run(FROZEN, seed, layer="anchor", groups=contract.run_groups[str(seed)])
        for seed in profile.seeds
    ]


def run(asked: Reproduction) -> None:
    """Run the anchors of a profile; raises ContractError as ``fix_contract`` does."""
    profile = asked.profile
    contract = fix_contract(profile, profile.anchor or AnchorSettings(), asked.results, asked.how.plan)
    asked.run_all({asked.results / ANCHOR: anchors(profile, contract)})
