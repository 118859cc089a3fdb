"""Files of one number per step hold no groups: what they are, what is NaN in them, and what to switch on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.cli import main

NAN = float("nan")


def history(norms: list[Any]) -> list[dict[str, Any]]:
    """A row per step, and one of an evaluation."""
    rows = [{"step": at, "loss": 0.1, "grad_norm": norm, "reward": 0.5} for at, norm in enumerate(norms, 1)]
    return [*rows, {"step": len(norms), "eval_loss": 0.2, "epoch": 0.5}]


def document(path: Path, given: Any, indent: int | None = 2) -> Path:
    path.write_text(json.dumps(given, indent=indent), encoding="utf-8")
    return path


def text(path: Path, given: str) -> Path:
    path.write_text(given, encoding="utf-8")
    return path


FILES: dict[str, Any] = {
    "trainer_state.json": lambda path: document(
        path, {"global_step": 3, "log_history": history([1.0, NAN, NAN])}
    ),
    "wandb-summary.json": lambda path: document(
        path, {"_step": 3, "_wandb": {"runtime": 1}, "train/loss": 0.1, "train/grad_norm": "NaN"}, None
    ),
    "metrics.jsonl": lambda path: logs.jsonl(path, history([1.0, NAN, 2.0])),
    "verl.jsonl": lambda path: logs.jsonl(
        path, [{"step": at, "data": {"actor/pg_loss": 0.0, "actor/grad_norm": NAN}} for at in range(3)]
    ),
    "experiment_log.jsonl": lambda path: logs.jsonl(
        path, [{"step": at, "actor": {"grad_norm": NAN}, "reward": {"mean": 0.1}} for at in range(3)]
    ),
    "progress.csv": lambda path: text(path, "step,loss,grad_norm\n1,0.1,nan\n2,0.1,1\n"),
    "log_history.json": lambda path: document(path, history([1.0, NAN])),
    "generations.log": lambda path: text(path, "[prompt] a\n[output] b\n[score] 1\n"),
    "events.out.tfevents.1700000000.host.1.0": lambda path: text(path, "\x18\x00\x00"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_scalars_says_what_writes_rollouts(name: str, tmp_path: Path, printed: Printed) -> None:
    path = FILES[name](tmp_path / name)
    for place in (path, tmp_path):
        err = printed(place, code=5)
        assert "no rollouts" in err
        assert all(name in err for name in ("log_completions=True", "rollout_data_dir", "GroupRecorder"))
        assert ("grad_norm is NaN in" in err) == (not name.startswith(("generations", "events")))


def test_how_often_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = history([NAN if at % 13 == 5 else 1.0 for at in range(40)])
    rows = [row | {"entropy": NAN} for row in rows]
    assert main(["audit", str(logs.jsonl(tmp_path / "metrics.jsonl", rows))]) == 5
    said = "; grad_norm is NaN in 3 of 40 steps, entropy is NaN in 41 of 41 steps; "
    assert said in capsys.readouterr().err


def test_a_directory_of_scalars_alone(tmp_path: Path, printed: Printed) -> None:
    for name, build in FILES.items():
        (tmp_path / "logs").mkdir(exist_ok=True)
        build(tmp_path / "logs" / name)
    err = printed(tmp_path, code=5)
    assert "log_completions=True" in err
    assert "grad_norm is NaN in" in err


@pytest.mark.parametrize(
    "rows",
    [
        [{"points": 1.0}],
        [{"prompt_id": at // 4, "score": 1.0, "iteration": 1} for at in range(8)],
        [{"iteration": at // 4, "score": 1.0} for at in range(16)],
        [{"step": 1, "question": "a", "answer": "b", "score": 1.0}],
        [{"task_id": 1, "step": 1, "score": 0.0}],
    ],
)
def test_rows_of_completions_are_none(rows: list[dict[str, Any]], tmp_path: Path, printed: Printed) -> None:
    for place in (logs.jsonl(tmp_path / "a.jsonl", rows), tmp_path):
        assert re.search(r"--map reward=\w+,group=\w+", printed(place, code=5))
