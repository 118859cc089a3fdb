"""Record vectors for the atlas from the frameworks' own advantage functions, or name where they drifted.

    python -m tests.proofs.atlas_vectors verl /path/to/verl/repo.git [--commit REVISION] [--write]
    python -m tests.proofs.atlas_vectors --list

Takes a git directory, cuts the one function (or the statements) that makes advantages out of the source at
the commit, and runs it on the CPU with torch, numpy and nothing else of the framework. Without --write it
compares with spec/vectors/atlas/SOURCE.json and names each case that differs: a drift of the framework since
the recorded commit. With --write it records. The source itself is never kept.

Sums of torch.sum, index_add_ and numpy run in an order of their own, the same on every processor, so what
they lead to is a digit. UNORDERED names entries whose sums run as a BLAS, or the width of a padded batch, has
it: where another order of the members moves an answer, a case has the least and the greatest in its place.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.proofs.atlas_checkout import Checkout
from tests.proofs.atlas_recipes import RECIPES, Given, Run

from search_to_signal.audit.atlas import entries, sources

VECTORS = Path(__file__).parents[2] / "spec" / "vectors" / "atlas"
Groups = Sequence[Sequence[float]]
# JSON has neither NaN nor infinities: null, "inf" and "-inf" stand for them.
Numbers = list[float | str | None]
# How far, of its greatest advantage, two orders carry an answer before it counts as without an order.
TOLERANCE = 16 * 2.0**-24

# Even groups, then uneven ones: ordinary, tied, tight, negative, flat, two, and what a loader may hand over.
EVEN: Mapping[str, Groups] = {
    "ordinary": [[0.25, -1.5, 2.0, 0.5], [1.0, 0.0, 0.0, 1.0]],
    "eight": [[0.1, 0.7, -0.3, 0.9, 0.2, 0.2, 1.4, -2.0]],
    "two": [[0.0, 1.0], [-3.0, -1.0]],
    "winner by 1e-5": [[0.0, 0.0, 0.0, 1e-5]],
    "negative mean": [[-1.0, -0.9, -0.85, 0.1]],
    "flat": [[0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]],
    "flat beside varied": [[0.5, 0.5, 0.5, 0.5], [0.0, 1.0, 2.0, 4.0]],
    "far from zero": [[100.0, 101.0, 102.0, 104.0]],
    "binary": [[0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]],
    "nan": [[0.0, 1.0, math.nan, 3.0], [0.0, 1.0, 2.0, 4.0]],
    "singletons": [[0.75], [-2.0]],
    "tight": [[100.0, 100.01, 100.02, 100.03]],
    "tight beside varied": [[100.03, 100.0, 100.02, 100.01], [0.0, 1.0, 2.0, 4.0]],
    "tight eight": [[100.04, 100.01, 100.07, 100.0, 100.02, 100.06, 100.03, 100.05]],
    "tight and small": [[-0.731, -0.7309, -0.7305, -0.73], [0.3, 0.3, 0.3, 0.30001]],
    "tight at 1e5": [[100000.0, 100000.03, 100000.01, 100000.02], [100000.0, 100001.0, 100002.0, 100004.0]],
    "tight at 1e6": [[1000000.0, 1000000.25, 1000000.5, 1000001.0], [0.0, 1.0, 2.0, 4.0]],
    "large": [[100000.0, 250000.0, -300000.0, 400000.0], [1000000.0, -2000000.0, 3000000.0, 500000.0]],
    "infinite": [[math.inf, 0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 4.0]],
    "infinite below": [[-math.inf, 0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 4.0]],
    "infinite both ways": [[math.inf, 0.5, -math.inf, 1.0], [0.0, 1.0, 2.0, 4.0]],
    "infinite twice": [[math.inf, math.inf, 0.0, 1.0], [0.0, 1.0, 2.0, 4.0]],
}
UNEVEN: Mapping[str, Groups] = {
    "uneven": [[0.0, 1.0, 0.5], [2.0, -1.0], [0.25, 0.5, 0.75, 3.0]],
    "singleton beside others": [[3.0], [0.0, 1.0, 2.0, 4.0]],
}
# What is tried with a framework that counts right answers, too.
ANY_DOMAIN = ("binary", "tight", "large", "inf")
_MATMUL = "matmul: the BLAS chooses the order"
_PADDED = "a sum over padded tokens: its order follows the width of the batch"
UNORDERED = {
    "nemo-grpo": _MATMUL,
    "nemo-grpo-with-self": _MATMUL,
    "nemo-gdpo": _MATMUL,
    "nemo-reinforce-plus-plus": _MATMUL,
    "openrlhf-reinforce-baseline": _PADDED,
    "skyrl-reinforce-plus-plus": _PADDED,
    "slime-reinforce-plus-plus-baseline": _PADDED,
    "verl-gdpo": _PADDED,
    "verl-grpo-passk": "topk: of equal rewards any comes first",
    "verl-reinforce-plus-plus": _PADDED,
    "verl-reinforce-plus-plus-baseline": _PADDED,
}
# Orders of the members that are tried: every one of a group of four.
ORDERS = 24
# Functions that cast to float32 themselves, so that nothing can be learned of them in float64.
SINGLE = (
    "discover-entropic-adaptive",
    "openrlhf-reinforce-baseline",
    "prime-rl-grpo",
    "prime-rl-maxrl",
    "rs-grpo",
    "slime-grpo",
    "slime-reinforce-plus-plus-baseline",
    "thetaevolve-grpo",
    "verl-0.8-grpo-vectorized",
    "verl-gdpo",
    "verl-grpo-vectorized",
)


def given_of(groups: Groups, precision: torch.dtype, components: bool) -> Given:
    """A case as tensors. Lengths run 3, 1, 4, 1, 5, ...; the second component is squares, backwards."""
    whole = torch.tensor([value for group in groups for value in group], dtype=torch.float64)
    digits = (3, 1, 4, 1, 5, 9, 2, 6, 5)
    # Squared in float64 for either precision, so that both are given the numbers that are recorded.
    parts = (whole, whole.flip(0) ** 2) if components else ()
    return Given(
        rewards=whole.to(precision, copy=True),
        index=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        size=max(len(group) for group in groups),
        lengths=torch.tensor([digits[place % len(digits)] for place in range(len(whole))]),
        components=tuple(part.to(precision, copy=True) for part in parts),
    )


def answered(run: Run, given: Given, unordered: bool) -> Numbers | tuple[Numbers, Numbers]:
    """What a framework's function answers; least and greatest where the order decides."""
    made = first = run(again(given, torch.arange(len(given.rewards))))
    if not unordered:
        return listed(made)
    tried = [made]
    for order in orders(given.index):
        back = torch.argsort(order)
        tried.append(run(again(given, order))[back])
    answers = torch.stack([one.double() for one in tried]).numpy()
    known = ~np.isnan(answers)
    # NaN in one order and not in another: nothing is known.
    either = known.any(axis=0) & ~known.all(axis=0)
    with np.errstate(invalid="ignore"):
        apart = np.ptp(answers, axis=0) > TOLERANCE * np.abs(answers[np.isfinite(answers)]).max(initial=0.0)
    if not (apart | either).any():
        return listed(first)
    least, greatest = answers.min(axis=0), answers.max(axis=0)
    return listed(np.where(either, -np.inf, least)), listed(np.where(either, np.inf, greatest))


