"""Options of a run."""

from dataclasses import dataclass

import yaml


@dataclass
class Args:
    """What a configuration file may say."""

    problem_name: str = "tsp"
    log_name: str = "log"
    max_steps: int = 500
    api_key: str = ""
    base_url: str = ""
    n_prompts: int = 1
    population_size: int = 10
    ub_simplification: float = 1.0
    ub_injection: float = 1.0
    ub_replacement: float = 2.0
    ub_crossover: float = 4.0
    model_name: str = ""
    n_generations: int = 4
    seed_algo_fp: str = ""
    template_fp: str = ""
    speed_collapse: float = 0.0005
    max_stuck_threshold: int = -1
    reward_idea: float = -1.0
    reward_code: float = -0.95
    reward_function: float = -0.90
    reward_runtime: float = -0.85
    reward_random: float = -0.75
    lr: float = 5e-6

    @classmethod
    def from_yaml(cls, path):
        """Read a configuration file."""
        with open(path) as file:
            return cls(**yaml.safe_load(file))
