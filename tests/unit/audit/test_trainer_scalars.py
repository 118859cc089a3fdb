"""Numbers per step: real files of their writers, faults that are found, honest noise that is none."""

import gzip
import json
import re
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.audit.importers.scalar_files import ScalarRun, read_events, read_wandb, scalar_runs
from search_to_signal.audit.scalars import scalars
from search_to_signal.base.errors import RecordError

# Written by tests/proofs/scalar_logs.py: TRL 1.16.0 with transformers 5.24.0 and tensorboard 2.21.0 (ten
# steps of the embedded model), wandb 0.31.0 offline under verl's names, trackio 0.43.0 under TRL's.
REAL = Path(__file__).parent / "real_scalars"
TRL, WANDB = REAL / "trl-1.16.0", REAL / "wandb-0.31.0"
EVENTS = TRL / "runs" / "events.out.tfevents.1795984569.host.1.0"
Values = NDArray[np.float64]


def run(curves: Mapping[str, Any], steps: Any = None) -> ScalarRun:
    """Curves by name over the steps 1, 2, ... or others."""
    return ScalarRun(
        "run",
        {
            name: (np.arange(1, len(values) + 1) if steps is None else steps, np.asarray(values, float))
            for name, values in curves.items()
        },
    )


def noise(draw: np.random.Generator, count: int, memory: float = 0.5) -> Values:
    """Noise of deviation 1 that remembers, with heavier tails than a normal one's."""
    fresh = draw.standard_t(4, count) / np.sqrt(2)
    made = fresh.copy()
    for at in range(1, count):
        made[at] = memory * made[at - 1] + np.sqrt(1 - memory**2) * fresh[at]
    return made


def honest(draw: np.random.Generator, count: int) -> ScalarRun:
    """A run that goes well: rewards rise, entropy falls to no less than half, everything is noisy."""
    time = np.linspace(0, 1, count)

    def wobble(size: float, memory: float = 0.5) -> Values:
        return np.exp(size * noise(draw, count, memory))

    length = 500 * (1 + draw.uniform(0, 1.5) * time) * wobble(0.1)
    kl = draw.uniform(0.05, 0.5) * time ** draw.uniform(0.5, 2)
    curves = {
        "reward": 0.6 - 0.3 * np.exp(-3 * time) + 0.05 * noise(draw, count),
        "entropy": 0.4 * (1 - draw.uniform(0, 0.5) * time) * wobble(0.15),
        "kl": kl * wobble(0.4) + 1e-4,
        "ppo_kl": 1e-3 * wobble(0.8),
        "clip_ratio/region_mean": 0.02 * wobble(0.8),
        "grad_norm": 0.5 * wobble(0.4, 0.2),
        "completions/mean_length": length,
        "completions/clipped_ratio": np.clip(0.05 * wobble(0.5), 0, 1),
        "frac_reward_zero_std": np.clip(draw.uniform(0.1, 0.35) + 0.1 * noise(draw, count, 0.2), 0, 1),
        "step_time": length / 20 * wobble(0.15),
        "loss": 0.01 * noise(draw, count),
    }
    made = dict(run(curves).values)
    tested = np.arange(0, count, max(1, count // 20))
    evaluation = 0.5 - 0.2 * np.exp(-3 * time[tested]) + 0.02 * draw.standard_normal(len(tested))
    return ScalarRun("run", made | {"eval_reward": (tested + 1, evaluation)})


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, 60, 300])
def test_honest_noise_is_no_finding(count: int) -> None:
    """In at most 5 % of the runs anything is found."""
    draw = np.random.default_rng(count)
    found = sum(bool(scalars([honest(draw, count)]).findings) for _ in range(120))
    assert found <= 6


@pytest.fixture
def trackio(tmp_path: Path) -> Path:
    """A directory with a database of trackio, which is kept packed."""
    with gzip.open(REAL / "trackio-0.43.0" / "grpo.db.gz") as packed:
        (tmp_path / "grpo.db").write_bytes(packed.read())
    return tmp_path


