"""The mappings: the paper's four, and those of other hosts and rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from search_to_signal.base.numerics import Bools, Floats, centred, difference, midranks, rms, unit_scaled
from search_to_signal.base.settings import Range, Settings, settings_of
from search_to_signal.credit.base import (
    EQUAL_SCORES,
    NUMERICALLY_ZERO,
    Rewards,
    require,
    same_score_as_base,
    severity,
    tilted,
)
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import CompletionRecord, PreferencePair

# Native CALM: the released piecewise reward.

SMALLEST_DELTA = 1e-10
DEGRADATION = 3.0 / 8.0
COPY = -(1.0 / 5.0 + 2.0 / 5.0)
"""The paper's -3/5 as the host adds it up, one unit in the last place below (HOST.md, point 23)."""


@dataclass(frozen=True)
class Native:
    """Typed failures and a nonlinear comparison with the best prompt base b.

    Source: paper, Reward Constructions, and supplement, Native CALM branch semantics; D01 to D05.
    A failure gets its severity. A valid candidate without comparator gets 0. Otherwise, with
    delta = clip(|f - b| / min(|f|, |b|), 1e-10, 1): improvement 1 + delta, equality 0, a degradation
    identified as a prompt base -3/5, any other degradation -3 delta / 8. Higher is better.
    ``copies`` says how a base is identified (D02): by a score closer than 1e-7, or by canonical code.
    """

    copies: Literal["score", "code"] = "score"
    name: str = "native"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "failure" and "comparison", (N, G) each, and their sum."""
        failure = severity(groups, valid=0.0)
        base = groups.best_base[:, None]
        # NaN marks a failed candidate and an absent comparator; every comparison with it is false.
        improves, degrades = groups.score > base, groups.score < base
        delta = relative_change(groups.score, base)
        copied = degrades & (
            same_score_as_base(groups) if self.copies == "score" else groups.matches_base_code
        )
        worse = np.where(copied, COPY, -DEGRADATION * delta)
        comparison = np.where(improves, 1.0 + delta, np.where(degrades, worse, 0.0))
        return Rewards({"failure": failure, "comparison": comparison}, failure + comparison)


def relative_change(score: Floats, base: Floats) -> Floats:
    """delta(f, b) in [1e-10, 1]; 1 where min(|f|, |b|) is 0 (D03), NaN where either is absent."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.abs(score - base) / np.minimum(np.abs(score), np.abs(base))
    delta: Floats = np.clip(ratio, SMALLEST_DELTA, 1.0)
    return delta


# Factorized Validity-Quality: feasibility and scaled quality, added before one joint normalization.


@dataclass(frozen=True)
class Factorized:
    """r = v / 2 + q / 2 with v = +1 or -1 for valid or not, and q = (f - b) / RMS over the eligible set.

    Source: paper, eq. factorized-reward, and supplement, Factorized Validity-Quality; D05, D06.
    q is 0 outside the eligible set and where the RMS is at most ``zero_rms`` (in score units; 0.0 is
    the D06 alternative). |q| <= sqrt(number of eligible candidates). Higher is better.
    """

    zero_rms: float = NUMERICALLY_ZERO
    name: str = "factorized"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "validity" and "quality", (N, G) each, and half their sum."""
        validity = np.where(groups.valid, 1.0, -1.0)
        quality = scaled_change(groups, groups.eligible, self.zero_rms)
        return Rewards({"validity": validity, "quality": quality}, 0.5 * validity + 0.5 * quality)


def scaled_change(groups: GroupBatch, members: Bools, zero_rms: float = NUMERICALLY_ZERO) -> Floats:
    """(N, G): (f - b) / RMS over the members, (N, G) of the eligible; 0 elsewhere and up to zero_rms."""
    change, unit = unit_scaled(difference(groups.score, groups.best_base, members))
    scale = rms(change, members)
    with np.errstate(over="ignore"):
        present = scale * unit > zero_rms
    return np.divide(change, scale, out=np.zeros_like(change), where=present)


# Pre-generation tail weighting: concentrate the group's credit on its upper tail.


@dataclass(frozen=True)
class TailWeighted:
    """r = G omega, with omega tilted by w = u + g / 2 until its KL from uniform is min(log 2, log(G / k)).

    Source: paper, eq. tail-tilt, and supplement, Pre-Generation Tail Weighting; D05,
    D07 to D12, D28.
    u in [0, 1] is the midrank: failures below the valid and by severity among themselves; the valid by
    (score absent from the archive, response not repeated, score). g = [f - F]_+ / RMS([f - F]_+) over the
    eligible set, 0 outside it, without a frontier and where the RMS is 0. Rewards sum to G; higher is better.

    ``order``       D07: indicators before score, score before indicators, or their count before score
    ``repetition``  D09: every member of a set of identical responses counts as repeated, or all but the first
    ``novelty``     D08: a score counts as archived when the nearest archived one is closer than this;
                    0.0 asks for an exact match
    ``gap``         D28: g over the eligible set, or over the valid, who have one after a creation prompt, too
    """

    order: Literal["indicators_first", "score_first", "summed"] = "indicators_first"
    repetition: Literal["every", "all_but_first"] = "every"
    novelty: float = EQUAL_SCORES
    gap: Literal["eligible", "valid"] = "eligible"
    name: str = "tail_weighted"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "midrank" (u) and "gap" (g), (N, G) each, and r.

        Raises IllFormedGroupError when a valid candidate lacks its archive gap although there is a frontier.
        """
        size = groups.outcome.shape[1]
        midrank = (midranks(*self._keys(groups)) - 1.0) / max(size - 1, 1)
        gap = frontier_gap(groups, groups.valid if self.gap == "valid" else groups.eligible)
        return Rewards({"midrank": midrank, "gap": gap}, size * tilted(midrank + 0.5 * gap))

    def _keys(self, groups: GroupBatch) -> Sequence[Floats]:
        failure, score = severity(groups, valid=0.0), np.where(groups.valid, groups.score, 0.0)
        novel = np.where(groups.valid, novel_scores(groups, self.novelty), 0.0)
        single = np.where(groups.valid, ~repeated_responses(groups, self.repetition), 0.0)
        return {
            "indicators_first": (failure, novel, single, score),
            "score_first": (failure, score, novel, single),
            "summed": (failure, novel + single, score),
        }[self.order]


