"""A run of the released host is a run directory like any other, and says so when it went wrong."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from answering_host import CONFIG, some_answers, with_answers, with_us
from tests.command import Command, Make, Patch
from tests.unit.search.hosts.mutants import texts_of

from search_to_signal.base.errors import HostError, RunDirectoryError
from search_to_signal.cli import main
from search_to_signal.models.base import Completion, Generation
from search_to_signal.models.serving import serving
from search_to_signal.records.manifest import Checkout, Manifest, read_manifest
from search_to_signal.records.reader import read_groups, read_records
from search_to_signal.records.schema import StepRecord
from search_to_signal.search.hosts.released.checkout import pinned
from search_to_signal.search.hosts.released.intervention import AGAIN
from search_to_signal.verify.directory import verify

Sabotage = Callable[[str, str, str], Path]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gpu_packages")]


def everything(path: Path) -> list[str]:
    """What lies below a directory, by relative path; nothing where there is none."""
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


@pytest.fixture
def command(s2s: Command) -> Command:
    """``s2s released`` with the stand-in's configuration."""
    return lambda calm, out, *more, code=0: s2s(
        *("released", "--calm", calm, "--config", CONFIG, "--out", out), *more, code=code
    )


def test_every_reader_takes_it(answering: Path, out: Path, s2s: Command, command: Command) -> None:
    command(answering, out, "--mapping", "factorized")
    manifest = read_manifest(out)
    assert (manifest.status, manifest.host) == ("complete", "released")
    s2s("verify", out)
    s2s("report", out, "--out", out.parent / "report")
    assert "by the released host on obp" in (out.parent / "report" / "report.md").read_text()
    told = s2s("trace", out, "core_results", "factorized", "Final best", "--show", "1").out
    assert "best score after the last group" in told
    s2s("replay", out, "--mapping", "native", "--out", out.parent / "audit")
    s2s("claims", "--results", out.parent)


def test_the_checkout_is_known_by_its_files(answering: Path, out: Path, monkeypatch: Patch) -> None:
    here = checkout_of(with_us(answering, out))
    monkeypatch.chdir(answering.parent)
    there = checkout_of(with_us(Path(answering.name), out.with_name("there")))
    (answering / "README").write_text("other\n")
    other = checkout_of(with_us(answering, out.with_name("other")))
    assert here.sha256 == there.sha256 != other.sha256


def test_our_own_runs_are_by_the_reference_host(make_run: Make, tmp_path: Path) -> None:
    place = make_run(tmp_path / "run")
    path = place / "manifest.json"
    old = {
        name: value
        for name, value in json.loads(path.read_text()).items()
        if name not in ("host", "checkout")
    }
    path.write_text(json.dumps(old))
    assert read_manifest(place).host == "reference"


def test_what_the_host_wrote_stays(answering: Path, out: Path) -> None:
    with_us(answering, out)
    names = {path.relative_to(out / "host").parts[0] for path in (out / "host").rglob("*") if path.is_file()}
    assert names == {"logs", "algorithms", "checkpoints"}
    (adapter,) = (out / "host").glob("checkpoints/**/adapter")
    adapter.write_text("other weights")
    assert any("checkpoints" in problem for problem in verify(out).problems)


@pytest.mark.parametrize("where", ["os.path.realpath(__file__)", "sys.modules['__main__'].__file__"])
def test_however_the_host_finds_its_directories(sabotaged: Sabotage, out: Path, where: str) -> None:
    sabotaged("main.py", "os.path.abspath(__file__)", where)
    calm = with_answers(sabotaged("main.py", "import json\n", "import json\nimport sys\n"), some_answers())
    before = everything(calm)
    with_us(calm, out)
    assert list((out / "host").glob("logs/**/rounds.jsonl"))
    assert everything(calm) == before


def test_a_read_only_checkout(answering: Path, out: Path) -> None:
    for path in (*answering.rglob("*"), answering):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with_us(answering, out)
    finally:
        for path in (answering, *answering.rglob("*")):
            path.chmod(0o755)
    assert not (out / "host" / "main.py").exists()


