"""The evidence plan: whole, true to its profiles, and hashed as it stands."""

from pathlib import Path

import pytest
from tests.proofs.plan_power import power, smallest_effect, smallest_effects

from search_to_signal.analysis.plan.readings import METRICS, PROBE_METRICS
from search_to_signal.errors import ConfigError
from search_to_signal.experiments.configuration import Profile, load_profile
from search_to_signal.records.plan import PLAN, Question, Study, plan_sha256, read_plan
from search_to_signal.records.probe import INITIAL
from search_to_signal.seeding import derive_seed

plan = read_plan()
QUESTIONS = [(study, question) for study in plan.studies for question in study.questions]
PROFILES = {name: load_profile(f"evidence/{name}") for study in plan.studies for name in study.profiles}


def test_seeds_follow_from_the_stated_rule() -> None:
    """The first, then numbers below a million that follow from a name: not chosen by what they give."""
    found, number = dict.fromkeys(plan.seeds.first), 0
    while len(found) < len(plan.seeds.seeds):
        found[derive_seed(0, plan.seeds.name, number) % 1_000_000] = None
        number += 1
    assert plan.seeds.seeds == tuple(found)
    assert len(set(plan.seeds.seeds)) == len(plan.seeds.seeds)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_runs_what_its_study_says(name: str) -> None:
    """The first seeds of the plan, formal, with every layer that the study records."""
    profile = PROFILES[name]
    study = next(study for study in plan.studies if name in study.profiles)
    assert profile.purpose == "formal"
    assert profile.seeds == plan.seeds.seeds[: study.seeds]
    for study in plan.studies:
        if name in study.profiles:
            assert all(profile.asks_for(layer) for layer in study.layers)


def conditions(profile: Profile, layer: str) -> set[str]:
    """What the last part of a path below a layer may be."""
    anchors = profile.anchor.conditions if profile.anchor else ()
    restarts = (profile.restart and profile.restart.conditions) or profile.conditions
    known = {
        "cohort": profile.conditions,
        "restart": restarts,
        "anchor": ("frozen",) if anchors else (),
        "audit": ("frozen",) if profile.audit else (),
        "probe": (*profile.conditions, INITIAL) if profile.probe else (),
    }
    return set(known[layer])


@pytest.mark.parametrize(("study", "question"), QUESTIONS, ids=[q.key for _, q in QUESTIONS])
def test_a_question_asks_of_runs_that_will_be(study: Study, question: Question) -> None:
    """Its sides are recorded by its study or an earlier one, with enough seeds, and its metric is known."""
    assert question.metric in (PROBE_METRICS if study.key == "probe" else METRICS)
    assert question.comparisons >= len(question.pairs) or question.key.startswith("factors.")
    earlier = plan.studies[: plan.studies.index(study) + 1]
    for side in (side for pair in question.pairs for side in pair):
        profile, layer, *_, condition = side.split("/")
        recorded = [s for s in earlier if profile in s.profiles and layer in s.layers]
        assert recorded, side
        assert condition in conditions(PROFILES[profile], layer), side
        if layer != "audit":
            assert len(PROFILES[profile].seeds) >= question.seeds
        if layer == "cohort":
            size = PROFILES[profile].generation.group_size
            assert PROFILES[profile].groups * size == question.horizon


@pytest.mark.parametrize("question", [q for _, q in QUESTIONS], ids=[q.key for _, q in QUESTIONS])
def test_smallest_effects_are_those_of_the_pilot(question: Question) -> None:
    """The numbers in the plan are what its formula gives."""
    assert list(question.smallest_effects) == smallest_effects(plan, question)


def test_power_is_that_of_the_paired_t_test() -> None:
    """Against the textbook value: 80 % at 0.05 with 20 pairs takes 0.66 deviations."""
    assert smallest_effect(1.0, 20, 0.05, 0.8) == pytest.approx(0.6604, abs=1e-3)
    assert power(0.0, 1.0, 20, 0.05) == pytest.approx(0.05)


def test_the_hash_is_of_the_bytes(tmp_path: Path) -> None:
    """What ``sha256sum`` prints; a missing plan is named."""
    copy = tmp_path / "plan.toml"
    copy.write_bytes(PLAN.read_bytes())
    assert plan_sha256(copy) == plan_sha256()
    copy.write_bytes(PLAN.read_bytes() + b"\n")
    assert plan_sha256(copy) != plan_sha256()
    with pytest.raises(ConfigError, match="nowhere"):
        plan_sha256(tmp_path / "nowhere")


def test_a_plan_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """A key twice, a number out of range, more seeds than there are."""
    text = PLAN.read_text(encoding="utf-8")
    first, second = (f'key = "{study.key}"' for study in plan.studies[:2])
    for wrong, said in [
        (text.replace(second, first, 1), "more than once"),
        (text.replace("level = 0.95", "level = 1.5"), "level"),
        (text.replace("seeds = 20\nhours", "seeds = 21\nhours", 1), "more"),
        (text.replace("rule = ", "rules = ", 1), "rules"),
    ]:
        file = tmp_path / "plan.toml"
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            read_plan(file)
