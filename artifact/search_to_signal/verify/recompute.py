"""Recomputation of a results directory: every text parsed and every program executed again."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.errors import ConfigError, RecordError, S2SError, SandboxError
from search_to_signal.base.processes import THREADS
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import derive_seed
from search_to_signal.credit import find_mapping
from search_to_signal.credit.normalizers import find_normalizer
from search_to_signal.models.base import completion_text, request_seeds
from search_to_signal.problems import find_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records.differences import Finding, VerificationResult, same_bits
from search_to_signal.records.files import StorageError, refuse_special_files
from search_to_signal.records.layers import LAYERS, UPDATES, layer_part
from search_to_signal.records.manifest import DATABASE, Environment, read_database, read_manifest, runs_below
from search_to_signal.records.provenance import environment, source, stack, stack_here
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord, IdeaEnd, Outcome, given
from search_to_signal.run.again import (
    RecordedText,
    Sample,
    Tools,
    evaluate_again,
    hash_findings,
    isolation_of,
    text_findings,
)
from search_to_signal.run.config import RunConfig, host_setup
from search_to_signal.run.replayed import (
    DrawnAgain,
    RecordedGroup,
    Replay,
    host_search,
    recorded_groups,
    run_config,
)
from search_to_signal.run.texts import (
    NO_TOKENIZER,
    ModelTokenizer,
    Tokenizers,
    prompt_differs,
    token_findings,
)
from search_to_signal.sandbox.again import Evaluations, ProgramRunner, RunPrograms
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.programs import Failure, parse, part_tokens, sha256_text
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.search.host import HasDatabase, Host, wants_instance_scores
from search_to_signal.search.hosts import find_host
from search_to_signal.search.hosts.released.trainer import asked_text
from search_to_signal.search.member import heuristic_record, seed_member
from search_to_signal.verify.records import Follower

# Functions that trust their records raise these for forged or damaged ones.
_FORGERY_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, OSError)

# Facts of a machine that may change the last bits of a score.
_NUMERICAL_FACTS = ("python", "packages", "libc", "machine", "cpu_flags_simd", "kernels")

Part = tuple[str, Callable[[Tools], Iterator[Finding]]]


@dataclass(frozen=True)
class RecomputeOptions:
    """How a directory is recomputed; no option changes a result.

    ``state`` is a file of results that an interrupted command resumes from. ``sample`` selects the groups
    whose programs are executed, None for all. ``models`` are directories with tokenizers. ``slots`` programs
    run in parallel.
    """

    state: Path | None = None
    sample: Sample | None = None
    models: tuple[Path, ...] = ()
    slots: int = 1


def recompute(directory: Path, options: RecomputeOptions, progress: Progress) -> VerificationResult:
    """Parse every recorded text and execute every program again; nothing below the directory is written.

    The result counts ``parts``, ``groups``, ``completions``, ``executed`` (groups whose programs were
    executed) and ``programs`` (executions of this call). Raises RunDirectoryError for a link or pipe in the
    directory and for an unusable state file, ConfigError for a state file inside the directory, SandboxError
    where programs cannot be isolated on this machine, StorageError where the state file's disk is full.
    """
    refuse_special_files(directory)
    if options.state is not None and options.state.resolve().is_relative_to(directory.resolve()):
        raise ConfigError(
            f"{options.state} is inside the directory that is checked: keep the state elsewhere"
        )
    all_findings: list[Finding] = []
    with ExitStack() as stack:
        evaluations = stack.enter_context(closing(Evaluations(options.state, source().sha256)))
        runner = stack.enter_context(closing(ProgramRunner(evaluations, options.slots)))
        counts: Counter[str] = Counter()
        tools = Tools(runner, Tokenizers(options.models), options.sample, progress, counts)
        for name, findings in _parts(directory):
            counts["parts"] += 1
            all_findings += (finding.within(name) for finding in _with_errors(findings, tools))
        counts["programs"] = evaluations.executed
    return VerificationResult(tuple(all_findings), counts)


def differing_environment(directory: Path) -> tuple[str, ...]:
    """Return the facts of the recording machines that differ here and may change last bits of scores."""
    here, differing = environment(), set()
    for run in runs_below(directory):
        with suppress(S2SError):
            there = read_manifest(run).environment
            differing |= {name for name in _NUMERICAL_FACTS if _fact(here, name) != _fact(there, name)}
    return tuple(sorted(differing))


def other_stacks(directory: Path) -> tuple[str, ...]:
    """Return the libraries that recorded the runs of a directory, as ``stack``, without those of here."""
    stacks = set()
    for run in runs_below(directory):
        with suppress(S2SError):
            stacks.add(stack(read_manifest(run).environment.packages))
    return tuple(sorted(stacks - {stack_here()}))


def _fact(machine: Environment, name: str) -> object:
    value = getattr(machine, name)
    if name != "kernels" or value is msgspec.UNSET:
        return value
    return {variable: setting for variable, setting in value.items() if variable not in THREADS}


def _with_errors(findings: Callable[[Tools], Iterator[Finding]], tools: Tools) -> Iterator[Finding]:
    """The findings of a part; an error of its records ends them and becomes the last one."""
    try:
        yield from findings(tools)
    except (SandboxError, StorageError):
        raise
    except S2SError as error:
        yield Finding("not recomputed to its end", str(error))
    except _FORGERY_ERRORS as error:
        yield Finding("not recomputed to its end", f"{type(error).__name__}: {error}")


def _parts(directory: Path) -> Iterator[Part]:
    for run in runs_below(directory):
        name = run.relative_to(directory).as_posix() if run != directory else run.resolve().name
        yield name, partial(_findings, run, name)
    for layer in LAYERS:
        again = layer_part(layer.key, "again")
        if again is not None and (directory / layer.key / again.MANIFEST).is_file():
            yield layer.key, partial(again.findings, directory)
    if (directory / UPDATES).is_dir():
        yield (UPDATES, lambda tools: iter([Finding("all", "matched updates: they need the learner", False)]))


def _findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    manifest = read_manifest(run)
    if manifest.status != "complete":
        return iter([Finding("all", "the run is not complete")])
    if manifest.of_host.own_loop:
        return released_findings(run, name, tools)
    return run_findings(run, name, tools)


NO_TOKENS = "token ids: an endpoint shows none"


def run_findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a run directory; raises S2SError if it cannot be recomputed."""
    manifest = read_manifest(run)
    config = run_config(manifest)
    problem = find_problem(config.problem)
    host = find_host(config.host, host_setup(problem, config.search, config.host_settings))
    credit = (find_mapping(config.mapping), find_normalizer(config.normalizer)) if config.trained else None
    tokenizer = tools.tokenizers.of(manifest.model_files)
    programs = tools.runner.programs(problem, config.split, config.evaluation)
    heuristics = list(read_records(run / HEURISTICS, HeuristicRecord))
    chosen = tools.chosen(name, config.groups)
    search = host_search(host, config)
    state, findings = _start(search, problem, heuristics, programs)
    yield from findings
    follower = Follower(Replay(search, state, manifest.facts, credit))
    for number, recorded in enumerate(recorded_groups(run)):
        tools.tally.update(groups=1, completions=len(recorded.group), executed=number in chosen)
        yield from text_findings(_texts(recorded), programs, number in chosen, config.reading)
        yield from _sampling_findings(recorded, config, tokenizer)
        asked = partial(
            prompt_differs, recorded.generation.prompt, settings=config.generation, tokenizer=tokenizer
        )
        yield from follower.findings(recorded, asked)
        tools.progress.update(name, number + 1, config.groups)
    yield from database_findings(run, host, follower.state)
    if config.generation.backend == "api":
        yield Finding("all", NO_TOKENS, False)
    elif tokenizer is None:
        yield Finding("all", NO_TOKENIZER, False)