RAMP = np.linspace(0, 1, 100)
HALF = RAMP < 0.5
# By finding: curves, to be multiplied by noise, and the steps that it may be about.
FAULTS: dict[str, tuple[dict[str, Values], tuple[int, int]]] = {
    "entropy": ({"entropy": 0.4 * np.where(RAMP < 0.6, 1, 0.05)}, (55, 100)),
    "kl": ({"actor/kl_loss": 1e-3 * np.exp(9 * RAMP)}, (55, 100)),
    "grad_norm": ({"grad_norm": np.where(RAMP % 0.25 < 0.01, 50, 0.5)}, (1, 100)),
    "clipped": ({"actor/pg_clipfrac": np.where(HALF, 0.01, 0.4)}, (45, 100)),
    "cut": ({"response_length/clip_ratio": np.where(HALF, 0.01, 0.5)}, (45, 100)),
    "no_advantage": ({"frac_reward_zero_std": np.where(HALF, 0.1, 0.8)}, (45, 100)),
    "step_time": ({"perf/time_per_step": 60 * (1 + 2 * RAMP)}, (20, 100)),
    "evaluation": ({"reward": RAMP, "val-core/math/mean@8": np.minimum(RAMP, 1 - RAMP)}, (45, 100)),
    "not_finite": ({"grad_norm": np.where(RAMP > 0.895, np.nan, 1)}, (90, 100)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_with_its_steps(fault: str) -> None:
    """The finding has the fault's name, the steps where it is, and something to do."""
    curves, (first, last) = FAULTS[fault]
    one = np.exp(0.05 * noise(np.random.default_rng(1), 100))
    (found,) = scalars([run({name: values * one for name, values in curves.items()})]).findings
    assert (found.name, bool(found.change), 0 < found.cost <= 1) == (fault, True, True)
    assert first <= found.first < found.last <= last


def test_longer_completions_excuse_longer_steps() -> None:
    """A step that takes longer because it has more tokens has not drifted."""
    slow = {"step_time": 10 * (1 + 2 * RAMP), "completions/mean_length": 300 * (1 + 2 * RAMP)}
    assert not scalars([run(slow)]).findings
    assert [one.name for one in scalars([run(slow | {"completions/mean_length": 300 + RAMP})]).findings] == [
        "step_time"
    ]


def test_a_single_outlier_is_no_level() -> None:
    """One step with every token clipped is not a run that clips."""
    spike = np.where(np.arange(100) == 50, 1.0, 0.01)
    assert not scalars([run({"clip_ratio/region_mean": spike})]).findings


@pytest.mark.slow
def test_a_trainers_directory_has_rollouts_and_numbers(tmp_path: Path, printed: Printed) -> None:
    """TRL's files in one report, page and document: the rewards are the same, and the loss is named."""
    out = printed(TRL, "--out", str(tmp_path))
    assert "Read as trl" in out
    assert "Numbers per step (trainer_state.json, events.out.tfevents" in out
    assert "not the mean reward of the rollouts" not in out
    assert "Aggregation is token_mean (loss_type=dapo)" in out
    document = json.loads((tmp_path / "audit.json").read_text())
    assert document["scalars"]["joined"] == 10
    assert {"reward", "evaluation", "kl", "entropy", "grad_norm"} <= document["scalars"]["curves"].keys()
    page = (tmp_path / "audit.html").read_text()
    assert all(f"<h2>{heading}</h2>" in page for heading in ("Numbers per step", "The loss"))
    assert printed(TRL / "completions").count("Numbers per step") == 1


def test_other_rewards_than_the_rollouts_are_found(tmp_path: Path, printed: Printed) -> None:
    """A logged reward that is not the mean of the completions beside it."""
    shutil.copytree(TRL, tmp_path / "run")
    state = tmp_path / "run" / "checkpoint-10" / "trainer_state.json"
    given = json.loads(state.read_text())
    for row in given["log_history"]:
        row |= {"reward": row["reward"] / 2} if "reward" in row else {}
    state.write_text(json.dumps(given))
    assert "not the mean reward of the rollouts in 10 of 10 steps" in printed(tmp_path / "run")


def test_trackers_are_read(trackio: Path, printed: Printed) -> None:
    """What a tracker kept, what is wrong in it, the loss by its configuration, and how to log rollouts."""
    for place, rule, rollouts in (
        (WANDB, "loss_agg_mode=seq-mean-token-mean", "trainer.rollout_data_dir"),
        (trackio, "loss_type=dr_grpo", "log_completions=True"),
        (trackio / "grpo.db", "loss_type=dr_grpo", "log_completions=True"),
    ):
        out = printed(place)
        assert "step 17)" in out
        assert "Entropy collapses" in out
        assert rule in out
        assert rollouts in out.rsplit("\n\n", 1)[1]


def test_the_longest_run_of_a_database_is_read(trackio: Path) -> None:
    """A note names the others."""
    (found,) = scalar_runs(trackio)
    assert len(found.values["train/reward"][0]) == 60
    assert any("short" in note for note in found.notes)


def test_event_files_and_the_state_agree() -> None:
    """TensorBoard's file has the numbers of the trainer's state, as float32."""
    (events,) = scalar_runs(EVENTS)
    (state,) = scalar_runs(TRL / "checkpoint-10" / "trainer_state.json")
    for name in ("reward", "kl", "grad_norm"):
        given, kept = events.values[f"train/{name}"], state.values[name]
        assert given[0].tolist() == kept[0].tolist()
        np.testing.assert_array_equal(given[1], kept[1].astype(np.float32))


@pytest.mark.parametrize(
    ("read", "file"), [(read_events, EVENTS), (read_wandb, next(WANDB.rglob("*.wandb")))]
)
def test_what_is_whole_of_a_cut_or_damaged_file_is_kept(read: Any, file: Path, tmp_path: Path) -> None:
    """A file cut anywhere has the rows before; one with a flipped bit ends there; one line says so."""
    data, whole = file.read_bytes(), read(file)
    copy = tmp_path / file.name
    assert not whole.ends
    for size in range(len(data) // 2, len(data) // 2 + 60):
        copy.write_bytes(data[:size])
        held = read(copy)
        assert held.rows == whole.rows[: len(held.rows)]
        assert 0 < len(held.rows) < len(whole.rows)
    copy.write_bytes(data[:-900] + bytes([data[-900] ^ 1]) + data[-899:])
    held = read(copy)
    assert re.search(r"record \d+ cannot be read \(.*\): the \d+ before it are", held.ends)
    assert held.rows == whole.rows[: len(held.rows)]
    copy.write_bytes(b"\x18\x00\x00")
    with pytest.raises(RecordError, match="record 1 cannot be read"):
        read(copy)


def test_scalars_of_the_newer_event_format_are_read(tmp_path: Path) -> None:
    """TensorFlow 2 writes a scalar as a tensor: an event made by hand, with a checksum bit by bit."""
    tensor = b"\x08\x01\x12\x00\x22\x04" + struct.pack("<f", 0.5)
    value = b"\x0a\x06reward\x42" + bytes([len(tensor)]) + tensor
    summary = b"\x0a" + bytes([len(value)]) + value
    event = b"\x10\x07\x2a" + bytes([len(summary)]) + summary
    head = struct.pack("<Q", len(event))

    def checksum(text: bytes) -> bytes:
        crc = 0xFFFFFFFF
        for byte in text:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
        crc ^= 0xFFFFFFFF
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(head + checksum(head) + event + checksum(event))
    assert read_events(path).rows == [(7, {"reward": 0.5})]


def test_limits_need_rollouts(tmp_path: Path, printed: Printed) -> None:
    """A share of groups cannot be limited where there is no group."""
    rows = [{"step": at, "entropy": 1.0} for at in range(9)]
    path = logs.jsonl(tmp_path / "metrics.jsonl", rows)
    assert "no rollouts" in printed(path, "--fail-on", "dead=0.5", code=5)
    assert "Entropy" in printed(path)
