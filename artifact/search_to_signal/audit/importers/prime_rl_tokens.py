"""prime-rl's token exports: ``token_exports/step_N/rank_R.jsonl``, one packed training sequence per line.

Read: PrimeIntellect-ai/prime-rl, src/prime_rl/trainer/rl/token_export.py,
559b44772e471d1538537b8805cc77f3824a5e64, 2026-08-21. Opt-in (``enable_token_export``); gone since
prime-rl#3444, 2026-08-31, which writes the annotations that prime_rl_cohorts reads.

Per token: loss_mask, advantages, log-probabilities, entropy, importance_ratio, is_masked(_high, _low),
rl_weights. A sequence of which every token is masked by the trust region, or weighs 0, is masked. No reward
and no group: a sequence is a group of one without a reward, and its advantage is the mean of the nonzero
advantages of its trained tokens, as prime-rl's own episode log has it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, read_json, value_at
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.prime_rl_episodes import of_tokens
from search_to_signal.audit.importers.rows import NAN, Group, RolloutRow, count, digest, number
from search_to_signal.errors import RecordError

_COUNTED = ("is_masked", "is_masked_high", "is_masked_low")
_AVERAGED = ("importance_ratio", "mismatch_kl", "entropy", "rl_weights")


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """One sequence per group; raises RecordError for a line that cannot be read."""
    return read_json(path, options, lambda record, at: _row(path, record, at, options), evidence=_evidence)


def _row(path: Path, record: dict[str, Any], position: int, options: ReadOptions) -> RolloutRow:
    mask = record.get("loss_mask")
    if not isinstance(mask, list):
        raise RecordError(f"{path}:{position}: no loss_mask; the line is no token export")
    masked, weights = (_trained(record, name, mask) for name in ("is_masked", "rl_weights"))
    return RolloutRow(
        group=position,
        position=position,
        step=count(record.get("step")),
        reward=NAN,
        advantage=of_tokens(_trained(record, "advantages", mask)),
        masked=(bool(masked) and all(masked)) or (bool(weights) and not any(weights)),
        tokens=sum(map(bool, mask)),
        response=digest(",".join(map(str, _trained(record, "token_ids", mask)))),
        label=value_at(record, options.label or "env_name"),
        metrics={
            **{name: float(sum(_trained(record, name, mask))) for name in _COUNTED},
            **{name: _mean(_trained(record, name, mask)) for name in _AVERAGED},
        },
    )


def _trained(record: dict[str, Any], name: str, mask: Sequence[Any]) -> list[float]:
    """Values of the trained tokens; those that were not finite, or not computed, are left out."""
    pairs = zip(record.get(name) or [None] * len(mask), mask, strict=True)
    return [number(value) for value, trained in pairs if trained and value is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else NAN


def _evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    says = "a sequence is a group of one without a reward: token exports hold neither groups nor rewards"
    return (Assumption("sequences_alone", says, {"sequences": len(groups)}),)


FORMAT = Format(
    name="prime-rl-tokens",
    container=JSONL,
    needs=("token_ids", "loss_mask", "advantages", "step"),
    patterns=("token_exports/step_*/rank_*.jsonl", "step_*/rank_*.jsonl", "rank_*.jsonl"),
    read=read,
    writer="PrimeIntellect-ai/prime-rl src/prime_rl/trainer/rl/token_export.py "
    "559b44772e471d1538537b8805cc77f3824a5e64 2026-08-21",
    met="real writer: TokenExporter, called with given tensors",
)