FAULTS = {
    "a round raises": ("calm_trainer.py", "top = ⟦→self.nothing or ⟧max(", "raised AttributeError"),
    "texts for prompts": ("calm_trainer.py", "append(⟦prompt→prompt.text⟧)", "used_prompts holds texts"),
    "no rewards": ("calm_trainer.py", "        return ⟦rewards→None⟧\n", "raised TypeError"),
    "no dictionary": ("heuristic.py", '⟦{"performance": float(np.mean(perfs))}→0.5⟧', "raised TypeError"),
    "asking raises": ("calm_trainer.py", "        if ⟦self.stuck→self.lost⟧():", "raised AttributeError"),
}


@pytest.mark.parametrize(("file", "change", "fact"), FAULTS.values(), ids=FAULTS)
def test_the_first_error_ends_the_run(
    sabotaged: Sabotage, out: Path, command: Command, file: str, change: str, fact: str
) -> None:
    calm = with_answers(sabotaged(file, *texts_of(change)), some_answers())
    (line,) = command(calm, out, code=12).err.splitlines()
    assert fact in line
    assert ".py" in line
    assert read_manifest(out).status == "running"
    assert "Traceback" in (out / "error.txt").read_text()


def test_a_round_that_went_unrecorded(sabotaged: Sabotage, calm: Path, out: Path, command: Command) -> None:
    with_answers(sabotaged("main.py", "continue", "break"), some_answers(), rounds=6)
    assert "ended with 4 of 6 rounds recorded" in command(calm, out, code=12).err
    assert read_manifest(out).status == "running"


def test_a_host_that_would_go_on_for_ever(calm: Path, out: Path, command: Command) -> None:
    with_answers(calm, some_answers(), rounds=6)
    (line,) = command(calm, out, code=12).err.splitlines()
    assert "calm_trainer.py" in line
    assert "raised StopIteration in round 4" in line
    assert len(list(read_groups(out))) == 4


def test_a_round_that_the_host_makes_again(sabotaged: Sabotage, out: Path) -> None:
    calm = sabotaged("calm_trainer.py", "SAME = 1e-7", "SAME = 1e-7\nWAIT = [1] * 5")
    sabotaged("calm_trainer.py", "        (row,) =", "        WAIT and WAIT.pop() / 0\n        (row,) =")
    with_us(with_answers(calm, some_answers()), out)
    assert len(list(read_groups(out))) == len(some_answers())


def test_a_second_try(sabotaged: Sabotage, answering: Path, out: Path) -> None:
    """An attempt that failed is set aside, whole; a complete run is never touched."""
    sabotaged("calm_trainer.py", "top = max(", "top = self.nothing or max(")
    with pytest.raises(HostError):
        with_us(answering, out)
    failed = everything(out)
    sabotaged("calm_trainer.py", "top = self.nothing or max(", "top = max(")
    with_us(answering, out)
    assert everything(out.parent / "interrupted" / "run-1") == failed
    assert verify(out).problems == ()
    complete = everything(out)
    with pytest.raises(RunDirectoryError):
        with_us(answering, out)
    assert everything(out) == complete


def test_another_directory_is_left_alone(answering: Path, out: Path) -> None:
    out.mkdir(parents=True)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError):
        with_us(answering, out)
    assert everything(out) == ["notes.txt"]


@pytest.mark.parametrize(("threshold", "steps", "taken"), [(-7, 4, 0), (-1, 4, 0), (0, 4, 0), (25, 4, 25)])
def test_a_negative_threshold_is_a_twentieth_of_the_steps(
    calm: Path, out: Path, command: Command, threshold: int, steps: int, taken: int
) -> None:
    with_answers(calm, some_answers(), steps, max_stuck_threshold=threshold)
    said = command(calm, out)
    assert read_manifest(out).config["search"]["collapse_threshold"] == taken
    assert ("collapses before every prompt" in said.out + said.err) is (taken == 0)


