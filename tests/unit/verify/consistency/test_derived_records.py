"""What follows from something else is held against it: every forged value here has fresh checksums."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from search_to_signal.base.settings import canonical_sha256
from search_to_signal.records.checksums import write_sums
from search_to_signal.verify.directory import verify

Make = Callable[..., Path]
Line = dict[str, Any]
Edit = tuple[Callable[[list[Line]], None], str]


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


def retold(lines: list[Line]) -> None:
    lines[1]["completions"][0] = lines[1]["completions"][0].replace("return", "return 1 +")


RECORD_EDITS: dict[str, tuple[str, Callable[[list[Line]], None], str]] = {
    "response": (
        "completions.jsonl",
        put(4, response_sha256="0" * 64),
        "completions.jsonl:5 (step 1, completion 0): response_sha",
    ),
    "text": ("generations.jsonl", retold, "completions.jsonl:5 (step 1, completion 0): response_sha"),
    "prompt": ("generations.jsonl", put(1, prompt="another"), "steps.jsonl:2 (step 1): prompt_sha256"),
    "prompt tokens": (
        "completions.jsonl",
        put(4, prompt_tokens=3),
        "completions.jsonl:5 (step 1, completion 0): prompt_tokens",
    ),
    "completion tokens": (
        "completions.jsonl",
        put(5, completion_tokens=4),
        "completions.jsonl:6 (step 1, completion 1): completion_tokens",
    ),
    "emptied texts": ("generations.jsonl", list.clear, "do not hold the same completions of step 0"),
    "last text dropped": ("generations.jsonl", list.pop, "do not hold the same completions of step 3"),
    "never ran": ("completions.jsonl", put(5, outcome="missing_code"), "step 1, completion 1: recorded as"),
    "how it ended": ("completions.jsonl", put(4, evaluation="exception"), "step 1, completion 0: recorded"),
    "problem": (
        "completions.jsonl",
        put(6, problem="cvrp"),
        "completions.jsonl:7 (step 1, completion 2): problem",
    ),
    "exposure": ("completions.jsonl", put(5, exposure=0.5), "step 1, completion 1: exposure"),
    "parents": (
        "completions.jsonl",
        put(6, parents=["seed"]),
        "completions.jsonl:7 (step 1, completion 2): parents",
    ),
    "size, a later member": (
        "completions.jsonl",
        put(6, archive_size=9),
        "completions.jsonl:7 (step 1, completion 2): archive_size",
    ),
    "frontier, a later member": (
        "completions.jsonl",
        put(6, frontier=-1.0),
        "completions.jsonl:7 (step 1, completion 2): frontier",
    ),
    "base code": (
        "completions.jsonl",
        put(6, matches_base_code=True),
        "completions.jsonl:7 (step 1, completion 2): matches_base",
    ),
    "idea": ("heuristics.jsonl", put(1, idea="another"), "heuristics.jsonl:2 (step 0, completion 0): idea"),
    "code": (
        "heuristics.jsonl",
        put(1, code="def f(): pass"),
        "heuristics.jsonl:2 (step 0, completion 0): code",
    ),
    "id": ("heuristics.jsonl", put(1, id="0" * 64), "0"),
    "operator": (
        "heuristics.jsonl",
        put(1, operator="crossover"),
        "heuristics.jsonl:2 (step 0, completion 0): operator",
    ),
    "seed code": ("heuristics.jsonl", put(0, code="def f(): pass"), "it is not the seed heuristic of tsp"),
    "mapping": ("steps.jsonl", put(1, mapping="factorized"), "steps.jsonl:2 (step 1): mapping is factorized"),
    "zero advantage": (
        "steps.jsonl",
        put(1, zero_advantage=True),
        "steps.jsonl:2 (step 1): zero_advantage is true",
    ),
    "training tokens": ("steps.jsonl", put(1, training_tokens=13), "step 1: training_tokens is 13"),
    "lost loss": ("steps.jsonl", put(1, loss=None), "step 1: a trained step has no finite loss"),
    "last adapter": (
        "steps.jsonl",
        put(3, adapter_sha256="0" * 64),
        "final_adapter_sha256 is not the adapter",
    ),
    "seconds": ("timings.jsonl", lambda lines: lines[1]["seconds"].update(total=9.0), "timings.jsonl:2"),
    "a step's time dropped": ("timings.jsonl", list.pop, "timings.jsonl does not hold the 4 steps"),
}


COMPLETION_EDITS: dict[str, Edit] = {
    "reward": (put(4, reward=1.5), "completions.jsonl:5 (step 1, completion 0): reward"),
    "component": (
        put(4, components={"failure": 0.0, "comparison": 0.0}),
        "completions.jsonl:5 (step 1, completion 0): components",
    ),
    "advantage": (put(5, advantage=0.1), "completions.jsonl:6 (step 1, completion 1): advantage"),
    "score of an improvement": (put(4, score=-6.0), "step 1"),
    "score of a novelty": (put(7, score=-7.9), "step 1, completion 3"),
    "score of a copy": (put(6, score=-6.95), "step 1, completion 2"),
    "no score": (put(4, score=None), "step 1, completion 0: outcome valid"),
    "failure as valid": (put(5, outcome="valid"), "step 1, completion 1: outcome valid"),
    "valid as failure": (put(4, outcome="randomness"), "step 1, completion 0: outcome randomness"),
    "other failure": (put(5, outcome="missing_code"), "completions.jsonl:6 (step 1, completion 1): reward"),
    "archive event": (put(6, archive_event="admitted"), "step 1"),
    "gap": (put(4, archive_gap=0.2), "step 1, completion 0"),
    "archive size": (lambda lines: [line.update(archive_size=9) for line in lines[4:8]], "step 1"),
    "frontier of one": (put(5, frontier=-5.0), "step 1"),
    "frontier of all": (lambda lines: [line.update(frontier=-5.0) for line in lines[4:8]], "step 1"),
    "base score": (lambda lines: [line.update(base_scores=[-5.0]) for line in lines[4:8]], "step 1"),
    "dropped line": (lambda lines: lines.pop(5), "completions.jsonl:6"),
    "dropped last line of a group": (
        lambda lines: lines.pop(7),
        "do not hold the same completions of step 1",
    ),
    "dropped group": (lambda lines: lines.__delitem__(slice(4, 8)), "do not hold the same completions"),
    "dropped last group": (
        lambda lines: lines.__delitem__(slice(12, 16)),
        "do not hold the same completions",
    ),
    "duplicated line": (lambda lines: lines.insert(5, lines[5]), "completions.jsonl:7"),
    "duplicated group": (lambda lines: lines.extend(lines[12:]), "completions.jsonl:17"),
}


STEP_EDITS: dict[str, Edit] = {
    "broken frontier chain": (
        lambda lines: [lines[1].update(frontier_after=-1.0), lines[2].update(frontier_before=-2.0)],
        "step 2: frontier does not continue",
    ),
    "chain broken at a collapse": (put(2, frontier_before=-2.0, collapsed=True), "step 2"),
    "collapse that never was": (put(2, collapsed=True), "step 2"),
    "frontier after": (put(3, frontier_after=-1.0), "steps.jsonl:4 (step 3): frontier_after"),
    "valid": (put(1, valid=4), "steps.jsonl:2 (step 1): valid is 4, expected 3"),
    "admitted": (put(1, admitted=0), "steps.jsonl:2 (step 1): admitted"),
    "archive size": (put(1, archive_size=50), "steps.jsonl:2 (step 1): archive_size"),
    "operator": (put(1, operator="crossover"), "completions.jsonl:5 (step 1, completion 0): operator"),
    "prompt": (put(1, prompt_sha256="x"), "steps.jsonl:2 (step 1): prompt_sha256"),
    "dropped step": (lambda lines: lines.pop(1), "do not hold the same completions"),
    "duplicated step": (lambda lines: lines.insert(1, lines[1]), "do not hold the same completions"),
}

FORGED = [
    *RECORD_EDITS.items(),
    *((name, ("completions.jsonl", *edit)) for name, edit in COMPLETION_EDITS.items()),
    *((name, ("steps.jsonl", *edit)) for name, edit in STEP_EDITS.items()),
]


@pytest.mark.parametrize(
    "forgery", [edit for _, edit in FORGED], ids=[f"{edit[0]} {name}" for name, edit in FORGED]
)
def test_forged_records_are_found(
    make_run: Make, tmp_path: Path, forgery: tuple[str, Callable[[list[Line]], None], str]
) -> None:
    """A field that follows from text, tokens, archive, credit, adapter or clock cannot be changed alone."""
    file, change, expected = forgery
    problems = rewrite(make_run(tmp_path / "run", "native"), file, change)
    assert any(expected in problem for problem in problems), problems


def test_a_program_hash_is_held_against_its_code_when_asked(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "frozen")
    assert rewrite(run, "completions.jsonl", put(6, program_sha256="0" * 64)) == ()
    assert verify(run, programs=True).problems == (
        f"program {'0' * 64} is not the hash of its recorded code",
    )


def test_a_score_that_everything_agrees_with_is_left_to_recompute(make_run: Make, tmp_path: Path) -> None:
    assert verify(make_run(tmp_path / "honest", "frozen")).problems == ()
    assert verify(make_run(tmp_path / "forged", "frozen", shift=0.2)).problems == ()


def remake(change: Callable[[Line], None]) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        manifest = json.loads((run / "manifest.json").read_text())
        change(manifest)
        (run / "manifest.json").write_text(json.dumps(manifest))

    return apply


def pickled(run: Path) -> None:
    (run / "adapter" / "adapter_model.bin").write_bytes(pickle.dumps({}))


def replaced(run: Path) -> None:
    (run / "adapter" / "adapter_model.safetensors").write_bytes(pickle.dumps({}))


def nudged(run: Path) -> None:
    path = run / "adapter" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")


def reconfigured(manifest: Line) -> None:
    """Another purpose, hashed again, in the manifest alone."""
    manifest["config"]["purpose"] = "smoke"
    manifest["config_sha256"] = canonical_sha256(manifest["config"])


RUN_EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "configuration file": (
        lambda run: (run / "config.json").write_text("{}") and None,
        "config.json is not the configuration",
    ),
    "configuration": (remake(reconfigured), "config.json is not the configuration"),
    "configuration hash": (remake(lambda m: m.update(config_sha256="0" * 64)), "config_sha256 is not"),
    "timing": (remake(lambda m: m["timing"].update(total=1.0)), "timing is not the sum of timings.jsonl"),
    "speed": (remake(lambda m: m["timing"].update(groups_per_minute=1.0)), "timing is not the sum"),
    "unit": (remake(lambda m: m.update(score_unit="miles")), "score_unit is 'miles'"),
    "final adapter": (remake(lambda m: m.update(final_adapter_sha256="0" * 64)), "final_adapter_sha256"),
    "pickle beside": (pickled, "adapter holds"),
    "pickle instead": (replaced, "adapter_model.safetensors is not a valid"),
    "weight": (nudged, "adapter_model.safetensors does not hold"),
}


@pytest.mark.parametrize("name", RUN_EDITS)
def test_forged_manifests_and_adapters_are_found(make_run: Make, tmp_path: Path, name: str) -> None:
    change, expected = RUN_EDITS[name]
    run = make_run(tmp_path / "run", "native")
    change(run)
    write_sums(run)
    problems = verify(run).problems
    assert any(expected in problem for problem in problems), problems


def test_model_files_are_the_shipped_ones(make_run: Make, tmp_path: Path) -> None:
    files = {"model.safetensors": "0" * 64}
    named = make_run(tmp_path / "named", config={"model": "qwen2-2.1m"}, model_files=files)
    assert verify(named).problems == ("named: model_files differ from the shipped qwen2-2.1m",)
    assert verify(make_run(tmp_path / "own", config={"model": "own"}, model_files=files)).problems == ()


def test_lists_and_purposes_of_one_directory_agree(make_run: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = make_run(out / "native-s42", "native")
    make_run(out / "frozen-s42", "frozen", config={"purpose": "smoke"})
    write_sums(out)
    assert verify(out).problems == ("runs differ in purpose",)
    (run / "SHA256SUMS").write_text((run / "SHA256SUMS").read_text().replace("0", "1"))
    write_sums(out)
    assert any("native-s42/SHA256SUMS and SHA256SUMS give" in problem for problem in verify(out).problems)
