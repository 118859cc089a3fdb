"""Record vectors for the atlas from the frameworks' own advantage functions, or name where they drifted.

    python -m tests.proofs.atlas_vectors verl /path/to/verl/repo.git [--commit REVISION] [--write]
    python -m tests.proofs.atlas_vectors --list

Takes a git directory, cuts the one function (or the statements) that makes advantages out of the source at
the commit, and runs it on the CPU with torch, numpy and nothing else of the framework. Without --write it
compares with spec/vectors/atlas/SOURCE.json and names each case that differs: a drift of the framework since
the recorded commit. With --write it records. The source itself is never kept.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.proofs.atlas_checkout import Checkout
from tests.proofs.atlas_recipes import RECIPES, Given

from search_to_signal.audit.atlas import entries, sources

VECTORS = Path(__file__).parents[2] / "spec" / "vectors" / "atlas"
Groups = Sequence[Sequence[float]]

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
}
UNEVEN: Mapping[str, Groups] = {
    "uneven": [[0.0, 1.0, 0.5], [2.0, -1.0], [0.25, 0.5, 0.75, 3.0]],
    "singleton beside others": [[3.0], [0.0, 1.0, 2.0, 4.0]],
}
BINARY = ("binary",)
# Functions that cast to float32 themselves, so that nothing can be learned of them in float64.
SINGLE = (
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
    flat = [value for group in groups for value in group]
    digits = (3, 1, 4, 1, 5, 9, 2, 6, 5)
    rewards = torch.tensor(flat, dtype=precision)
    parts = (rewards, rewards.flip(0) ** 2) if components else ()
    return Given(
        rewards=rewards.clone(),
        index=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        size=max(len(group) for group in groups),
        lengths=torch.tensor([digits[place % len(digits)] for place in range(len(flat))]),
        components=tuple(part.clone() for part in parts),
    )


def cases_of(name: str, checkout: Checkout) -> Iterator[dict[str, Any]]:
    """Every case of an entry, as its framework's function answers it in float32 and float64."""
    run, entry = RECIPES[name](checkout), entries()[name]
    cases = {**EVEN, **({} if entry.uneven == "refused" else UNEVEN)}
    for case, groups in cases.items():
        if entry.domain == "binary" and case not in BINARY:
            continue
        answers: dict[str, Any] = {}
        for precision in (torch.float32, torch.float64)[: 1 if name in SINGLE else 2]:
            torch.set_default_dtype(precision)
            given = given_of(groups, precision, entry.components)
            try:
                made = run(given)
            except (ValueError, RuntimeError, ZeroDivisionError, IndexError) as error:
                answers["refused"] = f"{type(error).__name__}"
                break
            if made.dtype == precision or precision == torch.float32:
                answers[str(precision).removeprefix("torch.")] = listed(made)
        torch.set_default_dtype(torch.float32)
        parts = {f"part{place}": listed(part) for place, part in enumerate(given.components)}
        lengths = given.lengths.tolist()
        whole = [listed(torch.tensor(group, dtype=torch.float64)) for group in groups]
        yield {
            "entry": name,
            "case": case,
            "groups": whole,
            "lengths": lengths,
            "components": parts,
            **answers,
        }


def listed(values: Any) -> list[float | None]:
    """Numbers as JSON has them: NaN is null."""
    numbers = [float(value) for value in values]
    return [None if math.isnan(number) else number for number in numbers]


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
    keys = ("refused", "float32", "float64")
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
    # NaN is null here, and None becomes NaN.
    pair = np.array([was, now], dtype=np.float64)
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