def novel_scores(groups: GroupBatch, tolerance: float = EQUAL_SCORES) -> Bools:
    """(N, G): valid, and no archived score is closer than the tolerance (D08)."""
    absent = np.isnan(groups.archive_gap)
    require(
        ~(groups.valid & absent & ~np.isnan(groups.frontier)[:, None]),
        "a valid completion has no archive gap although the archive is not empty",
        "record the distance to the nearest archived score before the group was generated",
    )
    distant = groups.archive_gap >= tolerance if tolerance > 0.0 else groups.archive_gap > 0.0
    novel: Bools = groups.valid & (absent | distant)
    return novel


def repeated_responses(groups: GroupBatch, rule: Literal["every", "all_but_first"] = "every") -> Bools:
    """(N, G): the response text occurs elsewhere in the group, or, by the alternative rule, before (D09)."""
    columns = np.ascontiguousarray(groups.response.T)
    repeated = np.zeros(columns.shape, dtype=np.bool_)
    for j in range(len(columns)):
        for i in range(j):
            same = columns[i] == columns[j]
            repeated[j] |= same
            if rule == "every":
                repeated[i] |= same
    return np.ascontiguousarray(repeated.T)


def frontier_gap(groups: GroupBatch, members: Bools) -> Floats:
    """g (N, G) >= 0: the gap above the frontier in units of its RMS over ``members``, 0 elsewhere (D11)."""
    members = members & ~np.isnan(groups.frontier)[:, None]
    gap, _ = unit_scaled(np.maximum(difference(groups.score, groups.frontier, members), 0.0))
    scale = rms(gap, members)
    return np.divide(gap, scale, out=np.zeros_like(gap), where=scale > 0.0)


# Search-Exposure Residual: what parent selection adds to immediate quality.

EPSILON = NUMERICALLY_ZERO


