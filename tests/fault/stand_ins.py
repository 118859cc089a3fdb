"""A run without a model: everything depends on everything before it, and nothing takes time."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from search_to_signal.base.seeding import stream
from search_to_signal.credit import get_mapping
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.learner.base import StepResult
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import ChatPrompt, Completion, Generation, GenerationSettings
from search_to_signal.problems import get_problem
from search_to_signal.records.adapters import digest_of
from search_to_signal.records.files import write_atomically
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import Parts
from search_to_signal.run.profile import Profile
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool, Run
from search_to_signal.sandbox.programs import OPENING
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.hosts import open_host
from search_to_signal.search.hosts.calm.settings import SearchSettings


def configuration(model: Path, condition: str = "native", groups: int = 3) -> RunConfig:
    """A run of a stand-in model, whose directory is made here, with collapses now and then."""
    model.mkdir(exist_ok=True)
    (model / "model.safetensors").write_bytes(b"w")
    (model / "SHA256SUMS").write_text(f"{hashlib.sha256(b'w').hexdigest()}  model.safetensors\n")
    return Profile(
        purpose="smoke",
        problem="tsp",
        split="embedded",
        model=str(model),
        conditions=(condition,),
        seeds=(3,),
        groups=groups,
        search=SearchSettings(population_size=4, collapse_threshold=1, collapse_speed=0.5),
        generation=GenerationSettings(group_size=4),
    ).runs()[0]


class Pool(EvaluationPool):
    """Knows what the real one knows; a program's number is its score, and every fifth is unsteady."""

    def __init__(self) -> None:
        super().__init__(get_problem("tsp"), "embedded", EvaluationSettings())

    def _measure(self, code: str) -> Run:
        number = int(code.rpartition("=")[2]) if "number=" in code else 9
        if number == 7:
            return Run(Isolation.EXCEPTION, "at 0x7f12", (), (), 0.1, 0.1)
        return Run(Isolation.OK, "", (-7.0 + number / 10, -7.0), ("a", "b"), 0.1, 0.1)

    def _confirm(self, code: str) -> Run:
        run = self._measure(code)
        steady = run.isolation is not Isolation.OK or round(10 * run.scores[0]) % 5
        return run if steady else replace(run, isolation=Isolation.NONDETERMINISTIC, detail="other")

    def barriers(self) -> Mapping[str, str | bool]:
        return {"seccomp": True}


class Generator:
    """Answers depend on the seed and on what was learned; few distinct ones, so that they repeat."""

    def __init__(self) -> None:
        self.model = {"weights": ""}

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        rng = stream(seed, prompt.user, self.model["weights"])
        numbers = [int(number) for number in rng.integers(24, size=4)]
        texts = ["no idea" if n > 20 else _text(n) for n in numbers]
        completions = (Completion((n, 2), text, False) for n, text in zip(numbers, texts, strict=True))
        return Generation(prompt.user, (1, 2), tuple(completions))


def _text(number: int) -> str:
    return f"{{{{{OPENING} takes number {number} of all}}}}\n```python\nx = 1\nnumber={number}\n```"


LEARNER = LearnerSettings()


def _tensors(state: str) -> bytes:
    return save({"state": np.frombuffer(hashlib.sha256(state.encode()).digest(), np.float32)})


class Training:
    """Its adapter is a hash over every advantage so far, so one forgotten step shows for ever."""

    initial_sha256 = digest_of(_tensors("start"))

    def __init__(self, condition: str, generator: Generator) -> None:
        self._weights = generator.model
        self.mapping, self.normalizer = get_mapping(condition), group_advantages
        self.learner = self
        self._take("start")

    def update(self, generation: Generation, records: list[CompletionRecord]) -> StepResult:
        seen = json.dumps([self.sha256, *(record.advantage for record in records)])
        self._take(hashlib.sha256(seen.encode()).hexdigest())
        return StepResult(0.0, 0.0, 0.0, 8, self.sha256)

    def dump(self) -> bytes:
        return self._state.encode()

    def restore(self, learner: bytes) -> None:
        self._take(learner.decode())

    def _take(self, state: str) -> None:
        self._state = self._weights["weights"] = state
        self.sha256 = digest_of(_tensors(state))

    def save(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        write_atomically(directory / "adapter_model.safetensors", _tensors(self._state))
        facts = {"r": LEARNER.lora_rank, "lora_alpha": LEARNER.lora_alpha, "base_model_name_or_path": None}
        write_atomically(directory / "adapter_config.json", json.dumps(facts).encode())


@contextmanager
def assembled(config: RunConfig) -> Iterator[Parts]:
    """What ``run`` would load a model for."""
    generator = Generator()
    training = None if config.condition == "frozen" else Training(config.condition, generator)
    host = open_host("reference", config.host_setup)
    yield Parts(get_problem("tsp"), host, generator, Pool(), training)  # type: ignore[arg-type]


def tree(directory: Path, keep: Callable[[str], bool] = lambda name: True) -> dict[str, bytes]:
    """Every file below a directory with its bytes."""
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(files.items()) if keep(name)}


def records_of(directory: Path) -> dict[str, bytes]:
    """What has to be the same however often a run was stopped: all but timings and what names them."""
    return tree(directory, lambda name: name not in ("timings.jsonl", "manifest.json", "SHA256SUMS"))
