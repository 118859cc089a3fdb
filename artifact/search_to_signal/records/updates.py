"""Records of the matched update layer: what an update did, and how two of them compare."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal

import msgspec

UPDATES = "updates.jsonl"
PAIRS = "pairs.jsonl"
# What was stepped on, written last: without it the layer has not ended.
SETUP = "setup.json"

Variant = Literal["fresh", "history", "sgd"]
Relation = Literal["equal", "proportional", "different", "without_credit"]


def run_name_below(directory: Path) -> str:
    """Return layer and name of a run, its last two folders."""
    return "/".join(directory.resolve().parts[-2:])


class FixedInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SHA-256 of an update's inputs other than credit, as the learner read them."""

    initial_adapter: str
    tokens: str
    masks: str
    reference: str


class UpdateRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One update from the initial adapter by the credit of one mapping and normalizer.

    ``fresh`` is one step with a fresh optimizer, ``history`` one optimizer over all groups, ``sgd`` plain
    unclipped descent over all groups. ``steps`` are the recorded groups that were stepped on; ``advantages``
    (steps, G). ``delta_norm`` is over the raw LoRA tensors, ``product_norm`` over the product of the factors
    without LoRA's scale. Withheld changes are final minus initial mean token log-probability per completion
    of groups that were not trained on: their mean, and their largest magnitude. ``withheld_token_max_change``
    is the largest magnitude over single tokens, absent in records made before it was.
    """

    run: str
    purpose: str
    problem: str
    model: str
    variant: Variant
    steps: tuple[int, ...]
    mapping: str
    normalizer: str
    fixed: FixedInputs
    optimizer_steps: int
    training_tokens: int
    advantages: tuple[tuple[float, ...], ...]
    grad_norms: tuple[float, ...]
    adapter_sha256: str
    delta_norm: float
    product_norm: float
    withheld_mean_change: float
    withheld_max_change: float
    withheld_token_max_change: float | None = None


class PairRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Two updates that share everything but their credit; ``first`` and ``second`` are (mapping, normalizer).

    ``relation`` compares the credit as the learner reads it, in float32: equal, proportional by a positive
    factor in every step, different, or without credit where either has none in any step. The comparison
    holds ``by_construction`` where the credit is equal, or proportional in a single step; the latter up to
    Adam's epsilon, which gradients near 1e-8 feel.
    ``norm_ratio`` is first over second, and ``sign_agreement`` the share of the entries of the B factors
    that both moved which they moved in one direction: B starts at zero, so its whole change is credit.
    Numbers are absent where an update did not move what they compare.
    ``withheld_max_difference`` is the largest difference of mean token log-probability over withheld
    completions, ``withheld_token_max_difference`` that over single tokens.
    """

    run: str
    problem: str
    model: str
    variant: Variant
    steps: tuple[int, ...]
    first: tuple[str, str]
    second: tuple[str, str]
    relation: Relation
    by_construction: bool
    advantage_difference: float
    cosine: float | None
    product_cosine: float | None
    norm_ratio: float | None
    sign_agreement: float | None
    withheld_max_difference: float
    withheld_token_max_difference: float


def couples(
    mappings: Sequence[str], normalizers: Sequence[str]
) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Mappings with each other under each normalizer, and normalizers with the first under each mapping."""
    first, *others = normalizers
    same = [((a, n), (b, n)) for n in normalizers for a, b in combinations(mappings, 2)]
    return [*same, *(((m, n), (m, first)) for m in mappings for n in others)]