def database_findings(run: Path, host: Host, state: Any) -> Iterator[Finding]:
    """Yield a finding where a host's database is not that of its last state; None is no state."""
    if isinstance(host, HasDatabase) and state is not None and host.database(state) != read_database(run):
        yield Finding(DATABASE, "it is not the state that the search ends with")


def _start(
    search: DrawnAgain, problem: Problem, heuristics: list[HeuristicRecord], programs: RunPrograms
) -> tuple[Any, list[Finding]]:
    """The recorded state before the first group, and the differences of the seed heuristic."""
    (actual,) = programs.evaluate([problem.seed.code])
    if not heuristics or actual.score is None:
        raise RecordError("the seed heuristic is not recorded, or fails here")
    instance_scores = actual.per_instance if wants_instance_scores(search.host) else ()
    seed = seed_member(problem.seed, heuristics[0].score, instance_scores)
    state = search.start((seed,), given(heuristics))
    findings = []
    if not same_bits(heuristics[0].score, actual.score):
        findings.append(Finding("seed heuristic", f"score {heuristics[0].score}, it gives {actual.score}"))
    if heuristics[0] != heuristic_record(seed):
        findings.append(Finding("seed heuristic", "it is not the problem's"))
    if sum(heuristic.operator is None for heuristic in heuristics) != 1:
        findings.append(Finding("seed heuristic", "there is not exactly one"))
    return state, findings


