"""What engines, low precision and endpoints need is looked for before the first run, and told in a line."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command import Command, Patch
from tests.profiles import profile_head

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.package_data import MODELS
from search_to_signal.records.checksums import sha256_file
from search_to_signal.run.machine_check import cards_of
from search_to_signal.run.profile import load_profile

PROFILE = """
{head}
{top}

[generation]
max_prompt_tokens = 1024
max_completion_tokens = 320
backend = "{backend}"

[learner]
optimizer = "{optimizer}"

[api]
model = "theirs"

[api.endpoint]
key_variable = "KEY_OF_NOBODY"
"""

Refused = Callable[..., str]
PACKAGES = ("vllm", "unsloth", "bitsandbytes")
BEGUN = "the layer would begin here"


def begin(*_: object) -> None:
    """Instead of a layer."""
    raise RunDirectoryError(BEGUN)


def write_profile(
    tmp_path: Path, backend: str = "unsloth", optimizer: str = "adamw_8bit", top: str = ""
) -> Path:
    """A profile of its own."""
    path = tmp_path / "mine.toml"
    head = profile_head("frozen", "native", groups=20, split="train")
    path.write_text(PROFILE.format(head=head, backend=backend, optimizer=optimizer, top=top))
    return path


@pytest.fixture
def refused(s2s: Command) -> Refused:
    """Run a profile, and have it refused with nothing left behind; returns the one line."""

    def call(profile: Path, *layer: str, code: int | None = 2) -> str:
        out = profile.parent / "out"
        (line,) = s2s("run", "--profile", profile, "--out", out, *layer, code=code).err.splitlines()
        assert code is None or not out.exists()
        return line

    return call


@pytest.fixture(autouse=True)
def nothing_imported(monkeypatch: Patch) -> None:
    """Stand-ins that tests of hosts imported, whose place on the path is gone, are no packages."""
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: Patch) -> None:
    """Packages by the names of the engines."""
    for name in PACKAGES:
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: Patch) -> None:
    """Two cards of 80 GB; the second has a fifth of it free."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\n"
        '[ "$2" = 1 ] || echo GPU-7, 0, 80000, 81559\n'
        '[ "$2" = 0 ] || [ "$2" = GPU-7 ] || echo GPU-8, 1, 16000, 81559\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))


@pytest.mark.parametrize(
    ("backend", "optimizer", "told"),
    [
        ("unsloth", "adamw", 'generation.backend = "unsloth" needs unsloth'),
        ("vllm", "adamw", 'generation.backend = "vllm" needs vllm'),
        ("local", "adamw_8bit", 'learner.optimizer = "adamw_8bit" needs bitsandbytes'),
    ],
)
def test_what_is_not_installed_is_told(
    tmp_path: Path, backend: str, optimizer: str, told: str, refused: Refused
) -> None:
    """The setting, the package and the extra that brings it."""
    line = refused(write_profile(tmp_path, backend, optimizer))
    assert f"{told}, which is not installed: install the extra 'gpu'" in line


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("backend", ["unsloth", "local"])
def test_a_machine_without_a_card_is_told(
    tmp_path: Path, backend: str, monkeypatch: Patch, refused: Refused
) -> None:
    """An engine needs one, and so does the optimizer in 8 bits, whatever samples."""
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refused(write_profile(tmp_path, backend))
    assert "needs an NVIDIA card, and nvidia-smi finds none" in line


@pytest.mark.usefixtures("engines", "cards")
def test_a_card_that_others_use_is_told(tmp_path: Path, monkeypatch: Patch, refused: Refused) -> None:
    """Every visible card has to have the engine's share free; one may be chosen."""
    profile = write_profile(tmp_path)
    assert "card 1 has 16,000 of 81,559 MiB free" in refused(profile)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "KEY_OF_NOBODY is not set" in refused(profile)


@pytest.mark.usefixtures("engines", "cards")
def test_engines_that_would_share_a_card_are_told(tmp_path: Path, refused: Refused) -> None:
    """Two with 0.8 of it each do not fit; the number of cards does."""
    line = refused(write_profile(tmp_path, top="jobs = 3"))
    assert "2 engines on a card" in line
    assert line.endswith("set jobs = 2, one for each card here")


@pytest.mark.usefixtures("engines", "cards")
def test_cards_of_engines_are_numbers(tmp_path: Path, monkeypatch: Patch, refused: Refused) -> None:
    """Every run gets a card of its own, by the number that vLLM reads; a UUID is refused."""
    profile = write_profile(tmp_path)
    assert cards_of(load_profile(profile)) == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7")
    assert ": set it to 0" in refused(profile)


