"""From settings to a generator: every backend is known here, and only the one asked for is loaded."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.models.base import Generator, Trainable
from search_to_signal.models.files import (
    chat_template,
    checked_files,
    context_of,
    listed_files,
    model_directory,
    refuse_odd_settings,
)
from search_to_signal.models.settings import BACKENDS, LOOPBACK, GenerationSettings, ModelLoading

ON_PROCESSOR = ModelLoading()

GROUP = "search_to_signal.generators"
OpensGenerator = Callable[[GenerationSettings, Path, Path], Trainable]
"""Somebody else's ``generation.backend``: settings, model directory and scratch directory to a generator."""


def get_backend(name_or_path: str) -> OpensGenerator | None:
    """What opens generators of somebody's own, by entry point of ``GROUP`` or pkg.mod:obj; None for ours.

    Raises ConfigError with the known names, or for an object that cannot be called.
    """
    found = plugins.load(name_or_path, dict.fromkeys(BACKENDS), GROUP)
    if found is not None and not callable(found):
        raise ConfigError(f"the generator {name_or_path!r} cannot be called: see models/opening.py")
    return cast("OpensGenerator | None", found)


def generator_errors(backend: str) -> AbstractContextManager[None]:
    """Context in which somebody else's generator works: its errors become one line (MappingError)."""
    return plugins.third_party_errors(f"generator {backend}", backend in BACKENDS)


def model_files(settings: GenerationSettings, model: str) -> dict[str, str]:
    """The SHA-256 by name of the files here that completions come from; none for an endpoint elsewhere.

    Raises ModelFileError when one is missing or changed.
    """
    return {} if _elsewhere(settings) else checked_files(model_directory(model))


def require_model(settings: GenerationSettings, model: str) -> bool:
    """Return whether a model is here; raises ModelFileError where it should be and is incomplete.

    Its directory, list, a listed file or its chat template may be missing. Raises ConfigError where it cannot
    read what the settings ask for. Hashes and loads nothing.
    """
    if _elsewhere(settings):
        return False
    directory = model_directory(model)
    listed_files(directory)
    refuse_odd_settings(directory)
    template, asked, context = chat_template(directory), _asked(settings), context_of(directory)
    if unread := [name for name in settings.for_template if name not in template]:
        raise ConfigError(
            f"generation.template_kwargs has {unread[0]}, which the chat template in {directory} does not "
            "read: remove it, or correct its name"
        )
    if context is not None and asked > context:
        raise ConfigError(
            f"the model in {directory} reads {context:,} tokens, but prompt and completion may take "
            f"{asked:,}: lower generation.max_prompt_tokens or max_completion_tokens"
        )
    return True


def require_server(settings: GenerationSettings, model: str) -> None:
    """Raise GenerationError unless the server, where one samples, can do so for a run of this model."""
    if settings.backend == "server":
        from search_to_signal.models.server import Server

        Server(settings.served).require(model_directory(model).name, _asked(settings))


def _asked(settings: GenerationSettings) -> int:
    return settings.max_prompt_tokens + settings.max_completion_tokens


def described(settings: GenerationSettings, model: str) -> Iterator[str]:
    """Say what a model here is and how its prompts will look, for people.

    Raises ModelFileError as ``foreign.kind_of`` does, and for a tokenizer that does not work.
    """
    from search_to_signal.models.foreign import kind_of, template_facts  # loads torch

    directory = model_directory(model)
    kind, context = kind_of(directory), context_of(directory)
    read = "" if context is None else f", it reads {context:,}"
    yield f"{model}: {kind}; prompt and completion take up to {_asked(settings):,} tokens{read}"
    yield from (f"{model}: {fact}" for fact in template_facts(directory, settings.for_template))


def _elsewhere(settings: GenerationSettings) -> bool:
    return settings.backend == "api" and settings.api.base_url != LOOPBACK


def open_generator(settings: GenerationSettings, model: str, scratch: Path) -> Generator:
    """The generator of a run. ``scratch`` is a directory of the run's own for what an engine writes.

    Raises ConfigError when the backend is not installed here or lacks its key, ModelFileError when the model
    cannot be loaded.
    """
    if settings.backend == "api":
        from search_to_signal.models.api import open_api

        return open_api(settings, model)
    return open_trainable(settings, model, scratch)


def open_trainable(
    settings: GenerationSettings, model: str, scratch: Path, loading: ModelLoading = ON_PROCESSOR
) -> Trainable:
    """The generator of a run that learns; raises ConfigError for an endpoint, which cannot."""
    path = model_directory(model)
    if settings.backend == "local":
        from search_to_signal.models.local import open_local

        return open_local(path, loading, settings)
    if settings.backend == "vllm":
        from search_to_signal.models.vllm import open_vllm

        return open_vllm(settings, path, scratch)
    if settings.backend == "unsloth":
        from search_to_signal.models.vllm import open_unsloth

        return open_unsloth(settings, path, scratch)
    if settings.backend == "server":
        from search_to_signal.models.server import open_server

        return open_server(settings, path, scratch)
    opens = get_backend(settings.backend)
    if opens is None:
        raise ConfigError(
            "an endpoint's weights cannot be trained: use condition frozen with generation.backend api"
        )
    with generator_errors(settings.backend):
        return opens(settings, path, scratch)