def _texts(recorded: RecordedGroup) -> list[RecordedText]:
    pairs = zip(recorded.group, recorded.completions, strict=True)
    return [RecordedText(f"step {r.step}, completion {r.index}", r, completion) for r, completion in pairs]


def _sampling_findings(
    recorded: RecordedGroup, config: RunConfig, tokenizer: ModelTokenizer | None
) -> Iterator[Finding]:
    where, generation = f"step {recorded.step.step}", recorded.generation
    truncated = [record.truncated for record in recorded.group]
    if config.generation.backend == "api":
        seeds = request_seeds(derive_seed(config.seed, "sample", recorded.step.step), len(recorded.group))
        if tuple(request.seed for request in generation.requests) != seeds:
            yield Finding(where, "its requests were not asked with the seeds of the run")
        if truncated != [request.finish_reason == "length" for request in generation.requests]:
            yield Finding(where, "truncated is not what its requests ended with")
        if generation.prompt_ids or any(generation.completion_ids):
            yield Finding(where, "an endpoint shows no token ids, and some are recorded")
    elif tokenizer is not None:
        cut = recorded.step.prompt_tokens_cut
        yield from token_findings(where, generation, truncated, cut, tokenizer, config.generation)
        if config.trained and config.learner.credit != "both":
            yield from credited_token_findings(where, recorded, tokenizer, config)


def credited_token_findings(
    where: str, recorded: RecordedGroup, tokenizer: ModelTokenizer, config: RunConfig
) -> Iterator[Finding]:
    """Yield a difference where the gradient had another number of tokens than the credited part (D43)."""
    tokens = recorded.step.training_tokens
    if tokens == 0 and recorded.step.loss is None:
        return
    decode, learner = completion_text(tokenizer.tokenizer), config.learner
    expected = sum(
        sum(part_tokens(ids, learner.credit, decode, config.reading))
        for ids, record in zip(recorded.generation.completion_ids, recorded.group, strict=True)
        if not (learner.truncated == "exclude" and record.truncated)
    )
    if tokens != expected:
        text = f"training_tokens is {tokens}, {learner.credit} has {expected} tokens in its texts"
        yield Finding(where, text)


# A run of the released host, recomputed: texts and programs, not its draws and updates.

HOST_INTERNAL = "draws, tokens and updates: the released host makes them by itself"
_ANT_COLONY_PROBLEMS = ("cvrp", "op")
# The problems' ant colonies use the noise of these versions of torch; from 2.7 on torch draws another one.
_NOISE_VERSIONS = ("2.5.", "2.6.")