UNUSABLE = {
    "no package": (
        "main.py",
        "import pynvml\n⟦→import missing_one\n⟧",
        "main.py:8 imports missing_one, which is not installed: install missing_one here",
    ),
    "a package that fails": ("calm_trainer.py", "import importlib⟦→\n1 / 0⟧", "ZeroDivisionError"),
    "no threshold": (
        "args.py",
        "⟦    max_stuck_threshold: int = -1\n→⟧",
        "args.py: Args has no field max_stuck",
    ),
    "another signature": ("calm_trainer.py", "prompts, ⟦completions, →⟧**kw", "takes (prompts)"),
    "several prompts": ("configs/obp/local.yaml", "⟦log_name: local→n_prompts: 2⟧", "n_prompts is 2"),
    "no model": ("configs/obp/local.yaml", "⟦model_name: local-model→log_name: x⟧", "model_name is empty"),
    "no such model": ("configs/obp/local.yaml", "⟦local-model→./nowhere⟧", "no config.json"),
    "no such template": ("configs/obp/local.yaml", "template_fp: ⟦''→no.py⟧", "template_fp names no.py"),
    "a path of nothing": (
        "configs/obp/local.yaml",
        "seed_algo_fp:⟦ ''→⟧",
        "or '' for the host's own seed.py",
    ),
    "another reward": ("configs/obp/local.yaml", "⟦log_name: local→reward_code: -0.5⟧", "reward_code -0.5"),
    "unknown option": ("configs/obp/local.yaml", "⟦log_name→lug_name⟧", "lug_name"),
    "another problem": ("configs/obp/local.yaml", "problem_name: ⟦obp→knapsack⟧", "knapsack"),
    "no endpoint": (
        "configs/obp/local.yaml",
        "model_name: ⟦local-model→online/a\napi_key: none\nbase_url: http://127.0.0.1:9/v1⟧",
        "answer",
    ),
    "no address": (
        "configs/obp/local.yaml",
        "model_name: ⟦local-model→online/a⟧",
        "base_url and api_key may not be empty",
    ),
    "no served name": (
        "configs/obp/local.yaml",
        "model_name: ⟦local-model→Online⟧",
        "model_name is Online, give online/NAME",
    ),
}


@pytest.mark.parametrize("path", ["", "configs/obp/"])
def test_seed_and_template_of_the_problem(
    sabotaged: Sabotage, answering: Path, out: Path, path: str, command: Command
) -> None:
    for name, file in (("seed_algo_fp", "seed.py"), ("template_fp", "template.py")):
        assert f"{name}: ''" in (answering / CONFIG).read_text()
        if path:
            sabotaged(CONFIG, f"{name}: ''", f"{name}: {path}{file}")
    command(answering, out)
    assert len(list(read_groups(out))) == len(some_answers())


@pytest.mark.parametrize(("file", "change", "fact"), UNUSABLE.values(), ids=UNUSABLE)
def test_refused_before_it_runs(
    sabotaged: Sabotage, answering: Path, out: Path, command: Command, file: str, change: str, fact: str
) -> None:
    sabotaged(file, *texts_of(change))
    before = everything(answering)
    (line,) = command(answering, out, code=12).err.splitlines()
    assert fact in line
    assert Path(file).name in line
    assert not out.parent.exists()
    assert everything(answering) == before


def test_what_only_a_local_model_needs(
    answering: Path, out: Path, monkeypatch: Patch, command: Command
) -> None:
    monkeypatch.setitem(sys.modules, "unsloth", None)
    assert (
        "imports unsloth, which is not installed: uv sync --extra gpu" in command(answering, out, code=12).err
    )
    assert not out.parent.exists()


NVML = "nvmlInit, nvmlDeviceGetCount, nvmlDeviceGetHandleByIndex, nvmlDeviceGetMemoryInfo, nvmlShutdown"


