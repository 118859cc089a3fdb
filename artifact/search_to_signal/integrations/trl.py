"""A mapping as the reward function of TRL's ``GRPOTrainer``, from 0.15 on; TRL itself is not imported.

reward = reward_function("tsp", "factorized", group_size=4)
rows = Dataset.from_list(reward.prompt_rows(64))
trainer = GRPOTrainer(model, reward, GRPOConfig(num_generations=4, ...), rows)
"""

from collections.abc import Callable, Sequence
from typing import Any

from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.credit import RewardMapping
from search_to_signal.integrations.scoring import Context, GroupScorer
from search_to_signal.problems.base import Heuristic
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.settings import EvaluationSettings


def reward_function(
    problem: str,
    mapping: str | RewardMapping,
    *,
    group_size: int,
    split: str = "train",
    settings: EvaluationSettings | None = None,
) -> "RewardFunction":
    """A mapping on a problem as a reward function of TRL.

    Args:
        problem: Name, entry point or import path of the problem.
        mapping: As a profile names it, or the object; none that reads exposures.
        group_size: ``num_generations`` of the trainer, for evaluation too.
        split: The instances that programs run on.
        settings: Limits of a program; by default the paper's, with the cores of this process as slots.

    Returns:
        What ``GRPOTrainer`` takes as ``reward_funcs``.

    Raises:
        ConfigError: A name is unknown, or the mapping reads what a trainer does not have.
    """
    if group_size < 1:
        raise ConfigError(f"group_size is {group_size}: give the trainer's num_generations")
    return RewardFunction(GroupScorer(problem, mapping, split, settings), group_size)


class RewardFunction:
    """Rewards a flat batch of several prompts, ``group_size`` completions of each one after the other.

    TRL gives every process consecutive rows of one order, in which the copies of a row are together. So where
    a process has a multiple of ``group_size`` rows, its groups are whole and are the blocks of that length,
    whatever the prompts are and however often one comes back. Anything else is refused.
    """

    def __init__(self, scorer: GroupScorer, group_size: int) -> None:
        self._scorer = scorer
        self._size = group_size
        # Under this name the trainer logs the reward.
        self.__name__ = scorer.mapping.name

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Reward completions, texts or conversations that end with one.

        Args:
            prompts: (N x G,) of N prompts.
            completions: (N x G,) in the order of the prompts.
            log_extra: Takes a column of the table of completions; TRL of today passes it.
            log_metric: Takes a number to log; TRL of today passes it.
            columns: The columns of the data set, ``bases``, ``programs`` and ``archive`` among them.

        Returns:
            (N x G,) rewards, higher is better.

        Raises:
            IllFormedGroupError: A group is not whole in this process, or mixes prompts.
            ConfigError: The data set lacks a column.
        """
        texts = [one if isinstance(one, str) else str(one[-1]["content"] or "") for one in completions]
        groups = [
            (Context.of_columns(row), texts[start:end]) for start, end, row in self._blocks(prompts, columns)
        ]
        scored = [one for group in self._scorer(groups) for one in group]
        if log_extra is not None:
            log_extra("outcome", [one.outcome.value for one in scored])
            log_extra("score", [one.score for one in scored])
        if log_metric is not None:
            log_metric("valid", sum(one.outcome is Outcome.VALID for one in scored) / len(scored))
            for name in scored[0].components:
                log_metric(f"component/{name}", sum(one.components[name] for one in scored) / len(scored))
        return [one.reward for one in scored]

    def prompt_rows(
        self, count: int, parents: Sequence[Heuristic] = (), host: str = "reference", seed: int = 0
    ) -> list[dict[str, Any]]:
        """Rows for ``Dataset.from_list``, as ``GroupScorer.prompt_rows`` draws them."""
        return self._scorer.prompt_rows(count, parents, host, seed)

    def close(self) -> None:
        """End the programs of this process; without it they end with the process."""
        self._scorer.close()

    def _blocks(
        self, prompts: Sequence[Any], columns: dict[str, Any]
    ) -> list[tuple[int, int, dict[str, Any]]]:
        size, total = self._size, len(prompts)
        if total % size:
            raise IllFormedGroupError(
                f"this process was given {total} completions, no whole groups of {size}: make group_size "
                "equal to num_generations, and per_device_train_batch_size times steps_per_generation "
                "(evaluation: per_device_eval_batch_size) a multiple of it"
            )
        rows = {
            name: values
            for name, values in columns.items()
            if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == total
        }
        blocks: list[tuple[int, int, dict[str, Any]]] = []
        for start in range(0, total, size):
            same = {"prompt": prompts, **rows}
            for name in ("prompt", "row", "bases", "programs", "archive"):
                values = same.get(name, ())
                if any(value != values[start] for value in values[start : start + size]):
                    raise IllFormedGroupError(
                        f"completions {start} to {start + size - 1} are of several prompts (another {name}): "
                        f"group_size is {size}, make it num_generations"
                    )
            row = {name: values[start] for name, values in rows.items()}
            if blocks and "row" in row and row["row"] == blocks[-1][2]["row"]:
                raise IllFormedGroupError(
                    f"row {row['row']} has more than {size} completions: group_size is {size}, make it "
                    "num_generations"
                )
            blocks.append((start, start + size, row))
        return blocks
