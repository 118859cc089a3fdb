"""Facts of the runs from their manifests: models, machine, software and time; no results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from search_to_signal.errors import ModelFileError
from search_to_signal.package_data import MODELS
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.conditions import Condition
from search_to_signal.records.manifest import Manifest, read_manifest, runs_below
from search_to_signal.rewards import OURS, OURS_NOTE

CARD = "card.json"
_TIMES = (
    "Run",
    "Groups",
    "Seconds",
    "Groups/min",
    "Generation (%)",
    "Evaluation (%)",
    "Update (%)",
    "Else (%)",
)
_PACKAGES = ("torch", "transformers", "trl", "peft", "unsloth", "vllm", "bitsandbytes", "numpy", "numba")


class ProblemOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of outcomes of an embedded model on one problem, as fractions of 1."""

    outcomes: dict[str, float]


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an embedded model's card that the page shows; ``completions`` are per problem."""

    parameters: int
    completions: int
    problems: dict[str, ProblemOutcomes]


@dataclass(frozen=True)
class Facts:
    """The manifests of a results directory by run path, and the cards of the runs' models."""

    runs: Mapping[str, Manifest]
    cards: Mapping[str, ModelCard | None]

    @property
    def embedded(self) -> bool:
        """Whether every model is one of the small ones that this artifact ships."""
        return all(card is not None for card in self.cards.values())


def read_facts(directory: Path) -> Facts:
    """Read the manifests of all layers; raises RunDirectoryError or ModelFileError for an unreadable file."""
    runs = {run.relative_to(directory).as_posix(): read_manifest(run) for run in runs_below(directory)}
    models = {manifest.facts.model: manifest for manifest in runs.values()}
    return Facts(runs, {name: _card(name, manifest) for name, manifest in sorted(models.items())})


def _card(name: str, manifest: Manifest) -> ModelCard | None:
    """Read the card that the run recorded; None where it is absent or differs. Raises ModelFileError."""
    path = MODELS / name / CARD
    recorded = manifest.model_files.get(CARD)
    if recorded is None or not path.is_file() or sha256_file(path) != recorded:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=ModelCard)
    except msgspec.MsgspecError as error:
        raise ModelFileError(f"cannot read {path}: {error}; make it again with s2s card") from error


def describe(facts: Facts) -> list[tuple[str, str]]:
    """Return (heading, text) of the facts of the runs; values that differ are listed."""
    manifests = list(facts.runs.values())
    return [
        ("Runs", f"{len(manifests)}, all of them complete"),
        ("Models", _listed(_model(name, card) for name, card in facts.cards.items())),
        *([("Own mapping", OURS_NOTE)] if any(map(_is_ours, manifests)) else []),
        ("Host", _listed(_host(m) for m in manifests)),
        ("Source", _listed(_source(m) for m in manifests)),
        ("Machine", _listed(_machine(m) for m in manifests)),
        ("Software", _listed(_software(m) for m in manifests)),
        ("Isolation of candidates", _listed(_isolation(m) for m in manifests)),
        ("Time", f"{_loops(manifests)} in the loops of the runs, set-up excluded"),
        ("Interruptions", str(sum(m.interruptions for m in manifests))),
    ]


def _is_ours(manifest: Manifest) -> bool:
    return Condition.parse(str(manifest.config["condition"])).mapping in OURS


def layer_times(manifests: Iterable[Manifest]) -> dict[str, tuple[int, str]]:
    """Return the number of runs and the time of their loops, by layer."""
    by_layer: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_layer.setdefault(manifest.facts.layer, []).append(manifest)
    return {name: (len(same), _loops(same)) for name, same in by_layer.items()}


def time_rows(runs: Mapping[str, Manifest]) -> list[list[str]]:
    """Return run, groups, seconds, groups per minute and shares of phases; the first row is the heading."""
    rows = [list(_TIMES)]
    for path, manifest in runs.items():
        timing = manifest.timing
        if timing is not None and timing.total > 0:
            parts = (timing.generation, timing.evaluation, timing.update, timing.other)
            shares = [f"{100 * part / timing.total:.1f}" for part in parts]
            speed = [f"{timing.total:.1f}", f"{timing.groups_per_minute:.1f}"]
            rows.append([path, str(manifest.facts.groups), *speed, *shares])
    return rows


def format_duration(seconds: float) -> str:
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _loops(manifests: Sequence[Manifest]) -> str:
    """Format the total time of the loops, set-up excluded."""
    known = [manifest.timing.total for manifest in manifests if manifest.timing is not None]
    missing = "" if len(known) == len(manifests) else f" ({len(manifests) - len(known)} without timing)"
    return f"{format_duration(sum(known))}{missing}" if known else "not recorded"


def _model(name: str, card: ModelCard | None) -> str:
    if card is None:
        return f"{name} (no card of these files is here)"
    valid = [f"{100 * c.outcomes.get('valid', 0.0):.1f} % {p}" for p, c in sorted(card.problems.items())]
    return (
        f"{name}, {card.parameters:,} parameters, made for this artifact; before any update, valid of "
        f"{card.completions} held-out completions: {', '.join(valid)}"
    )


def _host(manifest: Manifest) -> str:
    if manifest.checkout is None:
        return manifest.host
    at = manifest.checkout.revision
    return f"{manifest.host} ({f'revision {at[:12]}' if at else 'of unknown revision'})"


def _source(manifest: Manifest) -> str:
    state = {True: "", False: ", changed since", None: ""}[manifest.source.clean]
    commit = f" (commit {manifest.source.commit[:12]}{state})" if manifest.source.commit else ""
    return f"SHA-256 {manifest.source.sha256}{commit}"


def _machine(manifest: Manifest) -> str:
    environment = manifest.environment
    memory = f"{environment.memory_mib / 1024:.0f} GiB"
    system = f"{environment.system} {environment.kernel}, {environment.libc}"
    parts = [environment.cpu, f"{environment.cpu_count} cores", memory, system]
    if (card := environment.accelerator) is not msgspec.UNSET:
        parts.append(f"{card.kind}, {card.memory_mib / 1024:.0f} GiB, driver {card.driver}")
    return ", ".join(parts)


def _software(manifest: Manifest) -> str:
    environment = manifest.environment
    packages = [
        f"{name} {environment.packages[name]}" for name in _PACKAGES if environment.packages.get(name)
    ]
    return ", ".join([f"Python {environment.python}", *packages])


def _isolation(manifest: Manifest) -> str:
    held = [name.replace("_", " ") for name, value in sorted(manifest.isolation.items()) if value is True]
    return ", ".join(held) or "not recorded"


def _listed(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))
