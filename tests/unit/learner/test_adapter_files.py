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
model = attach_adapter(build_model({SHAPE!r}, 64, 1, 0, 5), LearnerSettings(lora_rank=2, lora_alpha=4), 7)
save_adapter(model, Path(sys.argv[1]))
print(list(model.peft_config["default"].target_modules))
"""


def test_equal_adapters_have_equal_files(tmp_path: Path) -> None:
    """Processes whose sets have other orders, which is how PEFT keeps module names, write the same bytes."""
    orders = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", SAVE, str(tmp_path / seed)]
        orders.add(subprocess.check_output(command, env=environment))
    assert len(orders) == 2
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors"] == sorted(os.listdir(tmp_path / "2"))
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


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
