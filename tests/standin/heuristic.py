"""A heuristic that can be run."""

import time

import numpy as np


class HeuristicPolicy:
    """Code, idea and performance of one heuristic."""

    def __init__(self, code, idea, name=None, birth=0, parent_prompt_type=None):
        self.code = code
        self.idea = idea
        self.name = name
        self.perf = None
        self.perfs = None
        self.birth = birth
        self.parent_prompt_type = parent_prompt_type

    def function(self):
        """The one function that the code defines."""
        space = {}
        exec(self.code, space)
        found = [value for value in space.values() if hasattr(value, "__code__")]
        if len(found) != 1:
            raise LookupError(f"{len(found)} functions")
        return found[0]

    def has_function(self):
        """Whether the code runs and defines one function."""
        try:
            self.function()
        except Exception:  # noqa: BLE001 - a model's code may raise anything
            return False
        return True

    def run_one_episode_sync(self, instances, timeout):
        """Performance on all instances; raises when one fails or time is up."""
        function, began, perfs = self.function(), time.monotonic(), []
        for instance in instances:
            perfs.append(instance.play(function))
            if time.monotonic() - began > timeout:
                raise TimeoutError
        self.perfs = perfs
        self.perf = float(np.mean(perfs))
        return self.perf
