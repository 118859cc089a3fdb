"""Changes of adapters: compared by their factors as if the products had been formed."""

import numpy as np
import pytest
import torch

from search_to_signal.learner.adapter import (
    AdapterDelta,
    Tensors,
    adapter_delta,
    compare,
    product_inner,
    raw_inner,
)

pytestmark = pytest.mark.slow  # it loads the largest libraries

MODULES = {"q": (5, 7), "up": (9, 4)}
RANK = 3


def adapter(seed: int) -> dict[str, torch.Tensor]:
    """A random adapter of two modules of different shapes."""
    source = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, (rows, columns) in MODULES.items():
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, columns, generator=source)
        tensors[f"{name}.lora_B.weight"] = torch.randn(rows, RANK, generator=source)
    return tensors


def products(tensors: Tensors) -> np.ndarray:
    """Every B A, one behind the other."""
    made = (tensors[f"{name}.lora_B.weight"] @ tensors[f"{name}.lora_A.weight"] for name in MODULES)
    return torch.cat([product.flatten() for product in made]).double().numpy()


def moved(factor: float = 1.0, seed: int = 2) -> AdapterDelta:
    """A change from adapter 1 in the direction of another one."""
    start, step = adapter(1), adapter(seed)
    return adapter_delta(start, {name: start[name] + factor * step[name] for name in start})


def test_products_are_compared_without_being_formed() -> None:
    """Inner products over factors equal those over the differences of the products themselves."""
    start, first, second = adapter(1), adapter(2), adapter(3)
    one, other = products(first) - products(start), products(second) - products(start)
    found = product_inner(adapter_delta(start, first), adapter_delta(start, second))
    assert found == pytest.approx(float(one @ other), rel=1e-5)
    cosine = float(one @ other) / (np.linalg.norm(one) * np.linalg.norm(other))
    compared = compare(adapter_delta(start, first), adapter_delta(start, second))
    assert compared.product_cosine == pytest.approx(cosine, rel=1e-5)


def test_raw_tensors_are_compared_as_one_vector() -> None:
    """Cosine and norm ratio are those of all tensors laid end to end."""
    start, first, second = adapter(1), adapter(2), adapter(3)
    one, other = (
        np.concatenate([(end[name] - start[name]).flatten().numpy() for name in start])
        for end in (first, second)
    )
    compared = compare(adapter_delta(start, first), adapter_delta(start, second))
    assert compared.cosine == pytest.approx(
        float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)), rel=1e-5
    )
    assert compared.norm_ratio == pytest.approx(float(np.linalg.norm(one) / np.linalg.norm(other)), rel=1e-5)
    assert raw_inner(adapter_delta(start, first), adapter_delta(start, first)) == pytest.approx(
        float(one @ one), rel=1e-5
    )


def test_equal_changes_compare_exactly() -> None:
    """A change is its own likeness, to the last bit."""
    compared = compare(moved(), moved())
    assert (compared.cosine, compared.norm_ratio, compared.sign_agreement) == (1.0, 1.0, 1.0)
    assert compared.product_cosine == 1.0


def test_scale_shows_in_the_norm_and_direction_in_the_cosine() -> None:
    """Three times a change has its direction; its opposite has no sign in common with it."""
    scaled, opposite = compare(moved(3.0), moved()), compare(moved(-1.0), moved())
    assert scaled.cosine == pytest.approx(1.0, abs=1e-6)
    assert scaled.norm_ratio == pytest.approx(3.0, rel=1e-5)
    assert opposite.cosine == pytest.approx(-1.0, abs=1e-6)
    assert opposite.sign_agreement == 0.0


def test_what_did_not_move_has_no_direction() -> None:
    """Without a change on either side there is no cosine, ratio or agreement to speak of."""
    still = moved(0.0)
    compared = compare(moved(), still)
    assert (
        compared.cosine is compared.product_cosine is compared.norm_ratio is compared.sign_agreement is None
    )