@pytest.mark.parametrize("module", [None, "def nvmlInit():\n    raise OSError('no driver')\n", ""])
def test_without_nvml(
    answering: Path, out: Path, tmp_path: Path, monkeypatch: Patch, command: Command, module: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    if module is not None:
        del sys.modules["pynvml"]
        (tmp_path / "first").mkdir()
        (tmp_path / "first" / "pynvml.py").write_text(module)
        monkeypatch.syspath_prepend(tmp_path / "first")
    (line,) = command(answering, out, code=12).err.splitlines()
    assert line.endswith(f"a module pynvml on PYTHONPATH with {NVML} replaces it")
    assert not out.parent.exists()


def test_a_model_of_the_hub_without_the_hub(
    answering: Path, out: Path, monkeypatch: Patch, command: Command
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert (
        "HF_HUB_OFFLINE keeps it from being downloaded"
        in command(answering, out, code=HostError.exit_code).err
    )
    assert not out.parent.exists()


def test_large_files_are_linked(answering: Path, out: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("search_to_signal.search.hosts.released.checkout._LARGE", 10)
    before = {path: path.read_bytes() for path in answering.rglob("*") if path.is_file()}
    with_us(answering, out)
    assert {path: path.read_bytes() for path in answering.rglob("*") if path.is_file()} == before
    assert not any(path.is_symlink() for path in out.rglob("*"))


def test_a_missing_file_and_another_revision(answering: Path, out: Path, command: Command) -> None:
    (answering.parent / "REVISION").write_text("1" * 40)
    assert "REVISION: the checkout is at 111111111111" in command(answering, out, code=12).err
    command(answering, out, "--any-revision")
    manifest = read_manifest(out)
    assert manifest.checkout is not None
    assert (manifest.checkout.revision, manifest.config["purpose"]) == ("1" * 40, "smoke")
    (answering / "utils.py").unlink()
    assert "utils.py is missing" in command(answering, out.with_name("other"), "--any-revision", code=12).err
    assert not out.with_name("other").exists()


def test_only_the_pinned_revision_is_formal(answering: Path, out: Path, command: Command) -> None:
    command(answering, out, "--mapping", "nobody", code=2)
    command(answering, out, "--problem", "tsp", code=12)
    assert not out.parent.exists()
    (answering.parent / "REVISION").write_text(pinned() + "0" * 28)
    assert with_us(answering, out).config["purpose"] == "formal"


RAY = """import signal
        signal.signal(signal.SIGTERM, lambda *given: exit(1))
"""
STOPS = {
    "Ctrl-C in a round": ("calm_trainer.py", "(row,)", "{stop}\n        (row,)", "SIGINT"),
    "SIGTERM in a round": ("calm_trainer.py", "(row,)", "{stop}\n        (row,)", "SIGTERM"),
    "after Ray took it over": (
        "calm_trainer.py",
        "(row,)",
        RAY + "        {stop}\n        (row,)",
        "SIGTERM",
    ),
    "taken for a failed heuristic": (
        "calm_trainer.py",
        "            self.rate(policy, promise)\n        except BaseException:",
        "            {stop}\n            self.rate(policy, promise)\n        except:",
        "SIGTERM",
    ),
}


@pytest.mark.parametrize(("file", "old", "new", "name"), STOPS.values(), ids=STOPS)
def test_a_signal_ends_a_host_that_goes_on_after_anything(
    sabotaged: Sabotage, out: Path, command: Command, file: str, old: str, new: str, name: str
) -> None:
    stop = f"__import__('os').kill(__import__('os').getpid(), __import__('signal').{name})"
    calm = with_answers(sabotaged(file, old, new.replace("{stop}", stop)), some_answers())
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert command(calm, out, code=130).err == f"s2s: error: stopped; {AGAIN}\n"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert list(read_groups(out)) == []


def test_a_signal_that_c_code_took_over(sabotaged: Sabotage, out: Path, command: Command) -> None:
    """Ray's own takes SIGTERM while it starts, which Python does not see: it is ours again in every round."""
    made = "        self.env, self.problem_name ="
    taken = "        import ctypes\n        ctypes.CDLL(None).signal(15, ctypes.c_void_p(signal.SIG_IGN))\n"
    sabotaged("calm_trainer.py", "import importlib\n", "import importlib\nimport signal\n")
    sabotaged("calm_trainer.py", made, taken + made)
    calm = sabotaged("calm_trainer.py", "        (row,)", "        signal.raise_signal(15)\n        (row,)")
    command(with_answers(calm, some_answers()), out, code=130)
    assert list(read_groups(out)) == []


class Words:
    """Stands in for a tokenizer: a token is a word."""

    chat_template = None

    def __call__(self, text: str, **options: Any) -> dict[str, list[str]]:
        return {"input_ids": text.split()}


def test_tokens_are_counted_by_the_trainer_or_by_nobody(
    sabotaged: Sabotage, answering: Path, out: Path
) -> None:
    assert checkout_of(with_us(answering, out)).tokenizer is None
    assert {record.completion_tokens for group in read_groups(out) for record in group} == {0}
    (answering / "words.py").write_text("from test_released_runs import Words\n")
    sabotaged("calm_trainer.py", "import importlib\n", "import importlib\nimport words\n")
    sabotaged(
        "calm_trainer.py",
        "        self.calm_args,",
        "        self.processing_class = words.Words()\n        self.calm_args,",
    )
    counted = out.with_name("counted")
    assert checkout_of(with_us(answering, counted)).tokenizer == "trainer"
    generations = [json.loads(line) for line in (counted / "generations.jsonl").read_text().splitlines()]
    for generation, group in zip(generations, read_groups(counted), strict=True):
        assert [r.completion_tokens for r in group] == [
            len(text.split()) for text in generation["completions"]
        ]
        assert group[0].prompt_tokens > len(generation["prompt"].split())  # the system message counts as well
    steps = read_records(counted / "steps.jsonl", StepRecord)
    assert [step.training_tokens > 0 for step in steps].count(True) >= 3


def checkout_of(manifest: Manifest) -> Checkout:
    """What a manifest says of the checkout."""
    assert manifest.checkout is not None
    return manifest.checkout


class Config(NamedTuple):
    """What the endpoint asks of a model."""

    max_position_embeddings: int = 4096


class Talker:
    """Stands in for a model behind an endpoint: gives the answers that it was made with."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = iter(texts)
        self.model = self
        self.config = Config()

    def answer(self, chat: Any, seeds: Any, settings: Any) -> Generation:
        """The next answer, whatever was asked."""
        return Generation("", (), (Completion((), next(self.texts), False),))


@pytest.fixture
def endpoint() -> Iterator[str]:
    """An endpoint with a model called talker; yields its address."""
    texts = [text or "nothing" for group in some_answers() for text in group]
    with serving(Talker(texts), "talker") as url:  # type: ignore[arg-type]
        yield url


def served(calm: Path, endpoint: str, model: str) -> str:
    """A configuration of one's own, for a model behind an endpoint: eight rounds."""
    file = calm.parent / "mine.yaml"
    options = {
        **{"problem_name": "obp", "model_name": model, "base_url": endpoint, "api_key": "a-secret"},
        **{"max_steps": 2, "n_generations": 4, "max_stuck_threshold": 25},
    }
    file.write_text("".join(f"{name}: {value}\n" for name, value in options.items()))
    return str(file)


def test_a_model_behind_an_endpoint(
    calm: Path, out: Path, endpoint: str, monkeypatch: Patch, command: Command
) -> None:
    monkeypatch.setitem(sys.modules, "unsloth", None)
    config = served(calm, endpoint, "online/talker")
    first, *_ = command(calm, out, "--config", config, "--mapping", "factorized").out.splitlines()
    assert "max_steps 2 times n_generations 4 are 8 rounds" in first
    assert "every advantage is zero" in first
    groups = list(read_groups(out))
    assert [len(group) for group in groups] == [1] * 8
    assert {record.advantage for (record,) in groups} == {0.0}
    assert {record.score is None for (record,) in groups} == {True, False}
    found = read_manifest(out).config
    assert (found["served"], found["model"], found["groups"]) == (True, "talker", 8)
    steps = list(read_records(out / "steps.jsonl", StepRecord))
    assert {(step.training_tokens, step.zero_advantage) for step in steps} == {(0, True)}
    assert main(["verify", str(out)]) == 0
    assert main(["report", str(out), "--out", str(out.parent / "report")]) == 0
    assert all(b"a-secret" not in path.read_bytes() for path in out.rglob("*") if path.is_file())


def test_an_address_alone_is_no_endpoint(answering: Path, out: Path, command: Command) -> None:
    config = answering / CONFIG
    config.write_text(f"{config.read_text()}base_url: http://127.0.0.1:9/v1\n")
    first, *_ = command(answering, out).out.splitlines()
    assert "base_url is not used, as model_name does not begin with online" in first
    assert read_manifest(out).config["served"] is False


def test_an_endpoint_without_the_model(calm: Path, out: Path, endpoint: str, command: Command) -> None:
    config = served(calm, endpoint, "online/another/one")
    told = command(calm, out, "--config", config, code=12).err
    assert "model_name is online/another/one, so the host asks for another; the endpoint has talker" in told
    assert not out.parent.exists()
