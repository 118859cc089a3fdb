"""The hosts that are not CALM's, live: they train, verify, are drawn again, and go on after a stop."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.cohorts import StoppingAfter

from search_to_signal.base.progress import PlainProgress
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import DATABASE, read_database, write_database
from search_to_signal.records.reader import COMPLETIONS, STEPS, read_records
from search_to_signal.records.schema import PREFERENCES, PreferenceRecord, StepRecord
from search_to_signal.run.config import RunConfig
from search_to_signal.run.learning import retrain
from search_to_signal.run.loop import run
from search_to_signal.run.profile import load_profile
from search_to_signal.verify.directory import verify
from search_to_signal.verify.tables import search_draw_findings

RECORDS = ("completions.jsonl", "steps.jsonl", "generations.jsonl", "heuristics.jsonl")
SHORT = {
    "evotune": {
        "host_settings": {"num_islands": 2, "num_cont_rounds": 1, "migration_period": 2, "reset_period": 3},
        "rule_settings": {
            "finetuning_frequency": 2,
            "gradient_accumulation_steps": 2,
            "num_train_epochs": 1,
        },
    },
    "entropic": {"rule_settings": {"groups_per_batch": 2}},
}


def configuration(name: str) -> RunConfig:
    """The trained run of a shipped profile over four groups of three."""
    config = next(config for config in load_profile(name).runs() if config.trained)
    generation = msgspec.structs.replace(config.generation, group_size=3)
    return msgspec.structs.replace(config, groups=4, generation=generation, **SHORT[name])


@pytest.fixture(scope="module", params=sorted(SHORT))
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A trained run, undisturbed, and the profile that it is of."""
    directory = tmp_path_factory.mktemp(request.param) / "whole"
    run(configuration(request.param), directory, PlainProgress())
    return request.param, directory


def test_a_run_trains_and_verifies(done: tuple[str, Path]) -> None:
    """The adapter moves with the rounds, records contradict nothing, and the search is drawn again."""
    _, directory = done
    steps = list(read_records(directory / STEPS, StepRecord))
    assert [step.training_tokens > 0 for step in steps] == [False, True, False, True]
    assert len({step.adapter_sha256 for step in steps}) == 3
    assert verify(directory).problems == ()
    assert list(search_draw_findings(directory)) == []


def test_a_stopped_run_goes_on_to_the_same_bytes(done: tuple[str, Path]) -> None:
    """Between two rounds, what waits for the next one is taken up again."""
    name, whole = done
    if name != "evotune":  # whose rounds are a database and pairs; the other's waits in its learner alone
        return
    stopped = whole.with_name("stopped")
    with pytest.raises(KeyboardInterrupt):
        run(configuration(name), stopped, StoppingAfter(3))
    run(configuration(name), stopped, PlainProgress(), resume=True)
    for file in (*RECORDS, PREFERENCES, DATABASE, "adapter/adapter_model.safetensors"):
        assert (stopped / file).read_bytes() == (whole / file).read_bytes(), file


def test_recorded_updates_make_the_final_adapter_again(done: tuple[str, Path]) -> None:
    """From tokens and credit alone, whatever a rule keeps between two groups."""
    name, whole = done
    again = whole.with_name("adapter")
    retrain(configuration(name), whole, again, PlainProgress())
    for file in sorted((whole / "adapter").iterdir()):
        assert (again / "adapter" / file.name).read_bytes() == file.read_bytes()


def test_a_forged_archive_event_is_found(done: tuple[str, Path]) -> None:
    """What became of a completion follows from the search that is drawn again, whichever host's it is."""
    _, whole = done
    copy = Path(shutil.copytree(whole, whole.with_name("event")))
    text = (copy / COMPLETIONS).read_text(encoding="utf-8")
    (copy / COMPLETIONS).write_text(text.replace('"admitted"', '"duplicate_score"', 1), encoding="utf-8")
    assert any("archive_event is" in finding.text for finding in search_draw_findings(copy))


def test_forged_pairs_and_databases_are_found(done: tuple[str, Path]) -> None:
    """A pair of other completions, and a program on another island, with checksums made anew."""
    name, whole = done
    if name != "evotune":
        return
    copy = Path(shutil.copytree(whole, whole.with_name("forged")))
    records = list(read_records(copy / PREFERENCES, PreferenceRecord))
    place = next(place for place, record in enumerate(records) if record.pairs)
    first = records[place].pairs[0]
    swapped = msgspec.structs.replace(first, chosen=first.rejected, rejected=first.chosen)
    records[place] = msgspec.structs.replace(records[place], pairs=(swapped, *records[place].pairs[1:]))
    (copy / PREFERENCES).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    write_sums(copy)
    assert any("pairs of step" in problem for problem in verify(copy).problems)
    stored = read_database(copy)
    write_database(copy, msgspec.structs.replace(stored, islands=stored.islands[::-1]))
    assert any(DATABASE in finding.where for finding in search_draw_findings(copy))