def released_findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a run of the released host; raises S2SError if it cannot be recomputed."""
    manifest, heuristics = read_manifest(run), list(read_records(run / HEURISTICS, HeuristicRecord))
    problem, split = find_problem(manifest.facts.problem), manifest.facts.split
    programs = tools.runner.programs(problem, split, EvaluationSettings(replay="off"))
    yield Finding("all", HOST_INTERNAL, False)
    torch = manifest.environment.packages.get("torch") or ""
    scored = manifest.facts.problem not in _ANT_COLONY_PROBLEMS or torch.startswith(_NOISE_VERSIONS)
    if not scored:
        yield Finding(
            "all", "scores of ant colonies: its torch draws other random numbers than this one", False
        )
    elif problem_text := _seed_problem(heuristics, programs):
        scored = False
        yield Finding("seed heuristic", problem_text)
    codes: dict[str, list[str]] = {}
    for heuristic in heuristics:
        codes.setdefault(heuristic.id, []).append(heuristic.code.strip())
    chosen = tools.chosen(name, total := manifest.facts.groups)
    for number, recorded in enumerate(recorded_groups(run)):
        tools.tally.update(groups=1, completions=len(recorded.group), executed=number in chosen)
        yield from _shown_findings(recorded, codes)
        texts = _texts(recorded)
        for text in texts:
            yield from _parsed_findings(text, manifest.facts.idea_end)
        if number in chosen:
            yield from _ended_findings(texts, programs, manifest.facts.idea_end, scored)
        tools.progress.update(name, number + 1, total)


def _seed_problem(heuristics: Sequence[HeuristicRecord], programs: RunPrograms) -> str | None:
    """Return a line where the seed heuristic has another score here: then no score can be compared."""
    seed = next((heuristic for heuristic in heuristics if heuristic.operator is None), None)
    if seed is None:
        raise RecordError("the seed heuristic is not recorded")
    (actual,) = programs.evaluate([seed.code])
    if same_bits(actual.score, seed.score):
        return None
    return f"score {seed.score}, it gives {actual.score}: its instances are others, so no score is compared"


def _shown_findings(recorded: RecordedGroup, codes: Mapping[str, list[str]]) -> Iterator[Finding]:
    """What a prompt does not show of its parents; ``codes`` are those of the stored heuristics by id."""
    where, generation = f"step {recorded.step.step}", recorded.generation
    if recorded.step.prompt_sha256 != sha256_text(generation.prompt):
        yield Finding(where, "prompt_sha256 is not that of the prompt")
    shown = asked_text(generation.prompt)
    if any(not any(code in shown for code in codes.get(one, ())) for one in recorded.group[0].parents):
        yield Finding(where, "its prompt does not show its parents")
    for record, request in zip(recorded.group, generation.requests, strict=False):
        if record.truncated != (request.finish_reason == "length"):
            place = f"{where}, completion {record.index}"
            yield Finding(place, "truncated is not what its request ended with")


def _parsed_findings(text: RecordedText, idea_end: IdeaEnd) -> Iterator[Finding]:
    parsing, outcome = parse(text.completion.text, idea_end), text.record.outcome
    yield from hash_findings(text, None if isinstance(parsing, Failure) else parsing.code)
    unparsed = outcome in (Outcome.MISSING_RATIONALE, Outcome.MISSING_CODE)
    if (outcome is not parsing.outcome) if isinstance(parsing, Failure) else unparsed:
        named = parsing.outcome.value if isinstance(parsing, Failure) else "a proposal"
        yield Finding(text.where, f"outcome {outcome.value} is recorded, its text is {named}")


def _ended_findings(
    texts: Sequence[RecordedText], programs: RunPrograms, idea_end: IdeaEnd, scored: bool
) -> Iterator[Finding]:
    """Compare endings, and scores to the bit where ``scored``.

    Failures that the host's time limit may have caused are not compared (D42).
    """
    failed = Outcome.RUNTIME_FAILURE
    evaluated = evaluate_again(texts, programs, idea_end, lambda record: record.outcome is failed)
    for text, actual in zip(texts, evaluated, strict=True):
        where, record = text.where, text.record
        if actual.proposal is None:
            continue
        if record.outcome is failed and actual.outcome is not failed and actual.outcome.evaluated:
            yield Finding(
                where, "recorded as a runtime failure, here it ended in time: the host's clock decides", False
            )
        elif record.outcome is not actual.outcome:
            ended = f"{actual.outcome.value} ({isolation_of(actual)}: {actual.detail})"
            yield Finding(where, f"outcome {record.outcome.value} is recorded, but its text gives {ended}")
        elif scored and not same_bits(record.score, actual.score):
            (again,) = programs.replay([actual.proposal.code])
            chance = again.isolation is Isolation.NONDETERMINISTIC
            scores = f"score {record.score} is recorded, but its program gives {actual.score}"
            yield Finding(where, "its program is not deterministic" if chance else scores, not chance)
