"""What the audit tells to change, from the command line where a user meets it."""

import csv
import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.command import Capture, Command
from tests.unit.audit import logs

from search_to_signal import audit
from search_to_signal.audit.advice import advice
from search_to_signal.audit.frameworks import ANY, OPTIONS
from search_to_signal.audit.importers.rows import Prompts
from search_to_signal.audit.report import KINDS, curves
from search_to_signal.cli import main


def rollouts(
    groups: list[list[float]], steps: int = 1, scale: float | None = None, **more: list[Any]
) -> list[dict[str, Any]]:
    """Rows of these groups in every step, with the advantages of TRL unless ``scale`` is 0."""
    rows = []
    for step in range(steps):
        for number, rewards in enumerate(groups):
            given = np.array(rewards)
            spread = 1.0 if scale == 0 else given.std(ddof=1) + 1e-4
            for member, advantage in enumerate((given - given.mean()) / spread):
                at = sum(map(len, groups[:number])) + member
                rows.append(
                    {
                        "group": f"{step}-{number}",
                        "step": step,
                        "prompt": f"question {number}",
                        "reward": rewards[member],
                        "advantage": float(advantage),
                        **{name: column[at] for name, column in more.items()},
                    }
                )
    return rows


WASTEFUL = [[1.0] * 4, [1.0] * 4, [1.0] * 4, [0.0] * 4, [0.5] * 4, [0.0, 1.0, 0.0, 1.0]]


def audited(rows: list[dict[str, Any]], directory: Path) -> dict[str, Any]:
    """What the command writes of such a log, as JSON."""
    log = logs.jsonl(directory / "log.jsonl", rows)
    assert main(["audit", str(log), "--out", str(directory / "out")]) == 0
    document: dict[str, Any] = json.loads((directory / "out" / "audit.json").read_text(encoding="utf-8"))
    return document


def test_waste_comes_first_with_its_remedy(tmp_path: Path, capsys: Capture) -> None:
    """Four of 24 completions teach; ties are told apart; the option is TRL's, the counterfactual counted."""
    document = audited(rollouts(WASTEFUL, steps=2), tmp_path)
    first = document["findings"][0]
    assert first["says"].startswith("83 % of generation buys no gradient: 8 of 48 completions teach.")
    assert "10 of 12 groups are dead: 6 all right, 2 all wrong, 2 tie in between" in first["says"]
    assert first["severity"] == "high"
    assert first["cost"] == pytest.approx(40 / 48)
    assert first["change"].startswith("Take harder prompts; GRPOConfig")
    assert "takes 6 times the generation" in first["instead"]
    assert "5 of 6 prompts were sampled again and tied each time" in first["instead"]
    assert "without them 0 % of generation would still buy nothing" in first["instead"]
    out = capsys.readouterr().out
    assert out.index("1. [high] 83 %") < out.index("12 groups with 48 completions")
    page = html.unescape((tmp_path / "out" / "audit.html").read_text(encoding="utf-8"))
    assert page.index(first["says"]) < page.index(first["change"]) < page.index("<h2>")


def test_a_scale_and_a_reward_that_decide_are_named(tmp_path: Path) -> None:
    rewards = [[0.0, 0.0, 0.0, 2e-4], [0.0, 1.0, 0.0, 1.0]]
    (found,) = audited(rollouts(rewards), tmp_path)["findings"]
    assert "1 of 2 groups are tight" in found["says"]
    assert found["change"].startswith('Set scale_rewards="none"')
    assert 'The largest gain falls from 5000 to 1 under scale_rewards="none"' in found["instead"]
    correct, style = [0.0, 1.0, 0.0, 1.0], [0.2, 0.1, 0.2, 0.0]
    parts = [{"correct": c, "style": s, "format": 1.0} for c, s in zip(correct, style, strict=True)]
    weights = [{"correct": 1.0, "style": 1.0, "format": 1.0}] * 4
    rewards = [sum(part.values()) for part in parts]
    (found,) = audited(rollouts([rewards], components=parts, weights=weights), tmp_path)["findings"]
    assert "correct decides" in found["says"]
    assert "In 1 of 1 groups, what style rates higher gets less advantage" in found["says"]
    assert "format never differs within a group" in found["says"]
    assert found["change"].startswith("Adjust reward_weights for correct, style, format")
    assert found["instead"] == "Without correct the advantages of 1 of 1 groups move by more than 1 %."


def test_findings_that_length_and_group_size_explain(tmp_path: Path) -> None:
    rows = rollouts(
        [[0.0, 1.0, 2.0, 3.0]],
        tokens=[10, 20, 30, 40],
        status=["finished", "finished", "finished", "truncated"],
        response=["a", "b", "c", "d"],
    )
    (found,) = audited(rows, tmp_path)["findings"]
    assert found["says"].startswith("1 of 4 completions (25 %) were cut off. Longer completions of a group")
    assert "correlation +1.00" in found["says"]
    assert "max_completion_length" in found["change"]
    rows = [{**row, "group": str(at), "advantage": 0.0} for at, row in enumerate(rollouts(WASTEFUL))]
    (found,) = audited(rows, tmp_path)["findings"]
    assert found["cost"] == 1.0
    assert found["says"].startswith("Every group has one completion")


