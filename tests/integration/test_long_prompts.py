"""Runs of the shipped model with a limit that no prompt keeps: they end, go on after a stop, and verify."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cohorts import StoppingAfter, run_cohort

from search_to_signal.base.errors import ConfigError, RunFailedError
from search_to_signal.base.progress import PlainProgress
from search_to_signal.layers.probe.answers import ProbeTask, write_answers
from search_to_signal.layers.probe.layer import build_bank
from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.models import local
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer
from search_to_signal.records.probe import INITIAL, Checkpoint
from search_to_signal.report.results import Results
from search_to_signal.report.tables.core import prompts_of
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.run.profile import Profile, load_profile
from search_to_signal.verify.directory import verify

LIMIT = 60


def profile(**changes: Any) -> Profile:
    """Three groups per run, of two short completions, none of whose prompts is within the limit."""
    smoke = load_profile("smoke")
    generation = msgspec.structs.replace(
        smoke.generation, group_size=2, max_prompt_tokens=LIMIT, max_completion_tokens=48, **changes
    )
    return msgspec.structs.replace(smoke, groups=3, generation=generation)


def configuration(condition: str, **changes: Any) -> RunConfig:
    """One run of it."""
    return profile(**changes).run(condition, 42)


def lines(directory: Path, name: str) -> list[dict[str, Any]]:
    """A record file."""
    return [json.loads(line) for line in (directory / f"{name}.jsonl").read_text().splitlines()]


def records(directory: Path) -> dict[str, bytes]:
    """What may not depend on stops, the adapter included."""
    names = ("completions", "steps", "generations", "heuristics")
    found = {name: (directory / f"{name}.jsonl").read_bytes() for name in names}
    return found | {path.name: path.read_bytes() for path in directory.glob("adapter/*")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[int]]]]:
    """A trained run, and the prompt tokens that sampler and learner were given, group by group."""
    found: dict[str, list[list[int]]] = {"sampled": [], "scored": []}
    sample, step = local.sample_group, GrpoLearner.step

    def sampling(model: Any, prompt_ids: Any, **options: Any) -> Any:
        found["sampled"].append(list(prompt_ids))
        return sample(model, prompt_ids, **options)

    def stepping(self: GrpoLearner, group: TrainingGroup) -> Any:
        found["scored"].append(list(group.prompt_ids))
        return step(self, group)

    directory = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "sample_group", sampling)
        patch.setattr(GrpoLearner, "step", stepping)
        run(configuration("native"), directory, PlainProgress())
    return directory, found


def test_what_was_sampled_from_was_scored_and_is_recorded(
    whole: tuple[Path, dict[str, list[list[int]]]],
) -> None:
    """A trained run beyond its limit ends; its records hold the text, the tokens read and what was cut."""
    directory, read = whole
    tokenizer = load_tokenizer(model_directory("qwen2-2.1m"))
    generations, steps = lines(directory, "generations"), lines(directory, "steps")
    assert read["sampled"] == read["scored"] == [one["prompt_ids"] for one in generations]
    for generation, step in zip(generations, steps, strict=True):
        ids = tokenizer.encode(generation["prompt"], add_special_tokens=False)
        assert generation["prompt_ids"] == ids[-LIMIT:]
        assert step["prompt_tokens_cut"] == len(ids) - LIMIT > 0
    assert {record["prompt_tokens"] for record in lines(directory, "completions")} == {LIMIT}
    assert verify(directory).problems == ()
    assert prompts_of("cohort")(Results(directory)).cell("native", "Cut prompts").value == 3


def test_a_run_of_cut_prompts_goes_on_after_a_stop(
    whole: tuple[Path, dict[str, list[list[int]]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped between two groups and resumed, it ends with the bytes of one that was never stopped."""
    config = configuration("native")
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "stopped", StoppingAfter(2))
    run(config, tmp_path / "stopped", PlainProgress(), resume=True)
    assert records(tmp_path / "stopped") == records(whole[0])
    assert verify(tmp_path / "stopped").problems == ()
    assert "prompt cut by" in capsys.readouterr().out


def test_a_bank_of_cut_prompts_is_answered(tmp_path: Path) -> None:
    """The probe rebuilds the prompts of a run that cut them, cuts them again, and knows them as the same."""
    config = configuration("frozen")
    run(config, tmp_path / config.name, PlainProgress())
    bank = build_bank({tmp_path / config.name: config}, 2)
    first = Checkpoint(name=INITIAL, condition="frozen", seed=None, adapter_sha256=None)
    task = ProbeTask(config, first, tmp_path, bank, tmp_path / "answers.jsonl")
    write_answers(task, PlainProgress())
    assert [one["prompt_tokens"] for one in lines(tmp_path, "answers")] == [LIMIT] * 4


def test_a_refused_prompt_ends_a_run_in_one_line(tmp_path: Path) -> None:
    """Where long prompts are refused, the run says how long the prompt is, its limit, and what to do."""
    with pytest.raises(ConfigError, match=rf"tokens.*max_prompt_tokens is {LIMIT}: raise it.*long_prompts"):
        run(configuration("frozen", long_prompts="refuse"), tmp_path / "run", PlainProgress())
    with pytest.raises(RunFailedError, match=r"s42 ended with exit code \d+ \(error: .*max_prompt_tokens"):
        run_cohort(profile(long_prompts="refuse"), tmp_path / "cohort", PlainProgress())
    assert "Traceback" not in (tmp_path / "cohort" / "frozen-s42.log").read_text()
