"""What a rule that learns from pairs was shown: one line per group, in ``preferences.jsonl``."""

import msgspec

PREFERENCES = "preferences.jsonl"


class PreferencePair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pair of completions of the line's group, by index; a failure has no score and is never chosen."""

    chosen: int
    rejected: int
    chosen_score: float
    rejected_score: float | None


class PreferenceRound(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A round of training after a group: of ``collected`` pairs, ``kept`` have a choice at the threshold.

    ``optimizer_steps`` were made on them; ``accuracy`` is the share of pairs, as they came, whose choice the
    policy already favoured over the reference, and ``margin`` by how much, times beta; means over steps.
    """

    threshold: float
    collected: int
    kept: int
    optimizer_steps: int
    accuracy: float
    margin: float


class PreferenceRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pairs of one group, and the round that followed it, if any."""

    step: int
    pairs: tuple[PreferencePair, ...]
    round: PreferenceRound | None = None
