"""The matched update layer of a results directory, made by hand: numbers follow from an update's place."""

from pathlib import Path

from search_to_signal.records.files import RecordWriter
from search_to_signal.records.updates import (
    PAIRS,
    SETUP,
    UPDATES,
    FixedInputs,
    PairRecord,
    Relation,
    UpdateRecord,
    Variant,
)

FIXED = FixedInputs(initial_adapter="a", tokens="t", masks="m", reference="r")
STEPS: dict[Variant, list[tuple[int, ...]]] = {"fresh": [(1,), (2,)], "history": [(1, 2)]}


def update(
    variant: Variant, steps: tuple[int, ...], mapping: str, normalizer: str, purpose: str
) -> UpdateRecord:
    """One update whose numbers follow from its place."""
    return UpdateRecord(
        run="cohort/frozen-s42",
        purpose=purpose,
        problem="tsp",
        model="tiny",
        variant=variant,
        steps=steps,
        mapping=mapping,
        normalizer=normalizer,
        fixed=FIXED,
        optimizer_steps=len(steps),
        training_tokens=100 * sum(steps),
        advantages=((0.0,),) * len(steps),
        grad_norms=(1.0,) * len(steps),
        adapter_sha256="b",
        delta_norm=0.5 * sum(steps),
        product_norm=0.25,
        withheld_mean_change=-0.001,
        withheld_max_change=0.002,
        withheld_token_max_change=0.4,
    )


def pair(
    variant: Variant,
    steps: tuple[int, ...],
    first: tuple[str, str],
    second: tuple[str, str],
    relation: Relation,
) -> PairRecord:
    """One comparison whose cosine follows from its steps."""
    void = relation == "without_credit"
    return PairRecord(
        run="cohort/frozen-s42",
        problem="tsp",
        model="tiny",
        variant=variant,
        steps=steps,
        first=first,
        second=second,
        relation=relation,
        by_construction=relation == "equal",
        advantage_difference=0.5,
        cosine=None if void else 1.0 if relation == "equal" else 1.0 - 0.1 * sum(steps),
        product_cosine=None if void else 0.7,
        norm_ratio=None if void else 1.1,
        sign_agreement=None if void else 0.9,
        withheld_max_difference=0.003 * sum(steps),
        withheld_token_max_difference=0.2 * sum(steps),
    )


def write_updates(directory: Path, purpose: str = "formal", second: Relation = "different") -> Path:
    """Two mappings and two normalizers, each group alone and both in a row."""
    directory.mkdir()
    with RecordWriter(directory / UPDATES) as updates, RecordWriter(directory / PAIRS) as pairs:
        for variant, all_steps in STEPS.items():
            for steps in all_steps:
                for mapping in ("native", "factorized"):
                    for normalizer in ("group", "rank"):
                        updates.write(update(variant, steps, mapping, normalizer, purpose))
                related: Relation = second if steps == (2,) else "different"
                for name in ("group", "rank"):
                    pairs.write(pair(variant, steps, ("native", name), ("factorized", name), related))
                for name in ("native", "factorized"):
                    pairs.write(pair(variant, steps, (name, "rank"), (name, "group"), "equal"))
    (directory / SETUP).write_text("{}")
    return directory
