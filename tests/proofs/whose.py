"""Whose rollouts: six faults of a sampler by name, and no alarm on honest runs.

    python -m tests.proofs.whose faults RUN --model DIR --out DIR [--device cuda] [--updates 100]
    python -m tests.proofs.whose honest LOG [LOG ...] --model DIR [--device cuda]

`faults` makes a recorded run's adapters again, samples its last prompts by transformers' own `generate`, once
as the log says and once with each fault, and asks `s2s audit` what sampled. `honest` asks it of logs that the
model itself sampled, such as the first group of any recorded run.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from search_to_signal.audit.importers.rollouts import Rollout, rollouts
from search_to_signal.learner.adapter import save_adapter
from search_to_signal.models.device import prepare_device
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer, open_base_model
from search_to_signal.models.sampling import Drawing, Exchange, read_lora
from search_to_signal.models.settings import ModelLoading
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.run.learning import remade_adapters
from search_to_signal.run.replayed import run_config
from search_to_signal.verify.whose import Named, Whose, whose

DRAWN = Drawing(1.0)
# How the recorded runs drew.
RECORDED = Drawing(0.9)
# What sampled: adapter, modules left out, drawing, and whether the prompt had its chat template.
FAULTS: dict[str, tuple[str, str, Drawing, bool]] = {
    "none": ("last", "", DRAWN, True),
    "adapter ignored": ("", "", DRAWN, True),
    "half as many updates": ("half", "", DRAWN, True),
    "one step old": ("older", "", DRAWN, True),
    "up_proj missing": ("last", "up_proj", DRAWN, True),
    "temperature 1.0 to 0.7": ("last", "", Drawing(0.7), True),
    "top-p 0.9": ("last", "", Drawing(1.0, 0.9), True),
    "wrong template": ("last", "", DRAWN, False),
}
TITLE = "| what sampled | verdict | explanation that fits | tokens read | tokens that decide |"


class Quiet:
    """Shows no progress."""

    def update(self, task: str, done: int, total: int, note: str = "") -> None: ...
    def say(self, line: str) -> None: ...


def loading(device: str) -> ModelLoading:
    return ModelLoading(device="cuda", dtype="bfloat16") if device == "cuda" else ModelLoading()


def make_adapters(run: Path, model: Path, device: str, updates: int, out: Path) -> None:
    """The adapters after half of the updates, all but one, and all of them."""
    names = {updates // 2: "half", updates - 1: "older", updates: "last"}
    if all((out / name).is_dir() for name in names.values()):
        return
    config = msgspec.structs.replace(run_config(read_manifest(run)), model=str(model))
    prepare_device(device)
    base = open_base_model(model_directory(str(model)), loading(device))
    for number, remade in enumerate(remade_adapters(config, run, base)):
        if number in names:
            save_adapter(remade.model, out / names[number])
        if number == updates:
            return
    raise SystemExit(f"{run} has fewer than {updates} updates: give fewer in --updates")


@torch.inference_mode()
def sampled(
    exchange: Exchange,
    tokenizer: Any,
    prompts: list[tuple[int, ...]],
    drawing: Drawing,
    chat: bool,
    most: int,
) -> Iterator[Rollout]:
    """Four completions of each prompt, in one pass, logged with the prompt that the trainer believes in."""
    torch.manual_seed(1)
    given = [ids if chat else without_chat(tokenizer, ids) for ids in prompts for _ in range(4)]
    width = max(map(len, given))
    device = exchange.model.device
    padded = torch.tensor([[tokenizer.pad_token_id] * (width - len(ids)) + list(ids) for ids in given])
    real = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in given])
    made = exchange.model.generate(
        padded.to(device),
        attention_mask=real.to(device),
        do_sample=True,
        temperature=drawing.temperature,
        top_p=drawing.top_p,
        top_k=0,
        repetition_penalty=1.0,
        max_new_tokens=most,
    )
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id}
    for at, row in enumerate(made[:, width:].tolist()):
        stop = next((at + 1 for at, token in enumerate(row) if token in ends), len(row))
        yield Rollout(f"step {at // 4}", at // 4, prompts[at // 4], tuple(row[:stop]))


def without_chat(tokenizer: Any, ids: tuple[int, ...]) -> tuple[int, ...]:
    """The prompt's words without its template."""
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def row(name: str, result: Whose) -> str:
    best, named = result.lines[0], next(line for line in result.lines if line.named)
    other = best if not best.named else next(line for line in result.lines if not line.named)
    decided = other.tokens_needed if best.named else named.tokens_needed
    fits = ", ".join(part for part in (Path(best.weights).name, best.template, best.drawing))
    return f"| {name} | {result.verdict} | {fits} | {result.tokens:,} | {decided or 0:,} |"


def faults(arguments: argparse.Namespace) -> None:
    """The table of faults."""
    out: Path = arguments.out
    make_adapters(arguments.run, arguments.model, arguments.device, arguments.updates, out)
    directory = model_directory(str(arguments.model))
    tokenizer, exchange = (
        load_tokenizer(directory),
        Exchange(open_base_model(directory, loading(arguments.device))),
    )
    loras = {name: read_lora(out / name) for name in ("half", "older", "last")}
    exchange.add(loras.values())
    records = list(read_records(arguments.run / GENERATIONS, GenerationRecord))
    prompts = [record.prompt_ids for record in records[-arguments.prompts :]]
    logs = {}
    for name, (adapter, without, drawing, chat) in FAULTS.items():
        exchange.use(loras.get(adapter), without)
        logs[name] = list(sampled(exchange, tokenizer, prompts, drawing, chat, arguments.most))
    print(TITLE, flush=True)
    adapters = tuple(out / name for name in ("half", "older", "last"))
    for name, log in logs.items():
        named = Named(arguments.model, adapters, DRAWN, device=arguments.device)
        result = whose(log, named, Quiet())
        print(row(name, result), flush=True)
        if arguments.verbose:
            print(*result.section().lines, sep="\n", flush=True)


def honest(arguments: argparse.Namespace) -> None:
    """How many logs of the model itself are called otherwise."""
    verdicts: Counter[str] = Counter()
    tokens = []
    for log in arguments.logs:
        result = whose(rollouts(log), Named(arguments.model, (), RECORDED, device=arguments.device), Quiet())
        verdicts[result.verdict] += 1
        tokens.append(result.tokens)
        if result.verdict in ("otherwise", "unexplained"):
            print(log, *result.section().lines, sep="\n", flush=True)
    print(f"{len(tokens)} logs, {sum(tokens):,} tokens: {dict(sorted(verdicts.items()))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("faults")
    one.add_argument("run", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--updates", type=int, default=100)
    one.add_argument("--prompts", type=int, default=12)
    one.add_argument("--most", type=int, default=256, help="tokens of a completion")
    one.add_argument("--verbose", action="store_true")
    one.set_defaults(function=faults)
    two = commands.add_parser("honest")
    two.add_argument("logs", type=Path, nargs="+")
    two.set_defaults(function=honest)
    for command in (one, two):
        command.add_argument("--model", type=Path, required=True)
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
