"""The anchor, compared with its contract, and the contract with the times that it follows from."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.records.anchor import budget, loop_seconds, read_contract, run_groups
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.conditions import FROZEN, run_name
from search_to_signal.records.layers import ANCHOR, COHORT
from search_to_signal.records.manifest import read_manifest, run_directories
from search_to_signal.records.reader import TIMINGS
from search_to_signal.run.texts import ParsedTexts


def problems(directory: Path, parsed: ParsedTexts) -> Iterator[str]:
    """Yield contradictions of the anchor; raises S2SError for a file that cannot be read."""
    runs = run_directories(directory / ANCHOR)
    if not runs:
        return
    contract = read_contract(directory / ANCHOR)
    for name, sha256 in contract.timings_sha256.items():
        if sha256_file(directory / COHORT / name / TIMINGS) != sha256:
            yield f"the contract was not made from the timings of {name}"
    for recorded in contract.budgets:
        condition, seed = recorded.condition, recorded.seed
        online, frozen = (
            loop_seconds(directory / COHORT / run_name(name, seed), contract.clock)
            for name in (condition, FROZEN)
        )
        if recorded != budget(seed, condition, online, frozen):
            yield f"the budget of {condition}, seed {seed}, does not follow from the timings"
    if contract.run_groups != run_groups(contract.budgets, contract.margin):
        yield "run_groups do not follow from the budgets"
    for run in runs:
        facts = read_manifest(run).facts
        if contract.run_groups.get(str(facts.seed)) != facts.groups:
            yield f"{run.name}: {facts.groups} groups are recorded, the contract has another number"
