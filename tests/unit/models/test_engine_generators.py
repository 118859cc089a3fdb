"""vLLM and Unsloth: our calls fit the locked releases' own signatures, and what comes back is checked."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from search_to_signal.base.errors import ConfigError, GenerationError, ModelFileError
from search_to_signal.models import vllm as vllm_module
from search_to_signal.models.base import encoded, messages, request_seeds
from search_to_signal.models.opening import open_trainable
from search_to_signal.models.settings import EngineSettings, GenerationSettings
from search_to_signal.search.member import Prompt

pytestmark = pytest.mark.slow  # tokenizers of other directories live in forked processes

ROOT = Path(__file__).parents[3]
SIGNATURES = json.loads(Path(__file__).with_name("engine_signatures.json").read_text())
PROMPT = Prompt("", "def select_next_node(current_node): return 0.4")
END, PAD, CONTEXT = 2, 0, 512


def fits(name: str, keywords: Sequence[str], positional: int = 0) -> None:
    """Fail unless the release's signature takes these arguments."""
    call = SIGNATURES["calls"][name]
    unknown = set(keywords) - set(call["parameters"][positional:])
    assert not unknown, f"{name} does not take {unknown}"
    assert positional <= len(call["parameters"])


class FakeLLM:
    """Accepts what vllm.LLM accepts, and answers what the test scripts."""

    def __init__(self, **keywords: Any) -> None:
        own = SIGNATURES["calls"]["LLM"]
        assert own["others"], "further keywords go to EngineArgs"
        fits("EngineArgs", [name for name in keywords if name not in own["parameters"]])
        self.made, self.calls = keywords, list[Any]()
        self.resets, self.forgets = list[int](), True
        self.answer: Callable[[list[int], Any], Any] = lambda prompt, params: ([9, END], "stop")
        config = SimpleNamespace(max_model_len=keywords.get("max_model_len", CONTEXT))
        self.llm_engine = SimpleNamespace(model_config=config)

    def reset_prefix_cache(self) -> bool:
        self.resets.append(len(self.calls))
        return self.forgets

    def generate(self, *arguments: Any, **keywords: Any) -> list[Any]:
        fits("LLM.generate", list(keywords), len(arguments))
        self.calls.append((arguments[0], keywords))
        for prompt in arguments[0]:
            fits("TokensPrompt", list(prompt))
        outputs = []
        for prompt, params in zip(arguments[0], keywords["sampling_params"], strict=True):
            ids, reason, *read = self.answer(prompt["prompt_token_ids"], params)
            answer = SimpleNamespace(token_ids=ids, finish_reason=reason)
            read = read or [prompt["prompt_token_ids"]]
            outputs.append(SimpleNamespace(prompt_token_ids=read[0], outputs=[answer]))
        return outputs


def sampling_params(**keywords: Any) -> SimpleNamespace:
    """Accepts what vllm.SamplingParams accepts."""
    fits("SamplingParams", list(keywords))
    return SimpleNamespace(**keywords)


