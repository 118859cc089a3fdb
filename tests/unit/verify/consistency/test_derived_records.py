"""What follows from something else is held against it, but for the last bits of another processor."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.command import Make

from search_to_signal.base.settings import canonical_sha256
from search_to_signal.credit.assignment import agree
from search_to_signal.records.checksums import write_sums
from search_to_signal.verify.directory import verify

Line = dict[str, Any]
Edit = tuple[Callable[[list[Line]], object], str]


def rewrite(run: Path, name: str, change: Callable[[list[Line]], None]) -> tuple[str, ...]:
    """Change the lines of a record file, seal, and verify."""
    lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
    change(lines)
    (run / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_sums(run)
    return verify(run).problems


def put(line: int, **values: Any) -> Callable[[list[Line]], None]:
    """Set some fields of one line."""
    return lambda lines: lines[line].update(values)


def at(line: int, field: str) -> str:
    """How a problem of a completion begins, four to a step."""
    return f"completions.jsonl:{line + 1} (step {line // 4}, completion {line % 4}): {field}"


def all_of_step_1(**values: Any) -> Callable[[list[Line]], object]:
    return lambda lines: [line.update(values) for line in lines[4:8]]


def retold(lines: list[Line]) -> None:
    lines[1]["completions"][0] = lines[1]["completions"][0].replace("return", "return 1 +")


def broken_chain(lines: list[Line]) -> None:
    lines[1].update(frontier_after=-1.0)
    lines[2].update(frontier_before=-2.0)


ZEROS, LOST = "0" * 64, "do not hold the same completions"
# By record file: what is done to its lines, and what is said of it.
EDITS: dict[str, dict[str, Edit]] = {
    "generations.jsonl": {
        "text": (retold, at(4, "response_sha")),
        "prompt": (put(1, prompt="another"), "steps.jsonl:2 (step 1): prompt_sha256"),
        "emptied texts": (list.clear, f"{LOST} of step 0"),
        "last text dropped": (list.pop, f"{LOST} of step 3"),
    },
    "heuristics.jsonl": {
        "idea": (put(1, idea="another"), "heuristics.jsonl:2 (step 0, completion 0): idea"),
        "code": (put(1, code="def f(): pass"), "heuristics.jsonl:2 (step 0, completion 0): code"),
        "id": (put(1, id=ZEROS), "0"),
        "operator": (put(1, operator="crossover"), "heuristics.jsonl:2 (step 0, completion 0): operator"),
        "seed code": (put(0, code="def f(): pass"), "it is not the seed heuristic of tsp"),
    },
    "timings.jsonl": {
        "seconds": (lambda lines: lines[1]["seconds"].update(total=9.0), "timings.jsonl:2"),
        "a step's time dropped": (list.pop, "timings.jsonl does not hold the 4 steps"),
    },
    "completions.jsonl": {
        "response": (put(4, response_sha256=ZEROS), at(4, "response_sha")),
        "prompt tokens": (put(4, prompt_tokens=3), at(4, "prompt_tokens")),
        "completion tokens": (put(5, completion_tokens=4), at(5, "completion_tokens")),
        "never ran": (put(5, outcome="missing_code"), "step 1, completion 1: recorded as"),
        "how it ended": (put(4, evaluation="exception"), "step 1, completion 0: recorded"),
        "problem": (put(6, problem="cvrp"), at(6, "problem")),
        "exposure": (put(5, exposure=0.5), "step 1, completion 1: exposure"),
        "parents": (put(6, parents=["seed"]), at(6, "parents")),
        "size, a later member": (put(6, archive_size=9), at(6, "archive_size")),
        "frontier, a later member": (put(6, frontier=-1.0), at(6, "frontier")),
        "base code": (put(6, matches_base_code=True), at(6, "matches_base")),
        "reward": (put(4, reward=1.5), at(4, "reward")),
        "component": (put(4, components={"failure": 0.0, "comparison": 0.0}), at(4, "components")),
        "advantage": (put(5, advantage=0.1), at(5, "advantage")),
        "score of an improvement": (put(4, score=-6.0), "step 1"),
        "score of a novelty": (put(7, score=-7.9), "step 1, completion 3"),
        "score of a copy": (put(6, score=-6.95), "step 1, completion 2"),
        "no score": (put(4, score=None), "step 1, completion 0: outcome valid"),
        "failure as valid": (put(5, outcome="valid"), "step 1, completion 1: outcome valid"),
        "valid as failure": (put(4, outcome="randomness"), "step 1, completion 0: outcome randomness"),
        "other failure": (put(5, outcome="missing_code"), at(5, "reward")),
        "archive event": (put(6, archive_event="admitted"), "step 1"),
        "gap": (put(4, archive_gap=0.2), "step 1, completion 0"),
        "archive size": (all_of_step_1(archive_size=9), "step 1"),
        "frontier of one": (put(5, frontier=-5.0), "step 1"),
        "frontier of all": (all_of_step_1(frontier=-5.0), "step 1"),
        "base score": (all_of_step_1(base_scores=[-5.0]), "step 1"),
        "dropped line": (lambda lines: lines.pop(5), "completions.jsonl:6"),
        "dropped last line of a group": (lambda lines: lines.pop(7), f"{LOST} of step 1"),
        "dropped group": (lambda lines: lines.__delitem__(slice(4, 8)), LOST),
        "dropped last group": (lambda lines: lines.__delitem__(slice(12, 16)), LOST),
        "duplicated line": (lambda lines: lines.insert(5, lines[5]), "completions.jsonl:7"),
        "duplicated group": (lambda lines: lines.extend(lines[12:]), "completions.jsonl:17"),
    },
    "steps.jsonl": {
        "mapping": (put(1, mapping="factorized"), "steps.jsonl:2 (step 1): mapping is factorized"),
        "zero advantage": (put(1, zero_advantage=True), "steps.jsonl:2 (step 1): zero_advantage is true"),
        "training tokens": (put(1, training_tokens=13), "step 1: training_tokens is 13"),
        "lost loss": (put(1, loss=None), "step 1: a trained step has no finite loss"),
        "last adapter": (put(3, adapter_sha256=ZEROS), "final_adapter_sha256 is not the adapter"),
        "broken frontier chain": (broken_chain, "step 2: frontier does not continue"),
        "chain broken at a collapse": (put(2, frontier_before=-2.0, collapsed=True), "step 2"),
        "collapse that never was": (put(2, collapsed=True), "step 2"),
        "frontier after": (put(3, frontier_after=-1.0), "steps.jsonl:4 (step 3): frontier_after"),
        "valid": (put(1, valid=4), "steps.jsonl:2 (step 1): valid is 4, expected 3"),
        "admitted": (put(1, admitted=0), "steps.jsonl:2 (step 1): admitted"),
        "archive size": (put(1, archive_size=50), "steps.jsonl:2 (step 1): archive_size"),
        "operator": (put(1, operator="crossover"), at(4, "operator")),
        "prompt": (put(1, prompt_sha256="x"), "steps.jsonl:2 (step 1): prompt_sha256"),
        "dropped step": (lambda lines: lines.pop(1), LOST),
        "duplicated step": (lambda lines: lines.insert(1, lines[1]), LOST),
    },
}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file in EDITS for name in EDITS[file]])
def test_forged_records_are_found(make_run: Make, tmp_path: Path, file: str, name: str) -> None:
    """A field that follows from text, tokens, archive, credit, adapter or clock cannot be changed alone."""
    change, expected = EDITS[file][name]
    problems = rewrite(make_run(tmp_path / "run", "native"), file, change)
    assert any(expected in problem for problem in problems), problems


def test_what_plain_verifying_leaves_to_slower_levels(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "frozen")
    assert rewrite(run, "completions.jsonl", put(6, program_sha256="0" * 64)) == ()
    assert verify(run, programs=True).problems == (
        f"program {'0' * 64} is not the hash of its recorded code",
    )
    assert verify(make_run(tmp_path / "honest", "frozen")).problems == ()
    assert verify(make_run(tmp_path / "forged", "frozen", shift=0.2)).problems == ()


def remake(change: Callable[[Line], None]) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        manifest = json.loads((run / "manifest.json").read_text())
        change(manifest)
        (run / "manifest.json").write_text(json.dumps(manifest))

    return apply


def reconfigured(manifest: Line) -> None:
    """Another purpose, hashed again, in the manifest alone."""
    manifest["config"]["purpose"] = "smoke"
    manifest["config_sha256"] = canonical_sha256(manifest["config"])


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        before = (run / name).read_bytes() if (run / name).exists() else b""
        (run / name).write_bytes(change(before))

    return apply


PICKLE, ADAPTER = pickle.dumps({}), "adapter/adapter_model.safetensors"
RUN_EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "configuration file": (rewritten("config.json", lambda _: b"{}"), "config.json is not the configuration"),
    "configuration": (remake(reconfigured), "config.json is not the configuration"),
    "configuration hash": (remake(lambda m: m.update(config_sha256=ZEROS)), "config_sha256 is not"),
    "timing": (remake(lambda m: m["timing"].update(total=1.0)), "timing is not the sum of timings.jsonl"),
    "speed": (remake(lambda m: m["timing"].update(groups_per_minute=1.0)), "timing is not the sum"),
    "unit": (remake(lambda m: m.update(score_unit="miles")), "score_unit is 'miles'"),
    "final adapter": (remake(lambda m: m.update(final_adapter_sha256=ZEROS)), "final_adapter_sha256"),
    "pickle beside": (rewritten("adapter/adapter_model.bin", lambda _: PICKLE), "adapter holds"),
    "pickle instead": (rewritten(ADAPTER, lambda _: PICKLE), "adapter_model.safetensors is not a valid"),
    "weight": (
        rewritten(ADAPTER, lambda data: data[:-1] + b"\x00"),
        "adapter_model.safetensors does not hold",
    ),
}


@pytest.mark.parametrize("name", RUN_EDITS)
def test_forged_manifests_and_adapters_are_found(make_run: Make, tmp_path: Path, name: str) -> None:
    change, expected = RUN_EDITS[name]
    run = make_run(tmp_path / "run", "native")
    change(run)
    write_sums(run)
    problems = verify(run).problems
    assert any(expected in problem for problem in problems), problems


def test_lists_purposes_and_shipped_files_agree(make_run: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = make_run(out / "native-s42", "native")
    make_run(out / "frozen-s42", "frozen", config={"purpose": "smoke"})
    write_sums(out)
    assert verify(out).problems == ("runs differ in purpose",)
    (run / "SHA256SUMS").write_text((run / "SHA256SUMS").read_text().replace("0", "1"))
    write_sums(out)
    assert any("native-s42/SHA256SUMS and SHA256SUMS give" in problem for problem in verify(out).problems)
    files = {"model.safetensors": "0" * 64}
    named = make_run(tmp_path / "named", config={"model": "qwen2-2.1m"}, model_files=files)
    assert verify(named).problems == ("named: model_files differ from the shipped qwen2-2.1m",)
    assert verify(make_run(tmp_path / "own", config={"model": "own"}, model_files=files)).problems == ()


def test_last_bits_of_another_processor_agree() -> None:
    assert agree([0.1 + 0.2, 1e6, None], [0.3, 1e6 * (1 + 2**-50), None])


@pytest.mark.parametrize(
    ("recorded", "due"),
    [([0.3], [0.3000001]), ([0.0], [1e-9]), ([None], [0.0]), ([0.0], [None]), ([1.0], [1.0, 2.0])],
)
def test_an_edit_does_not_agree(recorded: list[float | None], due: list[float | None]) -> None:
    """A changed digit that anybody would print, a missing number and another length are differences."""
    assert not agree(recorded, due)
