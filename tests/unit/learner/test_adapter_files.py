"""Adapter files: the same bytes everywhere, and loadable by PEFT."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

from recipe.training import Architecture, build_model
from search_to_signal.base.errors import ModelFileError
from search_to_signal.learner.adapter import (
    adapter_sha256,
    adapter_tensors,
    attach_adapter,
    load_adapter,
    save_adapter,
)
from search_to_signal.learner.settings import LearnerSettings

pytestmark = pytest.mark.slow

SHAPE = Architecture("qwen2", 32, 64, 2, 4, 2, 256, 0.2)
SETTINGS = LearnerSettings(lora_rank=2, lora_alpha=4)
SAVE = f"""
import sys
from pathlib import Path
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.adapter import save_adapter
from recipe.training import Architecture
from recipe.training import build_model
from search_to_signal.learner.settings import LearnerSettings
model = attach_adapter(build_model({SHAPE!r}, 64, 1, 0, 5), LearnerSettings(lora_rank=2, lora_alpha=4), 7)
save_adapter(model, Path(sys.argv[1]))
print(list(model.peft_config["default"].target_modules))
"""


def test_equal_adapters_have_equal_files(tmp_path: Path) -> None:
    """Processes whose sets have other orders, which is how PEFT keeps module names, write the same bytes."""
    here = attach_adapter(build_model(SHAPE, 64, 1, 0, 5), SETTINGS, 7)
    save_adapter(here, tmp_path / "here")
    order = str(list(here.peft_config["default"].target_modules))
    other = order
    for seed in ("1", "2"):  # of which one has another order
        if other == order:
            environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", SAVE, str(tmp_path / "other")]
            other = subprocess.check_output(command, env=environment, text=True).strip()
    assert other != order
    names = sorted(os.listdir(tmp_path / "here"))
    assert names == ["adapter_config.json", "adapter_model.safetensors"]
    assert names == sorted(os.listdir(tmp_path / "other"))
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name


def test_saved_adapter_can_be_loaded(tmp_path: Path) -> None:
    """PEFT reads the files back into the same adapter, and so into the same answers."""
    adapted = attach_adapter(build_model(SHAPE, 64, 1, 0, 5), SETTINGS, 7)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.1)
    save_adapter(adapted, tmp_path)
    loaded = PeftModel.from_pretrained(build_model(SHAPE, 64, 1, 0, 5), tmp_path)
    assert adapter_sha256(loaded) == adapter_sha256(adapted)
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=ids).logits, adapted(input_ids=ids).logits)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("megatron_config", {"x": 1}),
        ("megatron_core", "antigravity"),
        ("auto_mapping", {"base_model_class": "x", "parent_library": "antigravity"}),
        ("r", "2"),
        ("target_modules", ["q_proj"]),
        ("use_dora", True),
        ("more", 1),
    ],
)
def test_other_configurations_are_refused(tmp_path: Path, name: str, value: object) -> None:
    """A file that PEFT would act upon, by importing what it names for one, is no adapter of ours."""
    save_adapter(attach_adapter(build_model(SHAPE, 64, 1, 0, 5), SETTINGS, 7), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, name: value}))
    with pytest.raises(ModelFileError, match="restore its files"):
        load_adapter(build_model(SHAPE, 64, 1, 0, 5), tmp_path)
    assert "antigravity" not in sys.modules


def test_a_pickle_is_no_adapter(tmp_path: Path) -> None:
    """Where the safetensors are gone, nothing else is read in their place."""
    adapted = attach_adapter(build_model(SHAPE, 64, 1, 0, 5), SETTINGS, 7)
    save_adapter(adapted, tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    torch.save(adapter_tensors(adapted), tmp_path / "adapter_model.bin")
    with pytest.raises(ModelFileError, match=r"adapter_model\.safetensors"):
        load_adapter(build_model(SHAPE, 64, 1, 0, 5), tmp_path)


def test_an_adapter_of_another_shape_is_refused(tmp_path: Path) -> None:
    """Tensors that are missing, too many or of another rank are an error, not a random start."""
    adapted = attach_adapter(build_model(SHAPE, 64, 1, 0, 5), SETTINGS, 7)
    save_adapter(adapted, tmp_path)
    tensors = adapter_tensors(adapted)
    first = next(iter(tensors))
    for damaged in (
        {name: tensor for name, tensor in tensors.items() if name != first},
        {**tensors, "more": torch.zeros(1)},
        {**tensors, first: torch.zeros(3, 3)},
    ):
        save_file(damaged, tmp_path / "adapter_model.safetensors")
        with pytest.raises(ModelFileError, match="do not fit this model"):
            load_adapter(build_model(SHAPE, 64, 1, 0, 5), tmp_path)


def test_a_model_without_these_projections_is_one_line() -> None:
    """A family whose layers have other names, such as GPT-2, is refused with what would do."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=8, n_layer=1, n_head=2, n_positions=16))
    with pytest.raises(ModelFileError, match=r"GPT2LMHeadModel\) has no linear layers"):
        attach_adapter(model, SETTINGS, seed=7)
