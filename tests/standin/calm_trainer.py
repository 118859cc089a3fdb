"""Search and rewards: one round is one prompt, its answers, and what becomes of them."""

import importlib
import random
import re

from heuristic import HeuristicPolicy
from utils import codes_in, component_in, idea_in

TASKS = {
    "simplification": "Simplify it.",
    "injection": 'Add a component and say "The new component ... has been introduced."',
    "replacement": "Replace a part of it.",
    "crossover": "Combine both.",
}
SAME = 1e-7


class Trainer:
    """The population, and what the answers to a prompt are worth."""

    def __init__(self, calm_args):
        problem = importlib.import_module(f"problems.{calm_args.problem_name}")
        self.calm_args, self.problem, self.env = calm_args, problem, problem.Environment()
        self.instances = self.env.training_dataset()
        self.population_size = calm_args.population_size
        with open(calm_args.seed_algo_fp) as file:
            code = file.read()
        seed = HeuristicPolicy(code, code.splitlines()[0].lstrip("# "))
        seed.run_one_episode_sync(self.instances, 60)
        self.seed_algos, self.algos = [seed], [seed]
        self.used_prompts, self.injected_components = [], []
        self.age_stuck = self.log_step = self.train_epoch = 0

    def get_algos_and_performance(self):
        """The archive, best first, and the performances."""
        self.algos = sorted(self.algos, key=lambda algo: algo.perf)[::-1]
        return self.algos, [algo.perf for algo in self.algos]

    def prepare_dataset(self):
        """The prompts of a round, as chats."""
        self.used_prompts = []
        return [{"prompt": self.chat()} for _ in range(self.calm_args.n_prompts)]

    def chat(self):
        """One prompt that this round has not used."""
        args = self.calm_args
        if (
            random.random() < args.speed_collapse * self.age_stuck
            or self.age_stuck >= args.max_stuck_threshold
        ):
            self.collapse()
        algos, _ = self.get_algos_and_performance()
        while True:
            kind, parents = self.draw(algos)
            ranked = sorted(parents, key=lambda algo: -algo.perf)
            shown = [f"{{{{{algo.idea}}}}} {abs(algo.perf)}\n```python\n{algo.code}\n```" for algo in ranked]
            text = "\n".join([*shown, TASKS[kind], f"Known: {self.injected_components[-10:]}"])
            if text not in self.used_prompts:
                self.used_prompts.append(text)
                system = {"role": "system", "content": self.problem.description}
                return [system, {"role": "user", "content": text}]

    def draw(self, algos):
        """An operator and its parents."""
        args, size = self.calm_args, len(algos)
        weights = {kind: getattr(args, f"ub_{kind}") for kind in TASKS}
        if size < 2:
            weights["crossover"] = 0
        if size < self.population_size:
            weights["injection"] = max(weights.values())
        head = algos[: self.population_size]
        kind = random.choices(list(weights), list(weights.values()))[0]
        if kind != "crossover":
            return kind, [by_rank(head)]
        while True:
            first = by_rank(head)
            second = unequal(head, first) if random.random() < 0.5 else diverse(algos, first)
            if second is not None:
                return kind, [first, second]

    def collapse(self):
        """Start again from the best and the seeds."""
        best = max(self.algos, key=lambda algo: algo.perf)
        self.algos = [best, *(seed for seed in self.seed_algos if abs(seed.perf - best.perf) >= SAME)]
        self.used_prompts, self.age_stuck = [], 0

    def reward_func(self, prompts, completions, **kwargs):
        """What each answer is worth; moves the population."""
        top = max(algo.perf for algo in self.algos)
        full = len(self.algos) >= self.population_size
        rewards = []
        for prompt, completion in zip(prompts, completions, strict=True):
            rewards.append(self.judge(prompt[-1]["content"], completion[0]["content"]))
        better = max(algo.perf for algo in self.algos) > top
        self.age_stuck = 0 if better else self.age_stuck + full
        self.log_step += 1
        return rewards

    def judge(self, prompt, answer):
        """The worth of one answer."""
        args, idea, codes = self.calm_args, idea_in(answer), codes_in(answer)
        if idea is None:
            return args.reward_idea
        if not codes:
            return args.reward_code
        policy = HeuristicPolicy(codes[0], idea, birth=self.log_step, parent_prompt_type=kind_of(prompt))
        if len(codes) > 1 or not policy.has_function():
            return args.reward_function
        if self.env.run_async(policy, self.instances).exception() is not None or policy.perf != policy.perf:
            return args.reward_runtime
        return args.reward_random if "random" in policy.code else self.admit(policy, prompt)

    def admit(self, policy, prompt):
        """Take a heuristic that ran into the archive, and compare it with what the prompt showed."""
        shown = codes_in(prompt)
        bases = [algo.perf for algo in self.algos if algo.code.strip() in shown]
        if not any(abs(algo.perf - policy.perf) < SAME for algo in self.algos):
            self.algos.append(policy)
        new = component_in(policy.idea) if policy.parent_prompt_type == "injection" else None
        if new and new not in self.injected_components:
            self.injected_components.append(new)
        return worth(policy.perf, bases)


def kind_of(prompt):
    """The operator that wrote a prompt."""
    return next(kind for kind, task in TASKS.items() if task in prompt)


def worth(perf, bases):
    """The piecewise reward of a heuristic that ran."""
    if not bases or perf == max(bases):
        return 0.0
    best, smaller = max(bases), min(abs(perf), abs(max(bases)))
    change = min(max(abs(perf - best) / smaller, 1e-10), 1.0) if smaller else 1.0
    if perf > best:
        return 1.0 + change
    return -0.6 if any(abs(perf - base) < SAME for base in bases) else -3 * change / 8


def by_rank(algos):
    """One of them, the better the likelier."""
    return random.choices(algos, [1 / rank for rank in range(1, len(algos) + 1)])[0]


def distance(algo, other):
    """Share of the words of one idea that another lacks."""
    words, known = (set(re.findall(r"\w+", one.idea.lower())) for one in (algo, other))
    return len(words - known) / len(words) if words else 0.0


def unequal(algos, first):
    """One of them, the better the likelier; None when it does as well as the first."""
    second = by_rank(algos)
    return second if abs(second.perf - first.perf) >= SAME else None


def diverse(algos, first):
    """One of them, the more unlike the first the likelier; None when it is not unlike."""
    second = by_rank(sorted(algos, key=lambda algo: -distance(algo, first)))
    return second if distance(second, first) > 0 else None
