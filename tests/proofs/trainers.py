"""TRL and verl of today with our rewards: steps of TRL's trainer, verl's reward loop and advantages.

    PYTHONPATH=artifact OMP_NUM_THREADS=1 python tests/proofs/trainers.py seconds trl verl
    PYTHONPATH=artifact python tests/proofs/trainers.py beside RUN

Runs under a Python that has TRL, or verl, and what the core needs (msgspec, numpy, jinja2); as a file, since
verl's wheel brings a package ``tests``. Of verl it takes what verl's trainer takes: ``RewardLoopWorker``, in
this process instead of an actor of Ray, on a DataProto made by hand, and ``compute_advantage``.
``beside`` trains the model of a recorded run with TRL's own generation, on its prompts and by its settings,
and prints the row that ``model_table.py`` prints of the run. SIGTERM ends it, with the row of its steps.
Exits with 1 where a reward or an advantage is another than ours.
"""

import importlib.util
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from search_to_signal.base.processes import end_in_order
from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.integrations.scoring import Context, GroupScorer
from search_to_signal.problems import get_problem
from search_to_signal.sandbox.settings import EvaluationSettings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MODEL = ROOT / "artifact" / "models" / "qwen2-2.1m"
SETTINGS = EvaluationSettings(timeout_s=5.0, wall_factor=6.0, memory_mb=256, slots=2)
GROUP = 4
IDEA = "{{The idea of the algorithm is to go to the nearest neighbour.}}\n"


def example(name: str) -> ModuleType:
    """A file of the examples as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers() -> list[str]:
    """Four completions: no program, the seed heuristic, the nearest neighbour, a syntax error."""
    seed = get_problem("tsp").seed.code
    head = "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
    nearest = head + "    return min(unvisited_nodes, key=lambda node: distance_matrix[current_node][node])"
    return ["no program", *(f"{IDEA}```python\n{code}\n```" for code in (seed, nearest, "def f(:"))]


def trl() -> bool:
    """Ten steps of the example; some completion is valid, and every step has a reward."""
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(MODEL), padding_side="left")
    module = example("trl_reward")
    start = time.monotonic()
    log = module.train(AutoModelForCausalLM.from_pretrained(str(MODEL)), tokenizer)
    rewards = [round(float(entry["reward"]), 3) for entry in log]
    print(
        f"TRL {version('trl')}: {len(log)} steps in {time.monotonic() - start:.0f} s, mean rewards {rewards}"
    )
    return len(log) == 10 and len(set(rewards)) > 1


def beside(run: Path) -> None:
    """A step of TRL's trainer for every group of a run; its second half makes the row."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from search_to_signal.integrations.trl import reward_function
    from search_to_signal.learner.adapter import attach_adapter
    from search_to_signal.models.files import model_directory
    from search_to_signal.models.releases import load_tokenizer_files
    from search_to_signal.records.reader import GENERATIONS, read_records
    from search_to_signal.records.schema import GenerationRecord
    from search_to_signal.run.config import RunConfig

    config = msgspec.json.decode((run / "config.json").read_bytes(), type=RunConfig)
    place, size, rule = model_directory(config.model), config.generation.group_size, config.learner
    tokenizer = load_tokenizer_files(place)
    tokenizer.padding_side = "left"
    plain = AutoModelForCausalLM.from_pretrained(place, dtype=config.base.dtype).to(config.base.device)
    model = attach_adapter(plain, rule, seed=config.seed)
    reward = reward_function(
        config.problem, "factorized", group_size=size, split=config.split, settings=config.evaluation
    )
    start = reward.prompt_rows(1)[0]
    groups = read_records(run / GENERATIONS, GenerationRecord)
    rows = [{**start, "row": number, "prompt": group.prompt} for number, group in enumerate(groups)]
    spent: dict[str, list[float]] = {"generation": [], "reward": []}

    def timed(name: str, work: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            before = time.monotonic()
            made = work(*arguments, **options)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            spent[name].append(time.monotonic() - before)
            return made

        return call

    model.generate = timed("generation", model.generate)
    rewarded = timed("reward", reward)
    rewarded.__name__ = "factorized"
    with tempfile.TemporaryDirectory() as scratch:
        arguments = GRPOConfig(
            scratch,
            num_generations=size,
            per_device_train_batch_size=size,
            max_completion_length=config.generation.max_completion_tokens,
            temperature=config.generation.temperature,
            max_steps=len(rows),
            beta=rule.kl,
            learning_rate=rule.learning_rate,
            max_grad_norm=rule.max_grad_norm,
            bf16=config.base.dtype == "bfloat16",
            use_cpu=not config.on_card,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(model, rewarded, arguments, Dataset.from_list(rows), processing_class=tokenizer)
        end_in_order()
        with suppress(KeyboardInterrupt):
            trainer.train()
    reward.close()
    log = [entry for entry in trainer.state.log_history if "step_time" in entry]
    tokens = [size * entry["completions/mean_length"] for entry in log]
    steps = [entry["step_time"] for entry in log]
    late = slice(len(log) // 2, None)
    sampling, scoring = (spent[name][: len(log)][late] for name in ("generation", "reward"))
    update = median(a - b - c for a, b, c in zip(steps[late], sampling, scoring, strict=True))
    held = torch.cuda.max_memory_reserved() / (1 << 30) if config.on_card else 0.0
    names = f"{place.name} | TRL {version('trl')}, torch {version('torch')}"
    print(
        f"| {names} | {torch.cuda.get_device_name() if config.on_card else 'CPU'} | GRPOTrainer | {len(log)} "
        f"| {sum(tokens[late]) / sum(sampling):.0f} | {update:.2f} | {median(steps[late]):.2f} | {held:.1f} |"
    )


def seconds() -> bool:
    """A group of four new texts, of which two are programs that run, in a pool that has started."""
    scorer = GroupScorer("tsp", "factorized", "embedded", SETTINGS)
    row = scorer.prompt_rows(1)[0]
    spent = []
    for number in range(5):
        start = time.monotonic()
        scorer(
            [(Context.of_columns(row), [text.replace("\n```", f"  # {number}\n```") for text in answers()])]
        )
        spent.append(time.monotonic() - start)
    scorer.close()
    print(f"a group of four: {', '.join(f'{one:.2f}' for one in sorted(spent))} s")
    return True


def data_of(rows: Sequence[dict[str, Any]], tokenizer: Any) -> Any:
    """Two groups of the four completions as a DataProto, in turns, as workers hand them on."""
    import torch
    from tensordict import TensorDict
    from verl import DataProto

    texts = [text for text in answers() for _ in rows]
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    longest = max(map(len, ids))
    responses = torch.tensor([one + [tokenizer.pad_token_id] * (longest - len(one)) for one in ids])
    mask = torch.tensor([[1] + [1] * len(one) + [0] * (longest - len(one)) for one in ids])
    columns = {
        "uid": [f"prompt-{row['extra_info']['index']}" for row in rows] * GROUP,
        **{
            name: [row[name] for row in rows] * GROUP
            for name in ("data_source", "reward_model", "extra_info")
        },
    }
    tensors = {
        "prompts": torch.ones(len(ids), 1, dtype=torch.long),
        "responses": responses,
        "attention_mask": mask,
    }
    arrays = {}
    for name, values in columns.items():
        arrays[name] = np.empty(len(values), dtype=object)
        arrays[name][:] = values
    return DataProto(batch=TensorDict(tensors, batch_size=len(ids)), non_tensor_batch=arrays)


def verl() -> bool:
    """Rewards of whole groups and of single completions by verl's reward loop, then advantages by verl."""
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.utils import hf_tokenizer

    file = str(EXAMPLES / "verl_reward.py")
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": str(MODEL), "tokenizer_path": None},
                "rollout": {"n": GROUP, "val_kwargs": {"n": 1}},
            },
            "data": {"train_batch_size": 2},
            "reward": {
                "num_workers": 1,
                "custom_reward_function": {"path": None, "name": "compute_score"},
                "reward_manager": {"source": "importlib", "name": "Reward", "module": {"path": file}},
                "reward_model": {"enable": False},
            },
        }
    )
    rows = example("verl_reward").prompt_rows("tsp", 2, split="embedded", settings=SETTINGS)
    data = data_of(rows, hf_tokenizer(str(MODEL)))
    worker = RewardLoopWorker(config)
    start = time.monotonic()
    results = worker.loop.run_until_complete(worker.compute_score_batch(data))
    print(f"verl {version('verl')}: two groups of four in {time.monotonic() - start:.2f} s")
    print(f"    {results[2]}")
    given = [one["reward_score"] for one in results]
    print(f"    rewards {np.round(given, 3).tolist()}")
    expected = rewards_of_groups("factorized", rows)
    config.reward.custom_reward_function = {"path": file, "name": "score"}
    config.reward.reward_manager = {"source": "register", "name": "naive", "module": {"path": None}}
    worker = RewardLoopWorker(config)
    results = worker.loop.run_until_complete(worker.compute_score_batch(data))
    single = [one["reward_score"] for one in results]
    print(f"    one at a time, native: {np.round(single, 3).tolist()}")
    return advantages_agree(data, given, expected) and np.allclose(single, rewards_of_groups("native", rows))


