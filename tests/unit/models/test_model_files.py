"""Model files: found by name, checked before use, and one clear error for each way to be wrong."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from search_to_signal.base.errors import ModelFileError
from search_to_signal.models import files
from search_to_signal.models.files import CHECKSUMS, chat_template, checked_files, model_directory
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.records.files import open_regular

pytestmark = pytest.mark.slow


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with two listed files."""
    lines = []
    for name, text in (("config.json", b"{}"), ("model.safetensors", b"weights")):
        (tmp_path / name).write_bytes(text)
        lines.append(f"{hashlib.sha256(text).hexdigest()}  {name}\n")
    (tmp_path / CHECKSUMS).write_text("".join(lines))
    return tmp_path


def test_good_files_are_named_with_their_sums(model: Path) -> None:
    """The sums come back by name, for the manifest."""
    sums = checked_files(model)
    assert sums["model.safetensors"] == hashlib.sha256(b"weights").hexdigest()
    assert sorted(sums) == ["config.json", "model.safetensors"]


def test_a_directory_without_a_list_is_read_as_it_is(model: Path) -> None:
    """As the hub has it: what is read has sums, code and pickles do not; pickles alone are refused."""
    (model / CHECKSUMS).unlink()
    for name in ("modeling.py", "pytorch_model.bin", "README.md"):
        (model / name).write_bytes(b"other")
    assert sorted(checked_files(model)) == ["config.json", "model.safetensors"]
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match="pickled"):
        checked_files(model)


def test_binary_mode_lists_are_read(model: Path) -> None:
    """A list that sha256sum made in binary mode is the same list."""
    listing = model / CHECKSUMS
    listing.write_text(listing.read_text().replace("  ", " *"))
    assert sorted(checked_files(model)) == ["config.json", "model.safetensors"]


def _append(listing: Path, line: str) -> None:
    listing.write_text(listing.read_text() + line + "\n")


def _link(weights: Path) -> None:
    weights.rename(weights.with_name("real"))
    weights.symlink_to("real")


OTHER = f"{hashlib.sha256(b'other').hexdigest()}  ../elsewhere.safetensors"


@pytest.mark.parametrize(
    ("place", "damage"),
    [
        ("model.safetensors", lambda model: (model / "model.safetensors").unlink()),
        ("model.safetensors", lambda model: (model / "model.safetensors").write_bytes(b"weightz")),
        (f"{CHECKSUMS}:3", lambda model: _append(model / CHECKSUMS, "")),
        (CHECKSUMS, lambda model: (model / CHECKSUMS).write_text("")),
        ("../elsewhere.safetensors", lambda model: _append(model / CHECKSUMS, OTHER)),
        ("model.safetensors", lambda model: _link(model / "model.safetensors")),
        ("model-1.safetensors", lambda model: (model / "model-1.safetensors").write_bytes(b"others")),
    ],
)
def test_damage_is_named(model: Path, place: str, damage: Callable[[Path], None]) -> None:
    """A missing or changed file, and a useless list, are errors of ours that name the place."""
    (model.parent / "elsewhere.safetensors").write_bytes(b"other")
    damage(model)
    with pytest.raises(ModelFileError, match=re.escape(place)):
        checked_files(model)


def test_weights_that_are_not_installed_are_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the wheel without weights is installed, the other wheel is named for a shipped model alone."""
    (model / "model.safetensors").unlink()
    monkeypatch.setattr(files, "INSTALLED", True)
    with pytest.raises(ModelFileError, match="restore it"):
        checked_files(model)
    monkeypatch.setattr(files, "MODELS", model.parent)
    with pytest.raises(ModelFileError, match="install search-to-signal-models"):
        checked_files(model)


def test_unknown_model_lists_the_known_ones(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is found by name or by path; for any other the known names are listed."""
    (tmp_path / "shelf" / "qwen2-tiny").mkdir(parents=True)
    monkeypatch.setattr(files, "MODELS", tmp_path / "shelf")
    assert model_directory("qwen2-tiny") == tmp_path / "shelf" / "qwen2-tiny"
    assert model_directory(str(model)) == model
    with pytest.raises(ModelFileError, match="qwen2-tiny"):
        model_directory("gpt-17")
    monkeypatch.setattr(files, "MODELS", tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match="gpt-17"):
        model_directory("gpt-17")