@dataclass(frozen=True)
class SearchExposure:
    """r = a^V + a^Q + a^S: typed validity, quality, and the exposure-weighted quality orthogonal to it.

    Source: paper, eq. search-residual, and supplement, Search-Exposure Residual; D05, D06, D13 to D15, D27.
    With ctr and RMS over the eligible set, q = ctr(Delta) / (RMS(ctr Delta) + eps), m = ctr(rho Delta),
    s = m - <m, q> / (<q, q> + eps) q, and a^S = s / (RMS(ctr Delta) + 2 RMS(s) + eps), whose RMS is below
    1/2. A channel is 0 outside its set and where its own centred RMS is at most eps = 1e-8 (score units).

    ``validity``  D14: severities of the failures and +1, or -1 and +1
    ``scale``     D27: what the residual is compared with. ``centred``, RMS(ctr Delta) as in the
                  equation, is 0 among equal scores, where any residual comes out at RMS 1/2; ``plain``,
                  RMS(Delta), keeps RMS(a^S) <= RMS(s) / RMS(Delta); ``centred_or_zero`` is the equation
                  where the quality channel is not zero, and 0 elsewhere
    """

    validity: Literal["typed", "binary"] = "typed"
    scale: Literal["centred", "plain", "centred_or_zero"] = "centred"
    name: str = "search_exposure"
    reads_exposure: ClassVar[bool] = True

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "validity", "quality" and "search", (N, G) each, and their sum.

        Raises IllFormedGroupError when an eligible candidate lacks its exposure.
        """
        quality, search = self._quality_and_search(groups)
        everyone = np.ones(groups.outcome.shape, dtype=np.bool_)
        typed = self.validity == "typed"
        level = severity(groups, valid=1.0) if typed else np.where(groups.valid, 1.0, -1.0)
        validity = _channel(centred(level, everyone), everyone, np.ones((len(level), 1)))
        parts = {"validity": validity, "quality": quality, "search": search}
        return Rewards(parts, validity + quality + search)

    def _quality_and_search(self, groups: GroupBatch) -> tuple[Floats, Floats]:
        eligible = groups.eligible
        require(
            ~(eligible & np.isnan(groups.exposure)),
            "an eligible completion has no exposure",
            "record the one-step parent exposure (D13), or use a mapping that does not read it",
        )
        change, unit = unit_scaled(difference(groups.score, groups.best_base, eligible))
        direction = centred(change, eligible)
        quality = _channel(direction, eligible, unit)
        weighted = _exposed(np.where(eligible, groups.exposure, 0.0), change, eligible)
        along = (weighted * quality).sum(axis=1, keepdims=True)
        squared = (quality * quality).sum(axis=1, keepdims=True)
        residual = centred(weighted - along / (squared + EPSILON) * quality, eligible)
        reference = change if self.scale == "plain" else direction
        search = _bounded(residual, rms(reference, eligible), eligible, unit)
        kept = self.scale != "centred_or_zero" or quality.any(axis=1, keepdims=True)
        return quality, np.where(kept, search, 0.0)


def _exposed(exposure: Floats, change: Floats, members: Bools) -> Floats:
    """ctr(exposure * change), split so that equal exposures leave no rounding from a large common change."""
    common = np.where(members, change, np.inf).min(axis=1, keepdims=True)
    common = np.where(np.isinf(common), 0.0, common)
    result: Floats = centred(exposure * (change - common), members) + common * centred(exposure, members)
    return result


def _channel(direction: Floats, members: Bools, unit: Floats) -> Floats:
    """direction / (RMS + eps), 0 where the RMS is at most eps; direction is in units of ``unit``."""
    scale = rms(direction, members)
    with np.errstate(divide="ignore", over="ignore"):
        eps = EPSILON / unit
    return np.divide(direction, scale + eps, out=np.zeros_like(direction), where=scale > eps)


def _bounded(residual: Floats, reference: Floats, members: Bools, unit: Floats) -> Floats:
    """residual / (reference + 2 RMS of residual + eps), all in units of ``unit``; RMS below 1/2."""
    scale = rms(residual, members)
    with np.errstate(divide="ignore", over="ignore"):
        eps = EPSILON / unit
    return np.divide(residual, reference + 2.0 * scale + eps, out=np.zeros_like(residual), where=scale > eps)


# The score itself as a reward, as EvoTune and TTT-Discover hand it on.

FAILED_SCORE = -20000.0
"""What a failure counts as (CLAIRE-Labo/EvoTune, configs/task/tsp.yaml; D56)."""


class Score:
    """The score of a valid completion, and one low number for every failure."""

    name = "score"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """One component, which is the reward."""
        reward = np.where(groups.valid, groups.score, FAILED_SCORE)
        return Rewards({"score": reward}, reward)


# Preference pairs of a group, as EvoTune makes them for DPO, and the count of them as a reward.
#
# Source: CLAIRE-Labo/EvoTune, dpo_dataset.py (construct_and_add_pairs); D53.


class PairPositions(NamedTuple):
    """Positions of two completions of one group: what is learned is to prefer the first."""

    chosen: int
    rejected: int


def ranked(scores: Sequence[float | None], texts: Sequence[object]) -> list[int]:
    """The valid completions, best first, equal ones in order; of equal texts the first alone."""
    first = [place for place, score in enumerate(scores) if score is not None and not _seen(texts, place)]
    return sorted(first, key=lambda place: -(scores[place] or 0.0))


def pairs_of(scores: Sequence[float | None], texts: Sequence[object]) -> tuple[PairPositions, ...]:
    """The pairs of one group; ``scores`` (G,) are None where a completion is not valid.

    The better half of the distinct scores, rounded down, is paired with the worse in order of rank, as far as
    the shorter goes; then each failure with the next valid completion from the top, around and around.
    """
    order = ranked(scores, texts)
    failed = [place for place, score in enumerate(scores) if score is None and not _seen(texts, place)]
    levels = sorted({scores[place] for place in order}, key=lambda score: -(score or 0.0))
    better = set(levels[: len(levels) // 2])
    chosen = [place for place in order if scores[place] in better]
    rejected = [place for place in order if scores[place] not in better]
    by_score = list(zip(chosen, rejected, strict=False))
    by_failure = list(zip(cycle(order), failed, strict=False)) if order else []
    return tuple(PairPositions(*both) for both in [*by_score, *by_failure])


def _seen(texts: Sequence[object], place: int) -> bool:
    return texts[place] in texts[:place]


def pairs_of_records(group: Sequence[CompletionRecord]) -> tuple[PairPositions, ...]:
    """The pairs of a recorded group."""
    return pairs_of([record.score for record in group], [record.response_sha256 for record in group])


def pairs_of_batch(groups: GroupBatch) -> Iterator[tuple[PairPositions, ...]]:
    """The pairs of each of N groups."""
    for scores, valid, texts in zip(groups.score, groups.valid, groups.response, strict=True):
        known = [float(score) if ok else None for score, ok in zip(scores, valid, strict=True)]
        yield pairs_of(known, texts.tolist())


class Pairs:
    """How often a completion is chosen less how often it is rejected.

    It sums to 0 over a group, so that ``dr_grpo`` hands it on unchanged: the credit of DPO before its filter.
    """

    name = "pairs"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Components ``chosen`` >= 0 and ``rejected`` <= 0, (N, G) each."""
        chosen, rejected = np.zeros(groups.outcome.shape), np.zeros(groups.outcome.shape)
        for row, pairs in enumerate(pairs_of_batch(groups)):
            for pair in pairs:
                chosen[row, pair.chosen] += 1.0
                rejected[row, pair.rejected] -= 1.0
        return Rewards({"chosen": chosen, "rejected": rejected}, chosen + rejected)