def test_a_key_is_asked_for_before_the_days_that_come_before_it(
    tmp_path: Path, monkeypatch: Patch, refused: Refused
) -> None:
    """Its layer is the last but two; without that layer nobody needs the key."""
    profile = write_profile(tmp_path, "local", "adamw")
    line = refused(profile)
    assert "KEY_OF_NOBODY is not set" in line
    assert "--layer" in line
    monkeypatch.setattr("search_to_signal.layers.reproduction.run_layer", begin)
    assert BEGUN in refused(profile, "--layer", "cohort", code=None)


def test_a_dry_run_looks_and_starts_nothing(
    tmp_path: Path, monkeypatch: Patch, refused: Refused, s2s: Command
) -> None:
    """What a run would be refused for is told in the same line; else which layers can start."""
    profile = write_profile(tmp_path, "local", "adamw")
    monkeypatch.setattr("search_to_signal.layers.reproduction.run_layer", begin)
    assert refused(profile, "--dry-run") == refused(profile)
    said = s2s("run", "--profile", profile, "--out", tmp_path / "out", "--dry-run", "--layer", "cohort")
    assert said.out == f"s2s: cohort can start in {tmp_path / 'out'}\n"
    assert not (tmp_path / "out").exists()


def test_models_of_other_layers_are_not_asked_for(
    tmp_path: Path, monkeypatch: Patch, refused: Refused
) -> None:
    """A cohort runs without the model of a breadth cell, and the cell does not."""
    profile = write_profile(tmp_path, "local", "adamw")
    cell = 'problem = "tsp"\nsplit = "train"\nmodel = "mounts/absent"\nconditions = ["frozen"]\nseeds = [1]\n'
    profile.write_text(f"{profile.read_text()}\n[[breadth]]\n{cell}groups = 20\n")
    monkeypatch.setattr("search_to_signal.layers.reproduction.run_layer", begin)
    assert "mounts/absent" in refused(profile, "--layer", "breadth", code=3)
    assert BEGUN in refused(profile, "--layer", "cohort", code=None)


@pytest.fixture
def two_models(tmp_path: Path, monkeypatch: Patch) -> tuple[Path, Path]:
    """A profile of an engine on one card with a model of its own, and that of a breadth cell beside it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("KEY_OF_NOBODY", "a key")
    second = Path(shutil.copytree(MODELS / "llama-2.1m", tmp_path / "second"))
    profile = write_profile(tmp_path)
    cell = f'problem = "tsp"\nsplit = "train"\nmodel = "{second}"\nconditions = ["frozen"]\nseeds = [1]\n'
    profile.write_text(f"{profile.read_text()}\n[[breadth]]\n{cell}groups = 20\n")
    return profile, second


def damage(model: Path) -> None:
    """Change the last byte of its weights."""
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)


@pytest.mark.usefixtures("engines", "cards")
@pytest.mark.parametrize("which", ["first", "second"])
def test_a_damaged_model_is_told_before_the_first_one_runs(
    two_models: tuple[Path, Path], which: str, tmp_path: Path, refused: Refused
) -> None:
    """The layer of the second comes days later where an engine samples."""
    profile, model = two_models
    if which == "first":
        model = Path(shutil.copytree(MODELS / "qwen2-2.1m", tmp_path / "first"))
        profile.write_text(profile.read_text().replace('"qwen2-2.1m"', f'"{model}"'))
    damage(model)
    assert f"{model / 'model.safetensors'} does not match" in refused(profile, code=3)


@pytest.mark.usefixtures("engines", "cards")
def test_weights_are_read_once_before_the_first_run(
    two_models: tuple[Path, Path], tmp_path: Path, monkeypatch: Patch, refused: Refused
) -> None:
    """An engine's have tens of gigabytes."""
    profile, second = two_models
    read = []

    def remember(path: Path, *more: int) -> str:
        if path.name == "model.safetensors":
            read.append(path.parent)
        return sha256_file(path, *more)

    monkeypatch.setattr("search_to_signal.models.files.sha256_file", remember)
    monkeypatch.setattr("search_to_signal.run.planned_runs.run_missing", begin)
    assert BEGUN in refused(profile, code=None)
    assert sorted(read) == sorted([MODELS / "qwen2-2.1m", second])
