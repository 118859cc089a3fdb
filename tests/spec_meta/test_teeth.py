"""Every planted fault is rejected by the requirement named beside it."""

import inspect
from collections.abc import Callable
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from spec import index, profiles
from tests.spec_meta import wrong_mappings, wrong_normalizers

profiles.register()
CONSTRUCTIONS = ("native", "factorized", "tail_weighted", "search_exposure")
BY_ID = {requirement.identifier: requirement for requirement in index.requirements()}


def judge(identifier: str, profile: str) -> Callable[..., None]:
    """The test function of a requirement, in a copy of its module made under a profile of Hypothesis."""
    requirement = BY_ID[identifier]
    return getattr(copy_of(requirement.file, profile), requirement.test)  # type: ignore[no-any-return]


@cache
def copy_of(file: str, profile: str) -> ModuleType:
    """A test module of the specification, executed anew: Hypothesis binds its settings on execution."""
    before = settings.default
    settings.load_profile(profile)
    try:
        found = spec_from_file_location(f"judge_{file.removesuffix('.py')}", index.SPEC / file)
        assert found is not None
        assert found.loader is not None
        module = module_from_spec(found)
        found.loader.exec_module(module)
        return module
    finally:
        settings.register_profile("before", before)
        settings.load_profile("before")


def state(identifier: str, subject: Any, profile: str = "meta") -> None:
    """Run one requirement against one mapping or normalizer, over all its parameters."""
    function = judge(identifier, profile)
    names = inspect.signature(function).parameters
    role = next(name for name in ("mapping", "normalizer", *CONSTRUCTIONS) if name in names)
    for values in parameters(function):
        function(**{role: subject}, **values)


def parameters(function: Callable[..., None]) -> list[dict[str, Any]]:
    """The keyword arguments that pytest would parametrize a test with."""
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        return [{}]
    names = marks[0].args[0]
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    return [dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in marks[0].args[1]]


@pytest.mark.parametrize("name", wrong_mappings.WRONG)
def test_wrong_mapping(name: str) -> None:
    """The named requirement rejects the wrong mapping; one that overwrites its input is stopped by numpy."""
    mapping, identifier = wrong_mappings.WRONG[name]
    stopped = name == "overwrites its input"
    with pytest.raises(ValueError if stopped else AssertionError, match="read-only" if stopped else ""):
        state(identifier, mapping)


@pytest.mark.parametrize("normalizer", wrong_normalizers.WRONG, ids=lambda function: function.__name__)
def test_wrong_normalizer(normalizer: Callable[..., Any]) -> None:
    """The named requirement rejects the wrong normalizer."""
    identifier = wrong_normalizers.WRONG[normalizer]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        state(identifier, normalizer)


@pytest.mark.slow
def test_knobs_at_rest_are_right() -> None:
    """With no knob turned the second implementations are right, so each fault is its knob alone."""
    for mapping in (wrong_mappings.WrongNative(), wrong_mappings.WrongTail(), wrong_mappings.WrongSearch()):
        plain = next(
            i for i, r in BY_ID.items() if r.file == f"test_{mapping.name}.py" and r.test == "test_plain"
        )
        state(plain, mapping, "quick")
    state("R-FAC-13", wrong_mappings.WrongFactorized(), "quick")
