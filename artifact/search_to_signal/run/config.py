"""Everything that decides the records of one run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, canonical_sha256, check_ranges
from search_to_signal.credit.normalizers import DEFAULT
from search_to_signal.learner import GRPO
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.settings import ENGINES, NF4, GenerationSettings, ModelLoading, ModelSettings
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records.conditions import FROZEN, Condition, file_name, run_name
from search_to_signal.records.layers import COHORT, FINAL_ARCHIVE, INITIAL_ARCHIVE, get_layer
from search_to_signal.records.schema import BARE_FENCE, IdeaEnd
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.host import HostSetup
from search_to_signal.search.hosts import REFERENCE
from search_to_signal.search.hosts.calm.settings import SearchSettings

Seeds = Annotated[tuple[int, ...], Range(0, 2**63 - 1)]
Groups = Annotated[int, Range(1, 1_000_000)]
Count = Annotated[int, Range(1, 1024)]


CONFIG = "config.json"
ADAPTER = "adapter"


class ParentRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The cohort run that a restart begins with a part of; ``run`` is its path from the restart's.

    ``adapter_sha256`` is that of its final adapter, None for a restart of the initial model.
    ``archive_sha256`` is that of its last archive (``records/schema.py``), absent for a restart with a
    fresh population (D45).
    """

    run: str
    adapter_sha256: str | None
    completions_sha256: str
    archive_sha256: str | msgspec.UnsetType = msgspec.UNSET


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that decides a run's records.

    ``condition`` is frozen, a reward mapping, or ``mapping+normalizer``; a restart has its parent's,
    unapplied. ``normalizer`` is the one that it names, else the profile's. ``host_settings`` and
    ``rule_settings`` are read by host and learning rule alone. ``loading`` is absent where the model is
    computed on the processor in float32, ``idea_end`` where it is ``bare_fence``, as in every run recorded
    before there was another (D37).
    """

    purpose: Literal["formal", "smoke"]
    layer: str = COHORT
    problem: str
    split: str
    model: str
    condition: str
    seed: Annotated[int, Range(0, 2**63 - 1)]
    groups: Groups
    threads: Count
    search: SearchSettings
    generation: GenerationSettings
    learner: LearnerSettings
    evaluation: EvaluationSettings
    normalizer: str = DEFAULT
    learning_rule: str = GRPO
    rule_settings: dict[str, Any] = {}
    host: str = REFERENCE
    host_settings: dict[str, Any] = {}
    parent: ParentRun | None = None
    loading: ModelLoading | msgspec.UnsetType = msgspec.UNSET
    idea_end: IdeaEnd | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges, and a condition of another normalizer; raises ConfigError."""
        check_ranges(self)
        _check_loading(self.loading, self.generation.backend)
        get_layer(self.layer)
        if self.normalizer != Condition.parse(self.condition).normalizer_or(self.normalizer):
            raise ConfigError(
                f"condition {self.condition!r} names its own normalizer, but normalizer is "
                f"{self.normalizer!r}: give one of the two"
            )

    @property
    def base(self) -> ModelSettings:
        """The model, and how it is loaded; ``learner.load_in_4bit`` says so too, for a local one."""
        loading = ModelLoading() if self.loading is msgspec.UNSET else self.loading
        if self.learner.load_in_4bit and self.generation.backend == "local":
            loading = NF4
        return ModelSettings(name=self.model, **msgspec.structs.asdict(loading))

    @property
    def on_card(self) -> bool:
        """Whether the run's model is computed on an accelerator of this machine."""
        return self.generation.backend in ENGINES or self.base.device == "cuda"

    @property
    def reading(self) -> IdeaEnd:
        """What ends an idea without braces in its completions (D37)."""
        return BARE_FENCE if self.idea_end is msgspec.UNSET else self.idea_end

    @property
    def mapping(self) -> str:
        """The reward mapping of the condition, ``frozen`` where there is none."""
        return Condition.parse(self.condition).mapping

    @property
    def host_setup(self) -> HostSetup:
        """What the run's host is made of; looks the problem up as ``get_problem`` does."""
        return host_setup(get_problem(self.problem), self.search, self.host_settings)

    @property
    def name(self) -> str:
        """The run's directory name."""
        return run_name(self.condition, self.seed)

    @property
    def cell(self) -> str:
        """Task x model, the directory name of a cell of breadth or audit."""
        return f"{file_name(self.problem)}-{Path(self.model).name}"

    @property
    def label(self) -> str:
        """What progress calls the run: its place below the results directory."""
        parts = [self.layer, *([self.cell] if get_layer(self.layer).cells else []), *self._start, self.name]
        return "/".join(parts)

    @property
    def _start(self) -> tuple[str, ...]:
        if self.parent is None or self.parent.archive_sha256 is msgspec.UNSET:
            return ()
        return (INITIAL_ARCHIVE if self.parent.adapter_sha256 is None else FINAL_ARCHIVE,)

    @property
    def trained(self) -> bool:
        """Whether a learner takes part."""
        return self.condition != FROZEN and self.parent is None

    @property
    def sha256(self) -> str:
        """Hash of the canonical form: equal hashes mean equal records on one machine."""
        return canonical_sha256(self)


def host_setup(problem: Problem, search: SearchSettings, settings: Mapping[str, Any]) -> HostSetup:
    """What a profile's tables ``[search]`` and ``[host_settings]`` say to a host."""
    return HostSetup(problem, settings, search.prompts, msgspec.to_builtins(search))


def _check_loading(loading: ModelLoading | msgspec.UnsetType, backend: str) -> None:
    """Refuse ``loading`` for engines, which have their own settings; with vLLM it is the learner's base."""
    if backend not in ENGINES or loading is msgspec.UNSET or loading == ModelLoading():
        return
    if backend == "vllm" and loading.device == "cuda":
        return
    also = ', or device = "cuda" for the learner\'s base' if backend == "vllm" else ""
    raise ConfigError(
        f"generation.backend {backend!r} loads the model by its own settings: give only name in [model]{also}"
    )
