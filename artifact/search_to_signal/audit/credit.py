"""Who gets the advantage: classes, long and short completions, prompts that are sampled again and again.

And two signs that a reward is exploited, each with the row from which on it is more than chance, which honest
answers hardly leave: texts that reach for their judge and are paid for it, and a reward far above all before
it.
"""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from search_to_signal.audit.agreement import LogPlace, place_of
from search_to_signal.audit.atlas import RewardBatch, token_weights
from search_to_signal.audit.flags import Bools, GroupFlags
from search_to_signal.audit.groups import LETTERS, REACHES, Floats, RewardGroups, spans
from search_to_signal.base.numerics import Sums

# By class: P_D, P_A, E_A (paper, eq. positive-credit-mass).


@dataclass(frozen=True)
class ClassSums(Sums):
    """Of one class: completions with an advantage, those with a positive one, and the sum of [A]_+."""

    completions: int = 0
    positive: int = 0
    mass: float = 0.0


@dataclass(frozen=True)
class ClassCreditRow:
    """One row of the table; None where a ratio has no denominator.

    ``prevalence`` is P_D, ``mass_share`` P_A, ``enrichment`` E_A = P_A / P_D. ``precision`` is the share of
    positively credited completions that are of this class, ``positive_rate`` the share of the class that is
    positively credited.
    """

    label: str
    completions: int
    prevalence: float | None
    mass_share: float | None
    enrichment: float | None
    precision: float | None
    positive_rate: float | None


def class_sums(groups: RewardGroups, advantage: Floats, by_status: bool) -> dict[str, ClassSums]:
    """Sums of a batch by class, label or status; what is left out of the loss gets no credit."""
    column = groups.status if by_status else groups.label
    known = np.isfinite(advantage)
    gain = np.where(known & groups.in_loss, np.maximum(advantage, 0.0), 0.0)
    size = len(column.names)
    counts = np.bincount(column.code, weights=known, minlength=size)
    positive = np.bincount(column.code, weights=gain > 0, minlength=size)
    mass = np.bincount(column.code, weights=gain, minlength=size)
    return {
        name: ClassSums(int(counts[code]), int(positive[code]), float(mass[code]))
        for code, name in enumerate(column.names)
    }


def credit_table(sums: Mapping[str, ClassSums]) -> tuple[ClassCreditRow, ...]:
    """The table, in alphabetical order of the classes."""
    total = sum(sums.values(), ClassSums())
    return tuple(_row(name, sums[name], total) for name in sorted(sums))


def _row(name: str, sums: ClassSums, total: ClassSums) -> ClassCreditRow:
    def ratio(part: float, whole: float) -> float | None:
        return part / whole if whole else None

    prevalence, share = ratio(sums.completions, total.completions), ratio(sums.mass, total.mass)
    return ClassCreditRow(
        label=name or "(none)",
        completions=sums.completions,
        prevalence=prevalence,
        mass_share=share,
        enrichment=share / prevalence if share is not None and prevalence else None,
        precision=ratio(sums.positive, total.positive),
        positive_rate=ratio(sums.positive, sums.completions),
    )


# What aggregation adds: how the weight of advantages falls on completions.

RULES = ("token_mean", "sequence_mean", "constant_length", "prompt_mean")
# How statuses of completions that were cut at the limit begin.
CUT = ("truncated", "length", "max_tokens", "overlong", "cut")


