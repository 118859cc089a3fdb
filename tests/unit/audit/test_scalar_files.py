"""Files of one number per step hold no groups: what they are, what is NaN in them, and what to switch on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal import audit
from search_to_signal.base.errors import RecordError

NAN = float("nan")


def history(norms: list[Any]) -> list[dict[str, Any]]:
    """A row per step, and one of an evaluation."""
    rows = [{"step": at, "loss": 0.1, "grad_norm": norm, "reward": 0.5} for at, norm in enumerate(norms, 1)]
    return [*rows, {"step": len(norms), "eval_loss": 0.2, "epoch": 0.5}]


def document(path: Path, given: Any, indent: int | None = 2) -> Path:
    """One JSON document."""
    path.write_text(json.dumps(given, indent=indent), encoding="utf-8")
    return path


def text(path: Path, given: str) -> Path:
    """A file as it is."""
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


# A few answers of a validation as text, and an event file of which the first record is cut.
WITHOUT = ("generations.log", "events.out.tfevents.1700000000.host.1.0")


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_scalars_says_what_writes_rollouts(name: str, tmp_path: Path, printed: Printed) -> None:
    """The NaN that its reader looks for, and the setting; the same for the directory. Else one line."""
    path = FILES[name](tmp_path / name)
    for place in (path, tmp_path):
        told = printed(place, code=5 if name in WITHOUT else 0)
        if name in WITHOUT:
            assert "no rollouts" in told or "record 1 cannot be read" in told
            continue
        assert "no rollouts" in told
        assert "Norm of the gradient is NaN or infinite" in told or "experiment" in name
        assert any(setting in told for setting in ("log_completions=True", "rollout_data_dir"))


def test_an_importer_refuses_scalars(tmp_path: Path) -> None:
    """From Python there is no group to give: one line with what is NaN and the settings."""
    rows = history([NAN if at % 13 == 5 else 1.0 for at in range(40)])
    path = logs.jsonl(tmp_path / "metrics.jsonl", [row | {"entropy": NAN} for row in rows])
    with pytest.raises(RecordError) as refused:
        list(audit.read(path))
    said = "; grad_norm is NaN in 3 of 40 steps, entropy is NaN in 41 of 41 steps; "
    assert said in str(refused.value)
    assert all(
        name in str(refused.value) for name in ("log_completions", "rollout_data_dir", "GroupRecorder")
    )


def test_a_directory_of_scalars_alone(tmp_path: Path, printed: Printed) -> None:
    """All of them in one report, in any depth; what cannot be read is a note."""
    for name, build in FILES.items():
        (tmp_path / "logs").mkdir(exist_ok=True)
        build(tmp_path / "logs" / name)
    out = printed(tmp_path)
    assert "Norm of the gradient is NaN or infinite" in out
    assert "Note: " in out
    assert "record 1 cannot be read" in out


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
    """A log under other names is mapped, and not sent away."""
    for place in (logs.jsonl(tmp_path / "a.jsonl", rows), tmp_path):
        assert re.search(r"--map reward=\w+,group=\w+", printed(place, code=5))
