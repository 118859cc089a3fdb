"""Generation of one group by the embedded model: our decoders beside transformers' own ``generate``.

    python tests/benchmarks/generation_benchmark.py [MODEL] [GROUPS]

Real prompts of the search, groups of four, the embedded profile's limits, one thread, processor time, the
three ways interleaved group by group. Times are per token step: one more token of every unfinished row.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from search_to_signal.base.processes import keep_freed_memory
from search_to_signal.models.base import messages, request_seeds
from search_to_signal.models.chat import encoded, end_ids
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.models.sampling import CachedDecoder, open_decoder, sample
from search_to_signal.problems import get_problem
from search_to_signal.search.hosts.calm.host import plan_round
from search_to_signal.search.hosts.calm.prompts import build_prompt
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import initial_state
from search_to_signal.search.member import seed_member

GROUP, LIMIT, TEMPERATURE = 4, 320, 0.9
Rows = list[tuple[int, ...]]
Way = Callable[[list[int], int], Rows]


def prompts(tokenizer: Any, count: int) -> list[list[int]]:
    """Prompts of the first round, as the search draws them."""
    problem, settings = get_problem("tsp"), SearchSettings()
    state = initial_state(seed_member(problem.seed, -7.0))

    def ask(draw: Any) -> Any:
        return build_prompt(problem, draw.operator, draw.parents, variant=draw.variant, injected=())

    draws = (
        plan_round(state, np.random.default_rng(seed), settings, lambda d: str(ask(d).user))
        for seed in range(count)
    )
    return [encoded(tokenizer, messages(ask(draw)))[1] for draw in draws]


@dataclass(frozen=True)
class Ways:
    """The same group by three ways."""

    model: Any
    ends: frozenset[int]
    pad: int

    def cpu(self, prompt: list[int], seed: int) -> Rows:
        with torch.inference_mode():
            decoder = open_decoder(self.model, prompt, GROUP, LIMIT)
            return list(sample(decoder, request_seeds(seed, GROUP), LIMIT, TEMPERATURE, self.ends))

    def cached(self, prompt: list[int], seed: int) -> Rows:
        with torch.inference_mode():
            decoder = CachedDecoder(self.model, prompt, GROUP)
            return list(sample(decoder, request_seeds(seed, GROUP), LIMIT, TEMPERATURE, self.ends))

    def stock(self, prompt: list[int], seed: int) -> Rows:
        torch.manual_seed(seed)
        out = self.model.generate(
            torch.tensor([prompt] * GROUP),
            attention_mask=torch.ones(GROUP, len(prompt), dtype=torch.long),
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            top_p=1.0,
            max_new_tokens=LIMIT,
            eos_token_id=sorted(self.ends),
            pad_token_id=self.pad,
        )
        return [self._cut(row) for row in out[:, len(prompt) :].tolist()]

    def _cut(self, row: list[int]) -> tuple[int, ...]:
        ended = [place for place, token in enumerate(row) if token in self.ends]
        return tuple(row[: ended[0] + 1] if ended else row)


def main() -> None:
    """Print milliseconds per token step and tokens per second of every way."""
    name, groups = (*sys.argv[1:], *("qwen2-2.1m", "12")[len(sys.argv) - 1 :])
    torch.set_num_threads(1)
    keep_freed_memory()
    directory = model_directory(name)
    model, tokenizer = load_model(directory), load_tokenizer(directory)
    ways = Ways(model, end_ids(tokenizer, model.generation_config), tokenizer.pad_token_id)
    asked = prompts(tokenizer, int(groups))
    spent: dict[str, list[float]] = {}
    for seed, prompt in enumerate([asked[0], *asked]):  # the first group warms up
        for label, way in (("generate", ways.stock), ("cached", ways.cached), ("cpu", ways.cpu)):
            start = time.process_time()
            rows = way(prompt, seed)
            spent.setdefault(label, []).append(time.process_time() - start)
            spent.setdefault(f"{label} steps", []).append(max(map(len, rows)))
            spent.setdefault(f"{label} tokens", []).append(sum(map(len, rows)))
    print(f"{name}: {groups} groups of {GROUP}, prompts of {min(map(len, asked))} to {max(map(len, asked))}")
    for label in ("generate", "cached", "cpu"):
        seconds, steps, tokens = (sum(spent[key][1:]) for key in (label, f"{label} steps", f"{label} tokens"))
        print(
            f"  {label:9} {1000 * seconds / steps:6.2f} ms per token step  {tokens / seconds:6.0f} tokens/s  "
            f"{tokens:.0f} tokens"
        )


if __name__ == "__main__":
    main()
