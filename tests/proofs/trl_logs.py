r"""Stock trainers of TRL train the embedded model; the audit of what they wrote names their normalizer.

    PYTHONPATH=artifact python -m tests.proofs.trl_logs [CASE ...] [--keep DIR]
    PYTHONPATH=artifact python -m torch.distributed.run --nproc-per-node 2 \
        -m tests.proofs.trl_logs two-processes

Runs under any Python that has TRL and what the audit needs (msgspec, numpy, jinja2, tomli, pyarrow): tried
with TRL 0.15.1 of the lock file, to which wandb was added, and with 1.16.0 in an environment of its own. A
case is three steps on the CPU. Audited are the trainer's own log (Parquet files; of 0.15.1 the tables of an
offline wandb run, if wandb is there) and that of GroupRecorder: the case's entry must explain every logged
advantage, the others must not. The trainer's loss must be minus the sum of advantage times weight over
tokens, by the case's rule of aggregation. Exits with 1 where a case fails.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import trl
from datasets import Dataset

from search_to_signal import audit
from search_to_signal.audit.atlas import RewardBatch, token_weights
from search_to_signal.audit.importers import find
from search_to_signal.audit.trl_callback import GroupRecorder

OLD = trl.__version__ == "0.15.1"
MODEL = Path(__file__).parents[2] / "artifact" / "models" / "qwen2-2.1m"
STARTS = ("def score(", "return ", "node = ", "import ")
ROWS = [{"prompt": f"{STARTS[row % 4]}{row // 4}", "kind": STARTS[row % 4].strip()} for row in range(32)]
LONGEST = 16


def length(completions: Sequence[str], **_: Any) -> list[float]:
    """Letters of the completion, over 50."""
    return [len(text) / 50 for text in completions]


def vowels(completions: Sequence[str], **_: Any) -> list[float]:
    """1 for a text with an e and no o."""
    return [float("e" in text and "o" not in text) for text in completions]


def tight(completions: Sequence[str], prompts: Sequence[str], **_: Any) -> list[float]:
    """0 or, with an s, 1e-5; the same for every text of one prompt."""
    return [
        1e-5 * ("s" in text or prompt.startswith("return"))
        for text, prompt in zip(completions, prompts, strict=True)
    ]


def spoken(completions: Sequence[Any], **_: Any) -> list[float]:
    """Length of the one message of a completion."""
    return length([messages[0]["content"] for messages in completions])


def sometimes(completions: Sequence[str], **_: Any) -> list[float | None]:
    """No reward for a text of fewer than 60 letters."""
    return [None if len(text) < 60 else len(text) / 50 for text in completions]


def noted(completions: Sequence[str], log_extra: Callable[..., None], **_: Any) -> list[float]:
    """Length; it logs two columns of its own, of which one holds numbers."""
    log_extra("commas", [float(text.count(",")) for text in completions])
    log_extra("size", ["long" if len(text) > 60 else "short" for text in completions])
    return length(completions)


PLAIN = audit.ReadOptions()


@dataclass(frozen=True)
class Case:
    """One training, and what the audit must find.

    ``entry`` explains the advantages (in 0.15.1, for cases that it has, that version's), ``others`` do not.
    ``rule`` weighs the tokens of the loss. ``functions`` score, with ``options`` of the configuration.
    ``talk``: prompts and completions are conversations. ``read``: what the user would have to name.
    """

    entry: str = "trl-grpo"
    others: Sequence[str] = ("trl-grpo-none", "trl-grpo-batch", "verl-grpo")
    rule: str = "token_mean"
    functions: Sequence[Callable[..., Any]] = (length, vowels)
    options: Mapping[str, Any] = field(default_factory=dict)
    trainer: str = "GRPO"
    old: bool = False
    talk: bool = False
    read: audit.ReadOptions = PLAIN


def case(entry: str = "trl-grpo", rule: str = "token_mean", size: int = 4, **given: Any) -> Case:
    """A case of groups of ``size``; what is no field of Case is an option of the configuration."""
    fields = {name: given.pop(name) for name in Case.__dataclass_fields__ if name in given}
    return Case(entry, rule=rule, options={"num_generations": size, **given}, **fields)


NOT_GROUP = ("trl-grpo", "trl-0.15.1-grpo", "verl-grpo")
TWO = audit.ReadOptions(components=("noted", "vowels"))
WEIGHED = audit.ReadOptions(weights={"length": 0.5, "vowels": 2.0})
CASES: Mapping[str, Case] = {
    "group-2": case(size=2, loss_type="dapo", old=True),
    "group-4": case(rule="sequence_mean", loss_type="grpo", old=True),
    "group-8": case(size=8, loss_type="bnpo", old=True),
    "group-4-cispo": case(loss_type="cispo", rule=""),
    "group-3-two-updates": case(size=3, steps_per_generation=2, per_device_train_batch_size=6, rule=""),
    "two-iterations": case(num_iterations=2, rule=""),
    "tight": case(functions=(tight,), others=("trl-grpo-none", "verl-grpo"), old=True),
    "conversation": case(talk=True, functions=(spoken,), old=True),
    "weights": case(reward_weights=[0.5, 2.0], read=WEIGHED, old=True),
    "no-reward-for-some": case(functions=(sometimes,)),
    "one-reward-of-two-missing": case(functions=(sometimes, vowels)),
    "columns-of-its-own": case(functions=(noted, vowels), read=TWO),
    "batch-2": case("trl-grpo-batch", size=2, scale_rewards="batch", others=NOT_GROUP),
    "batch-8": case("trl-grpo-batch", size=8, scale_rewards="batch", others=NOT_GROUP),
    "none-4": case(
        "trl-grpo-none", "constant_length", scale_rewards="none", loss_type="dr_grpo", others=NOT_GROUP
    ),
    "none-8-luspo": case(
        "trl-grpo-none",
        "sequence_sum",
        size=8,
        scale_rewards="none",
        loss_type="luspo",
        importance_sampling_level="sequence",
        others=NOT_GROUP,
    ),
    "gdpo": case("trl-gdpo", multi_objective_aggregation="normalize_then_sum", others=NOT_GROUP),
    "rloo": case("trl-rloo", "", trainer="RLOO", beta=0.0, others=NOT_GROUP),
    "rloo-normalized": case(
        "trl-rloo-normalized", "", trainer="RLOO", beta=0.0, normalize_advantages=True, others=NOT_GROUP
    ),
    "two-processes": case(rule="", per_device_train_batch_size=6, old=True),
}


def main() -> int:
    """Run the cases that this version has; 1 where one fails."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--keep", type=Path, help="write the logs below this directory and leave them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    chosen = arguments.cases or [name for name in CASES if name != "two-processes"]
    with tempfile.TemporaryDirectory() as temporary:
        base = arguments.keep or Path(os.environ.get("TRL_LOGS", temporary))
        faults = [
            fault
            for name in chosen
            if CASES[name].old or not OLD
            for fault in tried(name, CASES[name], base / name, several)
        ]
    return 1 if faults else 0


def tried(name: str, one: Case, out: Path, several: bool) -> list[str]:
    """Train, audit, and say what was found; the faults."""
    losses = train(one, out)
    if several and int(os.environ["RANK"]):
        return []
    recorded = out / "rollouts"
    # The table of 0.15.1 has the sum of the rewards alone.
    options = PLAIN if OLD else one.read
    faults = [] if several else wrong_losses(one, losses)
    said = [f"recorder {explained(one, recorded, PLAIN, faults)}"]
    for own in [*out.glob("wandb/offline*/files/media/table"), *out.glob("completions")]:
        said.append(f"own log {explained(one, own, options, faults)}")
        faults += differing(own, recorded, options)
    print(f"TRL {trl.__version__} {name}: {'; '.join(said)}; {', '.join(faults) or 'as due'}", flush=True)
    return faults


def train(one: Case, out: Path) -> list[dict[str, Any]]:
    """A few steps; what every loss was computed of."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL)
    out.mkdir(parents=True, exist_ok=True)
    if OLD and has_wandb():
        import wandb

        wandb.init(dir=str(out), mode="offline")
    trainer = getattr(trl, f"{one.trainer}Trainer")(
        model,
        list(one.functions),
        configuration(one, out),
        Dataset.from_list(spoken_rows() if one.talk else ROWS),
        processing_class=tokenizer,
    )
    trainer.add_callback(GroupRecorder(trainer, out / "rollouts"))
    losses = kept_losses(trainer)
    # The trainer prints tables of what it logs.
    with redirect_stdout(StringIO()):
        trainer.train()
    if OLD and has_wandb():
        import wandb

        wandb.finish()
    return losses


def configuration(one: Case, out: Path) -> Any:
    """The trainer's configuration, of this version's fields alone."""
    known = getattr(trl, f"{one.trainer}Config")
    options = {
        "per_device_train_batch_size": 16,
        "max_completion_length": LONGEST,
        "max_steps": 3,
        "beta": 0.0,
        "learning_rate": 1e-4,
        "logging_steps": 1,
        "log_completions": True,
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "report_to": ["wandb"] if OLD and has_wandb() else [],
        **{key: value for key, value in one.options.items() if key in known.__dataclass_fields__},
    }
    return known(str(out), **options)


def kept_losses(trainer: Any) -> list[dict[str, Any]]:
    """What every loss is computed of, filled while the trainer runs."""
    losses: list[dict[str, Any]] = []
    compute = trainer.compute_loss

    def computed(model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        loss = compute(model, inputs, *given, **named)
        losses.append(
            {
                "loss": loss.item(),
                "advantages": inputs["advantages"].double().numpy(),
                "tokens": inputs["completion_mask"].sum(1).numpy(),
            }
        )
        return loss

    trainer.compute_loss = computed
    return losses


def spoken_rows() -> list[dict[str, Any]]:
    """The prompts as what a user says."""
    return [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]


def has_wandb() -> bool:
    """Whether 0.15.1 can write its table."""
    return find_spec("wandb") is not None


def wrong_losses(one: Case, losses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Losses that are not minus the sum of advantage times weight over tokens."""
    rule = "sequence_mean" if OLD else one.rule
    found = []
    for number, given in enumerate(losses if rule else ()):
        count = len(given["tokens"])
        batch = RewardBatch(given["advantages"], np.array([0, count]), given["tokens"])
        weights = token_weights(rule, batch, LONGEST) * given["tokens"]
        due = -float(given["advantages"] @ weights)
        size = float(np.abs(given["advantages"]) @ weights)
        if abs(due - given["loss"]) > 1e-5 * max(size, 1e-9):
            found.append(f"loss {number} is {given['loss']:.7g}, {due:.7g} by {rule}")
    return found


def explained(one: Case, log: Path, options: audit.ReadOptions, faults: list[str]) -> str:
    """How the entry agrees with the logged advantages of a log; what is wrong goes to ``faults``."""
    form, _ = find(log)
    found = audit.audit(audit.read(log, form.name, options))
    entry = "trl-0.15.1-grpo" if OLD else one.entry
    if form.name == "trl-wandb":
        return f"{found.completions} rows, no advantages in it"
    if entry not in found.explaining:
        faults.append(f"{log.name}: {entry} does not explain: {found.agreements[entry]}")
    faults += [f"{log.name}: {other} explains too" for other in one.others if other in found.explaining]
    return f"{found.completions} rows, {'bit for bit' if found.agreements[entry].exact else 'rounding'}"


def differing(own: Path, recorded: Path, options: audit.ReadOptions) -> list[str]:
    """Whether the trainer's log has rewards and advantages that the recorder's has not."""
    missing = numbers_of(own, options) - numbers_of(recorded, PLAIN)
    return [f"{len(missing)} rows of the trainer's log are not the recorder's"] if missing else []


def numbers_of(log: Path, options: audit.ReadOptions) -> set[tuple[str, str]]:
    """Reward in float32 and advantage of every row, as text, which makes NaN equal to NaN."""
    return {
        (str(np.float32(reward)), "" if OLD else str(advantage))
        for groups in audit.read(log, options=options)
        for reward, advantage in zip(groups.reward.tolist(), groups.advantage.tolist(), strict=True)
    }


if __name__ == "__main__":
    sys.exit(main())
