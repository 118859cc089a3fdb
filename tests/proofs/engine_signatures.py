"""Read the signatures that our engine generators rely on out of the locked wheels, without installing them.

    pip download --no-deps --only-binary=:all: --python-version 3.10 --platform manylinux1_x86_64 \
        --platform any -d wheels vllm==0.7.3 unsloth==2025.3.18 unsloth_zoo==2025.3.16
    python tests/proofs/engine_signatures.py wheels > tests/unit/models/engine_signatures.json

The result is checked in, with each wheel's SHA-256, which has to be the one of uv.lock.
"""

import ast
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

# What our calls name: wheel, file, and a function, or a class with the fields that it is made with.
SOURCES = {
    "LLM": ("vllm", "vllm/entrypoints/llm.py", "LLM.__init__"),
    "EngineArgs": ("vllm", "vllm/engine/arg_utils.py", "EngineArgs"),
    "LLM.generate": ("vllm", "vllm/entrypoints/llm.py", "LLM.generate"),
    "SamplingParams": ("vllm", "vllm/sampling_params.py", "SamplingParams"),
    "LoRARequest": ("vllm", "vllm/lora/request.py", "LoRARequest"),
    "TokensPrompt": ("vllm", "vllm/inputs/data.py", "TokensPrompt"),
    "CompletionOutput": ("vllm", "vllm/outputs.py", "CompletionOutput"),
    "RequestOutput": ("vllm", "vllm/outputs.py", "RequestOutput.__init__"),
    "PEFTHelper": ("vllm", "vllm/lora/peft_helper.py", "PEFTHelper"),
    "FastLanguageModel.from_pretrained": (
        "unsloth",
        "unsloth/models/loader.py",
        "FastLanguageModel.from_pretrained",
    ),
    "unsloth_zoo LoRARequest": ("unsloth_zoo", "unsloth_zoo/vllm_lora_request.py", "LoRARequest"),
}
# Attributes that our code reads off an object, as text that the file has to hold.
TEXTS = {
    "llm.llm_engine": ("vllm", "vllm/entrypoints/llm.py", "self.llm_engine = "),
    "llm.reset_prefix_cache": ("vllm", "vllm/entrypoints/llm.py", "def reset_prefix_cache(self) -> bool"),
    "llm_engine.model_config": ("vllm", "vllm/engine/llm_engine.py", "self.model_config = "),
    "model_config.max_model_len": ("vllm", "vllm/config.py", "self.max_model_len = "),
    "model.vllm_engine": ("unsloth", "unsloth/models/llama.py", "model.vllm_engine = llm"),
    "llama.HAS_XFORMERS": ("unsloth", "unsloth/models/llama.py", "HAS_XFORMERS = xformers is not None"),
    "llama.HAS_FLASH_ATTENTION": ("unsloth", "unsloth/models/_utils.py", "HAS_FLASH_ATTENTION = False"),
    "LoRARequest replaced": ("unsloth_zoo", "unsloth_zoo/vllm_utils.py", "vllm.lora.request.LoRARequest = "),
}


def named(tree: ast.AST, path: str) -> Any:
    """The class or function at a dotted path; the last one of that name, as Python has it."""
    for name in path.split("."):
        found = [node for node in ast.iter_child_nodes(tree) if getattr(node, "name", None) == name]
        tree = found[-1]
    return tree


def parameters(node: Any) -> dict[str, Any]:
    """Names in order, and whether any other keyword is taken."""
    if isinstance(node, ast.ClassDef):
        fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        names = [item.target.id for item in fields if isinstance(item.target, ast.Name)]
        return {"parameters": names, "others": False}
    arguments = node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return {"parameters": [name for name in names if name != "self"], "others": arguments.kwarg is not None}


def main() -> None:
    """Print the data as JSON."""
    wheels = {path.name.split("-")[0]: path for path in sorted(Path(sys.argv[1]).glob("*.whl"))}

    def text(wheel: str, file: str) -> str:
        with zipfile.ZipFile(wheels[wheel]) as archive:
            return archive.read(file).decode()

    calls = {
        name: {"wheel": wheel, "file": file, **parameters(named(ast.parse(text(wheel, file)), path))}
        for name, (wheel, file, path) in SOURCES.items()
    }
    attributes = {
        name: {"wheel": wheel, "file": file, "found": wanted in text(wheel, file)}
        for name, (wheel, file, wanted) in TEXTS.items()
    }
    hashes = {
        name: {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for name, path in wheels.items()
    }
    print(json.dumps({"wheels": hashes, "calls": calls, "attributes": attributes}, indent=1))


if __name__ == "__main__":
    main()
