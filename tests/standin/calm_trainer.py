"""Search and rewards: one round is one prompt, its answers, and what becomes of them."""

import functools
import importlib
import json
import os
import random
import re
from dataclasses import dataclass

from heuristic import HeuristicPolicy
from utils import AFTER, BEFORE, OPENING, codes_in, component_in, cut, function_in, idea_in

TASKS = {
    "simplification": ["Strip it down to what matters, and make that elegant."],
    "injection": [f'Give it one more meaningful part, and say "{BEFORE} ... {AFTER}."'],
    "replacement": [
        "Let one rigid rule of it look at the instance.",
        "Justify one important constant of it better.",
        "Tell apart what it credits almost equally.",
    ],
    "crossover": ["Take both as motivation, and beat them on any instance."],
}
SAME = 1e-7
ALIKE = 100


@dataclass
class Prompt:
    """What a round asks, and by which operator."""

    text: str
    kind: str


class Trainer:
    """The population, and what the answers to a prompt are worth."""

    def __init__(self, calm_args, model, log_dir, save_dir):
        problem = importlib.import_module(f"problems.{calm_args.problem_name}")
        self.calm_args, self.model, self.problem = calm_args, model, problem
        self.env, self.problem_name = problem.Environment(), calm_args.problem_name
        self.instances = self.env.training_dataset()
        self.used_prompts, self.injected_components = [], []
        self.age_stuck = self.log_step = self.train_epoch = 0
        self.population_size, self.n_prompts = calm_args.population_size, calm_args.n_prompts
        self.save_dir = save_dir
        with open(calm_args.template_fp or f"configs/{self.problem_name}/template.py") as file:
            self.algorithm_template = file.read()
        with open(calm_args.seed_algo_fp or f"configs/{self.problem_name}/seed.py") as file:
            code = file.read()
        seed = self.policy_of(code, code.splitlines()[0].lstrip("# "), None)
        self.rate(seed, self.env.run_async(seed, self.instances))
        self.seed_algos, self.algos = [seed], [seed]
        for directory in (log_dir, save_dir):
            os.makedirs(directory, exist_ok=True)
        self.log_dir = os.path.join(log_dir, "rounds.jsonl")

    def policy_of(self, code, idea, kind):
        """A heuristic of this step that has not run; raises when the code has no single function."""
        policy = HeuristicPolicy(function_in(code), f"step{self.log_step}", self.problem_name)
        policy.code, policy.idea, policy.parent_prompt_type = code, idea, kind
        policy.birth, policy.perf, policy.perfs = self.log_step, None, None
        return policy

    def rate(self, policy, promise):
        """Write down how well a heuristic did; raises when it failed."""
        policy.perf = promise.result()["performance"]
        if policy.perf != policy.perf:
            raise ValueError("not a number")

    def get_algos_and_performance(self):
        """The archive, best first, and the performances."""
        self.algos = sorted(self.algos, key=lambda algo: algo.perf)[::-1]
        return self.algos, [algo.perf for algo in self.algos]

    def train(self):
        """A round of a local model: a group of answers, which a real host would train on."""
        return self.one_round(self.calm_args.n_generations)

    def query_all(self):
        """A round of a model behind an endpoint: one answer to each prompt."""
        return self.one_round(1)

    def one_round(self, answers):
        """Ask, reward, and write down what came of it."""
        (row,) = self.prepare_dataset()
        texts = [self.model(row["prompt"]) for _ in range(answers)]
        completions = [[{"role": "assistant", "content": text}] for text in texts]
        return self.reward_func(prompts=[row["prompt"]] * len(texts), completions=completions)

    def prepare_dataset(self):
        """The prompts of a round, as chats."""
        self.used_prompts = []
        return [{"prompt": self.chat()} for _ in range(self.n_prompts)]

    def chat(self):
        """One prompt that this round has not used."""
        if self.stuck():
            self.collapse()
        algos, _ = self.get_algos_and_performance()
        prompt = self.creation()
        for _ in range(ALIKE):
            drawn = self.prompt_of(*self.draw(algos))
            if drawn is not None and drawn.text not in [used.text for used in self.used_prompts]:
                prompt = drawn
                break
        self.used_prompts.append(prompt)
        system = (
            f"{self.problem.name}: {self.problem.description} You see algorithms and answer with another: "
            f"its original idea, which explains itself, names no earlier algorithm and begins as below, and "
            f"one function with the same input and output, deterministic, without usage examples and tuned "
            f"constants; nothing else.\n"
            f"{{{{{OPENING} ...}}}}\n```python\n...\n```"
        )
        return [{"role": "system", "content": system}, {"role": "user", "content": prompt.text}]

    def creation(self):
        """The prompt where no other can be made."""
        return Prompt(f"Invent one.\n```python\n{self.algorithm_template.strip()}\n```", "creation")

    def prompt_of(self, kind, parents):
        """The prompt of an operator: its task, then its parents, best first; None without parents."""
        if not parents:
            return None
        task = random.choice(TASKS[kind])
        if kind == "injection" and self.injected_components:
            task += f" Known: {', '.join(self.injected_components[-10:])}."
        shown = [
            f"No. {rank} has {cut(algo.perf)} {self.problem.unit} and rank {rank}:\n"
            f"{{{{{algo.idea}}}}}\n```python\n{algo.code.strip()}\n```"
            for rank, algo in enumerate(sorted(parents, key=lambda algo: algo.perf)[::-1], start=1)
        ]
        return Prompt("\n\n".join([task, *shown]), kind)

    def draw(self, algos):
        """An operator and its parents, of which there are none when no pair is found."""
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
        for _ in range(ALIKE):
            first = by_rank(head)
            second = unequal(head, first) if random.random() < 0.5 else diverse(algos, first)
            if second is not None:
                return kind, [first, second]
        return kind, []

    def stuck(self):
        """Whether to start again now."""
        args, limit = self.calm_args, self.calm_args.max_stuck_threshold
        limit = args.max_steps // 20 if limit < 0 else limit
        return random.random() < args.speed_collapse * self.age_stuck or self.age_stuck >= limit

    def collapse(self):
        """Start again from the best and the seeds."""
        best = max(self.algos, key=lambda algo: algo.perf)
        self.algos = [best, *(seed for seed in self.seed_algos if abs(seed.perf - best.perf) >= SAME)]
        self.used_prompts, self.age_stuck = [], 0

    def reward_func(self, prompts, completions, **kwargs):
        """What each answer is worth; moves the population."""
        answers = [completion[0]["content"] for completion in completions]
        asked = [self.asked(prompt[-1]["content"]) for prompt in prompts]
        top = max(algo.perf for algo in self.algos)
        full = len(self.algos) >= self.population_size
        made = [self.started(prompt, answer) for prompt, answer in zip(asked, answers, strict=True)]
        ran, rewards = [], []
        for prompt, answer, (policy, verdict) in zip(asked, answers, made, strict=True):
            if policy is not None and (verdict := self.failure(policy, verdict)) is None:
                ran.append(policy.perf)
                verdict = self.admit(policy, prompt, answer)
            rewards.append(verdict)
        self.age_stuck = 0 if any(perf > top for perf in ran) else self.age_stuck + full
        self.log_step += 1
        self.write(rewards)
        return rewards

    def asked(self, text):
        """The prompt of this round that has a text."""
        return next(prompt for prompt in self.used_prompts if prompt.text == text)

    def started(self, prompt, answer):
        """A heuristic that runs, and the promise of its performance; or none, and a reward."""
        args, idea, codes = self.calm_args, idea_in(answer), codes_in(answer)
        if idea is None:
            return None, args.reward_idea
        if not codes:
            return None, args.reward_code
        if len(codes) > 1:
            return None, args.reward_function
        try:
            policy = self.policy_of(codes[0], idea, prompt.kind)
        except BaseException:  # noqa: BLE001 - a model's code may raise anything
            return None, args.reward_function
        return policy, self.env.run_async(policy, self.instances)

    def failure(self, policy, promise):
        """The reward of a heuristic that failed, or None when it did not."""
        try:
            self.rate(policy, promise)
        except BaseException:  # noqa: BLE001 - a model's code may raise anything
            return self.calm_args.reward_runtime
        return self.calm_args.reward_random if "random" in policy.code else None

    def admit(self, policy, prompt, answer):
        """Take a heuristic that ran into the archive, and compare it with what the prompt showed."""
        shown = codes_in(prompt.text)
        bases = [algo.perf for algo in self.algos if algo.code.strip() in shown]
        if not any(abs(algo.perf - policy.perf) < SAME for algo in self.algos):
            self.algos.append(policy)
        new = component_in(answer) if prompt.kind == "injection" else None
        if new and new not in self.injected_components:
            self.injected_components.append(new)
        return worth(policy.perf, bases) if prompt.kind in TASKS else 0.0

    def write(self, rewards):
        """A line about the round, and the archive as it is now."""
        with open(self.log_dir, "a") as file:
            file.write(json.dumps({"rewards": rewards, "stuck": self.age_stuck}) + "\n")
        with open(os.path.join(self.save_dir, "algorithms.json"), "w") as file:
            json.dump([[algo.code, algo.perf] for algo in self.algos], file)