@pytest.mark.slow
def test_a_lower_advantage_for_a_higher_reward_has_its_reason(tmp_path: Path) -> None:
    unknown = logs.trl(tmp_path, prompts=["a"] * 4, advantage=[0.9, -0.1, -0.3, -0.5])
    gdpo = Path(__file__).parent / "real" / "trl-1.16.0-gdpo"
    for log, words in ((unknown, "Name the parts of the reward"), (gdpo, "trl-gdpo scales each part")):
        found = audit.audit(audit.read(log), usual="trl-grpo")
        (one,) = [one for one in advice(found) if "lower advantage" in one.says]
        assert words in one.change


def test_findings_are_at_most_five_and_the_dearest_first() -> None:
    reward = [1.0, 1.0, 0.0, 1e-5, 0.0, 1.0, np.nan, 1.0]
    found = audit.audit(
        audit.of_arrays(
            reward,
            [2, 2, 2, 2],
            advantage=[0.0, 0.0, -1.0, 1.0, 1.0, -1.0, 0.5, 0.5],
            response=[1, 1, 2, 2, 3, 3, 4, 4],
            tokens=[1, 2, 3, 9, 5, 6, 7, 8],
            status=["truncated"] * 8,
        )
    )
    costs = [one.cost for one in advice(found)]
    assert len(costs) == 5
    assert costs == sorted(costs, reverse=True)


