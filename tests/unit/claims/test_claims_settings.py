"""Settings of the paper held against what this repository has: its profile, its lock, its code."""

import pytest

from search_to_signal.claims.ledger import IMPLEMENTATION
from search_to_signal.claims.page import (
    ClaimVerdict,
    Implementation,
    judge_claims,
    judge_published,
    published,
)
from search_to_signal.claims.settings import implementation
from search_to_signal.claims.tables import load_published

pytestmark = pytest.mark.slow


def verdict(entry: str, facts: Implementation) -> ClaimVerdict:
    return judge_claims(published()[0], None, facts, {entry})[0].verdict


def test_every_number_in_text_has_a_verdict() -> None:
    texts = {table.name for table in load_published().values() if not table.entry.columns}
    findings = [f for f in judge_published(implementation()) if f.entry.id.split("[")[0] in texts]
    assert {finding.entry.id.split("[")[0] for finding in findings} == texts
    assert ClaimVerdict.OTHERWISE not in {finding.verdict for finding in findings}
    by_table = {name: [f.verdict for f in findings if f.entry.id.startswith(f"{name}[")] for name in texts}
    assert set(by_table["software"]) == {ClaimVerdict.IMPLEMENTED}
    assert by_table["parameters"].count(ClaimVerdict.IMPLEMENTED) > 25
    assert by_table["evidence_matrix"].count(ClaimVerdict.IMPLEMENTED) > 20


@pytest.mark.parametrize(
    ("table", "setting", "value", "entry"),
    [
        ("profile", "learner.learning_rate", "0.00004", "parameters[Learning rate, Value][2]"),
        ("profile", "learner.load_in_4bit", "0", "parameters[Quantization, Value][0]"),
        ("profile", "learner.optimizer", "adamw", "parameters[Optimizer, Value][0]"),
        ("profile", "search.crossover", "2.0", "parameters[Operator weights, Value][3]"),
        ("profile", "seeds", "42, 3407", "evidence_matrix[Formal live cohort, Seeds][0]"),
        ("profile", "model", "mounts/Qwen3-8B", "parameters[Task / live model, Value][0]"),
        ("profile", "api.model", "gpt-5o-mini", "evidence_matrix[API system reference, Models][0]"),
        ("lock", "trl", "0.15.2", "software[TRL, Version][0]"),
        ("lock", "unsloth", "2025.3.19", "software[Unsloth, Version][0]"),
        ("lock", "python", "3.11.*", "software[Python, Version][0]"),
        (
            "code",
            "factorized.quality",
            "0.25",
            "reward_constructions[Factorized Validity–Quality, Reward supplied to GRPO][1]",
        ),
        ("code", "recurrence", "20", "recurrence_window"),
    ],
)
def test_another_setting_is_told(table: str, setting: str, value: str, entry: str) -> None:
    """A profile, a lock or a constant that differs from the paper makes its number implemented otherwise."""
    facts = implementation()
    assert setting in facts[table]
    assert verdict(entry, facts) is ClaimVerdict.IMPLEMENTED
    assert verdict(entry, {**facts, table: {**facts[table], setting: value}}) is ClaimVerdict.OTHERWISE


def test_without_facts_no_setting_is_compared() -> None:
    assert ClaimVerdict.IMPLEMENTED not in {finding.verdict for finding in judge_published()}
    assert set(implementation()) == set(IMPLEMENTATION)
