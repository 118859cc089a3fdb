"""What a run and a cohort are made of, composed from the settings of each room."""

from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.config import canonical_sha256, load_toml
from search_to_signal.errors import ConfigError
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.generators.base import GenerationSettings
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.problems import get_problem
from search_to_signal.rewards import get_mapping
from search_to_signal.search.settings import SearchSettings

PROFILES = Path(__file__).resolve().parents[2] / "profiles"
FROZEN = "frozen"
CONFIG = "config.json"

Layer = Literal["cohort", "restart", "breadth", "anchor", "api"]


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that decides a run's records. ``condition`` is frozen or the name of a reward mapping."""

    purpose: Literal["formal", "smoke"]
    layer: Layer = "cohort"
    problem: str
    split: str
    model: str
    condition: str
    seed: int
    groups: int
    threads: int
    search: SearchSettings
    generation: GenerationSettings
    learner: LearnerSettings
    evaluation: EvaluationSettings

    @property
    def name(self) -> str:
        """The run's directory name."""
        return f"{self.condition.replace(':', '.')}-s{self.seed}"

    @property
    def sha256(self) -> str:
        """Hash of the canonical form: equal hashes mean equal records on one machine."""
        return canonical_sha256(self)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cohort: conditions x seeds over one set of run settings. ``jobs`` runs go side by side.

    ``checkpoint_every`` groups a run writes down where it can go on; it changes no record.
    """

    purpose: Literal["formal", "smoke"]
    problem: str
    split: str
    model: str
    conditions: tuple[str, ...]
    seeds: tuple[int, ...]
    groups: int
    threads: int = 1
    jobs: int = 1
    checkpoint_every: int = 10
    search: SearchSettings = SearchSettings()
    generation: GenerationSettings = GenerationSettings()
    learner: LearnerSettings = LearnerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    def __post_init__(self) -> None:
        """Refuse a cohort that cannot run; raises ConfigError before anything starts."""
        for name in ("groups", "threads", "jobs", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: give at least 1")
        for name in ("conditions", "seeds"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise ConfigError(f"{name} are {list(given)}: give at least one, each of them once")
        splits = get_problem(self.problem).splits
        if self.split not in splits:
            raise ConfigError(
                f"{self.problem} has no split {self.split!r}: choose one of {', '.join(splits)}"
            )
        for condition in self.conditions:
            if condition != FROZEN:
                get_mapping(condition)

    def runs(self) -> tuple[RunConfig, ...]:
        """Every run of the cohort, seeds outermost so that matched runs stand together."""
        own = ("layer", "condition", "seed")
        shared = {name: getattr(self, name) for name in RunConfig.__struct_fields__ if name not in own}
        return tuple(
            RunConfig(**shared, condition=condition, seed=seed)
            for seed in self.seeds
            for condition in self.conditions
        )


def load_profile(name_or_path: str) -> Profile:
    """A profile by name or path; raises ConfigError that lists the known names."""
    named = PROFILES / f"{name_or_path}.toml"
    path = named if named.is_file() else Path(name_or_path)
    if not path.is_file():
        known = ", ".join(sorted(profile.stem for profile in PROFILES.glob("*.toml")))
        raise ConfigError(
            f"there is no profile {name_or_path!r}: give one of {known}, or the path of a TOML file"
        )
    return load_toml(path, Profile)
