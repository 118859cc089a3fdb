"""Recorded token ids, compared with the recorded texts where the model's tokenizer is available."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_to_signal.base.package_data import MODELS
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import stream
from search_to_signal.models.base import ChatPrompt, cut_prompt, messages, sent_messages
from search_to_signal.models.settings import GenerationSettings
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.verify.findings import Finding
from search_to_signal.verify.programs import ProgramRunner

_LARGEST_ID = 2**31 - 1
NO_TOKENIZER = "token ids: its model's tokenizer is not here with the recorded checksums (--model)"


@dataclass(frozen=True)
class ModelTokenizer:
    """A model's tokenizer with the tokens that end a completion."""

    tokenizer: Any
    ends: frozenset[int]


class Tokenizers:
    """Tokenizers by the recorded checksums of their files, of the shipped models and of ``others``."""

    def __init__(self, others: Sequence[Path]) -> None:
        shipped = sorted(path for path in MODELS.glob("*") if path.is_dir())
        self._directories = (*shipped, *others)
        self._loaded: dict[Path, ModelTokenizer] = {}
        self._found: dict[frozenset[tuple[str, str]], Path | None] = {}

    def of(self, model_files: Mapping[str, str]) -> ModelTokenizer | None:
        """Return the tokenizer with a manifest's model files, weights aside; None where there is none."""
        directory = self.directory_of(model_files)
        return None if directory is None else self._load(directory)

    def directory_of(self, model_files: Mapping[str, str]) -> Path | None:
        """Return where these files of a model lie, weights aside; None where no known directory has them.

        Recorded names are no paths: only files of the known directories with these checksums are read.
        """
        needed = {name: sha for name, sha in model_files.items() if not name.endswith(".safetensors")}
        if "tokenizer.json" not in needed:
            return None
        key = frozenset(needed.items())
        if key not in self._found:
            have_them = (
                directory
                for directory in self._directories
                if all(_has_file(directory, name, sha256) for name, sha256 in needed.items())
            )
            self._found[key] = next(have_them, None)
        return self._found[key]

    def _load(self, directory: Path) -> ModelTokenizer:
        if directory not in self._loaded:
            # These load torch.
            from search_to_signal.models.local import load_tokenizer
            from search_to_signal.models.vllm import stopping_ids

            tokenizer = load_tokenizer(directory)
            self._loaded[directory] = ModelTokenizer(tokenizer, stopping_ids(tokenizer, directory))
        return self._loaded[directory]


def _has_file(directory: Path, name: str, sha256: str) -> bool:
    path = directory / name
    return path.parent == directory and path.is_file() and sha256_file(path) == sha256


def token_findings(
    where: str,
    generation: GenerationRecord,
    truncated: Sequence[bool],
    cut: int | None,
    tokenizer: ModelTokenizer,
    settings: GenerationSettings,
) -> Iterator[Finding]:
    """Yield the differences of a group's token ids from its texts.

    Prompt ids are those of the prompt without the ``cut`` tokens before its limit (D26). A completion is
    ``truncated`` where its last token does not end it.
    """
    whole = tokenizer.tokenizer.encode(generation.prompt, add_special_tokens=False)
    expected = cut_prompt(whole, settings)
    if list(generation.prompt_ids) != expected:
        yield Finding(where, "prompt_ids are not the tokens of its prompt")
    if cut is not None and cut != len(whole) - len(expected):
        yield Finding(where, f"prompt_tokens_cut is {cut}, its prompt loses {len(whole) - len(expected)}")
    rows = zip(generation.completion_ids, generation.completions, truncated, strict=True)
    for index, (ids, text, is_truncated) in enumerate(rows):
        place = f"{where}, completion {index}"
        known = all(0 <= token <= _LARGEST_ID for token in ids)
        if not known or tokenizer.tokenizer.decode(list(ids), skip_special_tokens=True) != text:
            yield Finding(place, "its text is not that of its completion_ids")
        if not ids or (ids[-1] not in tokenizer.ends) != is_truncated:
            yield Finding(place, f"truncated is {is_truncated}, its completion_ids say otherwise")


def rendered(prompt: ChatPrompt, tokenizer: ModelTokenizer) -> tuple[str, list[int]]:
    """Return a prompt in the model's chat template, and its token ids."""
    from search_to_signal.models.chat import encoded  # loads torch

    return encoded(tokenizer.tokenizer, messages(prompt))


def prompt_differs(
    recorded: str, prompt: ChatPrompt, settings: GenerationSettings, tokenizer: ModelTokenizer | None
) -> bool:
    """Whether a recorded prompt is not the rendered form of these messages.

    Without the tokenizer, which contains the chat template, the recorded prompt only has to contain the user
    message.
    """
    if settings.backend == "api":
        return recorded != sent_messages(prompt)
    if tokenizer is None:
        return prompt.user.strip() not in recorded
    return recorded != rendered(prompt, tokenizer)[0]


# What all parts of a recomputation share: sample of groups, program runner, tokenizers, progress, counts.


@dataclass(frozen=True)
class Sample:
    """A random sample of ``count`` items, drawn from ``seed``; all items where there are fewer."""

    seed: int
    count: int

    def chosen(self, name: str, total: int) -> frozenset[int]:
        """Return the sampled positions of ``total`` items; every ``name`` has its own sample."""
        positions = stream(self.seed, "recompute", name).choice(total, min(self.count, total), replace=False)
        return frozenset(positions.tolist())


@dataclass(frozen=True)
class Tools:
    """The means that all parts of a results directory share; without ``sample`` every group is executed.

    ``tally`` counts groups, completions and executed groups.
    """

    runner: ProgramRunner
    tokenizers: Tokenizers
    sample: Sample | None
    progress: Progress
    tally: "Counter[str]"

    def chosen(self, name: str, total: int) -> frozenset[int]:
        """Return the positions of the groups of ``total`` whose programs are executed."""
        return self.sample.chosen(name, total) if self.sample else frozenset(range(total))
