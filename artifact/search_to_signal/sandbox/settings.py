"""What a run may choose about isolation; every default is the paper's or the safe one."""

from typing import Annotated, Literal

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings

RandomnessRule = Literal["text", "behaviour"]


class EvaluationSettings(Settings, frozen=True, kw_only=True):
    """Limits and policies of an evaluation pool.

    ``timeout_s`` bounds one candidate over all instances together (D33). By ``clock = "processor"`` it is
    processor time, and elapsed time is limited to ``wall_factor`` times that, so that a busy machine does not
    fail honest programs; what elapsed time ended is run once more, since a pause of the machine ends programs
    too. The instances are spread over the slots, whose number has no say in how a candidate ends that
    carries nothing from one to the next. By ``clock = "wall"`` it is elapsed time, one candidate at a time:
    then the machine has a say in outcomes.
    ``memory_mb`` is what a process may allocate beyond the interpreter. As many processes run at once as
    there are ``slots``, and ``slots * memory_mb`` has to fit in memory. ``require_seccomp = false`` is for
    machines that cannot have seccomp: programs then run with rlimits and timers only. ``replay`` repeats
    valid candidates in a differently seeded fork server: ``spot`` on ``spot_instances`` instances, ``full``
    on all. ``mode = "strict"`` adds readable refusals by the static gate; ``paper`` refuses nothing.
    ``randomness`` is the rule of that typed failure (D20): ``text``, the host's, the word in the code, or
    ``behaviour``, other decisions in the replay, which then has to be ``full``; what only the further replay
    before admission finds keeps its outcome under either rule. Raises ConfigError for what cannot work.
    """

    TABLE = "evaluation"
    timeout_s: Annotated[float, Range(0.01, 1e6)] = 60.0
    clock: Literal["processor", "wall"] = "processor"
    wall_factor: Annotated[float, Range(1, 1000)] = 2.0
    memory_mb: Annotated[int, Range(16, 1_000_000)] = 512
    slots: Annotated[int, Range(1, 1024)] = 1
    require_seccomp: bool = True
    replay: Literal["off", "spot", "full"] = "spot"
    spot_instances: Annotated[int, Range(1, 1_000_000)] = 1
    mode: Literal["paper", "strict"] = "paper"
    randomness: RandomnessRule = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.randomness == "behaviour" and self.replay != "full":
            raise ConfigError(
                "evaluation.randomness = behaviour needs evaluation.replay = full, so that every program is "
                f"checked by a replay, and it is {self.replay}: set it to full"
            )

    @property
    def wall_s(self) -> float:
        """Seconds after which a worker is ended, however little processor time it had."""
        return self.timeout_s * (self.wall_factor if self.clock == "processor" else 1.0)

    @property
    def replay_s(self) -> float:
        """Processor seconds that a replay has; 0 by elapsed time.

        A replay asks its instances one after another, which elapsed time does not compare with.
        """
        return self.timeout_s if self.clock == "processor" else 0.0