def lora_request(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
    """Accepts what both LoRARequest classes accept, in the same places."""
    for name in ("LoRARequest", "unsloth_zoo LoRARequest"):
        fits(name, list(keywords), len(arguments))
        assert SIGNATURES["calls"][name]["parameters"][:3] == ["lora_name", "lora_int_id", "lora_path"]
    return arguments


def module(name: str, **contents: Any) -> ModuleType:
    """A module that is not installed here."""
    made = ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.fixture
def model(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model directory as far as an engine's start needs it here: tokenizer and end tokens."""
    monkeypatch.setattr(vllm_module, "try_model", lambda _: None)  # it has no weights
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text(f'{{"eos_token_id": [{END}, {PAD}]}}')
    return tmp_path / "model"


@pytest.fixture(params=["vllm", "unsloth"])
def backend(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both backends, their libraries replaced by what their signatures say."""

    class FastLanguageModel:
        @staticmethod
        def from_pretrained(**keywords: Any) -> Any:
            fits("FastLanguageModel.from_pretrained", list(keywords))
            Path("unsloth_compiled_cache").mkdir()
            llm = FakeLLM(max_model_len=keywords["max_seq_length"])
            return SimpleNamespace(vllm_engine=llm, made=keywords), None

    lora = module("vllm.lora.request", LoRARequest=lora_request)
    for made in (
        module("vllm", LLM=FakeLLM, SamplingParams=sampling_params),
        module("vllm.lora"),
        lora,
        module("unsloth", FastLanguageModel=FastLanguageModel),
        module("unsloth.models.llama", HAS_XFORMERS=True, HAS_FLASH_ATTENTION=False),
    ):
        monkeypatch.setitem(sys.modules, made.__name__, made)
    return str(request.param)


def opened(backend: str, model: Path, scratch: Path, **changes: Any) -> Any:
    """A generator of the backend."""
    limits: dict[str, Any] = {"group_size": 3, "max_prompt_tokens": 200, "max_completion_tokens": 4}
    engine = EngineSettings(context=CONTEXT, gpu_memory_utilization=0.7, lora_rank=8)
    settings = GenerationSettings(**{**limits, "backend": backend, "engine": engine, **changes})
    return open_trainable(settings, str(model), scratch)


def engine_of(generator: Any) -> FakeLLM:
    """The scripted engine of a generator."""
    return generator._engine.llm  # type: ignore[no-any-return]


def test_signatures_are_those_of_the_locked_wheels() -> None:
    """The checked-in data was read out of exactly the files that uv.lock names; every attribute was found."""
    lock = (ROOT / "uv.lock").read_text()
    assert sorted(SIGNATURES["wheels"]) == ["unsloth", "unsloth_zoo", "vllm"]
    for wheel in SIGNATURES["wheels"].values():
        (line,) = [line for line in lock.splitlines() if wheel["file"] in line]
        assert f"sha256:{wheel['sha256']}" in line
    assert all(item["found"] for item in SIGNATURES["attributes"].values())


def test_the_answers_are_read_from_fields_that_exist() -> None:
    """Token ids, the reason to stop and the prompt that was read are what the release calls them."""
    assert {"token_ids", "finish_reason"} <= set(SIGNATURES["calls"]["CompletionOutput"]["parameters"])
    assert {"prompt_token_ids", "outputs"} <= set(SIGNATURES["calls"]["RequestOutput"]["parameters"])
    assert {"r", "lora_alpha", "target_modules"} <= set(SIGNATURES["calls"]["PEFTHelper"]["parameters"])


def test_the_engine_starts_with_the_settings(backend: str, model: Path, tmp_path: Path) -> None:
    """Context, memory share, adapter rank and 4-bit weights reach the engine; the model is the directory."""
    generator = opened(backend, model, tmp_path / "scratch")
    if backend == "vllm":
        made = engine_of(generator).made
        assert (made["model"], made["max_model_len"], made["max_lora_rank"]) == (str(model), CONTEXT, 8)
        assert (made["enable_lora"], made["quantization"]) == (True, "bitsandbytes")
        assert generator.base() is None
    else:
        made = generator.base().made
        assert (made["model_name"], made["max_seq_length"], made["max_lora_rank"]) == (str(model), CONTEXT, 8)
        assert (made["fast_inference"], made["load_in_4bit"]) == (True, True)
    assert made["gpu_memory_utilization"] == 0.7
    assert generator.pad_id == PAD


def test_compiled_code_stays_with_the_run(
    backend: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Unsloth writes into the working directory lands in the run's scratch; the directory is kept."""
    monkeypatch.chdir(tmp_path)
    opened(backend, Path("model"), Path("scratch"))
    assert Path.cwd() == tmp_path
    assert (tmp_path / "scratch" / "unsloth_compiled_cache").exists() is (backend == "unsloth")
    assert not (tmp_path / "unsloth_compiled_cache").exists()


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (
            ValueError("Model architectures ['X'] are not supported for now."),
            ModelFileError,
            r"\['X'\] are not",
        ),
        (RuntimeError("No available memory for\nthe cache blocks."), ModelFileError, "for the cache blocks"),
        (torch.OutOfMemoryError("CUDA out of memory."), ConfigError, "too little free memory for the engine"),
    ],
)
def test_an_engine_that_does_not_start_is_one_line(
    backend: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: Any,
    told: str,
) -> None:
    """What it says of the model or the card comes with the directory, instead of a traceback."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(sys.modules["vllm"], "LLM", fail)
    monkeypatch.setattr(sys.modules["unsloth"].FastLanguageModel, "from_pretrained", fail)
    with pytest.raises(kind, match=told) as caught:
        opened(backend, model, tmp_path / "scratch")
    assert str(model) in str(caught.value)


def test_an_unsloth_that_finds_no_card_is_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so by NotImplementedError when it is imported, as where the driver is too old for torch."""

    class NoCard(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise NotImplementedError("Unsloth: No NVIDIA GPU found?")

    monkeypatch.setitem(sys.modules, "unsloth", NoCard("unsloth"))
    monkeypatch.delitem(sys.modules, "unsloth.models.llama", raising=False)
    with pytest.raises(ConfigError, match="No NVIDIA GPU found.*see that torch finds the card"):
        opened("unsloth", model, tmp_path / "scratch")


@pytest.mark.parametrize("backend", ["unsloth"], indirect=True)
def test_attention_without_a_causal_mask_is_refused(
    backend: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Unsloth found neither xformers nor flash-attn, training would read the tokens to come."""
    monkeypatch.setattr(sys.modules["unsloth.models.llama"], "HAS_XFORMERS", False)
    with pytest.raises(ConfigError, match=r"import xformers\.ops\.fmha"):
        opened(backend, model, tmp_path / "scratch")
    monkeypatch.setattr(sys.modules["unsloth.models.llama"], "HAS_FLASH_ATTENTION", True)
    assert opened(backend, model, tmp_path / "scratch").base()


@pytest.mark.parametrize("backend", ["vllm"], indirect=True)
def test_products_are_in_one_order_before_an_engine_starts(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """The learner in vLLM's process demands it, and cuBLAS reads it once."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    opened(backend, model, tmp_path / "scratch")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_each_completion_has_a_seed_and_no_filter(
    backend: str, model: Path, tmp_path: Path, tokenizer: Any
) -> None:
    """One request per completion, each with its own seed, temperature and nothing else, both end tokens."""
    generator = opened(backend, model, tmp_path / "scratch")
    generation = generator.generate(PROMPT, 7)
    ((prompts, keywords),) = engine_of(generator).calls
    text, ids = encoded(tokenizer, messages(PROMPT))
    assert prompts == [{"prompt_token_ids": ids}] * 3
    assert [params.seed for params in keywords["sampling_params"]] == list(request_seeds(7, 3))
    for params in keywords["sampling_params"]:
        assert (params.n, params.temperature, params.top_p, params.top_k, params.min_p) == (1, 0.9, 1, -1, 0)
        assert (params.repetition_penalty, params.max_tokens) == (1, 4)
        assert params.stop_token_ids == [PAD, END]
    assert keywords["lora_request"] is None
    filtered = opened(backend, model, tmp_path / "filtered", top_k=5, top_p=0.5)
    filtered.generate(PROMPT, 7)
    ((_, keywords),) = engine_of(filtered).calls
    assert {(params.top_k, params.top_p) for params in keywords["sampling_params"]} == {(5, 0.5)}
    assert (generation.prompt, list(generation.prompt_ids)) == (text, ids)


def test_a_long_prompt_is_cut_before_the_engine_reads_it(
    backend: str, model: Path, tmp_path: Path, tokenizer: Any
) -> None:
    """The engine is given the tokens that the record holds and the learner scores, not the whole text."""
    generator = opened(backend, model, tmp_path / "scratch", max_prompt_tokens=9)
    generation = generator.generate(PROMPT, 7)
    ((prompts, _),) = engine_of(generator).calls
    text, ids = encoded(tokenizer, messages(PROMPT))
    assert prompts == [{"prompt_token_ids": ids[-9:]}] * 3
    assert (generation.prompt, list(generation.prompt_ids)) == (text, ids[-9:])
    assert generation.prompt_tokens_cut == len(ids) - 9
    refusing = opened(backend, model, tmp_path / "other", max_prompt_tokens=9, long_prompts="refuse")
    with pytest.raises(ConfigError, match="max_prompt_tokens is 9"):
        refusing.generate(PROMPT, 7)
    assert engine_of(refusing).calls == []


def test_no_group_reads_what_another_left(backend: str, model: Path, tmp_path: Path) -> None:
    """The engine's cached prompts are dropped before each group; one that still works is an error."""
    generator = opened(backend, model, tmp_path / "scratch")
    for _ in range(2):
        generator.generate(PROMPT, 7)
    assert engine_of(generator).resets == [0, 1]
    engine_of(generator).forgets = False
    with pytest.raises(GenerationError, match="earlier group"):
        generator.generate(PROMPT, 7)


def test_ends_and_cuts_are_told_apart(backend: str, model: Path, tmp_path: Path, tokenizer: Any) -> None:
    """Tokens are kept with the end token that was drawn, whichever of the two; text is without it."""
    generator = opened(backend, model, tmp_path / "scratch")
    word = tokenizer.encode("score", add_special_tokens=False)[0]
    answers = iter([([word, END], "stop"), ([word, word, PAD], "stop"), ([word] * 4, "length")])
    engine_of(generator).answer = lambda prompt, params: next(answers)
    found = generator.generate(PROMPT, 7).completions
    assert [item.ids for item in found] == [(word, END), (word, word, PAD), (word,) * 4]
    assert [item.truncated for item in found] == [False, False, True]
    assert [item.text for item in found] == [tokenizer.decode([word] * n) for n in (1, 2, 4)]


@pytest.mark.parametrize(
    "answer",
    [([], "length"), ([9], "length"), ([9], "stop"), ([9, END], None), ([9, END], "stop", [1, 2])],
)
def test_what_was_cut_short_stops_the_run(backend: str, model: Path, tmp_path: Path, answer: Any) -> None:
    """A prompt that was not read whole, or an answer that ended for no reason of ours, is no completion."""
    generator = opened(backend, model, tmp_path / "scratch")
    engine_of(generator).answer = lambda prompt, params: answer
    with pytest.raises(GenerationError, match=r"generation\.engine\.context"):
        generator.generate(PROMPT, 7)


class SavedAdapter:
    """Writes its name; has no weights to merge."""

    def __init__(self, name: str) -> None:
        self._name = name

    def merge_into(self, plain: Any) -> None:
        raise AssertionError("an engine takes files")

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "adapter_config.json").write_text(self._name)


def test_the_next_group_uses_the_adapter(
    backend: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adopted adapter is in the very next request, each under an id never used before, and one is kept."""
    monkeypatch.chdir(tmp_path)
    generator = opened(backend, model, Path("scratch"))
    seen = []
    for name in ("first", "second", "third"):
        generator.load_adapter(SavedAdapter(name))
        generator.generate(PROMPT, 7)
        _, identifier, path = engine_of(generator).calls[-1][1]["lora_request"]
        seen.append((identifier, (Path(path) / "adapter_config.json").read_text()))
        assert Path(path).is_absolute()
    assert seen == [(1, "first"), (2, "second"), (3, "third")]
    assert [path.name for path in (tmp_path / "scratch" / "adapters").iterdir()] == ["3"]


def test_a_smaller_context_than_asked_for_is_refused(backend: str, model: Path, tmp_path: Path) -> None:
    """An engine that grants less than was asked for is refused at the start, not found out by truncation."""
    generator = opened(backend, model, tmp_path / "scratch")
    llm = engine_of(generator)
    llm.llm_engine.model_config.max_model_len = CONTEXT - 1
    with pytest.raises(ConfigError, match=f"grants {CONTEXT - 1} tokens"):
        type(generator)(generator._engine, None, generator._settings, tmp_path, frozenset())


@pytest.mark.parametrize("name", ["vllm", "unsloth"])
def test_a_missing_library_names_the_extra(
    model: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the GPU libraries the backend is refused with what to install."""
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match="install the extra 'gpu'"):
        opened(name, model, tmp_path / "scratch")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": EngineSettings(context=203)}, "context is 203, prompt and completion may take 204"),
        ({"max_prompt_tokens": 4096, "engine": EngineSettings()}, "context is 4096"),
    ],
)
def test_limits_fit_the_context(model: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Limits that the engine's context cannot hold together are refused before anything is loaded."""
    with pytest.raises(ConfigError, match=message):
        opened("vllm", model, tmp_path, **changes)
