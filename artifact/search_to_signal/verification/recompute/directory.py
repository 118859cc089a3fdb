"""A whole results directory recomputed: every run of every layer, the probe, and the held-out evaluation."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.errors import ConfigError, S2SError, SandboxError
from search_to_signal.progress import Progress
from search_to_signal.provenance.environment import environment
from search_to_signal.provenance.source import source
from search_to_signal.records.files import StorageError, refuse_special_files
from search_to_signal.records.heldout import HELDOUT_MANIFEST
from search_to_signal.records.layers import HELDOUT, PROBE, UPDATES
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.probe import PROBE_MANIFEST
from search_to_signal.verification.findings import Finding
from search_to_signal.verification.recompute.heldout import heldout_findings
from search_to_signal.verification.recompute.probe import probe_findings
from search_to_signal.verification.recompute.programs import Evaluations, ProgramRunner
from search_to_signal.verification.recompute.released import released_findings
from search_to_signal.verification.recompute.runs import run_findings
from search_to_signal.verification.recompute.tokens import Tokenizers
from search_to_signal.verification.recompute.tools import Sample, Tools

# What functions that trust their records raise where an enemy wrote them.
_BROKEN = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, OSError)

# Facts of a machine that may have a say in the last bits of a score.
_BITS = ("python", "packages", "libc", "machine", "cpu_flags_simd", "kernels")

Part = tuple[str, Callable[[Tools], Iterator[Finding]]]


@dataclass(frozen=True)
class Options:
    """How a directory is recomputed; nothing here changes what a text gives.

    ``state`` is a file for going on after an interruption, ``models`` are directories with tokenizers.
    ``slots`` programs run side by side.
    """

    state: Path | None = None
    sample: Sample | None = None
    models: tuple[Path, ...] = ()
    slots: int = 1


@dataclass(frozen=True)
class Recomputed:
    """What came out. ``not_compared`` holds the places by reason; ``counts`` is of what was looked at.

    ``counts`` has parts, groups, completions, groups whose programs were executed, and programs executed now.
    ``elsewhere`` names what of the machine that recorded was otherwise and may have a say in last bits.
    """

    problems: tuple[str, ...]
    not_compared: dict[str, tuple[str, ...]]
    counts: "Counter[str]"
    elsewhere: tuple[str, ...]


def recompute(directory: Path, options: Options, progress: Progress) -> Recomputed:
    """Parse every recorded text and execute every program again; nothing below the directory is written.

    Raises RunDirectoryError for a link or pipe in it and for an unusable state file, ConfigError for a state
    file inside it, SandboxError where programs cannot be isolated here, StorageError where the state finds
    no room.
    """
    refuse_special_files(directory)
    if options.state is not None and options.state.resolve().is_relative_to(directory.resolve()):
        raise ConfigError(f"{options.state} lies in the directory that is checked: keep the state elsewhere")
    problems: list[str] = []
    skipped: dict[str, list[str]] = {}
    with ExitStack() as stack:
        evaluations = stack.enter_context(closing(Evaluations(options.state, source().sha256)))
        runner = stack.enter_context(closing(ProgramRunner(evaluations, options.slots)))
        counts: Counter[str] = Counter()
        tools = Tools(runner, Tokenizers(options.models), options.sample, progress, counts)
        for name, findings in _parts(directory):
            counts["parts"] += 1
            for finding in _guarded(name, findings, tools):
                where = f"{name}: {finding.where}"
                if finding.compared:
                    problems.append(f"{where}: {finding.text}")
                else:
                    skipped.setdefault(finding.text, []).append(where)
        counts["programs"] = evaluations.executed
    not_compared = {text: tuple(places) for text, places in skipped.items()}
    return Recomputed(tuple(problems), not_compared, counts, _elsewhere(directory))


def _elsewhere(directory: Path) -> tuple[str, ...]:
    here, differing = environment(), set()
    for run in runs_below(directory):
        with suppress(S2SError):
            there = read_manifest(run).environment
            differing |= {name for name in _BITS if getattr(here, name) != getattr(there, name)}
    return tuple(sorted(differing))


def _guarded(name: str, findings: Callable[[Tools], Iterator[Finding]], tools: Tools) -> Iterator[Finding]:
    try:
        yield from findings(tools)
    except (SandboxError, StorageError):
        raise
    except S2SError as error:
        yield Finding("not recomputed to its end", str(error))
    except _BROKEN as error:
        yield Finding("not recomputed to its end", f"{type(error).__name__}: {error}")


def _parts(directory: Path) -> Iterator[Part]:
    for run in runs_below(directory):
        yield _run(directory, run)
    if (directory / PROBE / PROBE_MANIFEST).is_file():
        yield PROBE, lambda tools: probe_findings(directory, tools)
    if (directory / HELDOUT / HELDOUT_MANIFEST).is_file():
        yield HELDOUT, lambda tools: heldout_findings(directory, tools)
    if (directory / UPDATES).is_dir():
        yield UPDATES, lambda tools: iter([Finding("all", "matched updates: they take the learner", False)])


def _run(directory: Path, run: Path) -> Part:
    name = run.relative_to(directory).as_posix() if run != directory else run.resolve().name
    return name, lambda tools: _complete(run, name, tools)


def _complete(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    manifest = read_manifest(run)
    if manifest.status != "complete":
        return iter([Finding("all", "the run is not complete")])
    if manifest.of_host.own_loop:
        return released_findings(run, name, tools)
    return run_findings(run, name, tools)