def again(given: Given, order: torch.Tensor) -> Given:
    """The same rows in another order, copied, since some functions write into what they are given."""
    return replace(
        given,
        rewards=given.rewards[order].clone(),
        lengths=given.lengths[order],
        components=tuple(part[order].clone() for part in given.components),
    )


def orders(index: np.ndarray[Any, Any]) -> Iterator[torch.Tensor]:
    """Rows with the members of each group in other orders: all of a group of four, some of a larger one."""
    draws = np.random.default_rng(12)
    places = [np.flatnonzero(index == group) for group in np.unique(index)]
    small = list(permutations(range(4)))
    for number in range(ORDERS):
        yield torch.tensor(
            np.concatenate([p[list(small[number])] if len(p) == 4 else draws.permutation(p) for p in places])
        )


def cases_of(name: str, checkout: Checkout) -> Iterator[dict[str, Any]]:
    """Every case of an entry, as its framework's function answers it in float32 and float64."""
    run, entry = RECIPES[name](checkout), entries()[name]
    cases = {**EVEN, **({} if entry.uneven == "refused" else UNEVEN)}
    for case, groups in cases.items():
        if entry.domain == "binary" and not case.startswith(ANY_DOMAIN):
            continue
        given = given_of(groups, torch.float64, entry.components)
        yield {
            "entry": name,
            "case": case,
            "groups": [listed(group) for group in groups],
            "lengths": given.lengths.tolist(),
            "components": {f"part{place}": listed(part) for place, part in enumerate(given.components)},
            **answers_of(name, run, groups),
        }


