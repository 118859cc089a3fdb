"""A generator: the model of the run, which samples colder in every group than the settings say."""

from pathlib import Path

import msgspec

from search_to_signal.models.base import Trainable
from search_to_signal.models.local import open_local
from search_to_signal.models.settings import GenerationSettings, ModelLoading


def colder(settings: GenerationSettings, model: Path, scratch: Path) -> Trainable:
    """Open the generator of a run over the model in a directory; ``scratch`` is there for files."""
    return open_local(model, ModelLoading(), msgspec.structs.replace(settings, temperature=0.5))
