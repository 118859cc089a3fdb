"""Normalizer, learning rule and host of a run: chosen by name, refused in one line, told apart in results."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.profiles import plain_profile

from search_to_signal.base.errors import ConfigError, MappingError, RunDirectoryError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.progress import PlainProgress
from search_to_signal.credit.normalizers import (
    NORMALIZERS,
    advantages,
    advantages_by_group,
    find_normalizer,
    get_normalizer,
)
from search_to_signal.layers.heldout.layer import heldout
from search_to_signal.layers.settings import HeldoutSettings
from search_to_signal.learner import get_rule
from search_to_signal.problems import get_problem
from search_to_signal.records.schema import ArchiveEvent, Outcome
from search_to_signal.report.results import load_runs
from search_to_signal.run.replayed import AsRecorded, replayed
from search_to_signal.search.host import HostSetup, Transition, update_search
from search_to_signal.search.hosts import open_host
from search_to_signal.search.member import Evaluated, seed_member
from search_to_signal.verify.directory import verify

REWARDS = np.array([[0.0, 1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 9.0]])
Make = Callable[..., Path]


profile = functools.partial(plain_profile, model="qwen2-2.1m", groups=2)


def raising(rewards: Floats) -> Floats:
    """Fails."""
    raise KeyError("spread")


def ending(rewards: Floats) -> Floats:
    """Ends the process."""
    sys.exit(3)


def summing(rewards: Floats) -> Floats:
    """Loses the group's size."""
    return rewards.sum(axis=1)


def dividing(rewards: Floats) -> Floats:
    """Divides by nothing."""
    return rewards * np.inf


def naming(rewards: Floats) -> Any:
    """Gives words."""
    return [["a"] * rewards.shape[1]] * len(rewards)


@pytest.mark.parametrize("broken", [raising, ending, summing, dividing, naming])
def test_a_broken_normalizer_is_one_line(broken: Callable[[Floats], Floats]) -> None:
    """Whatever it raises or returns, the error names it, is one line, and says what to do."""
    with pytest.raises(MappingError, match=f"^normalizer {broken.__name__} [^\n]*$"):
        advantages(broken, REWARDS, {"reward": REWARDS})


def test_a_normalizer_cannot_change_the_recorded_rewards() -> None:
    """What is written into its argument stays there."""

    def writing(rewards: Floats) -> Floats:
        rewards[:] = 0.0
        return rewards

    rewards = REWARDS.copy()
    advantages(writing, rewards, {})
    np.testing.assert_array_equal(rewards, REWARDS)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_a_run_normalizes_every_group_alone(name: str) -> None:
    """The advantages of a group do not depend on the groups beside it, for batch scaling either."""
    normalizer, parts = get_normalizer(name), {"reward": REWARDS}
    together = advantages_by_group(normalizer, REWARDS, parts)
    alone = advantages_by_group(normalizer, REWARDS[1:], {"reward": REWARDS[1:]})
    np.testing.assert_array_equal(together[1:], alone)


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({"normalizer": "nothing"}, "dr_grpo"),
        ({"conditions": ("native+nothing",)}, "dr_grpo"),
        ({"learning_rule": "nothing"}, "grpo"),
        ({"host": "nothing"}, "reference, released"),
    ],
)
def test_unknown_names_list_the_known_ones(changes: dict[str, Any], known: str) -> None:
    with pytest.raises(ConfigError, match=f"^unknown name 'nothing': use one of [^\n]*{known}[^\n]*$"):
        profile(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rule_settings": {"beta": 1}}, "rule_settings: .*beta"),
        ({"host_settings": {"islands": 4}}, "host_settings has islands"),
        ({"host": "released"}, "s2s released"),
        ({"host": "search_to_signal.base.errors:__doc__"}, "cannot make a host"),
        ({"host": "builtins:dict"}, "raised TypeError"),
        ({"host": "types:SimpleNamespace"}, "types:SimpleNamespace"),
        ({"learning_rule": "builtins:dict"}, "lacks check, learner"),
        ({"normalizer": "search_to_signal.base.errors:__doc__"}, "is not a normalizer"),
    ],
)
def test_what_is_none_is_refused(changes: dict[str, Any], told: str) -> None:
    """Settings of another part, and objects that are no host, rule or normalizer, end before a run begins."""
    with pytest.raises((ConfigError, MappingError), match=told):
        profile(**changes)


