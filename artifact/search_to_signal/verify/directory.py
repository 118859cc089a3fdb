"""Verification of a results directory by its own files: checksums, records, and the layers' lineage.

And its signature: an SSH signature over the checksum list, by OpenSSH.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET, convert

from search_to_signal.base.errors import RunDirectoryError, SignatureError
from search_to_signal.base.package_data import MODELS
from search_to_signal.base.progress import one_line
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.credit import own_name
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import score_unit
from search_to_signal.records.adapters import ADAPTER, adapter_problems, unfit_names, unshipped, why_left_out
from search_to_signal.records.adapters import CONFIG as ADAPTER_CONFIG
from search_to_signal.records.checksums import (
    BLOCKS,
    SIGNATURE,
    SUMS,
    explain_changes,
    is_block_index,
    listed_files,
    nested_problems,
    sum_problems,
)
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.records.differences import Finding, VerificationResult, distinct_lines, findings_of
from search_to_signal.records.files import (
    files_named,
    read_json,
    read_regular,
    refuse_special_files,
    storage_errors,
    write_atomically,
)
from search_to_signal.records.layers import COHORT, LAYERS, layer_part
from search_to_signal.records.manifest import (
    INTERRUPTED,
    ISOLATION_FACTS,
    ROSTER,
    Manifest,
    RunFacts,
    read_manifest,
    read_roster,
    run_directories,
    runs_below,
    sum_timings,
)
from search_to_signal.records.reader import STEPS, TIMINGS, read_records
from search_to_signal.records.schema import StepRecord, StepTiming, ability_problems
from search_to_signal.run.texts import ParsedTexts
from search_to_signal.verify.records import CONFIGURATION, record_problems

CONFIG = "config.json"
_PURPOSES = ("formal", "smoke")
_TOLERANCE = 1e-9


def verify(directory: Path, *, programs: bool = False) -> VerificationResult:
    """Check every checksum, the records of every run, and the layers against each other.

    Files that were left out of a pack, and named so by ``s2s unpack``, are findings that are not compared.
    ``programs`` also hashes every program again, which takes longer than all other checks together. The
    result counts ``files`` and ``runs``. Raises RunDirectoryError where the directory, its list of checksums
    or every run is missing, and for what ``refuse_special_files`` names.
    """
    if not directory.is_dir():
        raise RunDirectoryError(f"there is no directory {directory}: check the path")
    refuse_special_files(directory)
    changed = _checksum_findings(directory)
    findings = list(changed)
    if not any(finding.compared for finding in changed):
        findings += [Finding("", problem) for problem in nested_problems(directory)]
    findings += [Finding("", problem) for problem in unfit_names(directory)]
    runs = runs_below(directory)
    if not runs:
        raise RunDirectoryError(f"{directory} has {SUMS} but no run: check the path")
    parsed = ParsedTexts()
    for run in runs:
        findings += consistency_findings(run, parsed)
    if programs:
        findings += [Finding("", problem) for problem in parsed.program_problems()]
    findings += lineage_findings(directory, parsed)
    counts = {"files": len(listed_files(directory)), "runs": len(runs)}
    return VerificationResult(distinct_lines(findings), counts)


def consistency_findings(run: Path, parsed: ParsedTexts) -> Iterator[Finding]:
    """Yield the contradictions between manifest, records and adapter of one run; checksums are not read.

    ``parsed`` carries parsed texts from one run to the next. Raises nothing for damaged files: an unreadable
    one is a finding.
    """
    try:
        manifest = read_manifest(run)
    except RunDirectoryError as error:
        yield Finding("", str(error))
        return
    if manifest.status != "complete":
        yield Finding(run.name, "the run is not complete")
        return
    for problem in (*record_problems(run, manifest, parsed), *file_problems(run, manifest)):
        yield Finding(run.name, problem)


def _checksum_findings(directory: Path) -> list[Finding]:
    problems, excuses = sum_problems(directory), _excuses(directory)
    changed = [name for name in problems if name not in excuses and (directory / name).is_file()]
    details = {
        name: f": {'; '.join(places)}"
        for name, places in explain_changes(directory, changed).items()
        if places
    }
    return [
        Finding(name, excuses[name], compared=False)
        if name in excuses
        else Finding(name, problem + details.get(name, ""))
        for name, problem in problems.items()
    ]


def _excuses(directory: Path) -> dict[str, str]:
    """Why files may differ from the list, by name: they were not shipped, or index what is here."""
    excuses = {name: why_left_out(name) or "" for name in unshipped(directory)}
    index = directory / BLOCKS
    if excuses and index.is_file() and is_block_index(directory):
        excuses[BLOCKS] = "the index of the files that are here, made when they were unpacked"
    return excuses


def lineage_findings(directory: Path, parsed: ParsedTexts) -> list[Finding]:
    """Return the contradictions between the runs and layers of a results directory.

    An unreadable file is a finding, and ends the checks of its layer.
    """
    checks = {layer.key: layer_part(layer.key, "checks") for layer in LAYERS}
    places = (
        ("", _shared_facts(directory)),
        ("", _rosters(directory)),
        *((key, module.problems(directory, parsed)) for key, module in checks.items() if module),
    )
    return [finding for where, problems in places for finding in findings_of(where, problems, "a manifest")]


def _shared_facts(directory: Path) -> Iterator[str]:
    shared: dict[str, set[str]] = {"purpose": set(), "source": set()}
    models: dict[str, dict[str, str]] = {}
    initial: dict[str, str | None] = {}
    configs: dict[str, bytes] = {}
    for run in runs_below(directory):
        manifest = read_manifest(run)
        facts, parts = manifest.facts, run.relative_to(directory).parts
        learner = manifest.config.get("learner")
        shared["purpose"].add(facts.purpose)
        shared["source"].add(manifest.made_by)
        if parts and (directory / COHORT).is_dir() and facts.layer != parts[0]:
            yield f"{run.name} is of layer {facts.layer} but is in {parts[0]}"
        if manifest.model_files and models.setdefault(facts.model, manifest.model_files) != (
            manifest.model_files
        ):
            yield f"{run.name} has other files of model {facts.model} than another run"
        adapter_config = run / ADAPTER / ADAPTER_CONFIG
        if adapter_config.is_file():
            content = read_regular(adapter_config)
            if configs.setdefault(repr(learner), content) != content:
                yield f"{run.name} has another {ADAPTER_CONFIG} than other adapters of these settings"
        if manifest.final_adapter_sha256 is not None:
            start = repr((facts.model, facts.seed, learner))
            if initial.setdefault(start, manifest.initial_adapter_sha256) != manifest.initial_adapter_sha256:
                yield f"{run.name} began with another adapter than other runs of its seed"
    yield from (f"runs differ in {name}" for name, values in shared.items() if len(values) > 1)


def _rosters(directory: Path) -> Iterator[str]:
    for path in files_named(directory, ROSTER):
        names = [run.name for run in run_directories(path.parent)]
        if INTERRUPTED in path.relative_to(directory).parts:
            continue
        if read_roster(path.parent) != names:
            yield f"{path.relative_to(directory)} names other runs than there are"
        for name in names:
            if name != (expected := read_manifest(path.parent / name).facts.name):
                yield f"{(path.parent / name).relative_to(directory)} has the configuration of {expected}"


def file_problems(directory: Path, manifest: Manifest) -> list[str]:
    """Return the contradictions between a run's manifest, configuration, timings and adapter as lines."""
    problems = _file_problems(directory, manifest)
    return [finding.line for finding in findings_of("", problems, CONFIGURATION)]


