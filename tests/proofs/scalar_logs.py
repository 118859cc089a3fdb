"""Real files of numbers per step, as tests/unit/audit/real_scalars keeps them.

    python tests/proofs/scalar_logs.py (trl | wandb | trackio) OUT

Runs under a Python that has the writer: TRL with tensorboard (ten steps of the embedded model on the CPU),
wandb (offline, under verl's names), or trackio. Numbers of the trackers are drawn: an entropy that collapses,
a gradient that is no number in step 17.
"""

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MODEL = Path(__file__).parents[2] / "artifact" / "models" / "qwen2-2.1m"
STEPS = 60


def rows() -> Iterator[tuple[int, float, float, float]]:
    """Step, reward, entropy and divergence."""
    draw = np.random.default_rng(5)
    for step in range(1, STEPS + 1):
        reward = 0.2 + 0.5 * step / STEPS + 0.02 * draw.normal()
        yield step, reward, 0.4 * math.exp(-step / 25 + 0.1 * draw.normal()), 0.001 * step


def trl() -> None:
    """Rollouts, trainer_state.json and an event file; GRPO on two rewards, with an evaluation."""
    os.environ["TENSORBOARD_LOGGING_DIR"] = "runs"
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    def vowels(completions: list[str], **_: object) -> list[float]:
        return [sum(text.count(letter) for letter in "aeiou") / max(len(text), 1) for text in completions]

    def brief(completions: list[str], **_: object) -> list[float]:
        return [float(len(text) < 120) for text in completions]

    data = Dataset.from_list([{"prompt": f"def f{row}("} for row in range(40)])
    config = GRPOConfig(
        output_dir=".",
        max_steps=10,
        logging_steps=1,
        save_steps=10,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        num_generations=4,
        max_completion_length=32,
        learning_rate=3e-4,
        beta=0.01,
        seed=3,
        eval_strategy="steps",
        eval_steps=5,
        log_completions=True,
        report_to=["tensorboard"],
        use_cpu=True,
    )
    GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(str(MODEL)),
        reward_funcs=[vowels, brief],
        args=config,
        train_dataset=data,
        eval_dataset=data.select(range(2)),
        processing_class=PreTrainedTokenizerFast.from_pretrained(str(MODEL), padding_side="left"),
    ).train()


def wandb() -> None:
    """An offline run under verl's names and configuration, without what it tells of the machine."""
    import wandb

    actor = {"loss_agg_mode": "seq-mean-token-mean", "clip_ratio": 0.2, "clip_ratio_low": 0.2}
    actor |= {"clip_ratio_high": 0.28, "clip_ratio_c": 3.0}
    machine = {"host": "host", "username": "user", "program": "train.py", "x_disable_stats": True}
    hidden = {"x_disable_meta": True, "disable_git": True, "save_code": False, "console": "off"}
    run = wandb.init(
        mode="offline",
        dir=".",
        project="p",
        config={"actor_rollout_ref": {"actor": actor}},
        settings=wandb.Settings(**machine, **hidden),
    )
    for step, reward, entropy, kl in rows():
        norm = math.inf if step == 17 else 1.0
        numbers = {"critic/score/mean": reward, "actor/entropy": entropy, "actor/kl_loss": kl}
        more = {"actor/grad_norm": norm, "actor/pg_clipfrac": 0.0, "training/global_step": step}
        run.log(numbers | more, step=step)
    run.finish()


def trackio() -> None:
    """Two runs of one project: a short one, and a long one."""
    os.environ["TRACKIO_DIR"] = "."
    import trackio

    for name, last, config in (
        ("short", 5, {"loss_type": "grpo"}),
        ("long", STEPS, {"loss_type": "dr_grpo"}),
    ):
        trackio.init(project="grpo", name=name, config=config | {"epsilon": 0.2, "epsilon_high": 0.28})
        for step, reward, entropy, kl in rows():
            if step <= last:
                norm = math.nan if step == 17 else 1.0
                numbers = {"reward": reward, "entropy": entropy, "kl": kl, "grad_norm": norm}
                trackio.log({f"train/{key}": value for key, value in numbers.items()}, step=step)
        trackio.finish()


if __name__ == "__main__":
    writer, out = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    os.chdir(out)
    {"trl": trl, "wandb": wandb, "trackio": trackio}[writer]()