def worth(perf, bases):
    """The piecewise reward of a heuristic that ran."""
    if not bases or perf == max(bases):
        return 0.0
    best, smaller = max(bases), min(abs(perf), abs(max(bases)))
    change = min(max(abs(perf - best) / smaller, 1e-10), 1.0) if smaller else 1.0
    if perf > best:
        return 1.0 + change
    return -(1 / 5 + 2 / 5) if any(abs(perf - base) < SAME for base in bases) else -3 * change / 8


def by_rank(algos):
    """One of them, the better the likelier."""
    return random.choices(algos, [1 / rank for rank in range(1, len(algos) + 1)])[0]


def distance(algo, other):
    """Share of the words of one idea that another lacks."""
    words, known = words_of(algo.idea), words_of(other.idea)
    return len(words - known) / len(words) if words else 0.0


@functools.cache
def words_of(idea):
    """The words of an idea."""
    return frozenset(re.findall(r"\w+", idea.lower()))


def unequal(algos, first):
    """One of them, the better the likelier; None when it does as well as the first."""
    second = by_rank(algos)
    return second if abs(second.perf - first.perf) >= SAME else None


def diverse(algos, first):
    """One of them, the more unlike the first the likelier; None when it is not unlike."""
    second = by_rank(sorted(algos, key=lambda algo: -distance(algo, first)))
    return second if distance(second, first) > 0 else None
