"""The constructions once more, one group at a time in plain Python, as the paper writes them.

Slow, without protection against overflow, and sharing no code with the package: a second opinion for
the specification and the baseline of the benchmark.
"""

import math
from collections.abc import Callable, Sequence

from search_to_signal.records.groups import OUTCOMES, GroupBatch
from search_to_signal.records.schema import Outcome

Row = list[float]
SEVERITIES = {
    "missing_rationale": -1.0,
    "missing_code": -0.95,
    "missing_function": -0.9,
    "runtime_failure": -0.85,
    "randomness": -0.75,
}


def rewards(construction: str, groups: GroupBatch) -> list[Row]:
    """Rewards of each group by the named construction."""
    return [PLAIN[construction](groups, row) for row in range(len(groups.outcome))]


def advantages(rewards: Sequence[float]) -> Row:
    """The group normalizer of the paper."""
    size = len(rewards)
    if size == 1 or max(rewards) == min(rewards):
        return [0.0] * size
    mean = sum(rewards) / size
    deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (size - 1))
    return [(r - mean) / (deviation + 1e-4) for r in rewards]


def _outcomes(groups: GroupBatch, row: int) -> list[Outcome]:
    return [OUTCOMES[code] for code in groups.outcome[row].tolist()]


def _bases(groups: GroupBatch, row: int) -> Row:
    return [base for base in groups.bases[row].tolist() if not math.isnan(base)]


def _native(groups: GroupBatch, row: int) -> Row:
    bases, out = _bases(groups, row), []
    for outcome, f in zip(_outcomes(groups, row), groups.score[row].tolist(), strict=True):
        if outcome is not Outcome.VALID:
            out.append(SEVERITIES[outcome.value])
        elif not bases or f == max(bases):
            out.append(0.0)
        else:
            out.append(_compared(f, bases))
    return out


def _compared(f: float, bases: Row) -> float:
    b = max(bases)
    low = min(abs(f), abs(b))
    delta = 1.0 if low == 0.0 else min(max(abs(f - b) / low, 1e-10), 1.0)
    if f > b:
        return 1.0 + delta
    if any(abs(f - base) < 1e-7 for base in bases):
        return -(1 / 5 + 2 / 5)
    return -3.0 * delta / 8.0


def _factorized(groups: GroupBatch, row: int) -> Row:
    outcomes, bases = _outcomes(groups, row), _bases(groups, row)
    gains = [
        f - max(bases) if o is Outcome.VALID and bases else None
        for o, f in zip(outcomes, groups.score[row].tolist(), strict=True)
    ]
    present = [gain for gain in gains if gain is not None]
    scale = _rms(present)
    quality = [gain / scale if gain is not None and scale > 1e-8 else 0.0 for gain in gains]
    return [
        0.5 * (1.0 if o is Outcome.VALID else -1.0) + 0.5 * q for o, q in zip(outcomes, quality, strict=True)
    ]


def _distinct(groups: GroupBatch, row: int) -> Row:
    bases, copies = _bases(groups, row), groups.matches_base_code[row].tolist()
    scores = groups.score[row].tolist()
    new = [
        o is Outcome.VALID and not copy and not any(abs(f - base) < 1e-7 for base in bases)
        for o, copy, f in zip(_outcomes(groups, row), copies, scores, strict=True)
    ]
    gains = [f - max(bases) if n and bases else None for n, f in zip(new, scores, strict=True)]
    scale = _rms([gain for gain in gains if gain is not None])
    quality = [gain / scale if gain is not None and scale > 1e-8 else 0.0 for gain in gains]
    return [0.5 * (1.0 if n else -1.0) + 0.5 * q for n, q in zip(new, quality, strict=True)]


def _tail_weighted(groups: GroupBatch, row: int) -> Row:
    outcomes, size = _outcomes(groups, row), groups.outcome.shape[1]
    responses, gaps = groups.response[row].tolist(), groups.archive_gap[row].tolist()
    scores, frontier = groups.score[row].tolist(), float(groups.frontier[row])
    keys = [
        (
            SEVERITIES.get(outcomes[i].value, 0.0),
            not gaps[i] < 1e-7 and _ok(outcomes[i]),
            responses.count(responses[i]) == 1 and _ok(outcomes[i]),
            scores[i] if _ok(outcomes[i]) else 0.0,
        )
        for i in range(size)
    ]
    ranks = [1 + sum(k < key for k in keys) + (keys.count(key) - 1) / 2 for key in keys]
    compared = bool(_bases(groups, row)) and not math.isnan(frontier)
    lifts = [max(scores[i] - frontier, 0.0) if compared and _ok(outcomes[i]) else None for i in range(size)]
    scale = _rms([lift for lift in lifts if lift is not None])
    gap = [lift / scale if lift is not None and scale > 0.0 else 0.0 for lift in lifts]
    utility = [(rank - 1) / max(size - 1, 1) + 0.5 * g for rank, g in zip(ranks, gap, strict=True)]
    return [size * weight for weight in _tilt(utility)]


def _ok(outcome: Outcome) -> bool:
    return outcome is Outcome.VALID


def _tilt(w: Row) -> Row:
    size, top = len(w), max(w)
    tied = [x >= top - 1e-12 for x in w]
    limit = math.log(size / sum(tied))
    if math.log(2.0) >= limit - 1e-12:
        return [1.0 / sum(tied) if t else 0.0 for t in tied]
    low, high = 0.0, 1.0
    while _divergence(_softmax(w, high)) < math.log(2.0):
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if _divergence(_softmax(w, middle)) < math.log(2.0):
            low = middle
        else:
            high = middle
    return _softmax(w, high)


def _softmax(w: Row, beta: float) -> Row:
    parts = [math.exp(beta * (x - max(w))) for x in w]
    return [part / sum(parts) for part in parts]


def _divergence(weights: Row) -> float:
    return sum(x * math.log(x * len(weights)) for x in weights if x > 0.0)


def _search_exposure(groups: GroupBatch, row: int) -> Row:
    outcomes, bases, eps = _outcomes(groups, row), _bases(groups, row), 1e-8
    level = [SEVERITIES.get(outcome.value, 1.0) for outcome in outcomes]
    level = [x - sum(level) / len(level) for x in level]
    validity = [x / (_rms(level) + eps) if _rms(level) > eps else 0.0 for x in level]
    chosen = [i for i, outcome in enumerate(outcomes) if outcome is Outcome.VALID and bases]
    if not chosen:
        return validity
    gain = [float(groups.score[row, i]) - max(bases) for i in chosen]
    direction = [x - sum(gain) / len(gain) for x in gain]
    size = _rms(direction)
    quality = [x / (size + eps) if size > eps else 0.0 for x in direction]
    product = [float(groups.exposure[row, i]) * x for i, x in zip(chosen, gain, strict=True)]
    product = [x - sum(product) / len(product) for x in product]
    slope = sum(m * q for m, q in zip(product, quality, strict=True)) / (sum(q * q for q in quality) + eps)
    rest = [m - slope * q for m, q in zip(product, quality, strict=True)]
    search = [x / (size + 2.0 * _rms(rest) + eps) if _rms(rest) > eps else 0.0 for x in rest]
    out = list(validity)
    for i, q, s in zip(chosen, quality, search, strict=True):
        out[i] += q + s
    return out


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(x * x for x in values) / len(values)) if values else 0.0


PLAIN: dict[str, Callable[[GroupBatch, int], Row]] = {
    "native": _native,
    "factorized": _factorized,
    "tail_weighted": _tail_weighted,
    "search_exposure": _search_exposure,
    "distinct": _distinct,
}
