"""What no check without model, programs or a witness can know, in one place.

A resealed edit of anything else in a results directory has to be found. Each entry is (a pattern of paths,
a pattern of fields, why); fields are dotted, with a star for every list index.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple


class Unknowable(NamedTuple):
    """Fields that follow from nothing else that is stored; ``settles`` says what would tell."""

    files: str
    fields: str
    settles: str


_HOST = "a host's word about itself"
_CLOCK = "a clock that nobody else read"
_RUN = "running the model or the learner again"
_SCORE = "verify --recompute"

UNKNOWABLE = (
    Unknowable("*.log", "*", "free text for people"),
    Unknowable("*.json", "environment.*", _HOST),
    Unknowable("*.json", "source.commit", "the repository's history"),
    Unknowable("*.json", "source.clean", "the repository's history"),
    Unknowable("*manifest.json", "interruptions", _HOST),
    Unknowable("*.json", "isolation.*", _HOST),
    Unknowable("*/timings.jsonl", "seconds.*", _CLOCK),
    Unknowable("*/timings.jsonl", "processor_seconds", _CLOCK),
    Unknowable("*manifest.json", "timing.*", _CLOCK),
    Unknowable("*/completions.jsonl", "detail", "the text of an error, for people"),
    Unknowable("*/completions.jsonl", "evaluation", _SCORE),
    Unknowable("probe/*.jsonl", "detail", "the text of an error, for people"),
    Unknowable("probe/*.jsonl", "evaluation", _SCORE),
    Unknowable("probe/*.jsonl", "score", _SCORE),
    Unknowable("probe/*.jsonl", "prompt_tokens", _RUN),
    Unknowable("probe/*.jsonl", "completion_tokens", _RUN),
    Unknowable("probe/*.jsonl", "truncated", _RUN),
    Unknowable("*/steps.jsonl", "loss", _RUN),
    Unknowable("*/steps.jsonl", "kl", _RUN),
    Unknowable("*/steps.jsonl", "grad_norm", _RUN),
    Unknowable("*/steps.jsonl", "adapter_sha256", _RUN),
    Unknowable("*/preferences.jsonl", "round.accuracy", _RUN),
    Unknowable("*/preferences.jsonl", "round.margin", _RUN),
    Unknowable("*manifest.json", "initial_adapter_sha256", _RUN),
    Unknowable("*/generations.jsonl", "prompt_ids.*", "a tokenizer"),
    Unknowable("*/generations.jsonl", "completion_ids.*", "a tokenizer, or verify --draws"),
    Unknowable("*/generations.jsonl", "requests.*", "the endpoint"),
    Unknowable("updates/updates.jsonl", "grad_norms.*", _RUN),
    Unknowable("updates/updates.jsonl", "adapter_sha256", _RUN),
    Unknowable("updates/updates.jsonl", "fixed.*", _RUN),
    Unknowable("updates/updates.jsonl", "*_norm", _RUN),
    Unknowable("updates/updates.jsonl", "withheld_*", _RUN),
    Unknowable("updates/pairs.jsonl", "*cosine", _RUN),
    Unknowable("updates/pairs.jsonl", "sign_agreement", _RUN),
    Unknowable("updates/pairs.jsonl", "withheld_*", _RUN),
    Unknowable("heldout/scores.jsonl", "scores.*", _SCORE),
    Unknowable("heldout/scores.jsonl", "detail", "the text of an error, for people"),
    Unknowable("heldout/behaviours.jsonl", "behaviour_sha256", _SCORE),
    Unknowable("heldout/heldout.json", "timeout_s", "a setting that nothing else repeats"),
    Unknowable("updates/setup.json", "settings.threads", "a setting that nothing else repeats"),
    Unknowable("ro-crate-metadata.json", "*.datePublished", _CLOCK),
    Unknowable("ro-crate-metadata.json", "*.name", "the title that somebody gave"),
)


def unknowable(file: str, field: str) -> Unknowable | None:
    """The entry that covers a field of a file, by its path below the results directory."""
    for entry in UNKNOWABLE:
        if fnmatchcase(file, entry.files) and fnmatchcase(field, entry.fields):
            return entry
    return None
