"""TRL's GRPOTrainer with a mapping of this package as its reward: ten steps of the shipped small model.

    python docs/examples/trl_reward.py [MODEL_DIRECTORY]

Four completions of a prompt are a group. Their programs run in the sandbox, on the small instances.
"""

import sys
import tempfile
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from search_to_signal.base.package_data import MODELS
from search_to_signal.integrations.trl import reward_function
from search_to_signal.sandbox.settings import EvaluationSettings

GROUP = 4
REWARD = reward_function(
    "tsp",
    "factorized",
    group_size=GROUP,
    split="embedded",
    settings=EvaluationSettings(timeout_s=5.0, wall_factor=6.0, memory_mb=256, slots=2),
)


def train(model: Any, tokenizer: Any, steps: int = 10, longest: int = 320, **options: Any) -> list[Any]:
    """What the trainer logs, one entry a step of two groups; ``options`` go to GRPOConfig."""
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            scratch,
            **{
                "num_generations": GROUP,
                "per_device_train_batch_size": 2 * GROUP,
                "max_completion_length": longest,
                "max_steps": steps,
                "learning_rate": 1e-4,
                "logging_steps": 1,
                "save_strategy": "no",
                "report_to": [],
                "use_cpu": True,
                "disable_tqdm": True,
                **options,
            },
        )
        rows = Dataset.from_list(REWARD.prompt_rows(2 * steps))
        trainer = GRPOTrainer(model, REWARD, config, rows, processing_class=tokenizer)
        trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]


if __name__ == "__main__":
    place = sys.argv[1] if len(sys.argv) > 1 else str(MODELS / "qwen2-2.1m")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(place, padding_side="left")
    for step, entry in enumerate(train(AutoModelForCausalLM.from_pretrained(place), tokenizer)):
        print(
            step, {name: round(entry[name], 3) for name in ("reward", "reward_std", "valid") if name in entry}
        )
