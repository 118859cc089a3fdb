"""Evidence layer "API system reference": a frozen search through an OpenAI-compatible endpoint.

Paper, supplement "API-Served Frozen-System Reference": one completion per request, so as many groups of one
as the cohort has completions. A system reference and no causal comparison: provider, grouping and model
differ. Without an endpoint the run opens one of its own on this machine, over the profile's model: its
configuration then says ``loopback``, and every completion went over real HTTP.
"""

import msgspec

from search_to_signal.generators.settings import LOOPBACK, ApiSettings
from search_to_signal.profiles.layer_settings import ApiReference
from search_to_signal.profiles.profile import Profile
from search_to_signal.profiles.run_config import FROZEN, RunConfig
from search_to_signal.records.layers import API
from search_to_signal.scheduling.run_slots import Reproduction


def references(profile: Profile, settings: ApiReference) -> list[RunConfig]:
    """One frozen run per seed, in groups of one completion."""
    endpoint = settings.endpoint or ApiSettings(base_url=LOOPBACK, key_variable="")
    generation = msgspec.structs.replace(profile.generation, backend="api", group_size=1, api=endpoint)
    completions = settings.completions or profile.groups * profile.generation.group_size
    return [
        profile.run(
            FROZEN,
            seed,
            layer="api",
            model=settings.model or profile.model_name,
            groups=completions,
            search=profile.search.over(completions),
            generation=generation,
        )
        for seed in settings.seeds or profile.seeds
    ]


def run(asked: Reproduction) -> None:
    """Run the API reference of a profile; a run whose endpoint fails stays incomplete and enters no table."""
    runs = references(asked.profile, asked.profile.api or ApiReference())
    asked.run_all({asked.results / API: runs})
