"""A profile: the runs of a cohort over one set of settings, and the other evidence layers."""

import math
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import PROFILES
from search_to_signal.base.settings import check_ranges, load_toml
from search_to_signal.credit import get_mapping, reads_exposure
from search_to_signal.credit.normalizers import DEFAULT, get_normalizer
from search_to_signal.layers.settings import (
    AnchorSettings,
    ApiReference,
    AuditCell,
    BreadthCell,
    HeldoutSettings,
    ProbeSettings,
    RestartSettings,
    UpdateSettings,
)
from search_to_signal.learner import GRPO, get_rule, rule_errors
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.opening import get_backend
from search_to_signal.models.settings import GenerationSettings, ModelSettings, model_name
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import heldout_splits
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.records.layers import COHORT, LAYERS
from search_to_signal.records.schema import ANY_FENCE, BARE_FENCE, IdeaEnd
from search_to_signal.run.config import Count, Groups, RunConfig, Seeds, host_setup
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.host import HasExposures
from search_to_signal.search.hosts import REFERENCE, open_host
from search_to_signal.search.hosts.calm.settings import SearchSettings

Settings = TypeVar("Settings", bound=msgspec.Struct)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cohort, conditions x seeds over one set of run settings, and the other evidence layers.

    ``jobs`` runs go side by side. ``checkpoint_every`` groups a run writes down where it can go on; it
    changes no record. ``normalizer`` is that of every condition that names none. A layer whose table is
    absent does not run; ``layers`` has the tables of layers without a field here, ``[layers.KEY]`` in a file.
    ``model`` is a name or the table ``[model]``; the models of breadth and audit are loaded as that one is.
    ``idea_end`` says what ends an idea without braces: any fence that begins a line, as in the host, or only
    one without a tag, as in the recorded evidence (D37).
    """

    purpose: Literal["formal", "smoke"]
    problem: str
    split: str
    model: str | ModelSettings
    conditions: tuple[str, ...]
    seeds: Seeds
    groups: Groups
    threads: Count = 1
    jobs: Count = 1
    checkpoint_every: Groups = 10
    search: SearchSettings = SearchSettings()
    generation: GenerationSettings = GenerationSettings()
    learner: LearnerSettings = LearnerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    normalizer: str = DEFAULT
    learning_rule: str = GRPO
    rule_settings: dict[str, Any] = {}
    host: str = REFERENCE
    host_settings: dict[str, Any] = {}
    idea_end: IdeaEnd = ANY_FENCE
    restart: RestartSettings | None = None
    breadth: tuple[BreadthCell, ...] = ()
    audit: tuple[AuditCell, ...] = ()
    anchor: AnchorSettings | None = None
    probe: ProbeSettings | None = None
    api: ApiReference | None = None
    updates: UpdateSettings | None = None
    heldout: HeldoutSettings | None = None
    layers: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        """Refuse what cannot run; raises ConfigError before anything starts."""
        check_ranges(self)
        if math.isinf(self.learner.max_grad_norm):
            raise ConfigError("learner.max_grad_norm is inf, which records cannot hold: give a large number")
        _check_runs(self, "")
        self._check_parts()
        for layer in ("breadth", "audit"):
            for number, cell in enumerate(getattr(self, layer)):
                check_ranges(cell, f"{layer}[{number}]")
                _check_runs(cell, f"{layer}[{number}].")
        both: list[BreadthCell | AuditCell] = [*self.breadth, *self.audit]
        cells = [(cell.problem, Path(cell.model).name) for cell in both]
        if len(set(cells)) < len(cells):
            raise ConfigError(
                f"breadth and audit have the cells {cells}: give each pair of problem and model once, in "
                "one of the two, since the audit also reads breadth"
            )
        for layer in ("restart", "anchor"):
            settings = getattr(self, layer)
            self._check_parents(layer, (settings and settings.conditions) or ())
        self._check_parents("restart", (self.restart and self.restart.archive_conditions) or ())
        self._check_names()
        self._check_exposures()
        self._check_layers()
        horizon = (self.restart and self.restart.groups) or self.groups
        if self.purpose == "formal" and horizon != self.groups:
            raise ConfigError(
                f"restart.groups is {horizon}, but groups is {self.groups}: a restart has to be as long as "
                "the run that it is compared with; leave restart.groups out (only a smoke profile may set it)"
            )
        if FROZEN not in self.conditions and (self.anchor or self.probe):
            raise ConfigError("anchor and probe need frozen runs in the cohort: add frozen to conditions")
        asked = self.groups * len(self.seeds)
        if self.probe and self.probe.prompts > asked:
            raise ConfigError(
                f"probe.prompts is {self.probe.prompts}, but the frozen runs have {asked} prompts: lower it"
            )

    def _check_parents(self, layer: str, conditions: tuple[str, ...]) -> None:
        trained = [condition for condition in self.conditions if condition != FROZEN]
        for condition in conditions:
            if condition not in trained:
                raise ConfigError(
                    f"{layer}.conditions has {condition!r}, but the cohort trains only {trained}: choose "
                    "from these"
                )

    def _check_parts(self) -> None:
        get_backend(self.generation.backend)
        get_normalizer(self.normalizer)
        with rule_errors(self.learning_rule):
            get_rule(self.learning_rule).check(self.rule_settings)
        cells: list[BreadthCell | AuditCell] = [*self.breadth, *self.audit]
        for problem in dict.fromkeys([self.problem, *(cell.problem for cell in cells)]):
            open_host(self.host, host_setup(get_problem(problem), self.search, self.host_settings))

    def _check_names(self) -> None:
        for mapping in self.updates.mappings if self.updates else ():
            get_mapping(mapping)
        for normalizer in self.updates.normalizers if self.updates else ():
            get_normalizer(normalizer)
        if self.heldout is not None:
            if not heldout_splits(get_problem(self.problem)):
                raise ConfigError(
                    f"[heldout] needs a split of {self.problem} whose name starts with heldout: add one to "
                    "the problem, or remove the table"
                )
            _check_split("heldout.behaviour_split", self.problem, self.heldout.behaviour_split)

    def _check_exposures(self) -> None:
        host = open_host(self.host, host_setup(get_problem(self.problem), self.search, self.host_settings))
        if isinstance(host, HasExposures):
            return
        cells = [condition for cell in self.breadth for condition in cell.conditions]
        trained = [Condition.parse(text) for text in (*self.conditions, *cells) if text != FROZEN]
        parts = {
            "conditions": [condition.mapping for condition in trained],
            "updates.mappings": self.updates.mappings if self.updates else (),
        }
        for key, mappings in parts.items():
            if asked := [name for name in mappings if reads_exposure(get_mapping(name))]:
                raise ConfigError(
                    f"{key} has {asked[0]}, which needs exposures, but host {self.host} gives none: remove "
                    "it, or add a method exposures to the host"
                )

    def _check_layers(self) -> None:
        own_table = (COHORT, *self.__struct_fields__)
        others = [layer.key for layer in LAYERS if layer.key not in own_table]
        for key in self.layers:
            if key not in others:
                known = ", ".join(others) or "none"
                raise ConfigError(f"layers.{key} is not a layer that takes a table here: choose from {known}")

    @property
    def model_name(self) -> str:
        """The cohort's model, without how it is loaded."""
        return model_name(self.model)

    @property
    def completions(self) -> int:
        """Completions of each run of the cohort."""
        return self.groups * self.generation.group_size

    def asks_for(self, layer: str) -> bool:
        """Whether a layer is to run: the cohort, and what has a table here."""
        return layer == COHORT or layer in self.layers or bool(getattr(self, layer, None))

    def settings_of(self, layer: str, kind: type[Settings]) -> Settings:
        """The table ``[layers.KEY]`` of a layer; raises ConfigError that names the key that is wrong."""
        try:
            return msgspec.convert(self.layers.get(layer, {}), kind)
        except msgspec.ValidationError as error:
            raise ConfigError(f"layers.{layer}: {error}") from error

    def run(self, condition: str, seed: int, **changes: Any) -> RunConfig:
        """One run of this profile's settings; ``changes`` are fields that differ from the cohort's.

        A collapse threshold of -1 follows from the groups of the cohort unless ``changes`` say otherwise.
        """
        own = ("layer", "model", "condition", "seed", "parent", "search", "normalizer", "loading", "idea_end")
        shared = {name: getattr(self, name) for name in RunConfig.__struct_fields__ if name not in own}
        shared["model"] = self.model_name
        if isinstance(self.model, ModelSettings):
            shared["loading"] = self.model.loading
        if self.idea_end != BARE_FENCE:
            shared["idea_end"] = self.idea_end
        shared["search"] = self.search.over(self.groups)
        shared["normalizer"] = Condition.parse(condition).normalizer_or(self.normalizer)
        return RunConfig(**{**shared, "condition": condition, "seed": seed, **changes})

    def cell_runs(self, layer: str) -> dict[str, list[RunConfig]]:
        """The runs of every cell of ``breadth`` or ``audit``, by the cell's directory name."""
        runs: dict[str, list[RunConfig]] = {}
        for cell in getattr(self, layer):
            shape = {"problem": cell.problem, "split": cell.split, "model": cell.model, "groups": cell.groups}
            search = self.search.over(cell.groups)
            for seed in cell.seeds:
                for condition in cell.conditions:
                    config = self.run(condition, seed, layer=layer, search=search, **shape)
                    runs.setdefault(config.cell, []).append(config)
        return runs

    def runs(self) -> tuple[RunConfig, ...]:
        """Every run of the cohort, seeds outermost so that matched runs stand together."""
        return tuple(self.run(condition, seed) for seed in self.seeds for condition in self.conditions)


def _check_runs(part: Profile | BreadthCell | AuditCell, where: str) -> None:
    for name in ("conditions", "seeds"):
        given = getattr(part, name)
        if not given or len(set(given)) < len(given):
            raise ConfigError(f"{where}{name} is {list(given)}: give at least one, and each only once")
    _check_split(f"{where}split", part.problem, part.split)
    for condition in map(Condition.parse, part.conditions):
        if condition != Condition(FROZEN):
            get_mapping(condition.mapping)
            get_normalizer(condition.normalizer_or(DEFAULT))


def _check_split(key: str, problem: str, split: str) -> None:
    splits = get_problem(problem).splits
    if split not in splits:
        raise ConfigError(f"{key}: {problem} has no split {split!r}: choose one of {', '.join(splits)}")


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
