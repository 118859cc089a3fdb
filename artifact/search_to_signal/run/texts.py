"""Recorded texts, parsed again, and compared with their records and their token ids; none is executed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_to_signal.base.package_data import MODELS, SOURCE
from search_to_signal.models.base import ChatPrompt, cut_prompt, encoded, messages, sent_messages
from search_to_signal.models.settings import GenerationSettings
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.differences import Finding
from search_to_signal.records.schema import BARE_FENCE, GenerationRecord, IdeaEnd, Outcome
from search_to_signal.sandbox.programs import Failure, Proposal, mentions_randomness, parse, program_sha256

# Isolation results of programs that ended by themselves, and the notes that may follow one.
_FINISHED = ("ok", "nondeterministic")
_NOTES = {"fallback", "repeat"}


@dataclass
class ParsedTexts:
    """A cache of the parsed texts of a results directory, with recorded hashes and scores by code.

    ``programs`` maps code to its recorded hash. ``scores`` maps (problem, split, code) of valid programs to
    their recorded score: equal code has equal scores (D20).
    """

    texts: dict[tuple[str, IdeaEnd], Proposal | Failure] = field(default_factory=dict)
    programs: dict[str, str | None] = field(default_factory=dict)
    scores: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def text(self, text: str, config: Mapping[str, Any]) -> Proposal | Failure:
        """Parse a text by the run's rule for where an idea ends (D37)."""
        key = (text, config.get("idea_end", BARE_FENCE))
        parsed = self.texts.get(key)
        if parsed is None:
            parsed = self.texts[key] = parse(*key)
        return parsed

    def program_problems(self) -> Iterator[str]:
        """Yield recorded hashes that are not those of the canonical code; takes 1 ms for each program."""
        for code, recorded in self.programs.items():
            if recorded != program_sha256(code):
                yield f"program {recorded} is not the hash of its recorded code"


def answer_problems(record: Any, text: str, config: Mapping[str, Any], parsed: ParsedTexts) -> Iterator[str]:
    """Yield the contradictions between a text and its completion or probe record, checksum aside."""
    parsing = parsed.text(text, config)
    if isinstance(parsing, Failure):
        recorded = (record.outcome, record.detail, record.evaluation, record.program_sha256, record.score)
        if recorded != (parsing.outcome, parsing.detail, "not_run", None, None):
            outcome = parsing.outcome.value
            yield f"recorded as {record.outcome.value}, but its text is {outcome}, so it cannot have run"
        return
    if record.program_sha256 != parsed.programs.setdefault(parsing.code, record.program_sha256):
        yield "program_sha256 differs from that of another completion with the same code"
    if problem := _ending_problem(record, parsing.code, config):
        yield problem
    if record.score is not None:
        key = (str(config["problem"]), str(config["split"]), parsing.code)
        if parsed.scores.setdefault(key, record.score) != record.score:
            yield f"score {record.score}, but the same program scored {parsed.scores[key]} elsewhere"


def _ending_problem(record: Any, code: str, config: Mapping[str, Any]) -> str | None:
    ending, *notes = record.evaluation.split(", ")
    if ending in _FINISHED:
        random = mentions_randomness(code)
        if config.get("evaluation", {}).get("randomness", "text") == "behaviour":
            random = ending == "nondeterministic"
        expected = Outcome.RANDOMNESS if random else Outcome.VALID
    else:
        expected = Outcome.MISSING_FUNCTION if ending == "no_function" else Outcome.RUNTIME_FAILURE
    if record.outcome is not expected or ending == "not_run" or not _NOTES.issuperset(notes):
        outcome = record.outcome.value
        return f"recorded as {outcome}, but its evaluation ({record.evaluation}) says {expected.value}"
    return None


_LARGEST_ID = 2**31 - 1
NO_TOKENIZER = (
    "token ids: no tokenizer with the recorded checksums was found here (give its model by --model)"
)


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
        """Return where these files of a model lie, but weights and source; None where no directory has them.

        Recorded names are no paths: only files of the known directories with these checksums are read.
        """
        needed = {
            name: sha256
            for name, sha256 in model_files.items()
            if not name.endswith(".safetensors") and name != SOURCE
        }
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
        yield Finding(where, f"prompt_tokens_cut is {cut}, but its prompt loses {len(whole) - len(expected)}")
    rows = zip(generation.completion_ids, generation.completions, truncated, strict=True)
    for index, (ids, text, is_truncated) in enumerate(rows):
        place = f"{where}, completion {index}"
        known = all(0 <= token <= _LARGEST_ID for token in ids)
        if not known or tokenizer.tokenizer.decode(list(ids), skip_special_tokens=True) != text:
            yield Finding(place, "its text is not that of its completion_ids")
        if not ids or (ids[-1] not in tokenizer.ends) != is_truncated:
            yield Finding(place, f"truncated is {is_truncated}, but its completion_ids say the opposite")


def rendered(
    prompt: ChatPrompt, tokenizer: ModelTokenizer, settings: GenerationSettings
) -> tuple[str, list[int]]:
    """Return a prompt in the model's chat template, and its token ids."""
    return encoded(tokenizer.tokenizer, messages(prompt), settings.for_template)


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
    return recorded != rendered(prompt, tokenizer, settings)[0]
