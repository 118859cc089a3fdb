"""Which extra of this package brings a package that the released host imports, and what to do without it."""

NVML = "pynvml"
BRINGS = {NVML: "gpu", "unsloth": "gpu", "vllm": "gpu", "bitsandbytes": "gpu", "ray": "cluster"}


def remedy(module: str) -> str:
    """What to do where a module of this name is missing."""
    package = module.partition(".")[0]
    if package in BRINGS:
        return f"uv sync --extra {BRINGS[package]}"
    return f"install {package} here, or give a whole checkout where it is a file of the host's"
