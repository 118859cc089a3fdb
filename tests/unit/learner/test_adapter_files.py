"""Adapter files: the same bytes everywhere, and loadable by PEFT."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from peft import PeftModel

from search_to_signal.learner.adapter import adapter_sha256, attach_adapter, save_adapter
from search_to_signal.learner.pretrain import Architecture, build_model
from search_to_signal.learner.settings import LearnerSettings

SHAPE = Architecture("qwen2", 32, 64, 2, 4, 2, 256, 0.2)
SETTINGS = LearnerSettings(lora_rank=2, lora_alpha=4)
SAVE = f"""
import sys
from pathlib import Path
from search_to_signal.learner.adapter import attach_adapter, save_adapter
from search_to_signal.learner.pretrain import Architecture, build_model
from search_to_signal.learner.settings import LearnerSettings
model = build_model({SHAPE!r}, 64, 1, 0, 5)
save_adapter(attach_adapter(model, LearnerSettings(lora_rank=2, lora_alpha=4), 7), Path(sys.argv[1]))
"""


def test_equal_adapters_have_equal_files(tmp_path: Path) -> None:
    """Another process with another hash seed writes the same bytes."""
    here, there = tmp_path / "here", tmp_path / "there"
    save_adapter(attach_adapter(build_model(SHAPE, 64, 1, 0, 5), SETTINGS, 7), here)
    environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", SAVE, str(there)], check=True, env=environment)
    names = sorted(path.name for path in here.iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors"] == sorted(os.listdir(there))
    for name in names:
        assert (here / name).read_bytes() == (there / name).read_bytes(), name


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