def rewards_of_groups(mapping: str, rows: Sequence[dict[str, Any]]) -> list[float]:
    """The answers' rewards without a framework, in the order of ``data_of``."""
    scorer = GroupScorer("tsp", mapping, "embedded", SETTINGS)
    (ours,) = scorer([(Context.of_columns(rows[0]["extra_info"]), answers())])
    scorer.close()
    return [one.reward for one in ours for _ in rows]


def advantages_agree(data: Any, given: Sequence[float], expected: Sequence[float]) -> bool:
    """Whether rewards and verl's advantages of them are ours."""
    import torch
    from verl.trainer.ppo.ray_trainer import compute_advantage

    length = data.batch["responses"].shape[1]
    rewards = torch.zeros(len(given), length)
    rewards[:, 0] = torch.tensor(given)
    data.batch["token_level_rewards"] = rewards
    data.batch["response_mask"] = data.batch["attention_mask"][:, 1:]
    advantages = compute_advantage(data, "s2s_rank").batch["advantages"][:, 0].numpy()
    wanted = NORMALIZERS["rank"](np.reshape(expected, (GROUP, 2)).T).T.ravel()
    print(f"    s2s_rank {[round(float(one), 3) for one in advantages]}")
    return bool(np.allclose(given, expected, atol=1e-6) and np.allclose(advantages, wanted, atol=1e-6))


if __name__ == "__main__":
    if sys.argv[1] == "beside":
        beside(Path(sys.argv[2]))
        raise SystemExit
    chosen = {"seconds": seconds, "trl": trl, "verl": verl}
    wrong = [name for name, check in chosen.items() if name in sys.argv and not check()]
    print(f"otherwise than expected: {', '.join(wrong)}" if wrong else "as expected")
    raise SystemExit(bool(wrong))
