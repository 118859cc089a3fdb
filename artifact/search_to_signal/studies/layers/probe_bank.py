"""The bank of the common-context probe: prompts that Frozen search really asked, rebuilt from its records."""

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
    """``count`` positions of ``total``, evenly apart and half a distance from both ends."""
    return [(2 * i + 1) * total // (2 * count) for i in range(count)]


def chosen_steps(runs: Sequence[Path], prompts: int) -> list[tuple[Path, int]]:
    """Steps spread evenly over the distinct prompts of the runs that show a base; no score is looked at.

    Raises ConfigError when the runs asked fewer distinct prompts.
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
    asked = list(seen.values())
    return [asked[position] for position in spread(len(asked), prompts)]


def _asked(run: Path, config: RunConfig, steps: Sequence[int]) -> Iterator[tuple[Round, Prompt]]:
    for played, question, _ in replayed_rounds(run, open_host(config.host, config.host_setup), config):
        if played.step in steps:
            yield played, question.prompt


def build_bank(runs: dict[Path, RunConfig], prompts: int) -> list[BankPrompt]:
    """The bank over Frozen runs; equal records give an equal bank. Raises ConfigError, RecordError."""
    chosen = chosen_steps(list(runs), prompts)
    asked = [
        (run, played, prompt)
        for run, config in runs.items()
        for played, prompt in _asked(run, config, [step for place, step in chosen if place == run])
    ]
    return [
        BankPrompt(
            prompt=number,
            run=run.name,
            step=played.step,
            operator=played.operator,
            system=prompt.system,
            user=prompt.user,
            prompt_sha256=played.records[0].prompt_sha256,
            base_scores=played.records[0].base_scores,
            frontier=played.records[0].frontier,
        )
        for number, (run, played, prompt) in enumerate(asked)
    ]
