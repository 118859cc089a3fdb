"""Recorded token ids against the recorded texts, where the model's tokenizer is here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_to_signal.generators.base import ChatPrompt, last_tokens, messages, sent_messages
from search_to_signal.generators.settings import GenerationSettings
from search_to_signal.package_data import MODELS
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.verification.findings import Finding

_LARGEST_ID = 2**31 - 1


@dataclass(frozen=True)
class Tokens:
    """A tokenizer with the tokens that end a completion."""

    tokenizer: Any
    ends: frozenset[int]


class Tokenizers:
    """Tokenizers by the recorded checksums of their files, looked for among our models and ``others``."""

    def __init__(self, others: Sequence[Path]) -> None:
        shipped = sorted(path for path in MODELS.glob("*") if path.is_dir())
        self._directories = (*shipped, *others)
        self._loaded: dict[Path, Tokens] = {}

    def of(self, model_files: Mapping[str, str]) -> Tokens | None:
        """The tokenizer of a manifest's model files, weights aside; None where they are not here.

        A name in a directory leads nowhere: only files that are here already, with these bytes, are read.
        """
        needed = {name: sha for name, sha in model_files.items() if not name.endswith(".safetensors")}
        if "tokenizer.json" not in needed:
            return None
        for directory in self._directories:
            if all(_is(directory, name, sha256) for name, sha256 in needed.items()):
                return self._load(directory)
        return None

    def _load(self, directory: Path) -> Tokens:
        if directory not in self._loaded:
            # These load torch.
            from search_to_signal.generators.local import load_tokenizer
            from search_to_signal.generators.vllm import stopping_ids

            tokenizer = load_tokenizer(directory)
            self._loaded[directory] = Tokens(tokenizer, stopping_ids(tokenizer, directory))
        return self._loaded[directory]


def _is(directory: Path, name: str, sha256: str) -> bool:
    path = directory / name
    return path.parent == directory and path.is_file() and sha256_file(path) == sha256


def token_findings(
    where: str,
    generation: GenerationRecord,
    truncated: Sequence[bool],
    cut: int | None,
    tokens: Tokens,
    settings: GenerationSettings,
) -> Iterator[Finding]:
    """Whether prompt ids are the prompt's less its cut (D26), and each text and end those of its ids."""
    whole = tokens.tokenizer.encode(generation.prompt, add_special_tokens=False)
    kept = last_tokens(whole, settings)
    if list(generation.prompt_ids) != kept:
        yield Finding(where, "prompt_ids are not the tokens of its prompt")
    if cut is not None and cut != len(whole) - len(kept):
        yield Finding(where, f"prompt_tokens_cut is {cut}, its prompt loses {len(whole) - len(kept)}")
    rows = zip(generation.completion_ids, generation.completions, truncated, strict=True)
    for index, (ids, text, ended_early) in enumerate(rows):
        place = f"{where}, completion {index}"
        known = all(0 <= token <= _LARGEST_ID for token in ids)
        if not known or tokens.tokenizer.decode(list(ids), skip_special_tokens=True) != text:
            yield Finding(place, "its text is not that of its completion_ids")
        if not ids or (ids[-1] not in tokens.ends) != ended_early:
            yield Finding(place, f"truncated is {ended_early}, its completion_ids say otherwise")


def rendered(prompt: ChatPrompt, tokens: Tokens) -> tuple[str, list[int]]:
    """A prompt in the model's chat template, and its tokens."""
    from search_to_signal.generators.chat import encoded  # loads torch

    return encoded(tokens.tokenizer, messages(prompt))


def prompt_differs(
    recorded: str, prompt: ChatPrompt, settings: GenerationSettings, tokens: Tokens | None
) -> bool:
    """Whether a recorded prompt is not the rendered form of these messages.

    Without the tokenizer, which holds the template, only the user's message is looked for in it.
    """
    if settings.backend == "api":
        return recorded != sent_messages(prompt)
    if tokens is None:
        return prompt.user.strip() not in recorded
    return recorded != rendered(prompt, tokens)[0]
