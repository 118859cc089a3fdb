"""A heuristic that can be run."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType, ModuleType

import numpy as np

TIME_LIMIT_S = 60
WORKERS = ThreadPoolExecutor(1)


class HeuristicPolicy:
    """A function under a name, and what its maker later writes down about it."""

    def __init__(self, step_func, name, problem_name):
        self.step_func = step_func
        self.name = name
        self.problem_name = problem_name

    def run_one_episode_sync(self, instances, timeout=TIME_LIMIT_S):
        """Performance over all instances; raises when one fails or time is up. Writes nothing down."""
        began, perfs = time.monotonic(), []
        for instance in instances:
            perfs.append(instance.play(fresh(self.step_func)))
            if time.monotonic() - began > timeout:
                raise TimeoutError(f"more than {timeout} s")
        return {"performance": float(np.mean(perfs))}


def promised(policy, instances):
    """A promise of what a policy does on instances."""
    return WORKERS.submit(policy.run_one_episode_sync, instances)


def fresh(function):
    """A function that shares no state with the given one, as if it had come through a pickle."""
    known, space = {}, {}
    for name, value in function.__globals__.items():
        shared = name == "__builtins__" or isinstance(value, ModuleType) or value is function
        space[name] = value if shared else copy.deepcopy(value, known)
    twin = FunctionType(function.__code__, space, function.__name__, None, function.__closure__)
    twin.__defaults__ = copy.deepcopy(function.__defaults__, known)
    twin.__kwdefaults__ = copy.deepcopy(function.__kwdefaults__, known)
    twin.__dict__.update(copy.deepcopy(function.__dict__, known))
    space.update({name: twin for name, value in space.items() if value is function})
    return twin
