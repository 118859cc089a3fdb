"""Samples from vLLM 0.7.3 on a GPU; Unsloth's engine is the same one and comes here too.

Checked against the signatures of the locked release (tests/unit/models/engine_signatures.json), and run
on a GPU by tests/proofs/gpu_engines.py. Starting vLLM resets the global random state, so nothing here uses
it. Equal seeds give equal tokens from the base. With an adapter they need not: the release's LoRA kernels add
up atomically, in no fixed order.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from search_to_signal.base.errors import ConfigError, GenerationError, ModelFileError
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import (
    Adapter,
    ChatPrompt,
    Completion,
    Generation,
    cut_prompt,
    encoded,
    end_ids,
    messages,
    request_seeds,
)
from search_to_signal.models.device import fix_cublas, memory_errors
from search_to_signal.models.foreign import try_model
from search_to_signal.models.local import UNLOADABLE, load_tokenizer
from search_to_signal.models.settings import GenerationSettings


@dataclass(frozen=True)
class Engine:
    """A running ``vllm.LLM`` with the two classes that a call to it needs.

    ``captured`` is only kept alive.
    """

    llm: Any
    sampling_params: Callable[..., Any]
    lora_request: Callable[..., Any]
    captured: Any = None


class VllmGenerator:
    """Samples from an engine; ``base_model`` is what a learner may use of it, if anything.

    Adapters go through files in ``scratch``. Each gets a new id: under an old one the engine would go on with
    the old weights, and with prompts that it had cached for them.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Any,
        settings: GenerationSettings,
        scratch: Path,
        ends: frozenset[int],
        base_model: Any = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._engine, self._settings, self._ends = engine, settings, ends
        self._scratch = scratch.resolve()
        self._base, self._adapters, self._request = base_model, 0, None
        # Unsloth shortens the context, and only prints that it did, when memory is short.
        granted = engine.llm.llm_engine.model_config.max_model_len
        if granted < settings.engine.context:
            raise ConfigError(
                f"the engine grants {granted} tokens of context, generation.engine.context is "
                f"{settings.engine.context}: free memory on the card, or lower the limits in the profile"
            )

    @property
    def pad_id(self) -> int:
        """The token that fills up a batch."""
        return int(self.tokenizer.pad_token_id)

    def base(self) -> Any:
        """The model that shares its weights with the engine; None where a learner has to load its own."""
        return self._base

    def load_adapter(self, adapter: Adapter) -> None:
        """Sample with the adapter from the next group on; the files of the one before are removed."""
        self._adapters += 1
        folder = self._scratch / "adapters"
        path = folder / f"{self._adapters}"
        adapter.save(path)
        self._request = self._engine.lora_request(f"adapter-{self._adapters}", self._adapters, str(path))
        shutil.rmtree(folder / f"{self._adapters - 1}", ignore_errors=True)

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        """Sample one group; raises GenerationError, and ConfigError for a prompt that is refused."""
        text, whole = encoded(self.tokenizer, messages(prompt), self._settings.for_template)
        prompt_ids = cut_prompt(whole, self._settings)
        seeds = request_seeds(seed, self._settings.group_size)
        self._forget_prompts()
        outputs = self._engine.llm.generate(
            [{"prompt_token_ids": prompt_ids} for _ in seeds],
            sampling_params=[self._sampling(own) for own in seeds],
            lora_request=self._request,
            use_tqdm=False,
        )
        if len(outputs) != len(seeds):
            raise GenerationError(
                f"the engine gave {len(outputs)} of {len(seeds)} completions: restart the run"
            )
        completions = tuple(self._completion(out, prompt_ids) for out in outputs)
        return Generation(text, tuple(prompt_ids), completions, len(whole) - len(prompt_ids))

    def _forget_prompts(self) -> None:
        """Cached keys and values of earlier groups round differently from fresh ones, and tokens follow."""
        if not self._engine.llm.reset_prefix_cache():
            raise GenerationError("the engine still works on an earlier group: restart the run")

    def _sampling(self, seed: int) -> Any:
        return self._engine.sampling_params(
            n=1,
            seed=seed,
            temperature=self._settings.temperature,
            top_p=self._settings.top_p,
            top_k=-1 if self._settings.top_k is None else self._settings.top_k,
            min_p=0.0,
            repetition_penalty=1.0,
            max_tokens=self._settings.max_completion_tokens,
            stop_token_ids=sorted(self._ends),
            detokenize=False,
        )

    def _completion(self, output: Any, prompt_ids: Sequence[int]) -> Completion:
        (answer,) = output.outputs
        ids = tuple(int(token) for token in answer.token_ids)
        whole = answer.finish_reason == "stop" and ids[-1:] and ids[-1] in self._ends
        cut = answer.finish_reason == "length" and len(ids) == self._settings.max_completion_tokens
        if list(output.prompt_token_ids) != list(prompt_ids) or not (whole or cut):
            raise GenerationError(
                f"the engine did not complete a prompt of {len(prompt_ids)} tokens as asked (it "
                f"read {len(output.prompt_token_ids)}, wrote {len(ids)} and ended with "
                f"{answer.finish_reason!r}): check generation.engine.context and the card's memory"
            )
        return Completion(ids, self.tokenizer.decode(ids, skip_special_tokens=True), cut)