def test_a_sound_log_gets_no_advice(tmp_path: Path, s2s: Command) -> None:
    assert audited(rollouts([[0.0, 1.0, 0.0, 1.0]] * 3), tmp_path)["findings"] == []
    assert "Nothing was found" in (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    log = logs.openevolve(tmp_path / "search")
    s2s("audit", log, "--out", tmp_path / "two")
    assert "Nothing was found" not in (tmp_path / "two" / "audit.html").read_text(encoding="utf-8")


def test_what_nothing_explains_is_told_before_the_findings(tmp_path: Path) -> None:
    """Whoever reads the page alone sees that its numbers may stand on the wrong reward."""
    rows = rollouts(WASTEFUL)
    rows[-1]["advantage"] += 0.3
    audited(rows, tmp_path)
    page = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert page.index("No normalizer of the atlas explains") < page.index('class="findings"')
    generator = np.random.default_rng(3)
    rows = rollouts([generator.random(4).tolist() for _ in range(8)])
    for row in rows:
        row["advantage"] = round(row["advantage"], 2)
    rows[5]["advantage"] += 0.02
    assert audited(rows, tmp_path)["explaining"] == []


@pytest.mark.parametrize("digits", [2, 3])
def test_rounded_advantages_are_recognized(digits: int, tmp_path: Path, capsys: Capture) -> None:
    generator = np.random.default_rng(3)
    rows = rollouts([generator.random(4).tolist() for _ in range(8)])
    for row in rows:
        row["advantage"] = round(row["advantage"], digits)
    document = audited(rows, tmp_path)
    assert f"explained to the {digits} digits logged by trl" in capsys.readouterr().out
    assert "trl-grpo" in document["explaining"]
    assert "trl-grpo-none" not in document["explaining"]
    assert document["normalizer"] in ("trl-grpo", "trl-0.15.1-grpo")


def test_comparison_is_sorted_by_nearness(tmp_path: Path) -> None:
    """Of entries that give few advantages 1 - cosine never falls but where directions are alike, and our own
    names come after a framework's.
    """
    audited(rollouts([[0.0, 1.0, 0.0, 1.0], [0.0, 0.1, 0.2, 1.0], [0.3, 0.1, 0.2, 0.9]]), tmp_path)
    with (tmp_path / "out" / "normalizers.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    names = [row["normalizer"] for row in rows]
    assert rows[0]["explains"] == "yes"
    assert names.index("trl-grpo") < names.index("trl-0.15.1-grpo") < names.index("group")
    others = [row for row in rows if row["explains"] == "no" and row["groups"] == rows[0]["groups"]]
    apart = [max(float(row["1 - cosine"]), 1e-3) for row in others if row["1 - cosine"] != "-"]
    assert len(apart) > 5
    assert apart == sorted(apart)


@pytest.mark.parametrize("damage", ["one other", "clipped", "rewards rounded"])
def test_the_nearest_is_the_one_that_was_used(damage: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(4)
    groups = [list(draws.random(4)) for _ in range(40)]
    rows = rollouts(groups)
    for row in rows:
        if damage == "clipped":
            row["advantage"] = float(np.clip(row["advantage"], -1.2, 1.2))
        if damage == "rewards rounded":
            row["reward"] = round(row["reward"], 3)
    if damage == "one other":
        rows[13]["advantage"] += 0.3
    findings = audit.audit(audit.read(logs.jsonl(tmp_path / "log.jsonl", rows)))
    assert not findings.explaining
    assert findings.nearest is not None
    same = audit.audit(audit.read(logs.jsonl(tmp_path / "clean.jsonl", rollouts(groups)))).explaining
    # Epsilons that tell entries apart lie below three digits.
    size = findings.agreements[findings.nearest].size
    assert size == pytest.approx(findings.agreements["trl-grpo"].size, rel=1e-3)
    assert damage == "rewards rounded" or findings.nearest in same


@pytest.mark.parametrize(("credit", "explained"), [(0.0, True), (0.01, True), (0.5, False)])
def test_equal_rewards_may_be_summed_in_another_order(credit: float, explained: bool, tmp_path: Path) -> None:
    """A card adds in another order than a processor; the rest of eight times 0.7 is divided by epsilon."""
    rows = []
    for rewards in (np.full(8, 0.7), np.arange(8) / 7):
        given = np.float32(rewards)
        scaled = (given - given.mean()) / (given.std(ddof=1) + np.float32(1e-6))
        flat = rewards[0] == rewards[-1]
        rows += [
            {
                "group": str(flat),
                "reward": float(rewards[member]),
                "advantage": credit if flat else float(scaled[member]),
            }
            for member in range(8)
        ]
    found = audit.audit(audit.read(logs.jsonl(tmp_path / "log.jsonl", rows)))
    assert ("verl-grpo" in found.explaining) is explained


def test_a_penalty_that_works_is_no_finding(tmp_path: Path) -> None:
    def found(sign: float) -> str:
        rows = []
        for number in range(10):
            right, long = np.array([0.0, 0.0, 1.0, 1.0]), np.array([1.0, 0.5, 1.0, 0.5])
            reward = right - 2.0 * long
            for member, advantage in enumerate(sign * (reward - reward.mean())):
                rows.append(
                    {
                        "group": str(number),
                        "reward": float(reward[member]),
                        "advantage": float(advantage),
                        "components": {"right": float(right[member]), "long": float(long[member])},
                        "weights": {"right": 1.0, "long": -2.0},
                    }
                )
        return json.dumps(audited(rows, tmp_path)["findings"])

    assert "gets less advantage" not in found(1.0)
    assert "In 10 of 10 groups, what long takes less from gets less advantage" in found(-1.0)


def test_of_entries_that_agree_the_frameworks_own_come_first(tmp_path: Path) -> None:
    """A log of verl is explained by verl's entries, and then by those of others that say the same."""
    log = logs.jsonl(tmp_path / "log.jsonl", rollouts(WASTEFUL, scale=0))
    names = audit.audit(audit.read(log), usual="verl-grpo").explaining
    assert names.index("verl-dr-grpo") < names.index("trl-grpo-none") < names.index("dr_grpo")
    log = logs.jsonl(tmp_path / "log.jsonl", rollouts(WASTEFUL))
    names = audit.audit(audit.read(log), usual="verl-grpo").explaining
    assert names.index("trl-grpo") < names.index("trl-0.15.1-grpo") < names.index("group")


def test_every_group_is_a_row(tmp_path: Path, capsys: Capture) -> None:
    audited(rollouts(WASTEFUL), tmp_path)
    with (tmp_path / "out" / "groups.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["group"] for row in rows] == [f"0-{number}" for number in range(6)]
    first, last = rows[0], rows[-1]
    assert (first["flags"], first["prompt"], first["position"]) == ("flat dead", "question 0", "1")
    assert (first["number"], last["number"]) == ("1", "6")
    assert (last["rewards"], last["position"], last["step"]) == ("0 1 0 1", "21", "0")
    assert last["logged"].split()[0] == last["trl-grpo"].split()[0] == "-0.865875"
    assert last["trl-grpo-none"] == "-0.5 0.5 -0.5 0.5"
    audited(rollouts([[1.5, 1.5000001]]), tmp_path)
    with (tmp_path / "out" / "groups.csv").open(encoding="utf-8") as lines:
        (row,) = csv.DictReader(lines)
    assert row["rewards"] == "1.5 1.5000001"
    assert main(["audit", str(logs.trl(tmp_path / "2").parent), "--out", str(tmp_path / "2" / "out")]) == 0
    with (tmp_path / "2" / "out" / "groups.csv").open(encoding="utf-8") as lines:
        assert [(row["group"], row["prompt"]) for row in csv.DictReader(lines)] == [("", "a"), ("", "b")]
    capsys.readouterr()


def _excerpts(*given: object) -> tuple[str, ...]:
    prompts = Prompts()
    return prompts.excerpts([prompts.add(prompt) for prompt in given])


def test_an_excerpt_is_one_short_line() -> None:
    assert _excerpts([{"role": "system", "content": "x"}, {"role": "user", "content": "two\n lines"}]) == (
        "two lines",
    )
    assert _excerpts("word " * 100) == (("word " * 24).strip() + " ",)
    assert _excerpts(None, 7, [], ["a"]) == ("", "", "", "")


@pytest.mark.parametrize("system", ["You are right. " * 20, "x" * 500 + "\n"])
@pytest.mark.parametrize("template", ["{}{}<|end|>", None])
def test_prompts_behind_one_system_text_differ_where_the_question_begins(
    system: str, template: str | None
) -> None:
    questions = [f"What is {number} plus {number}?" for number in range(12)]
    given: list[object] = [
        template.format(system, question)
        if template
        else [{"role": "system", "content": system}, {"role": "user", "content": question}]
        for question in questions
    ]
    prompts = Prompts()
    codes = [prompts.add(prompt) for prompt in [*given, *given]]
    assert len(set(codes)) == 12
    assert codes[:12] == codes[12:]
    assert all(question in shown for question, shown in zip(questions, prompts.excerpts(codes), strict=False))
    assert max(map(len, prompts.excerpts(codes))) <= 120


def test_curves_show_what_became_of_groups(tmp_path: Path) -> None:
    found = audit.audit(audit.read(logs.jsonl(tmp_path / "log.jsonl", rollouts(WASTEFUL, steps=500))))
    waste, taught, reward = curves(found)
    assert (waste.first, waste.last, waste.legend) == ("step 0", "step 499", KINDS[:4])
    areas = dict(waste.paths)
    assert set(areas) == {f"area {name.split()[-1]}" for name in KINDS[:4]}
    heights = [float(point) for point in re.findall(r",([\d.]+)", areas["area differ"])]
    assert min(heights) == pytest.approx(100 * 5 / 6, abs=0.01)
    assert max(heights) == 100
    assert areas["area between"].count(",") <= 320
    assert (taught.low, taught.high) == ("0", "4")
    assert reward.low == reward.high == "0.6667"
    rows = rollouts([[0.0, 1.0]], steps=3)
    for row in rows[2:4]:
        row["reward"] = None
    page = audited(rows, tmp_path)
    assert page["groups"] == 3
    text = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    (line,) = re.findall(r'<path class="line" d="([^"]*)"/>\s*</svg>\s*<div class="ends">', text)[-1:]
    assert line.count("M") == 2
    assert "nan" not in line.lower()


def test_alternatives_are_entries_of_the_atlas() -> None:
    assert {name for one in (ANY, *OPTIONS.values()) for name in one.scales.values()} <= set(
        audit.normalizers()
    )
    frameworks = {audit.atlas.source_of(entry).framework for entry in audit.normalizers().values()}
    assert set(OPTIONS) <= frameworks


def test_options_are_those_of_the_format(tmp_path: Path) -> None:
    """A log of verl is told verl's options, whatever else gives the same advantages."""
    rows = [
        {
            "input": f"q{row // 4}",
            "output": str(row),
            "gts": None,
            "score": float(row // 4),
            "step": 1,
            "uid": f"{row // 4}_{row % 4}_0",
        }
        for row in range(8)
    ]
    found = audit.audit(audit.read(logs.jsonl(tmp_path / "1.jsonl", rows)), usual="verl-grpo")
    (one,) = advice(found)
    assert "algorithm.filter_groups.enable=True" in one.change
    assert "all right" in one.says
    # Advantages that only take the mean off are those of TRL, verl and others: all options stand there.
    (found,) = audited(rollouts(WASTEFUL, scale=0), tmp_path)["findings"]
    assert "verl: algorithm.filter_groups" in found["change"]
    assert "GRPOConfig" not in found["change"]
    assert "num_generations" not in found["instead"]


def test_a_frozen_run_is_said_to_have_no_reward(tmp_path: Path, s2s: Command) -> None:
    for condition in ("frozen", "native"):
        write_synthetic_run(tmp_path / f"{condition}-s1", condition, 1)
    out = s2s("audit", tmp_path / "frozen-s1").out
    assert "This run is not trained: it has scores and no rewards." in out
    assert "reward function" not in out
    (command,) = re.findall(r"these groups: `(s2s replay .*)`", out)
    words = shlex.split(command)[1:]
    words[words.index("--out") + 1] = str(tmp_path / "replay")
    s2s(*words)
    assert "| tsp | native, factorized | 40 |" in (tmp_path / "replay" / "audit.md").read_text("utf-8")
    said = s2s("audit", tmp_path / "native-s1")
    assert "trains nothing" not in said.out
