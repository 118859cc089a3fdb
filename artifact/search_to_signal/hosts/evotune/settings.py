"""The knobs of the program database, by EvoTune's names (CLAIRE-Labo/EvoTune, configs/config.yaml)."""

from typing import Annotated

import msgspec

from search_to_signal.config import Range, check_ranges

Period = Annotated[int, Range(0, 1_000_000_000)]
Share = Annotated[float, Range(0, 1)]


class EvoTuneSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Islands, sampling and upkeep of the database; the defaults are EvoTune's for TSP.

    A prompt shows ``functions_per_prompt`` programs of one of ``num_islands``. Programs of one score, times
    ``score_scale`` and rounded to three decimals, are a cluster; of the best ``initial_percentile`` of the
    clusters, which falls to ``final_percentile`` over ``num_rounds`` groups, those are drawn by a softmax of
    temperature ``temp``, or the best ones without ``temp_sampling_flag``. Programs are registered every
    ``num_cont_rounds`` groups. Every ``migration_period`` groups an island gives its best program to the
    next; every ``reset_period`` the weaker half begins again with a program of the others; 0 is never (D50).
    """

    functions_per_prompt: Annotated[int, Range(1, 2)] = 2
    num_islands: Annotated[int, Range(1, 1000)] = 6
    temp_sampling_flag: bool = True
    temp: Annotated[float, Range(0, 1e9, above=True)] = 10.0
    initial_percentile: Share = 0.3
    final_percentile: Share = 0.2
    num_rounds: Annotated[int, Range(1, 1_000_000_000)] = 2701
    num_cont_rounds: Annotated[int, Range(1, 1_000_000_000)] = 100
    score_scale: Annotated[float, Range(0, 1e9, above=True)] = 100.0
    migration_period: Period = 0
    reset_period: Period = 0

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges; raises ConfigError."""
        check_ranges(self, "host_settings")
