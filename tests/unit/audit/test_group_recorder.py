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

SIZE = 4


def length(completions: Sequence[str], **_: Any) -> list[float]:
    return [len(text) / 10 for text in completions]


def first(completions: Sequence[str], **_: Any) -> list[float]:
    """1 for the first of four."""
    return [float(place % SIZE == 0) for place in range(len(completions))]


@pytest.fixture
def new_trainer(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> Callable[..., Any]:
    """A stock trainer of TRL 0.15.1 with two reward functions, two groups a batch and two batches a step."""
    torch.set_num_threads(1)

    def made(steps: int = 2, **options: Any) -> Any:
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
            **{"save_strategy": "no", **options},
        )
        rows = [{"prompt": f"node = {row}", "kind": "odd" if row % 2 else "even"} for row in range(8)]
        data = Dataset.from_list(rows)
        return GRPOTrainer(new_model(), [length, first], arguments, data, data, tokenizer)

    return made


def test_what_was_trained_is_in_the_log(new_trainer: Callable[..., Any], tmp_path: Path) -> None:
    trainer = new_trainer()
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "log"))
    trainer.train()
    files = sorted(path.name for path in (tmp_path / "log").iterdir())
    assert files == [f"rollouts_0000000{step}_000{batch}.jsonl" for step in (1, 2) for batch in (0, 1)]
    groups = list(audit.read(tmp_path / "log", options=audit.ReadOptions(label="example.kind")))
    assert [one.sizes.tolist() for one in groups] == [[SIZE, SIZE]] * 4
    assert all(dict(one.weights) == {"length": 0.5, "first": 2.0} for one in groups)
    assert all(one.components["first"].tolist() == [1.0, 0.0, 0.0, 0.0] * 2 for one in groups)
    assert all(((one.tokens > 0) & (one.tokens <= 6)).all() for one in groups)
    assert {name for one in groups for name in one.label.names} == {"odd", "even"}
    assert "trl-0.15.1-grpo" in audit.audit(groups).explaining
    trainer = new_trainer(1)
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "1" / "log"))
    trainer.train()
    for path in (tmp_path / "1" / "log").iterdir():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert len({row["id"] for row in rows}) == 2 * SIZE
        for row in rows:
            assert row["components"]["length"] == np.float32(len(row["response"]) / 10)
            due = 0.5 * row["components"]["length"] + 2 * row["components"]["first"]
            assert row["reward"] == pytest.approx(due, rel=1e-6)


def test_training_is_what_it_was_and_evaluation_is_left_out(
    new_trainer: Callable[..., Any], tmp_path: Path
) -> None:
    plain = new_trainer()
    plain.train()
    watched = new_trainer()
    watched.add_callback(GroupRecorder(watched, tmp_path / "log"))
    functions, names = watched.reward_funcs, set(vars(watched))
    watched.train()
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert watched.reward_funcs is functions
    assert "_prepare_inputs" not in set(vars(watched)) - names
    trainer = new_trainer(1, eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=8)
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "1" / "log"))
    trainer.train()
    assert len(list((tmp_path / "1" / "log").iterdir())) == 2


def test_another_run_is_not_written_over(new_trainer: Callable[..., Any], tmp_path: Path) -> None:
    for _ in range(2):
        trainer = new_trainer(1)
        trainer.add_callback(GroupRecorder(trainer, tmp_path / "log"))
        if list(tmp_path.glob("log/*")):
            before = {path: path.read_bytes() for path in tmp_path.glob("log/*")}
            with pytest.raises(RunDirectoryError, match="another run"):
                trainer.train()
            assert {path: path.read_bytes() for path in tmp_path.glob("log/*")} == before
        else:
            trainer.train()


def test_a_run_that_resumes_replaces_what_it_repeats(new_trainer: Callable[..., Any], tmp_path: Path) -> None:
    trainer = new_trainer(2, save_strategy="steps", save_steps=1)
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "log"))
    trainer.train()
    first = {path: path.read_bytes() for path in (tmp_path / "log").glob("*_00000001_*")}
    (tmp_path / "log" / "rollouts_00000002_0000.jsonl").write_text("{}", encoding="utf-8")
    trainer = new_trainer(3)
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "log"))
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))
    assert {path: path.read_bytes() for path in first} == first
    steps = [groups.step.tolist() for groups in audit.read(tmp_path / "log")]
    assert steps == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3], [3, 3]]


def test_a_full_disk_leaves_no_half_file(
    new_trainer: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("search_to_signal.records.files.write_all", full)
    trainer = new_trainer(1)
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "log"))
    with pytest.raises(RunDirectoryError, match="No space left"):
        trainer.train()
    assert list((tmp_path / "log").glob("*.jsonl")) == []


@pytest.mark.slow
def test_importing_it_loads_no_model_library() -> None:
    """The name is there without torch, TRL or transformers."""
    code = (
        "import sys\nfrom search_to_signal.audit.trl_callback import GroupRecorder\n"
        "GroupRecorder(None, 'x')\n"
        "print(sorted({'torch', 'trl', 'transformers', 'accelerate'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_trainers_own_log_has_the_numbers(new_trainer: Callable[..., Any], tmp_path: Path) -> None:
    """Dead share, effective batch, gain and shares stand beside TRL's rewards, as the files give them."""
    trainer = new_trainer(1, logging_steps=1)
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "log"))
    trainer.train()
    (logged,) = [entry for entry in trainer.state.log_history if "rewards/length" in entry]
    found = [
        live.numbers_of_rows([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
        for path in sorted((tmp_path / "log").iterdir())
    ]
    for name in ("dead_share", "effective_batch", "largest_gain", "share/length", "share/first"):
        values = [one[f"signal/{name}"] for one in found]
        assert logged[f"signal/{name}"] == pytest.approx(sum(values) / len(values)), name
    assert logged["signal/effective_batch"] == 2 * SIZE
    assert logged["signal/share/length"] + logged["signal/share/first"] == pytest.approx(1.0)


def test_a_dead_batch_warns_once(new_trainer: Callable[..., Any], tmp_path: Path) -> None:
    def same(completions: Sequence[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    trainer = new_trainer(2, logging_steps=1)
    trainer.reward_funcs = [same, same]
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "log", warn_above={"dead_share": 0.5}))
    with pytest.warns(SignalWarning, match=r"step 1: signal/dead_share is 1, over 0\.5") as caught:
        trainer.train()
    assert len([one for one in caught if one.category is SignalWarning]) == 1
    assert trainer.state.log_history[0]["signal/dead_share"] == 1.0
    assert trainer.state.log_history[0]["signal/effective_batch"] == 0.0


def test_a_reward_that_is_nan_warns_of_advantages_and_of_the_gradient(
    new_trainer: Callable[..., Any], tmp_path: Path
) -> None:
    def broken(completions: Sequence[str], **_: Any) -> list[float]:
        return [float("nan"), *[1.0] * (len(completions) - 1)]

    trainer = new_trainer(1, logging_steps=1)
    trainer.reward_funcs = [length, broken]
    trainer.add_callback(GroupRecorder(trainer, tmp_path / "log"))
    with pytest.warns(SignalWarning) as caught:
        trainer.train()
    said = " ".join(str(one.message) for one in caught if one.category is SignalWarning)
    assert "signal/nan_share" in said
    assert "gradient" in said
    found = audit.audit(audit.read(tmp_path / "log"))
    assert (found.logged, found.signal.taught) == (True, 0)
    assert found.signal.nan == 2 * SIZE
