"""Recomputation of a results directory: every run of every layer, the probe, and the held-out evaluation."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from search_to_signal.base.errors import ConfigError, S2SError, SandboxError
from search_to_signal.base.processes import THREADS
from search_to_signal.base.progress import Progress
from search_to_signal.records.files import StorageError, refuse_special_files
from search_to_signal.records.heldout import HELDOUT_MANIFEST
from search_to_signal.records.layers import HELDOUT, PROBE, UPDATES
from search_to_signal.records.manifest import Environment, read_manifest, runs_below
from search_to_signal.records.probe import PROBE_MANIFEST
from search_to_signal.records.provenance import environment, source
from search_to_signal.verify.findings import Finding, VerificationResult
from search_to_signal.verify.recompute.layers import heldout_findings, probe_findings
from search_to_signal.verify.recompute.programs import Evaluations, ProgramRunner
from search_to_signal.verify.recompute.released import released_findings
from search_to_signal.verify.recompute.runs import run_findings
from search_to_signal.verify.recompute.tokens import Sample, Tokenizers, Tools

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
        raise ConfigError(f"{options.state} lies in the directory that is checked: keep the state elsewhere")
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


def _fact(machine: Environment, name: str) -> object:
    """A fact of a machine; kernels without threads, which a run sets for itself (programs have one)."""
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
        yield _run_part(directory, run)
    if (directory / PROBE / PROBE_MANIFEST).is_file():
        yield PROBE, lambda tools: probe_findings(directory, tools)
    if (directory / HELDOUT / HELDOUT_MANIFEST).is_file():
        yield HELDOUT, lambda tools: heldout_findings(directory, tools)
    if (directory / UPDATES).is_dir():
        yield UPDATES, lambda tools: iter([Finding("all", "matched updates: they take the learner", False)])


def _run_part(directory: Path, run: Path) -> Part:
    name = run.relative_to(directory).as_posix() if run != directory else run.resolve().name
    return name, lambda tools: _findings(run, name, tools)


def _findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    manifest = read_manifest(run)
    if manifest.status != "complete":
        return iter([Finding("all", "the run is not complete")])
    if manifest.of_host.own_loop:
        return released_findings(run, name, tools)
    return run_findings(run, name, tools)
