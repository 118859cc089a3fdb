"""What a group lost of its prompt, held against the limit of its run (D26)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search_to_signal.records.schema import CompletionRecord, StepRecord


def prompt_problems(
    group: Sequence[CompletionRecord], step: StepRecord, generation: Mapping[str, Any]
) -> Iterator[str]:
    """Contradictions between a prompt's length, its cut and the generation settings, one line each.

    That the cut tokens are those of the text takes a tokenizer, and is not checked here.
    """
    limit, cut = generation.get("max_prompt_tokens"), step.prompt_tokens_cut
    # Runs older than the setting refused.
    how = "send whole" if generation.get("backend") == "api" else generation.get("long_prompts", "refuse")
    longest = max(record.prompt_tokens for record in group)
    if cut and (cut < 0 or how != "cut" or longest != limit):
        yield f"step {step.step}: {cut} prompt tokens cut, {longest} left, limit {limit} (setting: {how})"
    elif limit is not None and longest > limit and how != "send whole":
        yield f"step {step.step}: {longest} tokens of a prompt were read, its limit is {limit}"
