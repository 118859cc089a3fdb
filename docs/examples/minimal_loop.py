"""The paper's loop from top to bottom, on the package's public parts; nothing is written.

    python docs/examples/minimal_loop.py [GROUPS]

A language model writes heuristics for the travelling salesman problem. Each group of completions of one
prompt is evaluated once, and read twice: the search admits what is new and good into its population, and a
reward mapping and a group normalizer turn the same outcomes into advantages, by which the model is updated.
The recorded runs of ``s2s run`` are this loop with checkpoints, records and a manifest around it; with this
seed they sample the same completions and make the same adapter.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.credit import get_mapping
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.credit.normalizers import get_normalizer
from search_to_signal.learner.adapter import TrainedAdapter, adapter_sha256, attach_adapter
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.device import prepare_processor
from search_to_signal.models.opening import open_trainable
from search_to_signal.models.settings import GenerationSettings
from search_to_signal.problems import get_problem
from search_to_signal.records.schema import ANY_FENCE
from search_to_signal.run.group import completion_records, evaluate_group, replay_admitted
from search_to_signal.run.learning import training_group
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.host import begin, exposures_of, update_search
from search_to_signal.search.hosts.calm.host import ReferenceHost
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.member import seed_member

SEED = 42
MODEL, PROBLEM, SPLIT = "qwen2-2.1m", "tsp", "embedded"
MAPPING, NORMALIZER = get_mapping("factorized"), get_normalizer("group")
GENERATION = GenerationSettings(group_size=4, max_prompt_tokens=1024, max_completion_tokens=320)
LEARNER = LearnerSettings(lora_rank=16, lora_alpha=32, learning_rate=2e-4)
EVALUATION = EvaluationSettings(timeout_s=5.0, wall_factor=6.0, memory_mb=256)


def loop(groups: int) -> tuple[Any, str]:
    """Run so many groups; returns the search's last state and the checksum of the adapter."""
    problem = get_problem(PROBLEM)
    host = ReferenceHost(problem, SearchSettings())
    prepare_processor(threads=1)
    with TemporaryDirectory() as scratch, EvaluationPool(problem, SPLIT, EVALUATION) as pool:
        generator = open_trainable(GENERATION, MODEL, Path(scratch))
        model = attach_adapter(generator.base(), LEARNER, derive_seed(SEED, "adapter"))
        learner = GrpoLearner(model, LEARNER, generator.pad_id)

        # The population begins with the problem's own heuristic.
        (evaluation,) = pool.evaluate([problem.seed.code])
        assert evaluation.score is not None
        state = begin(host, seed_member(problem.seed, evaluation.score))

        for step in range(groups):
            # Operator, parents and prompt: every draw comes from a stream of this step alone.
            request = host.propose(state, stream(SEED, "search", step))

            # A group: completions of one prompt, each with a stream of its own.
            generation = generator.generate(request.prompt, derive_seed(SEED, "sample", step))

            # Parse and run each program in isolation: an outcome and perhaps a score, higher is better.
            evaluated = evaluate_group(generation.completions, pool, ANY_FENCE)
            results = [item.evaluated for item in evaluated]

            # The first consumer: the search. Exposure is each completion's chance to be shown again.
            transition = update_search(host, request, results, step)
            exposures = exposures_of(host, request, results)
            evaluated = replay_admitted(evaluated, transition.events, pool)

            # The second: the learner. The mapping gives rewards, the normalizer advantages.
            records = completion_records(
                request, step, PROBLEM, generation, evaluated, transition.events, exposures
            )
            records = assign_credit(records, MAPPING, NORMALIZER)
            ids = [completion.ids for completion in generation.completions]
            cut = [completion.truncated for completion in generation.completions]
            result = learner.step(training_group(generation.prompt_ids, ids, cut, records, credited=None))

            # The next group is sampled with the updated adapter, from the updated population.
            generator.load_adapter(TrainedAdapter(model))
            state = transition.state

            outcomes = " ".join(f"{r.outcome.value}:{r.advantage:+.2f}" for r in records)
            best = max(member.score for member in transition.archive)
            print(f"group {step}: {outcomes} | best {best:.4f}, loss {result.loss}", flush=True)
        return state, adapter_sha256(model)


if __name__ == "__main__":
    _, sha256 = loop(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    print(f"adapter {sha256}")