# When pairs are trained on, on which of them, and in how many steps: what a record of them has to say.

Many = Annotated[int, Range(1, 1_000_000_000)]


class RoundSettings(Settings, frozen=True, forbid_unknown_fields=False, kw_only=True):
    """A round every ``finetuning_frequency`` groups, on pairs whose choice is above a percentile (D54).

    The threshold is the (100 - ``percentile``)-th percentile of the valid scores since the last round. What
    else ``[rule_settings]`` holds is for the learner (``DpoSettings``).
    """

    TABLE = "rule_settings"
    finetuning_frequency: Many = 400
    percentile: Annotated[float, Range(0, 100)] = 70.0
    num_train_epochs: Annotated[int, Range(1, 1000)] = 2
    per_device_train_batch_size: Many = 2
    gradient_accumulation_steps: Many = 16

    def threshold(self, scores: Sequence[float]) -> float | None:
        """The least score of a choice by the valid scores since the last round; None without any."""
        return float(np.percentile(scores, 100 - self.percentile)) if scores else None

    def batches(self, pairs: int) -> int:
        """Batches of an epoch."""
        return -(-pairs // self.per_device_train_batch_size)

    def steps(self, pairs: int) -> int:
        """Optimizer steps of a round, as transformers 4.49 counts them: by the whole ones of an epoch."""
        whole = self.batches(pairs) // self.gradient_accumulation_steps
        return self.num_train_epochs * max(whole, 1)


def recorded_rounds(config: Mapping[str, Any]) -> RoundSettings:
    """The settings of a run's configuration; raises ConfigError that names the key that is wrong."""
    return settings_of(config.get("rule_settings", {}), RoundSettings, "rule_settings")


def entries_of(group: Sequence[CompletionRecord]) -> tuple[PreferencePair, ...]:
    """The pairs of a recorded group with their scores."""
    return tuple(
        PreferencePair(chosen=a, rejected=b, chosen_score=score, rejected_score=group[b].score)
        for a, b in pairs_of_records(group)
        if (score := group[a].score) is not None
    )


def distinct_scores(group: Sequence[CompletionRecord]) -> Iterator[float]:
    """The scores of a group's valid completions, of equal texts once, best first."""
    texts = [record.response_sha256 for record in group]
    for place in ranked([record.score for record in group], texts):
        score = group[place].score
        if score is not None:
            yield score


# Distinct: Factorized without credit for copies of the prompt's bases. Ours, not the paper's.


@dataclass(frozen=True)
class Distinct:
    """Factorized, with a valid completion that repeats a base of its prompt treated as a failure.

    A completion repeats a base when their canonical code is equal, or their scores differ by less than 1e-7.
    It gets v = -1 and q = 0, and the RMS of q is taken over the other eligible completions. Its reward, -1/2,
    never exceeds the group's mean, since the others' q has a mean of at least -1: no group gives it positive
    advantage. A changed constant is no repetition unless it leaves the score as it was. Higher is better.
    """

    name: str = "distinct"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "validity" and "quality", (N, G) each, and half their sum."""
        new = groups.valid & ~(groups.matches_base_code | same_score_as_base(groups))
        validity = np.where(new, 1.0, -1.0)
        quality = scaled_change(groups, groups.eligible & new)
        return Rewards({"validity": validity, "quality": quality}, 0.5 * validity + 0.5 * quality)
