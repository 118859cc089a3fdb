"""Start a run; a real host would train a model here, this one reads the answers from a file."""

import json
from pathlib import Path

from args import Args
from calm_trainer import Trainer


def run(calm_args):
    """Ask, take the answers of ``answers.json``, and collect the rewards; returns trainer and rewards."""
    trainer, rewards = Trainer(calm_args), []
    for answers in json.loads(Path("answers.json").read_text()):
        (row,) = trainer.prepare_dataset()
        completions = [[{"role": "assistant", "content": text}] for text in answers]
        rewards.append(trainer.reward_func(prompts=[row["prompt"]] * len(answers), completions=completions))
    return trainer, rewards


if __name__ == "__main__":
    run(Args.from_yaml("configs/tsp/local.yaml"))
