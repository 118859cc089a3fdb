"""A generator of somebody's own: found by its path, refused before a run, and one line where it fails."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from search_to_signal.base.errors import ConfigError, MappingError
from search_to_signal.models.opening import get_backend, open_trainable
from search_to_signal.models.settings import BACKENDS, GenerationSettings


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of somebody's own."""
    module = ModuleType("their_generator")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def opened(backend: str) -> Any:
    """A generator over the embedded model."""
    return open_trainable(GenerationSettings(backend=backend), "qwen2-2.1m", Path("scratch"))


def test_a_path_opens_a_generator(theirs: ModuleType) -> None:
    """It gets settings, model directory and scratch, and what it makes is the run's generator."""
    vars(theirs)["given"] = lambda *given: given
    settings, model, scratch = opened("their_generator:given")
    assert (settings.backend, model.name, scratch) == ("their_generator:given", "qwen2-2.1m", Path("scratch"))


def test_what_opens_nothing_is_told_by_name(theirs: ModuleType) -> None:
    """An unknown name lists the known ones; ours pass; what cannot be called is no generator."""
    assert {get_backend(name) for name in BACKENDS} == {None}
    with pytest.raises(ConfigError, match="unknown name 'vlm': use one of api, local, server"):
        get_backend("vlm")
    vars(theirs)["number"] = 7
    with pytest.raises(ConfigError, match="'their_generator:number' cannot be called"):
        get_backend("their_generator:number")


def test_a_generator_that_fails_is_one_line(theirs: ModuleType) -> None:
    """Whatever it raises names it."""

    def broken(*_: object) -> None:
        raise RuntimeError("out of words")

    vars(theirs)["broken"] = broken
    with pytest.raises(
        MappingError, match="generator their_generator:broken raised RuntimeError: out of words"
    ):
        opened("their_generator:broken")
