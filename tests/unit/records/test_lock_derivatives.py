"""What is derived from the lock says what the lock says."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from spec.lock import needed

from search_to_signal.records.provenance import read_lock

ROOT = Path(__file__).parents[3]

EXPORTS = ROOT / "artifact" / "lock"
UV = shutil.which("uv") or shutil.which(str(ROOT / ".uv" / "bin" / "uv"))


@pytest.mark.skipif(UV is None, reason="uv, which made the exports, is not on this machine")
@pytest.mark.parametrize("name", ["requirements.txt", "pylock.toml", "sbom.cdx.json"])
@pytest.mark.slow
def test_the_checked_in_exports_are_those_of_the_lock(name: str, tmp_path: Path) -> None:
    subprocess.run([EXPORTS / "export.sh", tmp_path], check=True)
    assert (tmp_path / name).read_bytes() == (EXPORTS / name).read_bytes()


def test_the_bill_of_materials_is_the_lock_and_nothing_else() -> None:
    bill = json.loads((EXPORTS / "sbom.cdx.json").read_bytes())
    versions = {package["name"]: package["version"] for package in read_lock()["package"]}
    parts = {part["name"]: part for part in bill["components"]}
    assert {package.name for package in needed(read_lock(), ("gpu", "cluster"))} <= set(parts)
    for name, part in parts.items():
        assert part["version"] == versions[name]
        assert all(link["hashes"] for link in part["externalReferences"])
    known = {part["bom-ref"] for part in bill["components"]}
    assert {end for edge in bill["dependencies"] for end in edge.get("dependsOn", ())} <= known
    assert "serialNumber" not in bill
    assert "timestamp" not in bill["metadata"]


def test_extras_bring_their_packages_and_the_base_does_not() -> None:
    """The base installation needs neither vLLM nor Ray; markers for other systems bring nothing."""
    base = {package.name for package in needed(read_lock())}
    full = {package.name for package in needed(read_lock(), ("gpu", "cluster"))}
    assert {"vllm", "ray"} <= full - base
    assert "pywin32" not in full


def test_the_released_host_finds_pynvml_with_the_gpu_extra() -> None:
    assert "nvidia-ml-py" in {package.name for package in needed(read_lock(), ("gpu",))}


def test_an_unknown_extra_is_named() -> None:
    with pytest.raises(ValueError, match="no extra tpu"):
        needed(read_lock(), ("tpu",))