def answers_of(name: str, run: Run, groups: Groups) -> dict[str, Any]:
    """The answers to a case by precision, digits or bounds, or what it was refused with."""
    answers: dict[str, Any] = {}
    for precision in (torch.float32, torch.float64)[: 1 if name in SINGLE else 2]:
        torch.set_default_dtype(precision)
        try:
            made = answered(run, given_of(groups, precision, entries()[name].components), name in UNORDERED)
        except (ValueError, RuntimeError, ZeroDivisionError, IndexError, OverflowError) as error:
            return {"refused": type(error).__name__}
        finally:
            torch.set_default_dtype(torch.float32)
        key = str(precision).removeprefix("torch.")
        if isinstance(made, list):
            answers[key] = made
        else:
            answers[f"{key} from"], answers[f"{key} to"] = made
    return answers


def listed(values: Any) -> Numbers:
    """Numbers as JSON has them."""
    numbers = [float(value) for value in values]
    return [None if math.isnan(one) else str(one) if math.isinf(one) else one for one in numbers]


def recorded(source: str, checkout: Checkout) -> dict[str, Any]:
    """The document of a source: what was run, and every case."""
    names = [name for name in RECIPES if entries()[name].source == source]
    if not names:
        raise SystemExit(f"nothing is run of {source!r}: use one of {', '.join(runnable())}")
    return {
        "source": source,
        "repository": sources()[source].repository,
        "commit": checkout.commit,
        "functions": {name: f"{entries()[name].path}:{entries()[name].function}" for name in names},
        "torch": torch.__version__.split("+")[0],
        "cases": [case for name in names for case in cases_of(name, checkout)],
    }


def runnable() -> list[str]:
    """The sources that something is run of."""
    return sorted({entries()[name].source for name in RECIPES})


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two documents, a line for each case."""
    before = {(case["entry"], case["case"]): case for case in old["cases"]}
    after = {(case["entry"], case["case"]): case for case in new["cases"]}
    keys = ("refused", *(f"{kind}{end}" for kind in ("float32", "float64") for end in ("", " from", " to")))
    found = []
    for entry, case in {**before, **after}:
        was, now = (cases.get((entry, case), {}) for cases in (before, after))
        found += [
            f"{entry}, {case}: {key} was {was.get(key)}, is {now.get(key)}"
            for key in keys
            if not alike(was.get(key), now.get(key))
        ]
    return found


def alike(was: Any, now: Any) -> bool:
    """Whether two answers are one up to what another processor or torch may round differently."""
    if not isinstance(was, list) or not isinstance(now, list) or len(was) != len(now):
        return bool(was == now)
    pair = np.array([[np.nan if one is None else float(one) for one in side] for side in (was, now)])
    return bool(np.allclose(pair[0], pair[1], rtol=1e-5, atol=1e-9, equal_nan=True))


def main() -> int:
    """Record or compare one source."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("source", nargs="?", help="a key of [sources] in entries.toml")
    parser.add_argument("directory", nargs="?", type=Path, help="the git directory of its repository")
    parser.add_argument("--commit", help="the commit to run; that of entries.toml unless given")
    parser.add_argument("--write", action="store_true", help="record instead of comparing")
    parser.add_argument("--list", action="store_true", help="the sources that can be run")
    arguments = parser.parse_args()
    if arguments.list or arguments.directory is None:
        print("\n".join(runnable()))
        return 0
    torch.set_num_threads(1)
    commit = arguments.commit or sources()[arguments.source].commit
    document = recorded(arguments.source, Checkout(arguments.directory, commit))
    path = VECTORS / f"{arguments.source}.json"
    if arguments.write:
        path.parent.mkdir(exist_ok=True)
        cases = ",\n".join(json.dumps(case) for case in document.pop("cases"))
        head = json.dumps(document, indent=1).removesuffix("\n}")
        path.write_text(f'{head},\n "cases": [\n{cases}\n]}}\n', encoding="utf-8")
        return 0
    found = drift(json.loads(path.read_text(encoding="utf-8")), document)
    print("\n".join(found) or f"{arguments.source}: no drift from the recorded vectors")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
