"""Start a run; a real host would train a model here."""

import random

from args import Args
from calm_trainer import Trainer


def run(calm_args):
    """Make prompts, answer them with the seed, and collect the rewards."""
    trainer = Trainer(calm_args)
    code, rewards = trainer.seed_algos[0].code, []
    for step in range(calm_args.max_steps):
        prompts = [row["prompt"] for row in trainer.prepare_dataset()] * calm_args.n_generations
        answers = [
            f"{{{{The idea of the algorithm is to do as before {step}.}}}}\n```python\n{code}\n```",
            "no idea",
            "{{The idea of the algorithm is to leave the code out.}}",
            f"{{{{The idea of the algorithm is to be {random.random()}.}}}}\n```python\nx = 1\n```",
        ]
        completions = [[{"role": "assistant", "content": text}] for text in answers]
        rewards.append(trainer.reward_func(prompts=prompts, completions=completions))
    return trainer, rewards


if __name__ == "__main__":
    run(Args.from_yaml("configs/tsp/local.yaml"))