def _file_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    if convert(manifest.config, RunFacts).host != manifest.host:
        yield f"host is {manifest.host}, the configuration is not one of its runs"
    rule, settings = manifest.facts.learning_rule, manifest.rule_settings
    yield from ability_problems(manifest.host, manifest.of_host, rule, manifest.of_rule, settings)
    condition, normalizer = manifest.facts.condition, manifest.facts.normalizer
    if Condition.parse(condition).normalizer_or(normalizer) != normalizer:
        yield f"normalizer is {normalizer}, condition {condition} names another one"
    if manifest.of_host.own_loop:
        return
    config, facts = manifest.config, manifest.facts
    if read_json(directory / CONFIG, dict[str, Any], f"{CONFIG} is missing") != config:
        yield f"{CONFIG} is not the configuration of the manifest"
    if canonical_sha256(config) != manifest.config_sha256:
        yield "config_sha256 is not that of the configuration"
    if facts.purpose not in _PURPOSES:
        yield f"purpose is {facts.purpose!r}: there are {' and '.join(_PURPOSES)}"
    yield from _isolation_problems(manifest.isolation, config)
    problem = PROBLEMS.get(facts.problem)
    if problem is not None and manifest.score_unit not in (None, score_unit(problem)):
        yield f"score_unit is {manifest.score_unit!r}, that of {problem.name} is {score_unit(problem)!r}"
    yield from model_problems(facts.model, manifest.model_files)
    yield from _timing_problems(directory, manifest, facts.groups)
    steps = list(read_records(directory / STEPS, StepRecord))
    yield from adapter_problems(directory, manifest, steps, manifest.facts.trained, unshipped(directory))
    recorded_name, mapping = manifest.mapping_name, manifest.facts.mapping
    if recorded_name is not UNSET and recorded_name != (None if mapping == FROZEN else own_name(mapping)):
        yield f"mapping_name is {recorded_name!r}, which {mapping} does not call itself"


def _isolation_problems(isolation: dict[str, str | bool], config: dict[str, Any]) -> Iterator[str]:
    evaluation = config.get("evaluation")
    if evaluation is None:
        return
    if unknown := isolation.keys() - ISOLATION_FACTS:
        yield f"isolation has {', '.join(sorted(unknown))}, which no sandbox reports"
    if isolation.get("mode", evaluation["mode"]) != evaluation["mode"]:
        yield f"isolation ran in mode {isolation.get('mode')}, the configuration says {evaluation['mode']}"
    if evaluation["require_seccomp"] and isolation.get("seccomp") is False:
        yield "isolation ran without seccomp, which the configuration requires"


