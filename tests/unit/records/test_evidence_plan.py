"""The evidence plan: whole, true to its profiles, and hashed as it stands."""

import csv
from pathlib import Path

import msgspec
import pytest
from spec.rows import check_all
from tests.proofs.plan_power import power, smallest_effect, smallest_effects

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import EVIDENCE, PUBLISHED
from search_to_signal.base.seeding import derive_seed
from search_to_signal.records.plan import PLAN, Plan, Question, Study, evidence_roots, plan_sha256, read_plan
from search_to_signal.records.probe import INITIAL
from search_to_signal.report.tables.measures import MEASURES
from search_to_signal.run.profile import Profile, load_profile
from search_to_signal.study.verdicts import PROBE_METRICS

PLANS = [read_plan(root / PLAN.name) for root in evidence_roots(EVIDENCE)]
QUESTIONS = [(plan, study, one) for plan in PLANS for study in plan.studies for one in study.questions]
NAMES = [(plan, name) for plan in PLANS for study in plan.studies for name in study.profiles]
PROFILES = {name: load_profile(f"evidence/{name}") for _, name in NAMES}
BASES = {"pretrained-1.5b": ("1.5b", "cvrp", "obp", "distinct")}


@pytest.mark.parametrize("plan", PLANS, ids=[plan.title for plan in PLANS])
def test_seeds_follow_from_the_stated_rule(plan: Plan) -> None:
    found, number = dict.fromkeys(plan.seeds.first), 0
    while len(found) < len(plan.seeds.seeds):
        found[derive_seed(0, plan.seeds.name, number) % 1_000_000] = None
        number += 1
    assert plan.seeds.seeds == tuple(found)
    assert len(set(plan.seeds.seeds)) == len(plan.seeds.seeds)


def runs_its_study(given: tuple[Plan, str]) -> None:
    """A profile of a plan against the study that names it."""
    plan, name = given
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


def has_its_settings(name: str) -> None:
    """A profile of a pretrained study against the profile of users."""
    kind = name.removeprefix("pretrained-")
    larger = kind in BASES["pretrained-1.5b"]
    base, own = load_profile("pretrained-1.5b" if larger else "pretrained"), PROFILES[name]
    for field in ("model", "split", "search", "generation", "learner", "evaluation", "idea_end", "jobs"):
        found, due = getattr(own, field), getattr(base, field)
        if field == "generation" and kind.startswith("group-size"):
            due = msgspec.structs.replace(due, group_size=int(kind.rpartition("-")[2]))
        if field == "learner" and kind.startswith("credit"):
            due = msgspec.structs.replace(due, credit=kind.rpartition("-")[2])
        assert found == due, field


def test_what_the_paper_has_is_what_it_prints() -> None:
    text = (PUBLISHED / "numbers.csv").read_text(encoding="utf-8")
    printed = {row["text"] for row in csv.DictReader(text.splitlines())}
    found = {number for _, _, question in QUESTIONS for number in question.published}
    assert found
    assert {f"{100 * number:.2f}" for number in found} - {"66.67"} <= printed


def test_a_question_asks_of_runs_that_will_be() -> None:
    check_all(((asked[-1].key, asked) for asked in QUESTIONS), asks_of_its_runs)
    check_all(((name, (plan, name)) for plan, name in NAMES), runs_its_study)
    # Model, prompts, limits and learner are those of pretrained or pretrained-1.5b, but what it is about.
    names = [name for name in PROFILES if name.startswith("pretrained")]
    check_all(((name, name) for name in names), has_its_settings)


def asks_of_its_runs(asked: tuple[Plan, Study, Question]) -> None:
    """A question of a plan against the studies up to its own."""
    plan, study, question = asked
    assert question.metric in (PROBE_METRICS if "probe" in study.layers else MEASURES)
    assert question.comparisons >= len(question.pairs) or question.key.startswith("factors.")
    others = [s for other in PLANS if other is not plan for s in other.studies]
    earlier = plan.studies[: plan.studies.index(study) + 1]
    for side in (side for pair in question.pairs for side in pair):
        profile, layer, *_, condition = side.split("/")
        within = others if profile in plan.controls else earlier
        recorded = [s for s in within if profile in s.profiles and layer in s.layers]
        assert recorded, side
        assert condition in conditions(PROFILES[profile], layer), side
        if layer != "audit":
            assert len(PROFILES[profile].seeds) >= question.seeds
        if layer == "cohort":
            size = PROFILES[profile].generation.group_size
            assert PROFILES[profile].groups * size == question.horizon, side


def test_effects_are_those_of_the_paired_t_test() -> None:
    stated = {question.key: list(question.smallest_effects) for *_, question in QUESTIONS}
    assert stated == {question.key: smallest_effects(plan, question) for plan, _, question in QUESTIONS}
    # Against the textbook value: 80 % at 0.05 with 20 pairs takes 0.66 deviations.
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
    text = PLAN.read_text(encoding="utf-8")
    first, second = (f'key = "{study.key}"' for study in PLANS[0].studies[:2])
    for wrong, said in [
        (text.replace(second, first, 1), "more than once"),
        (text.replace("level = 0.95", "level = 1.5"), "level"),
        (text.replace("seeds = 20\nhours", "seeds = 21\nhours", 1), "more"),
        (text.replace("rule = ", "rules = ", 1), "rules"),
        (text.replace("counts_against", "published = [1.0]\ncounts_against", 1), "published needs"),
    ]:
        file = tmp_path / "plan.toml"
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            read_plan(file)
