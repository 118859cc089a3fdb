"""Recomputing a directory: honest runs agree, forgeries that verify accepts do not, and nothing does harm."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from spec.synthetic_runs import write_lines
from tests.cohorts import Told
from tests.command import Command, Patch
from tests.disk import on_a_full_disk
from tests.forging import configure, edit_line, edit_manifest, forge_last_score, reseal
from tests.unit.conftest import write_adapter
from tests.unit.run.test_live_loop import LIMITS, play

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.cli import main
from search_to_signal.models.base import Completion
from search_to_signal.problems import get_problem
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.differences import VerificationResult
from search_to_signal.records.manifest import Manifest, read_manifest, write_manifest
from search_to_signal.records.probe import ProbeRecord
from search_to_signal.records.provenance import environment
from search_to_signal.records.reader import read_groups, read_records
from search_to_signal.records.schema import ANY_FENCE, Outcome, StepRecord
from search_to_signal.run.again import Ending, RecordedText, Sample, compare_endings, text_findings
from search_to_signal.run.texts import NO_TOKENIZER
from search_to_signal.sandbox.again import Evaluations, ProgramRunner, limits_here
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import OPENING, program_sha256, sha256_text
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.verify import RECOMPUTE, VERIFY, promise
from search_to_signal.verify.directory import verify
from search_to_signal.verify.recompute import RecomputeOptions, differing_environment, recompute

pytestmark = pytest.mark.slow

Line = dict[str, Any]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, manifest: Callable[..., Manifest]) -> Path:
    """A sealed run of five trained groups; tests that change it work on a copy."""
    run = tmp_path_factory.mktemp("recompute") / "native-s3"
    with EvaluationPool(get_problem("tsp"), "embedded", LIMITS) as pool:
        config, _ = play(run, pool, "native", groups=5)
    shutil.rmtree(run / "checkpoint")
    settings = msgspec.to_builtins(config)
    digest = write_adapter(run / "adapter", settings)
    steps = read_records(run / "steps.jsonl", StepRecord)
    write_lines(run / "steps.jsonl", [msgspec.structs.replace(s, adapter_sha256=digest) for s in steps])
    write_manifest(run, manifest(settings))
    configure(run)
    write_sums(run)
    return run


@pytest.fixture
def copied(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "native-s3"))


def found(run: Path, **options: Any) -> VerificationResult:
    return recompute(run, RecomputeOptions(**options), Told())


@pytest.fixture(scope="module")
def state(honest: Path) -> Path:
    """What the honest run's programs give, for tests to which it does not matter when they were executed."""
    path = honest.parent / "state"
    found(honest, state=path)
    return path


