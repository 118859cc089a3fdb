"""Changes of what the stand-in is set to: the family and the finding that must name each.

A change is (family, beginning of the finding's subject, file, text, text in its place).
"""

Mutant = tuple[str, str, str, str, str]

_CONFIG = "configs/obp/local.yaml"
_TRAINER = "calm_trainer.py"
_LOG = '        with open(self.log_dir, "a") as file:'
_IN_DIRECTORY = """        os.makedirs(self.log_dir, exist_ok=True)
        with open(os.path.join(self.log_dir, "rounds.jsonl"), "a") as file:"""


def _option(subject: str, old: str, new: str) -> Mutant:
    return "options", subject, "args.py", old, new


_NUMBERS = {
    "a larger population": _option(
        "population size", "population_size: int = 10", "population_size: int = 12"
    ),
    "a weight of simplification": _option(
        "operator weight of simplification", "fication: float = 1.0", "fication: float = 2.0"
    ),
    "a weight of injection": _option(
        "operator weight of injection", "injection: float = 1.0", "injection: float = 1.5"
    ),
    "a weight of replacement": _option(
        "operator weight of replacement", "replacement: float = 2.0", "replacement: float = 1.0"
    ),
    "a weight of crossover": _option(
        "operator weight of crossover", "crossover: float = 4.0", "crossover: float = 3.0"
    ),
    "a faster collapse": _option("collapse speed", "0.0005", "0.005"),
    "fewer steps": _option("steps", "max_steps: int = 500", "max_steps: int = 400"),
    "more generations": _option("generations", "n_generations: int = 4", "n_generations: int = 8"),
    "more prompts": _option("prompts per step", "n_prompts: int = 1", "n_prompts: int = 2"),
    "another learning rate": _option("learning rate", "5e-5", "5e-6"),
    "another threshold": _option(
        "collapse threshold", "max_stuck_threshold: int = -1", "max_stuck_threshold: int = 50"
    ),
    "a population in the configuration": (
        "options",
        "population size",
        _CONFIG,
        "log_name: local",
        "population_size: 20",
    ),
    "reward of no idea": _option(
        "severity of missing_rationale", "reward_idea: float = -1.0", "reward_idea: float = -2.0"
    ),
    "reward of no code": _option("severity of missing_code", "-0.95", "-0.94"),
    "reward of no function": _option("severity of missing_function", "-0.90", "-0.95"),
    "reward of a failure": _option("severity of runtime_failure", "-0.85", "-0.8"),
    "reward of randomness": _option("severity of randomness", "-0.75", "-0.7"),
}

_OTHERS = {
    "a longer time limit": (
        "options",
        "time limit",
        "heuristic.py",
        "TIME_LIMIT_S = 60",
        "TIME_LIMIT_S = 90",
    ),
    "a time limit of rounds": (
        "options",
        "time limit",
        "heuristic.py",
        "run_one_episode_sync, instances)",
        "run_one_episode_sync, instances, 61)",
    ),
    "another template": (
        "options",
        "template",
        "configs/obp/template.py",
        "remaining_capacity",
        "capacities",
    ),
    "another answer in the template": (
        "options",
        "template",
        "configs/obp/template.py",
        "return priorities",
        "return remaining_capacity",
    ),
    "the template of another problem": (
        "options",
        "template",
        _CONFIG,
        "template_fp: ''",
        "template_fp: configs/tsp/template.py",
    ),
    "a directory as log": ("options", "log_dir", _TRAINER, _LOG, _IN_DIRECTORY),
}

_SYSTEM = {
    "no description": ("system text, description", _TRAINER, "{self.problem.description} ", ""),
    "no name": ("system text, name", _TRAINER, "{self.problem.name}: ", ""),
    "randomness allowed": ("system text, deterministic", _TRAINER, "deterministic, ", ""),
    "examples allowed": ("system text, no usage examples", _TRAINER, "without usage examples and", "without"),
    "single braces": ("system text, opening phrase", _TRAINER, "{{{{{OPENING} ...}}}}", "{{{OPENING} ...}}"),
    "a system text for each operator": (
        "system text, how many",
        _TRAINER,
        'f"{self.problem.name}: ',
        'f"{prompt.kind} {self.problem.name}: ',
    ),
}

_ADMITTED = "abs(algo.perf - policy.perf) < SAME"
_TIES = {
    "wider ties": ("admission, just beyond", _TRAINER, "SAME = 1e-7", "SAME = 1e-6"),
    "narrower ties": ("admission, just within", _TRAINER, "SAME = 1e-7", "SAME = 1e-8"),
    "wider ties of the admitted": (
        "admission, just beyond",
        _TRAINER,
        _ADMITTED,
        _ADMITTED.replace("SAME", "1.02e-7"),
    ),
    "members told apart by code": (
        "admission, a member's code at another score",
        _TRAINER,
        _ADMITTED,
        "algo.code.strip() == policy.code.strip()",
    ),
    "members with other code are others": (
        "admission, a member's score by other code",
        _TRAINER,
        _ADMITTED,
        f"{_ADMITTED} and algo.code.strip() == policy.code.strip()",
    ),
    "wider ties of copies": (
        "reward, just beyond",
        _TRAINER,
        "abs(perf - base) < SAME",
        "abs(perf - base) < 1.02e-7",
    ),
    "narrower ties of copies": (
        "reward, just within",
        _TRAINER,
        "abs(perf - base) < SAME",
        "abs(perf - base) < 0.98e-7",
    ),
    "wider ties of parents": (
        "second parents, just beyond",
        _TRAINER,
        "abs(second.perf - first.perf) >= SAME",
        "abs(second.perf - first.perf) >= 1.02e-7",
    ),
    "an open edge": (
        "collapse, a seed at 1e-7",
        _TRAINER,
        "abs(seed.perf - best.perf) >= SAME",
        "abs(seed.perf - best.perf) > SAME",
    ),
    "narrower ties of seeds": (
        "collapse, a seed just within",
        _TRAINER,
        "abs(seed.perf - best.perf) >= SAME",
        "abs(seed.perf - best.perf) >= 0.98e-7",
    ),
}

SETTINGS: dict[str, Mutant] = {
    **_NUMBERS,
    **_OTHERS,
    **{name: ("prompts", *mutant) for name, mutant in _SYSTEM.items()},
    **{name: ("ties", *mutant) for name, mutant in _TIES.items()},
}
