"""The recorder for TRL keeps every group that the real trainer trains on, and gives the trainer back."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from search_to_signal import audit
from search_to_signal.audit import live
from search_to_signal.audit.trl_callback import GroupRecorder, SignalWarning
from search_to_signal.base.errors import RunDirectoryError

pytestmark = pytest.mark.slow

SIZE = 4


def length(completions: Sequence[str], **_: Any) -> list[float]:
    return [len(text) / 10 for text in completions]


def first(completions: Sequence[str], **_: Any) -> list[float]:
    """1 for the first of four."""
    return [float(place % SIZE == 0) for place in range(len(completions))]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def new_trainer(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> Callable[..., Any]:
    """A stock trainer of TRL 0.15.1 with two reward functions, two groups a batch and two batches a step."""
    torch.set_num_threads(1)

    def made(log: Path | None, steps: int = 2, **options: Any) -> Any:
        functions, limits = options.pop("functions", [length, first]), options.pop("limits", {})
        arguments = GRPOConfig(
            str(tmp_path / "out"),
            per_device_train_batch_size=2 * SIZE,
            gradient_accumulation_steps=2,
            num_generations=SIZE,
            max_completion_length=6,
            max_steps=steps,
            reward_weights=[0.5, 2.0],
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            logging_steps=1,
            **{"save_strategy": "no", **options},
        )
        rows = [{"prompt": f"node = {row}", "kind": "odd" if row % 2 else "even"} for row in range(8)]
        data = Dataset.from_list(rows)
        trainer = GRPOTrainer(new_model(), functions, arguments, data, data, tokenizer)
        if log is not None:
            trainer.add_callback(GroupRecorder(trainer, log, **limits))
        return trainer

    return made


def test_what_was_trained_is_in_the_log_and_not_written_over(
    new_trainer: Callable[..., Any], log: Path
) -> None:
    new_trainer(log).train()
    files = sorted(path.name for path in log.iterdir())
    assert files == [f"rollouts_0000000{step}_000{batch}.jsonl" for step in (1, 2) for batch in (0, 1)]
    groups = list(audit.read(log, options=audit.ReadOptions(label="example.kind")))
    assert [one.sizes.tolist() for one in groups] == [[SIZE, SIZE]] * 4
    assert all(dict(one.weights) == {"length": 0.5, "first": 2.0} for one in groups)
    assert all(one.components["first"].tolist() == [1.0, 0.0, 0.0, 0.0] * 2 for one in groups)
    assert all(((one.tokens > 0) & (one.tokens <= 6)).all() for one in groups)
    assert {name for one in groups for name in one.label.names} == {"odd", "even"}
    assert "trl-0.15.1-grpo" in audit.audit(groups).explaining
    for path in log.iterdir():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert len({row["id"] for row in rows}) == 2 * SIZE
        for row in rows:
            assert row["components"]["length"] == np.float32(len(row["response"]) / 10)
            due = 0.5 * row["components"]["length"] + 2 * row["components"]["first"]
            assert row["reward"] == pytest.approx(due, rel=1e-6)
    before = {path: path.read_bytes() for path in log.iterdir()}
    with pytest.raises(RunDirectoryError, match="another run"):
        new_trainer(log, 1).train()
    assert {path: path.read_bytes() for path in log.iterdir()} == before


def test_training_is_what_it_was(new_trainer: Callable[..., Any], log: Path) -> None:
    plain = new_trainer(None)
    plain.train()
    watched = new_trainer(log)
    functions, names = watched.reward_funcs, set(vars(watched))
    watched.train()
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert watched.reward_funcs is functions
    assert "_prepare_inputs" not in set(vars(watched)) - names


def test_the_trainers_own_log_has_the_numbers_and_no_evaluation(
    new_trainer: Callable[..., Any], log: Path
) -> None:
    """Dead share, effective batch, gain and shares stand beside TRL's rewards, as the files give them."""
    trainer = new_trainer(log, 1, eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=8)
    trainer.train()
    assert len(list(log.iterdir())) == 2
    (logged,) = [entry for entry in trainer.state.log_history if "rewards/length" in entry]
    found = [
        live.numbers_of_rows([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
        for path in sorted(log.iterdir())
    ]
    for name in ("dead_share", "effective_batch", "largest_gain", "share/length", "share/first"):
        values = [one[f"signal/{name}"] for one in found]
        assert logged[f"signal/{name}"] == pytest.approx(sum(values) / len(values)), name
    assert logged["signal/effective_batch"] == 2 * SIZE
    assert logged["signal/share/length"] + logged["signal/share/first"] == pytest.approx(1.0)


def test_a_run_that_resumes_replaces_what_it_repeats(
    new_trainer: Callable[..., Any], log: Path, tmp_path: Path
) -> None:
    new_trainer(log, save_strategy="steps", save_steps=1).train()
    first = {path: path.read_bytes() for path in log.glob("*_00000001_*")}
    (log / "rollouts_00000002_0000.jsonl").write_text("{}", encoding="utf-8")
    new_trainer(log, 3).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))
    assert {path: path.read_bytes() for path in first} == first
    steps = [groups.step.tolist() for groups in audit.read(log)]
    assert steps == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3], [3, 3]]


def test_a_full_disk_leaves_no_half_file(
    new_trainer: Callable[..., Any], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("search_to_signal.records.files.write_all", full)
    with pytest.raises(RunDirectoryError, match="No space left"):
        new_trainer(log, 1).train()
    assert list(log.glob("*.jsonl")) == []


def test_importing_it_loads_no_model_library() -> None:
    """The name is there without torch, TRL or transformers."""
    code = (
        "import sys\nfrom search_to_signal.audit.trl_callback import GroupRecorder\n"
        "GroupRecorder(None, 'x')\n"
        "print(sorted({'torch', 'trl', 'transformers', 'accelerate'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_dead_batch_warns_once(new_trainer: Callable[..., Any], log: Path) -> None:
    def same(completions: Sequence[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    trainer = new_trainer(log, functions=[same, same], limits={"warn_above": {"dead_share": 0.5}})
    with pytest.warns(SignalWarning, match=r"step 1: signal/dead_share is 1, over 0\.5") as caught:
        trainer.train()
    assert len([one for one in caught if one.category is SignalWarning]) == 1
    assert trainer.state.log_history[0]["signal/dead_share"] == 1.0
    assert trainer.state.log_history[0]["signal/effective_batch"] == 0.0


def test_a_reward_that_is_nan_warns_of_advantages_and_of_the_gradient(
    new_trainer: Callable[..., Any], log: Path
) -> None:
    def broken(completions: Sequence[str], **_: Any) -> list[float]:
        return [float("nan"), *[1.0] * (len(completions) - 1)]

    with pytest.warns(SignalWarning) as caught:
        new_trainer(log, 1, functions=[length, broken]).train()
    said = " ".join(str(one.message) for one in caught if one.category is SignalWarning)
    assert "signal/nan_share" in said
    assert "gradient" in said
    found = audit.audit(audit.read(log))
    assert (found.logged, found.signal.taught) == (True, 0)
    assert found.signal.nan == 2 * SIZE
