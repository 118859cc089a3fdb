"""Rows of the neutral log from what a trainer of TRL holds after it sampled and scored a batch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_to_signal.audit.live import number_or_none, of_tokens

# Tensors are spoken to by their methods alone, so nothing here imports torch.
Tensor = Any


@dataclass(frozen=True)
class Batch:
    """What one process sampled: (n,) examples; ``made`` has advantages (n,), tokens and masks (n, longest).

    ``parts`` (n, functions) are rewards before weighting, ``reward`` (n,) their sum; NaN where none applies.
    ``names`` and ``weights`` are by function. ``step`` and ``number`` name the batch, ``first`` is its first
    row among those of all processes.
    """

    examples: Sequence[Mapping[str, Any]]
    made: Mapping[str, Tensor]
    parts: Tensor
    reward: Tensor
    names: Sequence[str]
    weights: Sequence[float]
    step: int
    number: int
    first: int


def rows_of(batch: Batch, tokenizer: Any, group_size: int) -> list[dict[str, Any]]:
    """One row per completion, in the order in which they were sampled."""
    trained = _trained(batch.made)
    columns = zip(
        batch.examples,
        map(number_or_none, batch.reward.tolist()),
        of_tokens(batch.made["advantages"], trained).tolist(),
        trained.sum(1).tolist(),
        _endings(batch.made, tokenizer),
        batch.parts.tolist(),
        tokenizer.batch_decode(batch.made["completion_ids"], skip_special_tokens=True),
        strict=True,
    )
    rows = []
    for place, (example, reward, advantage, tokens, ending, parts, text) in enumerate(columns, batch.first):
        group, member = divmod(place, group_size)
        name = f"{batch.step}-{batch.number}-{group}"
        rows.append(
            {
                "group": name,
                "id": f"{name}-{member}",
                "step": batch.step,
                "reward": reward,
                "advantage": advantage,
                "tokens": tokens,
                "status": ending,
                "components": dict(zip(batch.names, map(number_or_none, parts), strict=True)),
                "weights": dict(zip(batch.names, batch.weights, strict=True)),
                "prompt": _text(example.get("prompt", "")),
                "response": text,
                "example": {key: value for key, value in example.items() if _is_plain(key, value)},
            }
        )
    return rows


def reward_names(trainer: Any) -> list[str]:
    """What TRL calls its reward functions; of equal names the later ones are numbered."""
    given = getattr(trainer, "reward_func_names", None) or list(map(_name, trainer.reward_funcs))
    return [name if given.index(name) == at else f"{name}#{at + 1}" for at, name in enumerate(given)]


def _name(function: Any) -> str:
    return str(
        function.config._name_or_path.split("/")[-1] if hasattr(function, "config") else function.__name__
    )


def _trained(made: Mapping[str, Tensor]) -> Tensor:
    """(n, longest): tokens that enter the loss; what a tool answered does not."""
    tools = made.get("tool_mask")
    return made["completion_mask"] if tools is None else made["completion_mask"] * tools


def _endings(made: Mapping[str, Tensor], tokenizer: Any) -> list[str]:
    """Whether a completion ended by itself; one that is left out of the loss was cut off."""
    end = getattr(tokenizer, "tokenizer", tokenizer).eos_token_id
    lengths = made["completion_mask"].sum(1)
    last = made["completion_ids"].gather(1, (lengths - 1).clamp(min=0)[:, None].long())[:, 0]
    ended = (last == end) & (lengths > 0)
    return ["finished" if by_itself else "truncated" for by_itself in ended.tolist()]


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, default=str)


def _is_plain(key: str, value: Any) -> bool:
    """A column of the data set that can serve as a class."""
    return key != "prompt" and isinstance(value, str | int | float | bool)
