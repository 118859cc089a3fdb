"""How many recorded completions of the shipped evidence the host's own reading would change (D37).

    python -m tests.proofs.idea_ends

Every packed run was recorded under ``bare_fence``; each text is read under both. Prints, per results
directory and in all, how many completions there are, how many are read otherwise, how many are a proposal
under one reading alone, and how many of those were recorded as valid.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from search_to_signal.base.package_data import EVIDENCE
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS
from search_to_signal.records.schema import ANY_FENCE, BARE_FENCE
from search_to_signal.sandbox.programs import Failure, parse
from search_to_signal.study.container import RECORDS, packed_results, packed_runs, read_container

ALL, IDEA, PROPOSAL, VALID = "completions", "read otherwise", "a proposal under one alone", "of them valid"


class Texts(msgspec.Struct):
    """The completions of a group."""

    completions: tuple[str, ...]


class Recorded(msgspec.Struct):
    """What a completion was recorded as."""

    outcome: str


def recorded(run: Path) -> Iterator[tuple[str, str]]:
    """Text and recorded outcome of every completion of a packed run, in order."""
    parts = read_container(run / RECORDS)
    generations, completions = (
        parts.get(name, parts.get(f"whole:{name}")) or b"" for name in (GENERATIONS, COMPLETIONS)
    )
    groups = msgspec.json.Decoder(Texts).decode_lines(generations)
    records = msgspec.json.Decoder(Recorded).decode_lines(completions)
    texts = (text for group in groups for text in group.completions)
    yield from zip(texts, (record.outcome for record in records), strict=True)


def counted(run: Path) -> "Counter[str]":
    """What the completions of a run count as; raises ValueError for a run of another reading."""
    if read_manifest(run).facts.idea_end != BARE_FENCE:
        raise ValueError(f"{run} was recorded under the host's reading: leave it out")
    found: Counter[str] = Counter()
    for text, outcome in recorded(run):
        before, after = parse(text, BARE_FENCE), parse(text, ANY_FENCE)
        found[ALL] += 1
        if before != after:
            found[IDEA] += 1
            alone = isinstance(before, Failure) != isinstance(after, Failure)
            found[PROPOSAL] += alone
            found[VALID] += alone and outcome == "valid"
    return found


def main() -> None:
    """Count, directory by directory."""
    total: Counter[str] = Counter()
    for packed in packed_results(EVIDENCE):
        found = sum((counted(packed / run) for run in packed_runs(packed)), Counter[str]())
        total += found
        _tell(packed.name, found)
    _tell("all", total)


def _tell(name: str, found: "Counter[str]") -> None:
    print(f"{name}: {', '.join(f'{found[column]:,} {column}' for column in (ALL, IDEA, PROPOSAL, VALID))}")


if __name__ == "__main__":
    main()