@dataclass(frozen=True)
class LengthSums(Sums):
    """Over steps, of completions with tokens and an advantage: the longest quarter of each step, and all.

    ``tokens`` are theirs, and ``weight`` sums |A| times the weight that a rule of the atlas gives to them.
    Of that weight the shortest quarter (``shortest`` completions) has ``shortest_weight``, completions with
    an advantage above 0 ``raised_weight``, the ``cut`` ones ``cut_weight``; ``clipped_weight`` is that of
    tokens which the trainer masked by their importance ratio, where a log has them.
    """

    longest: int = 0
    completions: int = 0
    longest_tokens: int = 0
    tokens: int = 0
    longest_weight: float = 0.0
    weight: float = 0.0
    shortest: int = 0
    cut: int = 0
    shortest_weight: float = 0.0
    raised_weight: float = 0.0
    cut_weight: float = 0.0
    clipped_weight: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of the weight that the longest quarter has; None without weight."""
        return self.longest_weight / self.weight if self.weight else None

    @property
    def per_sequence(self) -> float | None:
        """Weight of one of the longest quarter over that of a completion; None without either."""
        return self.share * self.completions / self.longest if self.share and self.longest else None

    @property
    def per_token(self) -> float | None:
        """Weight of a token of the longest quarter over that of any token; None without either."""
        return self.share * self.tokens / self.longest_tokens if self.share and self.longest else None

    def part(self, weight: float) -> float | None:
        """A sum of weights as a share of all; None without weight."""
        return weight / self.weight if self.weight else None


def length_sums(groups: RewardGroups, advantage: Floats) -> dict[str, LengthSums]:
    """Sums by rule; none where a length was not logged. Completions of one length are no longest quarter."""
    tokens = groups.tokens
    if (tokens < 0).any():
        letters = groups.metrics.get(LETTERS)
        if letters is None or not np.isfinite(letters).all():
            return {}
        tokens = letters.astype(np.int64)
    ends = np.array([name.lower().startswith(CUT) for name in groups.status.names], dtype=np.bool_)
    cut, masked = ends[groups.status.code], groups.metrics.get("is_masked", np.zeros(len(tokens)))
    total = dict.fromkeys(RULES, LengthSums())
    for first, end in spans(groups):
        rows = slice(int(groups.offsets[first]), int(groups.offsets[end]))
        offsets = groups.offsets[first : end + 1] - groups.offsets[first]
        step = RewardBatch(groups.reward[rows], offsets, tokens[rows])
        trained = np.where(groups.in_loss[rows], advantage[rows], np.nan)
        for rule, sums in _of_step(step, trained, cut[rows], masked[rows]).items():
            total[rule] += sums
    return total


def _of_step(step: RewardBatch, advantage: Floats, cut: Bools, masked: Floats) -> dict[str, LengthSums]:
    known = np.isfinite(advantage) & (step.tokens > 0)
    if not known.any():
        return {}
    least, most = np.quantile(step.tokens[known], (0.25, 0.75))
    longest, shortest = known & (step.tokens > most), known & (step.tokens < least)
    size = np.where(known, np.abs(advantage), 0.0) * step.tokens
    # The share of its tokens that the trainer clipped; NaN where it was not logged.
    clipped = np.nan_to_num(masked) / np.maximum(step.tokens, 1)
    # (4, n): whose weight is summed.
    kinds = np.stack([shortest, known & (advantage > 0), known & cut, known * clipped])
    sums = {}
    for rule in RULES:
        weight = size * token_weights(rule, step, int(step.tokens.max()))
        parts = (kinds @ weight).tolist()
        sums[rule] = LengthSums(
            longest=int(longest.sum()),
            completions=int(known.sum()),
            longest_tokens=int(step.tokens[longest].sum()),
            tokens=int(step.tokens[known].sum()),
            longest_weight=float(weight[longest].sum()),
            weight=float(weight.sum()),
            shortest=int(shortest.sum()),
            cut=int((known & cut).sum()),
            shortest_weight=parts[0],
            raised_weight=parts[1],
            cut_weight=parts[2],
            clipped_weight=parts[3],
        )
    return sums


# Prompts that are sampled again and again and teach nothing.

# Different prompts that are followed; a longer list would grow with the log.
_FOLLOWED = 20_000
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


@dataclass
class PromptSums:
    """Of one prompt: groups, dead ones, completions in those, the sum of mean rewards, a place to look at."""

    prompt: str
    place: LogPlace
    groups: int = 0
    dead: int = 0
    wasted: int = 0
    reward: float = 0.0


@dataclass(frozen=True)
class LoneRepeats(Sums):
    """Groups of one whose prompt is that of another group of their step, and how many prompts these have."""

    groups: int = 0
    prompts: int = 0


def lone_repeats(groups: RewardGroups) -> LoneRepeats:
    """Count the groups of one that share a prompt within their step."""
    lone = (groups.sizes == 1) & (groups.prompt_id != 0)
    if not lone.any():
        return LoneRepeats()
    keys = np.stack([groups.step[lone].astype(np.uint64), groups.prompt_id[lone]])
    counts = np.unique(keys, axis=1, return_counts=True)[1]
    return LoneRepeats(int(counts[counts > 1].sum()), int((counts > 1).sum()))


def add_prompts(known: dict[Hashable, PromptSums], groups: RewardGroups, facts: GroupFlags) -> None:
    """Add the groups of a batch by prompt, or by name where no prompt is logged; only the first prompts.

    Names that count the groups of a step say where a group was, not what its prompt is: they are left out.
    """
    keys: Sequence[Hashable] = groups.prompt_id.tolist()
    texts: Sequence[str] = groups.prompt
    if not groups.prompt_id.any():
        keys = texts = _prompt_names(groups)
    finite = np.where(groups.scored, groups.reward, 0.0)
    mean = (np.add.reduceat(finite, groups.offsets[:-1]) / groups.sizes).tolist()
    dead, sizes = facts.flags["dead"].tolist(), groups.sizes.tolist()
    if len(known) >= _FOLLOWED and known.keys().isdisjoint(keys):
        return
    for at, key in enumerate(keys):
        sums = known.get(key)
        if sums is None:
            if not key or len(known) >= _FOLLOWED:
                continue
            sums = known[key] = PromptSums(texts[at], place_of(groups, at))
        sums.groups += 1
        sums.reward += mean[at]
        if dead[at]:
            sums.dead += 1
            sums.wasted += sizes[at]


def _prompt_names(groups: RewardGroups) -> list[str]:
    """The name of each group; empty where those of its step count from 0 or 1."""
    names = list(groups.name)
    for first, end in spans(groups) if names else ():
        begins = _NUMBERED.fullmatch(names[first])
        if not begins or int(begins[2]) > end - first:
            continue
        parts = [_NUMBERED.fullmatch(name) for name in names[first:end]]
        numbers = sorted(int(match[2]) for match in parts if match)
        counted = numbers in (list(range(end - first)), list(range(1, end - first + 1)))
        if counted and len({match[1] for match in parts if match}) == 1:
            names[first:end] = [""] * (end - first)
    return names


def hopeless(known: dict[Hashable, PromptSums]) -> PromptSums | None:
    """The sums of prompts with two groups or more, all of them dead; ``prompt`` says how many of how many."""
    tried = [sums for sums in known.values() if sums.groups > 1]
    lost = [sums for sums in tried if sums.dead == sums.groups]
    if not lost:
        return None
    return PromptSums(
        f"{len(lost)} of {len(tried)}",
        lost[0].place,
        groups=sum(sums.groups for sums in lost),
        dead=sum(sums.dead for sums in lost),
        wasted=sum(sums.wasted for sums in lost),
        reward=sum(sums.reward for sums in lost),
    )


def worst(known: dict[Hashable, PromptSums], count: int = 10) -> tuple[PromptSums, ...]:
    """The prompts on which most completions were spent for nothing, most first."""
    wasted = [sums for sums in known.values() if sums.wasted]
    return tuple(sorted(wasted, key=lambda sums: (-sums.wasted, sums.prompt))[:count])


REACHING, JUMP = "reaching", "jump"
# Rewards that a jump is compared with, the fewest of them and of different ones among them.
_WINDOW, _LEAST, _LEVELS = 4096, 50, 16
# A jump leads beyond the best by more than this many times what the best is above the median. Of a batch
# the new bests with the largest steps are tried.
_FAR, _LOOKED_AT = 3.0, 32
# Deviations from 0 of the advantage of reaching texts; more than two, since each of them is a look.
_PAID = 3.0


@dataclass(frozen=True)
class Sign:
    """A sign: the row from which on it is there, and how many rows have it.

    ``before`` and ``after`` are the best reward before a jump, and the one that jumps. For texts that reach
    for their judge ``after`` is their share of the positive advantage, and ``before`` 0.
    """

    place: LogPlace
    rows: int
    before: float
    after: float


@dataclass
class Watch:
    """Reads batches in the order of the log; ``signs`` are those met, by name, none of what is to come."""

    signs: dict[str, Sign] = field(default_factory=dict)
    _recent: Floats = field(default_factory=lambda: np.zeros(0))
    _best: float = -math.inf
    # The positive advantage of all rows; of reaching ones it, their number, sum and sum of squares.
    _mass: float = 0.0
    _taken: float = 0.0
    _rows: int = 0
    _sum: float = 0.0
    _squares: float = 0.0

    def add(self, groups: RewardGroups, advantage: Floats) -> None:
        """The next batch with its advantages (R,), which may be NaN."""
        self._reaching(groups, np.where(np.isfinite(advantage) & groups.in_loss, advantage, 0.0))
        self._jump(groups)

    def _reaching(self, groups: RewardGroups, advantage: Floats) -> None:
        self._mass += float(np.maximum(advantage, 0.0).sum())
        rows = np.flatnonzero(groups.response >= REACHES)
        if len(rows):
            given = advantage[rows]
            sums, squares = self._sum + np.cumsum(given), self._squares + np.cumsum(given**2)
            self._sum, self._squares, self._rows = float(sums[-1]), float(squares[-1]), self._rows + len(rows)
            self._taken += float(np.maximum(given, 0.0).sum())
            beyond = rows[sums > _PAID * np.sqrt(squares)]
            if REACHING not in self.signs and len(beyond):
                place = place_of(groups, int(groups.group[beyond[0]]), int(beyond[0]))
                self.signs[REACHING] = Sign(place, 0, 0.0, 0.0)
        if REACHING in self.signs:
            sign = self.signs[REACHING]
            self.signs[REACHING] = replace(sign, rows=self._rows, after=self._taken / self._mass)

    def _jump(self, groups: RewardGroups) -> None:
        known = np.flatnonzero(groups.scored)
        first, values = len(self._recent), np.concatenate([self._recent, groups.reward[known]])
        best = np.maximum.accumulate(np.append(self._best, values))[first:]
        if JUMP not in self.signs:
            steps = values[first:] - best[:-1]
            higher = np.flatnonzero(steps > 0)
            for at in np.sort(higher[np.argsort(-steps[higher], kind="stable")[:_LOOKED_AT]]).tolist():
                earlier = values[max(0, first + at - _WINDOW) : first + at]
                enough = len(earlier) >= _LEAST and len(np.unique(earlier)) >= _LEVELS
                if enough and steps[at] > _FAR * (best[at] - np.median(earlier)):
                    place = place_of(groups, int(groups.group[known[at]]), int(known[at]))
                    self.signs[JUMP] = Sign(place, 0, float(best[at]), float(values[first + at]))
                    break
        if JUMP in self.signs:
            sign = self.signs[JUMP]
            rows = sign.rows + int((values[first:] >= sign.after).sum())
            self.signs[JUMP] = replace(sign, rows=rows)
        self._recent, self._best = values[-_WINDOW:], float(best[-1])
