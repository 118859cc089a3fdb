"""A local transformers model as a generator."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from search_to_signal.errors import ConfigError, ModelFileError
from search_to_signal.generators.base import ChatPrompt, Completion, Generation, GenerationSettings
from search_to_signal.generators.chat import messages
from search_to_signal.generators.sampling import sample_group


def load_model(directory: Path) -> Any:
    """The causal language model of a directory, float32, in evaluation mode; raises ModelFileError."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            directory, torch_dtype="float32", attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"cannot load the model in {directory}: {error}") from error
    return model.eval()


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a directory with its chat template; raises ModelFileError."""
    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot load the tokenizer in {directory}: {error}") from error


class LocalGenerator:
    """Samples from a transformers model in this process."""

    def __init__(self, model: Any, tokenizer: Any, settings: GenerationSettings) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._settings = settings

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        """Sample one group. Raises ConfigError for a prompt over the limit: nothing is ever truncated."""
        text = self.tokenizer.apply_chat_template(
            messages(prompt), tokenize=False, add_generation_prompt=True
        )
        prompt_ids = self.tokenizer.encode(text, add_special_tokens=False)
        if len(prompt_ids) > self._settings.max_prompt_tokens:
            raise ConfigError(
                f"a prompt has {len(prompt_ids)} tokens, generation.max_prompt_tokens is "
                f"{self._settings.max_prompt_tokens}: raise it in the profile"
            )
        group = sample_group(
            self.model,
            prompt_ids,
            count=self._settings.group_size,
            max_new_tokens=self._settings.max_completion_tokens,
            temperature=self._settings.temperature,
            end_id=self.tokenizer.eos_token_id,
            seed=seed,
        )
        completions = (
            Completion(ids, self.tokenizer.decode(ids, skip_special_tokens=True), cut)
            for ids, cut in zip(group.completion_ids, group.truncated, strict=True)
        )
        return Generation(text, tuple(prompt_ids), tuple(completions))
