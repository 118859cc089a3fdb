"""The manifest of a run that begins here and now, and of one that goes on."""

from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.generators.opening import model_files
from search_to_signal.hosts import open_host
from search_to_signal.learner import get_rule, rule_errors
from search_to_signal.learner.base import rule_facts
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import score_unit
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.provenance.environment import environment
from search_to_signal.provenance.source import source
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.records.manifest import Manifest, write_manifest
from search_to_signal.rewards import get_mapping, own_name
from search_to_signal.search.host import host_facts


def manifest_now(config: RunConfig) -> Manifest:
    """The manifest of a run that begins here and now."""
    unit = score_unit(get_problem(config.problem))
    files = model_files(config.generation, config.model)
    facts = {"score_unit": unit, **mapping_facts(config.condition), **_parts(config)}
    return first_manifest(config, config.sha256, files, config.on_card, **facts)


def _parts(config: RunConfig) -> dict[str, Any]:
    """The host of a run, and what host and learning rule can."""
    host = open_host(config.host, config.host_setup)
    with rule_errors(config.learning_rule):
        rule = rule_facts(get_rule(config.learning_rule), config.rule_settings)
    return {"host": config.host, "host_facts": host_facts(host), "rule_facts": rule}


def mapping_facts(condition: str) -> dict[str, str]:
    """The manifest's name of a third-party mapping: the one that the mapping gives itself."""
    mapping = Condition.parse(condition).mapping
    if mapping == FROZEN:
        return {}
    get_mapping(mapping)
    name = own_name(mapping)
    return {} if name is None else {"mapping_name": name}


def first_manifest(
    config: msgspec.Struct, sha256: str, files: dict[str, str], card: bool = False, **facts: Any
) -> Manifest:
    """The manifest of a run that begins; ``files`` are the model's, ``facts`` further fields.

    ``card`` says that it computes on an accelerator.
    """
    manifest = Manifest(
        status="running",
        config=msgspec.to_builtins(config),
        config_sha256=sha256,
        source=source(),
        environment=environment(card),
        model_files=files,
        isolation={},
        **facts,
    )
    # As it will be read back: lists where the settings have tuples.
    return msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)


def record_interruption(directory: Path, manifest: Manifest) -> Manifest:
    """The manifest of a run that goes on; written before its first new group."""
    manifest = msgspec.structs.replace(manifest, interruptions=manifest.interruptions + 1)
    write_manifest(directory, manifest)
    return manifest
