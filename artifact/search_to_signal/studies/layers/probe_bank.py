"""The bank of the common-context probe: prompts of Frozen search, rebuilt from its records."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from search_to_signal.errors import ConfigError
from search_to_signal.hosts import open_host
from search_to_signal.loop.recorded import replayed_rounds
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.records.probe import BankPrompt
from search_to_signal.records.reader import read_groups
from search_to_signal.search.prompt import Prompt
from search_to_signal.search.round import Round


def spread(total: int, count: int) -> list[int]:
    """Return ``count`` evenly spaced positions of ``total``, half a distance from both ends."""
    return [(2 * i + 1) * total // (2 * count) for i in range(count)]


def chosen_steps(runs: Sequence[Path], prompts: int) -> list[tuple[Path, int]]:
    """Return evenly spaced steps among the runs' distinct prompts with a base, whatever their scores.

    Raises ConfigError when the runs have fewer distinct prompts.
    """
    seen: dict[str, tuple[Path, int]] = {}
    for run in runs:
        for group in read_groups(run):
            if group[0].base_scores:
                seen.setdefault(group[0].prompt_sha256, (run, group[0].step))
    if len(seen) < prompts:
        raise ConfigError(
            f"probe.prompts is {prompts}, the frozen runs asked {len(seen)} distinct ones: ask for fewer"
        )
    steps = list(seen.values())
    return [steps[position] for position in spread(len(steps), prompts)]


def _rounds_of(run: Path, config: RunConfig, steps: Sequence[int]) -> Iterator[tuple[Round, Prompt]]:
    for recorded, request, _ in replayed_rounds(run, open_host(config.host, config.host_setup), config):
        if recorded.step in steps:
            yield recorded, request.prompt


def build_bank(runs: dict[Path, RunConfig], prompts: int) -> list[BankPrompt]:
    """Return the bank of Frozen runs; equal records give equal banks.

    Raises ConfigError as ``chosen_steps``, RecordError as ``replayed_rounds``.
    """
    chosen = chosen_steps(list(runs), prompts)
    rounds = [
        (run, recorded, prompt)
        for run, config in runs.items()
        for recorded, prompt in _rounds_of(run, config, [step for other, step in chosen if other == run])
    ]
    return [
        BankPrompt(
            prompt=number,
            run=run.name,
            step=recorded.step,
            operator=recorded.operator,
            system=prompt.system,
            user=prompt.user,
            prompt_sha256=recorded.records[0].prompt_sha256,
            base_scores=recorded.records[0].base_scores,
            frontier=recorded.records[0].frontier,
        )
        for number, (run, recorded, prompt) in enumerate(rounds)
    ]
