"""An endpoint of a run's own: its model behind real HTTP on this machine, for as long as the run lasts."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from search_to_signal.config import canonical_sha256
from search_to_signal.generators.model_files import model_directory
from search_to_signal.generators.opening import model_files
from search_to_signal.generators.settings import LOOPBACK, GenerationSettings, ModelLoading


@contextmanager
def reachable(
    settings: GenerationSettings, model: str, loading: ModelLoading
) -> Iterator[GenerationSettings]:
    """The settings, while the endpoint that they name can be reached; ``model`` is a name or a path."""
    if settings.backend != "api" or settings.api.base_url != LOOPBACK:
        yield settings
        return
    # Loaded for this alone: a run against a real endpoint needs no model library.
    from search_to_signal.generators.base_model import open_local
    from search_to_signal.generators.serving import serving
    from search_to_signal.learner.device import LESS_MEMORY

    path = model_directory(model)
    fingerprint = f"fp_{canonical_sha256(model_files(settings, model))[:16]}"
    generator = open_local(path, loading, settings)
    with serving(generator, model, fingerprint=fingerprint, less_memory=LESS_MEMORY) as url:
        opened = msgspec.structs.replace(settings.api, base_url=url)
        yield msgspec.structs.replace(settings, api=opened)