def test_conditions_may_name_their_normalizer() -> None:
    """One profile trains one mapping through several normalizers, each in a directory of its own."""
    runs = profile(conditions=("frozen", "native", "native+rank"), normalizer="dr_grpo").runs()
    assert [(run.name, run.mapping, run.normalizer) for run in runs] == [
        ("frozen-s1", "frozen", "dr_grpo"),
        ("native-s1", "native", "dr_grpo"),
        ("native+rank-s1", "native", "rank"),
    ]
    assert len({run.sha256 for run in runs}) == 3
    with pytest.raises(ConfigError):
        msgspec.structs.replace(runs[2], normalizer="group").__post_init__()


def test_verify_holds_advantages_to_the_normalizer_of_the_run(make_run: Make, tmp_path: Path) -> None:
    """Advantages by the paper's normalizer are none of a run that says rank."""
    good, bad = make_run(tmp_path / "a"), make_run(tmp_path / "b", config={"normalizer": "rank"})
    assert verify(good).problems == ()
    assert any(": advantage is" in problem for problem in verify(bad).problems)


def test_a_table_mixes_no_normalizers(make_run: Make, tmp_path: Path) -> None:
    """Runs of one condition that were normalized otherwise stand in no table together."""
    make_run(tmp_path / "native-s1", seed=1)
    make_run(tmp_path / "native-s2", seed=2, config={"normalizer": "rank"})
    with pytest.raises(RunDirectoryError):
        load_runs(tmp_path)


def test_conditions_of_several_normalizers_stand_in_one_table(make_run: Make, tmp_path: Path) -> None:
    """Where the condition names it, the normalizer is what is compared."""
    make_run(tmp_path / "native-s1", seed=1)
    make_run(tmp_path / "native+rank-s1", config={"normalizer": "rank", "condition": "native+rank"}, seed=1)
    assert [(run.condition, run.manifest.facts.normalizer) for run in load_runs(tmp_path)] == [
        ("native", "group"),
        ("native+rank", "rank"),
    ]


def test_a_directory_s_word_runs_no_code() -> None:
    """A normalizer that a results directory names by path is not imported; the line says how."""
    sys.modules.pop("antigravity", None)
    with pytest.raises(ConfigError, match="allow it with --normalizer antigravity:x"):
        find_normalizer("antigravity:x")
    assert "antigravity" not in sys.modules


@pytest.mark.slow
def test_the_released_host_has_one_normalizer(tmp_path: Path) -> None:
    """Another one is refused before the checkout is looked at."""
    from search_to_signal.run.released import Order, run_released  # which loads the largest libraries

    order = Order(tmp_path, "config.yaml", tmp_path / "out", normalizer="rank")
    with pytest.raises(ConfigError, match="normalizer 'rank': the trainer of the released host"):
        run_released(order, PlainProgress())
    assert not (tmp_path / "out").exists()


def test_an_effect_has_an_event_for_each_completion() -> None:
    """A host that forgets a completion ends the run with one line instead of shifting its records."""
    problem = get_problem("tsp")
    host = open_host("reference", HostSetup(problem))

    class Forgetful:
        def __getattr__(self, name: str) -> Any:
            return getattr(host, name)

        def update(self, *arguments: Any) -> Transition:
            transition = host.update(*arguments)
            return Transition(transition.state, (ArchiveEvent.INVALID,), (), transition.archive)

    request = host.propose(host.start(seed_member(problem.seed, -5.0)), np.random.default_rng(0))
    results = [Evaluated(Outcome.MISSING_CODE)] * 2
    with pytest.raises(MappingError, match="1 events with 0 admitted members for 2 completions"):
        update_search(Forgetful(), request, results, 0)


def test_known_rules_are_found() -> None:
    """The default rule takes no settings of its own."""
    get_rule("grpo").check({})


def test_heldout_runs_no_problem_that_a_directory_names(make_run: Make, tmp_path: Path) -> None:
    """A cohort of somebody's own problem is evaluated after --problem alone."""
    make_run(tmp_path / "cohort" / "native-s1", seed=1, config={"problem": "antigravity:x"})
    sys.modules.pop("antigravity", None)
    with pytest.raises(ConfigError, match="allow it with --problem antigravity:x"):
        heldout(tmp_path, HeldoutSettings(), PlainProgress())
    assert "antigravity" not in sys.modules


def test_recorded_states_need_no_problem(make_run: Make, tmp_path: Path) -> None:
    """The states of a recorded search follow from its records, whatever problem they name."""
    run = make_run(tmp_path / "run", config={"problem": "antigravity:x"})
    states = [played.request.state for played in replayed(run, AsRecorded())]
    assert [len(state.archive) for state in states] == [1, 3, 5, 7]