def test_an_honest_run_agrees_and_stays_untouched(honest: Path) -> None:
    before = {path: path.read_bytes() for path in honest.rglob("*") if path.is_file()}
    done = found(honest)
    assert done.problems == ()
    assert list(done.not_compared) == [NO_TOKENIZER]
    assert done.counts["executed"] == done.counts["groups"] == len(list(read_groups(honest)))
    assert {path: path.read_bytes() for path in honest.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("recorded", "differs"),
    [({"OMP_NUM_THREADS": "1"}, ()), ({"ATEN_CPU_CAPABILITY": "avx512"}, ("kernels",))],
)
def test_a_run_s_own_threads_are_no_other_kernels(
    copied: Path, recorded: dict[str, str], differs: tuple[str, ...], monkeypatch: Patch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    here = environment()
    there = msgspec.structs.replace(here, kernels=dict(here.kernels or {}) | recorded)
    write_manifest(copied, msgspec.structs.replace(read_manifest(copied), environment=there))
    assert differing_environment(copied) == differs


@pytest.mark.parametrize("gain", [1.0, 1e-12])
def test_a_forged_score_passes_verify_and_not_recompute(copied: Path, state: Path, gain: float) -> None:
    step, index, score = forge_last_score(copied, gain)
    reseal(copied)
    assert verify(copied).problems == ()
    (problem,) = found(copied, state=state).problems
    assert f"step {step}, completion {index}: score {score} is recorded" in problem


def test_a_state_without_room_is_no_problem_of_the_directory(honest: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    done = on_a_full_disk("verify", "--recompute", "--state", state, str(honest), file_bytes=300)
    assert (done.returncode, done.stderr.count("\n")) == (RunDirectoryError.exit_code, 1), done.stderr
    assert "make room, then give the command again" in done.stderr
    assert "FAILED" not in done.stdout


EDITS: dict[str, tuple[str, Callable[[Line], object], str]] = {
    "idea": ("heuristics.jsonl", lambda h: h.update(idea=h["idea"] + "!"), "idea is"),
    "code": ("heuristics.jsonl", lambda h: h.update(code=h["code"] + "\n"), "code is"),
    "id": ("heuristics.jsonl", lambda h: h.update(id="0" * 64), "id is"),
    "prompt": ("generations.jsonl", lambda g: g.update(prompt=g["prompt"][:-9]), "prompt"),
    "text": ("generations.jsonl", lambda g: g["completions"].reverse(), "response_sha256"),
    "fewer texts": (
        "generations.jsonl",
        lambda g: g["completions"].pop(),
        "do not hold the same completions",
    ),
    "response": ("completions.jsonl", lambda c: c.update(response_sha256="0" * 64), "response_sha256"),
    "program": ("completions.jsonl", lambda c: c.update(program_sha256="0" * 64), "program_sha256"),
    "evaluation": ("completions.jsonl", lambda c: c.update(evaluation="exit"), "evaluation exit is recorded"),
    "exposure": ("completions.jsonl", lambda c: c.update(exposure=0.123), "exposure is"),
    "parents": ("completions.jsonl", lambda c: c.update(parents=[]), "parents"),
    "copy flag": (
        "completions.jsonl",
        lambda c: c.update(matches_base_code=not c["matches_base_code"]),
        "matches_base_code is",
    ),
    "stagnation": ("steps.jsonl", lambda s: s.update(stagnation=s["stagnation"] + 1), "stagnation is"),
}


@pytest.mark.parametrize("name", EDITS)
def test_resealed_edits_are_found(copied: Path, state: Path, name: str) -> None:
    file, change, expected = EDITS[name]
    edit_line(copied / file, -1, change)
    reseal(copied)
    problems = found(copied, state=state).problems
    assert any(expected in problem for problem in problems), problems


def test_an_emptied_file_of_texts_is_a_problem(copied: Path, state: Path) -> None:
    (copied / "generations.jsonl").write_bytes(b"")
    reseal(copied)
    assert any(
        "do not hold the same completions" in problem for problem in found(copied, state=state).problems
    )


FAILED, VALID, UNCODED = Outcome.RUNTIME_FAILURE, Outcome.VALID, Outcome.MISSING_CODE
CHANCE = "nondeterministic"


def ended(outcome: Outcome, isolation: str, detail: str = "", value: float | None = None) -> Ending:
    return Ending(outcome, isolation, detail, value)


CUT_OFF = ended(FAILED, "timeout", "SIGPROF")
# Recorded, found here, and whether that is a problem; None for no difference.
RULES: dict[str, tuple[Ending, Ending, bool | None]] = {
    "equal": (ended(VALID, "ok", "", -1.5), ended(VALID, "ok", "", -1.5), None),
    "last bit": (ended(VALID, "ok", "", 0.1 + 0.2), ended(VALID, "ok", "", 0.3), True),
    "other outcome": (ended(FAILED, "exception", "E"), ended(VALID, "ok", "", -1.0), True),
    "time-out that ends": (CUT_OFF, ended(VALID, "ok", "", -1.0), False),
    "kill that ends": (ended(FAILED, "killed"), ended(VALID, "ok", "", -1.0), False),
    "end that is cut off": (ended(VALID, "ok", "", -1.0), CUT_OFF, True),
    "failure that is cut off": (ended(FAILED, "exception", "E"), CUT_OFF, True),
    "two time-outs": (CUT_OFF, ended(FAILED, "timeout", "elapsed time"), None),
    "scored time-out": (ended(VALID, "timeout", "", -1.0), ended(VALID, "ok", "", -2.0), True),
    "scored time-out again": (ended(VALID, "timeout", "", -1.0), CUT_OFF, True),
    "chance twice": (ended(VALID, CHANCE, "", -1.0), ended(VALID, CHANCE, "", -2.0), False),
    "claimed chance": (ended(VALID, CHANCE, "", -1.0), ended(VALID, "ok", "", -2.0), True),
    "chance, equal scores": (ended(VALID, CHANCE, "", -1.0), ended(VALID, "ok", "", -1.0), False),
    "other class": (ended(FAILED, "exception", "KeyError: 1"), ended(FAILED, "exception", "E: 1"), True),
    "other words": (ended(FAILED, "exception", "E: 1"), ended(FAILED, "exception", "E: 2"), False),
    "parser's words": (ended(UNCODED, "not_run", "a: b"), ended(UNCODED, "not_run", "a: c"), True),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rule_of_what_is_compared(name: str) -> None:
    recorded, here, expected = RULES[name]
    assert [finding.compared for finding in compare_endings("here", recorded, here)] == (
        [] if expected is None else [expected]
    )


def completion(body: str) -> str:
    """A well-formed completion whose function has this body."""
    signature = "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):"
    code = "\n".join([signature, *(f"    {line}" for line in body.splitlines())])
    return f"{{{{{OPENING} do as it is told.}}}}\n```python\n{code}\n```"


def probed(body: str, **claims: Any) -> RecordedText:
    """A recorded answer with claims about it."""
    text = completion(body)
    code = text.split("```python\n")[1].split("\n```")[0]
    told: Line = {"outcome": VALID, "detail": "", "score": -1.0, "evaluation": "ok", **claims}
    record = ProbeRecord(
        checkpoint="initial",
        prompt=0,
        position=0,
        response_sha256=sha256_text(text),
        program_sha256=program_sha256(code),
        prompt_tokens=1,
        completion_tokens=1,
        truncated=False,
        text=text,
        **told,
    )
    return RecordedText("here", record, Completion((), text, False))


def code_of(text: RecordedText) -> str:
    """The program of a recorded answer."""
    return text.completion.text.split("```python\n")[1].split("\n```")[0]


LONG = "n = 0\nfor _ in range(10**{}):\n    n += 1\nreturn min(unvisited_nodes)"


def test_time_limits_cannot_hide_a_forged_score() -> None:
    """A program that never ends is no proof of its score; one that was cut off and now ends is counted."""
    limits = EvaluationSettings(timeout_s=0.2, wall_factor=10.0, replay="off")
    cut_off = {"outcome": FAILED, "score": None, "evaluation": "timeout", "detail": "SIGPROF"}
    with closing(ProgramRunner(Evaluations(None, ""), 1)) as runner:
        programs = runner.programs(get_problem("tsp"), "embedded", limits)

        def judged(text: RecordedText) -> list[tuple[str, bool]]:
            return [
                (finding.text, finding.compared)
                for finding in text_findings([text], programs, True, ANY_FENCE)
            ]

        assert judged(probed(LONG.format(12), **cut_off)) == []
        ((text, compared),) = judged(probed(LONG.format(13)))
        assert (compared, "timeout" in text) == (True, True)
        ((text, compared),) = judged(probed("return min(unvisited_nodes)", **cut_off))
        assert (compared, "recorded as timeout" in text) == (False, True)


def test_a_slower_machine_has_more_time(monkeypatch: Patch) -> None:
    # Processor time alone decides, however busy the machine is.
    monkeypatch.setattr("search_to_signal.sandbox.again._LARGEST_LIMITS", {})
    code = code_of(probed(LONG.format(4)))
    with closing(ProgramRunner(Evaluations(None, ""), 1)) as runner:
        limits = EvaluationSettings(timeout_s=60.0, replay="off")
        (ample,) = runner.programs(get_problem("tsp"), "embedded", limits).evaluate([code])
        limits = EvaluationSettings(timeout_s=ample.cpu_s / 2, wall_factor=1000.0, replay="off")
        programs = runner.programs(get_problem("tsp"), "embedded", limits)
        assert (
            list(text_findings([probed(LONG.format(4), score=ample.score)], programs, True, ANY_FENCE)) == []
        )
        (finding,) = text_findings(
            [probed(LONG.format(4), evaluation="ok, repeat")], programs, True, ANY_FENCE
        )
        assert f"its program gives {ample.score}" in finding.text


def test_a_program_cannot_borrow_the_score_of_a_text_that_reads_itself_otherwise() -> None:
    told = 'place = 0 if select_next_node.__doc__ == "last" else len(unvisited_nodes) // 2'
    body = f'"""{{}}"""\n{told}\nreturn sorted(unvisited_nodes)[place]'
    with closing(ProgramRunner(Evaluations(None, ""), 1)) as runner:
        limits = EvaluationSettings(timeout_s=10.0, replay="off")
        programs = runner.programs(get_problem("tsp"), "embedded", limits)
        one, other = probed(body.format("first")), probed(body.format("last"))
        codes = [code_of(text) for text in (one, other)]
        first, last = programs.evaluate(codes)
        assert program_sha256(codes[0]) == program_sha256(codes[1])
        assert first.score != last.score
        assert not last.repeat


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout_s", 1e9), ("memory_mb", 10**9), ("wall_factor", 1e9), ("wall_factor", 999.0)],
)
def test_recorded_limits_are_not_obeyed_blindly(copied: Path, name: str, value: float) -> None:
    edit_manifest(copied, lambda manifest: manifest["config"]["evaluation"].update({name: value}))
    reseal(copied)
    done = found(copied)
    assert done.counts["programs"] == 0
    assert any(f"evaluation.{name}" in problem for problem in done.problems), done.problems


def test_isolation_is_not_theirs_to_loosen() -> None:
    """A directory cannot ask for programs to run without seccomp, nor for many of them side by side."""
    here = limits_here(EvaluationSettings(require_seccomp=False, slots=1024), 1)
    assert (here.require_seccomp, here.slots) == (True, 1)
    with pytest.raises(ConfigError):
        limits_here(msgspec.structs.replace(EvaluationSettings(), wall_factor=11.0), 1)


@pytest.mark.parametrize("name", ["problem", "condition"])
def test_nothing_that_a_manifest_names_is_imported(copied: Path, monkeypatch: Patch, name: str) -> None:
    mark = copied.parent / "ran"
    (copied.parent / "planted.py").write_text(f"open({str(mark)!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(copied.parent)
    edit_manifest(copied, lambda manifest: manifest["config"].update({name: "planted:thing"}))
    reseal(copied)
    done = found(copied)
    assert any("planted:thing" in problem for problem in done.problems)
    assert (done.counts["programs"], mark.exists()) == (0, False)


@pytest.mark.parametrize(
    "setting", [{"seed": "x"}, {"search": {"crossover": -1.0}}, {"groups": None}, {"split": "no"}]
)
def test_a_strange_configuration_is_one_problem(copied: Path, setting: Line) -> None:
    edit_manifest(copied, lambda manifest: manifest["config"].update(setting))
    reseal(copied)
    done = found(copied)
    assert (len(done.problems), done.counts["programs"]) == (1, 0)


def test_draws_of_the_released_host_are_left_out_by_name(copied: Path) -> None:
    edit_manifest(copied, lambda manifest: manifest.update(host="released"))
    reseal(copied)
    done = found(copied)
    assert (done.problems, done.counts["programs"] > 0) == ((), True)
    assert [reason for reason in done.not_compared if "draws" in reason]


class Stop(Told):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.left = groups

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_an_interrupted_recompute_goes_on(copied: Path, tmp_path: Path) -> None:
    forge_last_score(copied, 0.5)
    reseal(copied)
    whole, state = found(copied), tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        recompute(copied, RecomputeOptions(state=state), Stop(4))
    kept = state.read_bytes()
    lines = kept.count(b"\n") - 1
    state.write_bytes(kept + b'{"key": "torn')
    again = found(copied, state=state)
    assert again.counts["programs"] == whole.counts["programs"] - lines
    assert lines > 0
    assert (again.problems, again.not_compared) == (whole.problems, whole.not_compared)
    assert found(copied, state=state).counts["programs"] == 0


def test_a_state_file_is_our_own_and_elsewhere(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="state"):
        found(copied, state=copied / "state")
    assert not (copied / "state").exists()
    other = tmp_path / "thesis.txt"
    other.write_text("do not touch\n")
    with pytest.raises(RunDirectoryError, match="thesis"):
        found(copied, state=other)
    assert other.read_text() == "do not touch\n"
    with pytest.raises(RunDirectoryError, match="state file"):
        found(copied, state=tmp_path / "nowhere" / "state")


def test_a_sample_is_drawn_from_its_seed(copied: Path, state: Path) -> None:
    total = len(list(read_groups(copied)))
    chosen = Sample(7, 3).chosen("native-s3", total)
    assert len(chosen) == 3
    assert chosen == Sample(7, 3).chosen("native-s3", total)
    assert len({Sample(seed, 3).chosen("native-s3", total) for seed in range(9)}) > 1
    assert Sample(7, 99).chosen("native-s3", total) == frozenset(range(total))
    step, _, _ = forge_last_score(copied, 0.5)
    reseal(copied)
    last = step
    hits = {seed: last in Sample(seed, 1).chosen("native-s3", last + 1) for seed in range(40)}
    for expected in (True, False):
        seed = next(seed for seed, hit in hits.items() if hit is expected)
        done = found(copied, state=state, sample=Sample(seed, 1))
        assert (bool(done.problems), done.counts["executed"]) == (expected, 1)


def test_the_command_says_what_it_checked(copied: Path, state: Path, s2s: Command) -> None:
    out = s2s("verify", copied, "--recompute", "--sample", "1").out.splitlines()
    assert any("--seed" in line for line in out)
    assert any(line.startswith("NOT COMPARED 1 x token ids") for line in out)
    assert out[-2:] == [promise(VERIFY), promise(RECOMPUTE)]
    forge_last_score(copied, 0.5)
    reseal(copied)
    s2s("verify", copied)
    said = s2s("verify", copied, "--recompute", "--state", state, code=1)
    assert "PROBLEM native-s3: step" in said.out


@pytest.mark.parametrize(
    "option",
    [
        ["--slots", "2"],
        ["--sample", "2"],
        ["--state", "x"],
        ["--recompute", "--seed", "3"],
        ["--identity", "me"],
    ],
)
def test_options_that_would_do_nothing_are_refused(copied: Path, option: list[str]) -> None:
    assert main(["verify", str(copied), *option]) == 2
