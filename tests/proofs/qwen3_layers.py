"""Does a model that the locked libraries do not know go through every layer? A Qwen3, tiny and random.

    python -m tests.proofs.qwen3_layers OUT

in an environment of today's libraries (tests/core/stack.sh keeps one in ENVIRONMENT). The model has Qwen3's
layers, the tokenizer of an embedded model, and a chat template that is told to leave its thought out. Its
answers are cut at 48 tokens, since no random one ends. Profile smoke runs with it as `s2s run` runs it, then
`s2s verify --tables` checks what came of it.
"""

import argparse
import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from subprocess import run

import torch
from tests.figures import print_figure
from transformers import Qwen3Config, Qwen3ForCausalLM

from search_to_signal.base.package_data import MODELS, PROFILES
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.provenance import stack
from search_to_signal.records.reader import STEPS, read_records
from search_to_signal.records.schema import StepRecord

SIZES = {
    **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048},
}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
GENERATION = "max_completion_tokens = 48\ntemplate_kwargs = {enable_thinking = false}"


def write_model(directory: Path) -> None:
    """A directory as the hub has one, without checksums."""
    source = MODELS / "qwen2-2.1m"
    directory.mkdir(parents=True)
    for name in ("tokenizer.json", "special_tokens_map.json"):
        shutil.copy(source / name, directory)
    words = json.loads((source / "tokenizer_config.json").read_bytes())
    (directory / "tokenizer_config.json").write_text(json.dumps({**words, "chat_template": TEMPLATE}))
    known = json.loads((source / "config.json").read_bytes())
    ids = {name: known[name] for name in ("vocab_size", "eos_token_id", "pad_token_id")}
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(**SIZES, **ids, tie_word_embeddings=True)).save_pretrained(directory)


def main() -> int:
    """Write the model, run and verify; print how many runs and groups each layer has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out.absolute()
    write_model(out / "model")
    text = (PROFILES / "smoke.toml").read_text(encoding="utf-8").replace('"qwen2-2.1m"', f'"{out / "model"}"')
    (out / "qwen3.toml").write_text(text.replace("max_completion_tokens = 320", GENERATION))
    s2s = [sys.executable, "-m", "search_to_signal.cli"]
    results = out / "results"
    command = [*s2s, "run", "--profile", str(out / "qwen3.toml"), "--out", str(results)]
    run([*command, "--dry-run"], check=True)
    run([*command, "--resume"], check=True)
    verified = run([*s2s, "verify", "--tables", str(results)], check=True, capture_output=True, text=True)
    runs = list(runs_below(results))
    layers = Counter(place.relative_to(results).parts[0] for place in runs)
    steps = [step for place in runs for step in read_records(place / STEPS, StepRecord)]
    environment = read_manifest(runs[0]).environment
    print_figure(
        "qwen3",
        "python -m tests.proofs.qwen3_layers",
        f"Python {environment.python}, {stack(environment.packages)}: "
        f"{', '.join(f'{layer} {count}' for layer, count in sorted(layers.items()))} runs, "
        f"{len(steps)} groups, {sum(step.training_tokens > 0 for step in steps)} updates; "
        f"{verified.stdout.splitlines()[-1]}",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
