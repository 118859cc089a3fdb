"""Who receives positive advantage, by class: P_D, P_A, E_A (paper, eq. positive-credit-mass)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.groups import Floats, RewardGroups
from search_to_signal.numerics import added


@dataclass(frozen=True)
class ClassSums:
    """Of one class: completions with an advantage, those with a positive one, and the sum of [A]_+."""

    completions: int = 0
    positive: int = 0
    mass: float = 0.0

    def __add__(self, more: "ClassSums") -> "ClassSums":
        return added(self, more)


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
    prevalence, share = _ratio(sums.completions, total.completions), _ratio(sums.mass, total.mass)
    return ClassCreditRow(
        label=name or "(none)",
        completions=sums.completions,
        prevalence=prevalence,
        mass_share=share,
        enrichment=share / prevalence if share is not None and prevalence else None,
        precision=_ratio(sums.positive, total.positive),
        positive_rate=_ratio(sums.positive, sums.completions),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
