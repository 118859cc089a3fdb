"""From settings to a generator: every backend is known here, and only the one asked for is loaded."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.models.base import Generator, Trainable
from search_to_signal.models.files import (
    checked_files,
    json_settings,
    listed_files,
    model_directory,
    refuse_lacking_template,
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

    Its directory, list, a listed file or its chat template may be missing. Hashes and loads nothing.
    """
    if _elsewhere(settings):
        return False
    directory = model_directory(model)
    listed_files(directory)
    refuse_odd_settings(directory)
    refuse_lacking_template(directory)
    return True


def require_server(settings: GenerationSettings, model: str) -> None:
    """Raise GenerationError unless the server, where one samples, can do so for a run of this model."""
    if settings.backend == "server":
        from search_to_signal.models.server import Server

        tokens = settings.max_prompt_tokens + settings.max_completion_tokens
        Server(settings.served).require(model_directory(model).name, tokens)


def described(settings: GenerationSettings, model: str) -> str:
    """Say what a model here is, for people; raises ModelFileError as ``foreign.kind_of`` does."""
    from search_to_signal.models.foreign import kind_of  # loads torch

    directory = model_directory(model)
    kind = kind_of(directory)
    asked = settings.max_prompt_tokens + settings.max_completion_tokens
    context = json_settings(directory / "config.json").get("max_position_embeddings")
    text = f"{model}: {kind}; prompt and completion take up to {asked:,} tokens"
    if not isinstance(context, int) or asked <= context:
        return text
    return (
        f"{text}, it reads {context:,}, and a longer group ends the run: lower "
        "generation.max_prompt_tokens or max_completion_tokens"
    )


def _elsewhere(settings: GenerationSettings) -> bool:
    return settings.backend == "api" and settings.api.base_url != LOOPBACK


def open_generator(
    settings: GenerationSettings, model: str, scratch: Path, loading: ModelLoading = ON_PROCESSOR
) -> Generator:
    """The generator of a run. ``scratch`` is a directory of the run's own for what an engine writes.

    Raises ConfigError when the backend is not installed here or lacks its key, ModelFileError when the model
    cannot be loaded.
    """
    if settings.backend == "api":
        from search_to_signal.models.api import open_api

        return open_api(settings, model)
    return open_trainable(settings, model, scratch, loading)


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
