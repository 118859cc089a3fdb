"""How far an update moved an adapter, and how two updates compare."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class AdapterDelta:
    """Final minus initial adapter: ``raw`` by tensor, ``factors`` (L, R) by module with L R = BA - B0 A0."""

    raw: Tensors
    factors: tuple[tuple[torch.Tensor, torch.Tensor], ...]


@dataclass(frozen=True)
class Comparison:
    """Two changes: cosines in [-1, 1], norm of first over second, share of agreeing signs; or None."""

    cosine: float | None
    product_cosine: float | None
    norm_ratio: float | None
    sign_agreement: float | None


def adapter_delta(initial: Tensors, final: Tensors) -> AdapterDelta:
    """The change between two adapters of one shape."""
    raw = {name: final[name].double() - initial[name].double() for name in final}
    stems = [name.removesuffix("lora_A.weight") for name in final if name.endswith("lora_A.weight")]
    factors = []
    for stem in stems:
        a, b = f"{stem}lora_A.weight", f"{stem}lora_B.weight"
        # BA - B0 A0 = (B - B0) A + B0 (A - A0), which cancels nothing and is zero where nothing moved.
        left = torch.cat([raw[b], initial[b].double()], dim=1)
        factors.append((left, torch.cat([final[a].double(), raw[a]], dim=0)))
    return AdapterDelta(raw, tuple(factors))


def raw_inner(first: AdapterDelta, second: AdapterDelta) -> float:
    """Inner product over the raw LoRA tensors."""
    return sum(float((first.raw[name] * second.raw[name]).sum()) for name in first.raw)


def product_inner(first: AdapterDelta, second: AdapterDelta) -> float:
    """Inner product over the products of the factors, summed over modules; no product is ever formed.

    <L R, M S> = trace(R^T L^T M S) = sum of (L^T M) * (R S^T), which has twice the rank rows and columns.
    """
    pairs = zip(first.factors, second.factors, strict=True)
    return sum(float(((left.T @ m) * (right @ s.T)).sum()) for (left, right), (m, s) in pairs)


def compare(first: AdapterDelta, second: AdapterDelta) -> Comparison:
    """Compare two changes of one initial adapter."""
    raw = raw_inner(first, first), raw_inner(second, second)
    product = product_inner(first, first), product_inner(second, second)
    return Comparison(
        cosine=_cosine(raw_inner(first, second), *raw),
        product_cosine=_cosine(product_inner(first, second), *product),
        norm_ratio=math.sqrt(raw[0] / raw[1]) if raw[1] > 0.0 else None,
        sign_agreement=_sign_agreement(first, second),
    )


def _cosine(inner: float, first: float, second: float) -> float | None:
    if not (first > 0.0 and second > 0.0):
        return None
    return max(-1.0, min(1.0, inner / math.sqrt(first * second)))


def _sign_agreement(first: AdapterDelta, second: AdapterDelta) -> float | None:
    agreeing = moved = 0
    for name in first.raw:
        if name.endswith("lora_B.weight"):
            signs = torch.sign(first.raw[name]) * torch.sign(second.raw[name])
            agreeing, moved = agreeing + int((signs > 0).sum()), moved + int((signs != 0).sum())
    return agreeing / moved if moved else None