def model_problems(model: str, files: dict[str, str]) -> Iterator[str]:
    """Yield a line where a shipped model has other files; checksums of other models cannot be checked."""
    listing = MODELS / model / SUMS
    if not re.fullmatch(r"[\w.-]+", model) or not listing.is_file():
        return
    lines = (line.split(None, 1) for line in listing.read_text(encoding="utf-8").splitlines())
    if files and files != {name.lstrip("*"): digest for digest, name in lines}:
        yield f"model_files differ from the shipped {model}"


def _timing_problems(run: Path, manifest: Manifest, groups: int) -> Iterator[str]:
    steps = list(read_records(run / TIMINGS, StepTiming))
    if [step.step for step in steps] != list(range(groups)):
        yield f"{TIMINGS} does not hold the {groups} steps"
        return
    for step in steps:
        parts = dict(step.seconds)
        total = parts.pop("total", 0.0)
        if abs(sum(parts.values()) - total) > _TOLERANCE * max(1.0, total):
            yield f"{TIMINGS}:{step.step + 1}: the parts do not sum to the total"
        if min(step.seconds.values()) < -_TOLERANCE or (step.processor_seconds or 0.0) < 0:
            yield f"{TIMINGS}:{step.step + 1}: a time is negative"
    try:
        total_timing = sum_timings(steps)
    except (TypeError, KeyError, ZeroDivisionError) as error:
        raise RunDirectoryError(f"{TIMINGS} has no usable seconds ({error}); restore it") from error
    if manifest.timing != total_timing:
        yield f"timing is not the sum of {TIMINGS}"


# Signatures of other namespaces are invalid here.
NAMESPACE = "search-to-signal"
_SHOWN_LENGTH = 300
# ssh-keygen takes hours for megabytes; a signature has some hundred bytes, one of RSA some kilobytes.
_LARGEST_SIGNATURE = 1 << 16


def sign(directory: Path, key: Path) -> Path:
    """Sign a directory's SHA256SUMS with a private SSH key, or the public one of a key in an SSH agent.

    Returns the signature's path. Raises SignatureError when a file differs from the list, the key cannot sign
    or ssh-keygen is missing, and RunDirectoryError where there is no list.
    """
    refuse_special_files(directory)
    if problems := sum_problems(directory):
        name, what = next(iter(problems.items()))
        raise SignatureError(f"{directory} is not what its {SUMS} says ({name}: {what}): nothing was signed")
    if not key.is_file():
        raise SignatureError(f"there is no key {key}: make one with ssh-keygen -t ed25519 -f {key}")
    content = read_regular(directory / SUMS)
    signed = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, standard_input=content)
    if signed.returncode != 0:
        raise SignatureError(f"ssh-keygen cannot sign with {key}: {_output(signed)}")
    with storage_errors(directory, "give the command again"):
        write_atomically(directory / SIGNATURE, signed.stdout)
    return directory / SIGNATURE


def signer(directory: Path, signers: Path, identity: str | None = None) -> str:
    """Return the name of the key that signed a directory's SHA256SUMS, by a file of allowed signers.

    With ``identity`` it has to be that name. Raises SignatureError when the signature is missing, belongs to
    another list or comes from a key that the file does not list, and when ssh-keygen is missing.
    """
    signature, listing = directory / SIGNATURE, directory / SUMS
    for path in (listing, signature, signers):
        if not path.is_file() or (path.is_symlink() and path != signers):
            raise SignatureError(f"there is no file {path}: without it no signature can be checked")
    if signature.stat().st_size > _LARGEST_SIGNATURE:
        raise SignatureError(f"{signature} is not a signature: it has more than {_LARGEST_SIGNATURE} bytes")
    if signers.resolve().is_relative_to(directory.resolve()):
        raise SignatureError(f"{signers} is inside the directory that was signed: use a list of your own")
    name = identity or _principal(signature, signers)
    arguments = ("-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", str(signature))
    checked = _ssh_keygen("verify", *arguments, standard_input=read_regular(listing))
    if checked.returncode != 0:
        raise SignatureError(
            f"{signature} is no signature of {name} on this {SUMS} ({_output(checked)}): list, signature or "
            "signer is another one"
        )
    return name


def _principal(signature: Path, signers: Path) -> str:
    listed = _ssh_keygen("find-principals", "-f", str(signers), "-s", str(signature))
    names = listed.stdout.decode(errors="replace").splitlines()
    if listed.returncode != 0 or not names:
        raise SignatureError(f"{signature} is by no key that {signers} lists ({_output(listed)})")
    return names[0]


def _ssh_keygen(
    action: str, *arguments: str, standard_input: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    command = ["ssh-keygen", "-Y", action, *arguments]
    try:
        return subprocess.run(command, input=standard_input, capture_output=True, check=False)
    except OSError as error:
        raise SignatureError(f"ssh-keygen cannot be run ({error}): install OpenSSH 8.2 or newer") from error


def _output(ended: "subprocess.CompletedProcess[bytes]") -> str:
    text = one_line((ended.stderr + ended.stdout).decode(errors="replace"), _SHOWN_LENGTH)
    return text or f"code {ended.returncode}"