def test_saved_models_load_as_they_were(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """A saved model and tokenizer come back with the same weights, template and tokens."""
    model = new_model(2)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, words = load_model(tmp_path), load_tokenizer(tmp_path)
    assert not again.training
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    text = "    score += home * 0.25 # é\n\n"
    assert words.encode(text) == tokenizer.encode(text)
    assert words.decode(words.encode(text)) == text
    assert words.chat_template == tokenizer.chat_template


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors"])
def test_unreadable_models_are_errors_of_ours(
    new_model: Callable[..., Any], tmp_path: Path, broken: str
) -> None:
    """A directory without a model, or with a broken file, says so by its path."""
    with pytest.raises(ModelFileError, match=str(tmp_path)):
        load_model(tmp_path)
    with pytest.raises(ModelFileError, match=str(tmp_path)):
        load_tokenizer(tmp_path)
    new_model().save_pretrained(tmp_path)
    (tmp_path / broken).write_bytes(b"{")
    with pytest.raises(ModelFileError, match=str(tmp_path)):
        load_model(tmp_path)


def test_a_rotary_base_that_would_not_be_read_is_refused(model: Path) -> None:
    """Newer releases write it elsewhere, and the pinned one would compute with another, without a word."""
    config = b'{"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}'
    (model / "config.json").write_bytes(config)
    listing = model / CHECKSUMS
    lines = [line for line in listing.read_text().splitlines() if "config" not in line]
    listing.write_text("\n".join([*lines, f"{hashlib.sha256(config).hexdigest()}  config.json\n"]))
    with pytest.raises(ModelFileError, match="write their rope_theta next to model_type"):
        checked_files(model)


def test_a_directory_without_a_tokenizer_says_so(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """In a few words: transformers lists every converter that it knows."""
    new_model().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json: add the tokenizer's files"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_a_chat_template_says_so(tokenizer: Any, tmp_path: Path) -> None:
    """As that of a base model; a template in a file of its own is one, and a damaged file is named."""
    tokenizer.save_pretrained(tmp_path)
    assert chat_template(tmp_path) == tokenizer.chat_template
    settings = tmp_path / "tokenizer_config.json"
    config = json.loads(settings.read_text())
    template = config.pop("chat_template")
    settings.write_text(json.dumps(config))
    with pytest.raises(
        ModelFileError, match=rf"{tmp_path} has no chat template.* add its chat_template\.jinja"
    ):
        chat_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template)
    assert chat_template(tmp_path) == template
    assert load_tokenizer(tmp_path).chat_template == template
    (tmp_path / "chat_template.jinja").unlink()
    settings.write_bytes(b"{")
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json is not JSON"):
        chat_template(tmp_path)


def test_a_directory_without_a_configuration_says_so(new_model: Callable[..., Any], tmp_path: Path) -> None:
    """In a few words: transformers lists every kind of model that it knows."""
    new_model().save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"has no config\.json: add the file"):
        load_model(tmp_path)


def test_a_file_of_weights_may_have_more_than_two_gibibytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many bytes are opened, and not read here: sums are taken block by block."""

    def opened(path: Path, largest: int) -> str:
        open_regular(path, largest).close()
        return "1" * 64

    monkeypatch.setattr(files, "sha256_file", opened)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate((1 << 31) + 1)
    (tmp_path / CHECKSUMS).write_text(f"{'0' * 64}  model.safetensors\n")
    with pytest.raises(ModelFileError, match="does not match"):
        checked_files(tmp_path)
