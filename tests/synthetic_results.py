"""A results directory with several evidence layers of synthetic runs: what a report can be tested on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spec.synthetic_runs import write_synthetic_run

from search_to_signal.layers.audit.layer import replay
from search_to_signal.records.manifest import Timing, run_directories, runs_below

CONDITIONS = ("frozen", "native", "factorized", "tail_weighted")
SEEDS = (1, 2, 3)


def write_synthetic_results(
    root: Path,
    *,
    conditions: Sequence[str] = CONDITIONS,
    seeds: Sequence[int] = SEEDS,
    groups: int = 60,
    purpose: str = "formal",
) -> Path:
    """Write cohort, restart, breadth, api and audit with cells of its own; the other layers have not run."""
    for seed in seeds:
        for condition in conditions:
            _live(root / "cohort", condition, seed, groups, {"purpose": purpose})
        for condition in [name for name in conditions if name != "frozen"]:
            where, parent = root / "restart" / f"{condition}-s{seed}", f"../../cohort/{condition}-s{seed}"
            own = {"parent": {"run": parent}, "purpose": purpose}
            adapter = f"{condition} {seed}"
            write_synthetic_run(
                where,
                condition,
                seed,
                groups=groups,
                layer="restart",
                config=own,
                initial_adapter_sha256=adapter,
                timing=_timing(groups, 0.0),
            )
        other = {"model": "elsewhere", "split": "small", "purpose": purpose}
        _live(root / "api", "frozen", seed, groups, other, "api")
    for cell, problem in (("cvrp-tiny", "cvrp"), ("op-tiny", "op")):
        for condition in conditions[:3]:
            config = {"problem": problem, "purpose": purpose}
            _live(root / "breadth" / cell, condition, seeds[0], groups, config, "breadth")
    for cell, problem in (("obp-tiny", "obp"), ("op-small", "op")):
        _live(
            root / "audit" / cell,
            "frozen",
            seeds[0],
            groups,
            {"problem": problem, "purpose": purpose},
            "audit",
        )
    recorded = [*run_directories(root / "cohort"), *runs_below(root / "breadth"), *runs_below(root / "audit")]
    replay(recorded, root / "audit", ["native", "factorized", "tail_weighted"], ["group"])
    return root


def _live(
    folder: Path, condition: str, seed: int, groups: int, config: dict[str, Any], layer: str = "cohort"
) -> None:
    trained = condition != "frozen"
    write_synthetic_run(
        folder / f"{condition}-s{seed}",
        condition,
        seed,
        groups=groups,
        layer=layer,
        config=config,
        final_adapter_sha256=f"{condition} {seed}" if trained else None,
        timing=_timing(groups, 0.5 if trained else 0.0),
    )


def _timing(groups: int, update: float) -> Timing:
    whole = groups * (1.0 + update)
    return Timing(
        generation=0.7 * groups,
        evaluation=0.2 * groups,
        update=update * groups,
        other=0.1 * groups,
        total=whole,
        groups_per_minute=60 * groups / whole,
    )