def stopping_ids(tokenizer: Any, model: Path) -> frozenset[int]:
    """The end tokens of a model directory."""
    configured = (
        GenerationConfig.from_pretrained(model) if (model / "generation_config.json").is_file() else None
    )
    return end_ids(tokenizer, configured)


@contextmanager
def engine_errors(model: Path) -> Iterator[None]:
    """Context in which an engine starts: what it raises for the model or the card becomes one line.

    A model that somebody else made is tried first, without the engine.
    """
    try_model(model)
    try:
        with memory_errors(f"the engine over {model}", "lower generation.engine.gpu_memory_utilization"):
            yield
    except UNLOADABLE as error:
        raise ModelFileError(
            f"the engine does not start with the model in {model}: {one_line(str(error), 400)}; compare the "
            "model and the card's free memory with docs/reference/7b.md"
        ) from error


def open_vllm(settings: GenerationSettings, model: Path, scratch: Path) -> VllmGenerator:
    """Start vLLM on a model directory; raises ConfigError where it is not installed."""
    try:
        vllm, adapters = import_module("vllm"), import_module("vllm.lora.request")
    except ImportError as error:
        raise ConfigError(f"vLLM cannot be imported ({error}): install the extra 'gpu'") from error
    # The learner of this process comes later, and asks for it.
    fix_cublas()
    captured = _captured_number()
    knobs = settings.engine
    quantized = {"quantization": "bitsandbytes", "load_format": "bitsandbytes"} if knobs.load_in_4bit else {}
    with engine_errors(model):
        llm = vllm.LLM(
            model=str(model),
            max_model_len=knobs.context,
            gpu_memory_utilization=knobs.gpu_memory_utilization,
            enable_lora=True,
            max_lora_rank=knobs.lora_rank,
            max_loras=1,
            enable_prefix_caching=True,
            **quantized,
        )
    tokenizer = load_tokenizer(model)
    engine = Engine(llm, vllm.SamplingParams, adapters.LoRARequest, captured)
    return VllmGenerator(engine, tokenizer, settings, scratch, stopping_ids(tokenizer, model))


def _captured_number() -> Any:
    """A captured graph, the first of the process; None without a card.

    With the first one torch makes tensors for its random state, and drops them with the last. vLLM captures
    in inference mode, and the learner could not write to tensors that were made there.
    """
    if not torch.cuda.is_available():
        return None
    number, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        number.add_(1)
    return graph, number


# Samples from the engine inside Unsloth 2025.3.18, whose 4-bit weights the learner then shares.
#
# The paper's arrangement on a 24 GB card. Checked and run as ``vllm`` is. A learner attaches its adapter with
# PEFT; Unsloth's fused LoRA kernels are not used.


@contextmanager
def working_directory(path: Path) -> Iterator[None]:
    """Work in a directory for a while; the process has one working directory, so this is for start-up."""
    before = Path.cwd()
    path.mkdir(parents=True, exist_ok=True)
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def check_attention(llama: Any) -> None:
    """Refuse an Unsloth whose training pass would read later tokens; raises ConfigError.

    Without xformers and flash-attn this release calls torch's attention with neither a mask nor
    ``is_causal``. Its log-probabilities are then not those of the tokens that were sampled.
    """
    if not (llama.HAS_XFORMERS or llama.HAS_FLASH_ATTENTION):
        raise ConfigError(
            "Unsloth attends to later tokens when it trains without xformers or flash-attn, and can import "
            "neither: see what `python -c 'import xformers.ops.fmha'` says, or use the backend local or vllm"
        )


def open_unsloth(settings: GenerationSettings, model: Path, scratch: Path) -> VllmGenerator:
    """Load a model directory by Unsloth with its engine; raises ConfigError where it is not installed."""
    model, scratch, knobs = model.resolve(), scratch.resolve(), settings.engine
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")  # it would ask a server to count the start
    # Unsloth writes the code that it compiles into the working directory, when imported and when loading.
    with working_directory(scratch):
        try:
            unsloth, llama = import_module("unsloth"), import_module("unsloth.models.llama")
        except (ImportError, RuntimeError) as error:
            # Where torch finds no card it raises NotImplementedError, which is a RuntimeError.
            raise ConfigError(
                f"Unsloth cannot be imported ({one_line(str(error), 300)}): install the extra 'gpu', and see "
                "that torch finds the card (python -c 'import torch; torch.cuda.init()')"
            ) from error
        check_attention(llama)
        with engine_errors(model):
            loaded, _ = unsloth.FastLanguageModel.from_pretrained(
                model_name=str(model),
                use_exact_model_name=True,  # a local directory is never replaced by one of their uploads
                max_seq_length=knobs.context,
                load_in_4bit=knobs.load_in_4bit,
                fast_inference=True,
                gpu_memory_utilization=knobs.gpu_memory_utilization,
                max_lora_rank=knobs.lora_rank,
            )
        # Unsloth replaces vLLM's LoRARequest by its own, so this import has to come after it.
        vllm, adapters = import_module("vllm"), import_module("vllm.lora.request")
    tokenizer = load_tokenizer(model)
    engine = Engine(loaded.vllm_engine, vllm.SamplingParams, adapters.LoRARequest)
    return VllmGenerator(engine, tokenizer, settings, scratch, stopping_ids(tokenizer, model), loaded)
