"""Whether a card's bfloat16 products are right, at the shapes of a 0.5B model.

    python -m tests.proofs.card_products
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40 python -m tests.proofs.card_products      (under NVIDIA MPS)

Each product is compared with the same numbers in float64 on the processor. Wrong is a relative distance
(Frobenius) over 0.03, ten times what rounding to bfloat16 makes. Ends with 1 where one is wrong.
"""

import sys

import torch
from torch.nn import functional

ROWS = (1, 4, 24, 512, 2048)
# Outputs and inputs of the projections of a Qwen2.5 0.5B.
PROJECTIONS = {"q": (896, 896), "k": (128, 896), "gate": (4864, 896), "down": (896, 4864)}
LIMIT = 0.03


def distance(rows: int, outputs: int, inputs: int, device: torch.device) -> float:
    """The relative distance of a product on the device to that in float64."""
    drawn = torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(n, inputs, generator=drawn).bfloat16() for n in (rows, outputs))
    exact = x.double() @ weight.double().T
    made = functional.linear(x.to(device), weight.to(device)).cpu().double()
    return float((made - exact).norm() / exact.norm()) if made.isfinite().all() else float("inf")


def main() -> int:
    """Print a line for each library and product; returns the exit code."""
    card = torch.cuda.is_available()
    device = torch.device("cuda" if card else "cpu")
    if card:
        seen = torch.cuda.get_device_properties(0)
        print(f"{seen.name}, {seen.multi_processor_count} multiprocessors, torch {torch.__version__}")
    wrong = 0
    for library in ("cublas", "cublaslt") if card else ("cpu",):
        if card:
            torch.backends.cuda.preferred_blas_library(library)
        for name, (outputs, inputs) in PROJECTIONS.items():
            for rows in ROWS:
                apart = distance(rows, outputs, inputs, device)
                wrong += (is_wrong := apart > LIMIT)
                print(f"{'WRONG' if is_wrong else 'right'} {library} {name} of {rows} rows: {apart:.4f}")
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
