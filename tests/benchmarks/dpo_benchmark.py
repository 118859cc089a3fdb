"""A round of DPO, ours beside TRL's stock DPOTrainer loop on the same pairs in the same order.

    OMP_NUM_THREADS=1 PYTHONPATH=artifact python tests/benchmarks/dpo_benchmark.py [GROUPS] [REPEATS]

First a frozen run of the host is recorded. Its pairs, encoded as TRL encodes them, go through both, turn by
turn; both must end with one and the same adapter. Processor seconds of this process, set-up excluded; one
thread; the median of the repeats.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))

from stock_dpo_trainer import Texts, stock_dpo_trainer

from search_to_signal.base.progress import PlainProgress
from search_to_signal.base.seeding import stream
from search_to_signal.credit.mappings import pairs_of_records
from search_to_signal.learner.adapter import adapter_tensors, attach_adapter
from search_to_signal.learner.base import LearnerSetup
from search_to_signal.learner.dpo import DpoLearner, TokenPair
from search_to_signal.learner.settings import DpoSettings
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.run.loop import run
from search_to_signal.run.profile import load_profile

PROFILE = load_profile("evotune")
SETTINGS = msgspec.convert({**PROFILE.rule_settings, "gradient_accumulation_steps": 4}, DpoSettings)
Tensors = dict[str, torch.Tensor]


def recorded_pairs(groups: int, out: Path) -> list[Texts]:
    """The pairs of a frozen run as texts."""
    config = msgspec.structs.replace(PROFILE.runs()[0], groups=groups, threads=1)
    run(config, out, PlainProgress())
    texts = []
    generations = read_records(out / GENERATIONS, GenerationRecord)
    for group, told in zip(read_groups(out), generations, strict=True):
        for pair in pairs_of_records(group):
            texts.append((told.prompt, told.completions[pair.chosen], told.completions[pair.rejected]))
    return texts


def model_and_tokenizer() -> tuple[Any, Any]:
    """The profile's model with its first adapter, and its tokenizer."""
    path = model_directory(PROFILE.model)
    return attach_adapter(load_model(path), PROFILE.learner, 1), load_tokenizer(path)


def ours(pairs: list[Texts]) -> tuple[float, Tensors]:
    """Seconds and adapter of our round."""
    model, tokenizer = model_and_tokenizer()
    given = msgspec.structs.asdict(SETTINGS)
    learner = DpoLearner(LearnerSetup(model, PROFILE.learner, tokenizer.pad_token_id, given))
    ids = [[tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts] for texts in pairs]
    end = [tokenizer.eos_token_id]
    tokens = [TokenPair(prompt, chosen + end, rejected + end) for prompt, chosen, rejected in ids]
    started = time.process_time()
    list(learner.round(tokens, step=0))
    return time.process_time() - started, adapter_tensors(model)


def stock(pairs: list[Texts], out: Path) -> tuple[float, Tensors]:
    """Seconds and adapter of TRL's."""
    model, tokenizer = model_and_tokenizer()
    epochs = range(SETTINGS.num_train_epochs)
    orders = [stream(0, "pairs", 0, epoch).permutation(len(pairs)) for epoch in epochs]
    trainer = stock_dpo_trainer(model, tokenizer, pairs, orders, PROFILE.learner, SETTINGS, out)
    started = time.process_time()
    trainer.train()
    return time.process_time() - started, adapter_tensors(model)


def main(groups: int, repeats: int) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    mine, theirs, apart = [], [], 0.0
    with tempfile.TemporaryDirectory() as scratch:
        pairs = recorded_pairs(groups, Path(scratch) / "run")
        for _ in range(repeats):
            seconds, expected = stock(pairs, Path(scratch) / "stock")
            theirs.append(seconds)
            seconds, found = ours(pairs)
            mine.append(seconds)
            apart = max(apart, *(float((found[name] - expected[name]).abs().max()) for name in found))
    largest = max(float(tensor.abs().max()) for tensor in found.values())
    passes = SETTINGS.num_train_epochs * len(pairs)
    print(f"{len(pairs)} pairs, {passes} passes; final adapters differ by {apart:.1e} of {largest:.2f}")
    print("| a round of DPO | s per pair, median | of |")
    print("| :-- | --: | --: |")
    for name, one in (("TRL's stock loop", theirs), ("ours", mine)):
        print(f"| {name} | {median(one) / passes:.3f} | {repeats} |")
    ratios = sorted(a / b for a, b in zip(theirs, mine, strict=True))
    print(f"ratio: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main(*(int(text) for text in (*sys.argv[1:3], *("3", "3")[len(sys.argv) - 1 :])))
