"""Evidence layer "API system reference": a frozen search through an OpenAI-compatible endpoint.

Paper, supplement "API-Served Frozen-System Reference": one completion per request, and as many groups of one
completion as the cohort has completions. It is a system reference and no causal comparison: provider,
grouping and model differ. Without an endpoint the run serves the profile's model on this machine: its
configuration then contains ``loopback``, and every completion goes over HTTP.
"""

import msgspec

from search_to_signal.base.progress import Task
from search_to_signal.layers.settings import ApiReference
from search_to_signal.models.settings import LOOPBACK, ApiSettings
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.layers import API
from search_to_signal.run.config import RunConfig
from search_to_signal.run.planned_runs import Reproduction, tasks_of
from search_to_signal.run.profile import Profile


def references(profile: Profile, settings: ApiReference) -> list[RunConfig]:
    """Return one frozen run per seed, in groups of one completion."""
    endpoint = settings.endpoint or ApiSettings(base_url=LOOPBACK, key_variable="")
    generation = msgspec.structs.replace(profile.generation, backend="api", group_size=1, api=endpoint)
    completions = settings.completions or profile.completions
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


def tasks(profile: Profile) -> list[Task]:
    """A group of one completion, served, costs less than the cohort's."""
    return tasks_of(references(profile, profile.api or ApiReference()), cost=0.7)


def run(reproduction: Reproduction) -> None:
    """Run the API reference of a profile; a run whose endpoint fails stays incomplete and enters no table."""
    runs = references(reproduction.profile, reproduction.profile.api or ApiReference())
    reproduction.run_all({reproduction.results / API: runs})
