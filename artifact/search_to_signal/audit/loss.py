"""The loss: what of the advantages reaches the tokens, as a configuration names it and as lengths show it.

A trainer turns advantages into one number by a rule of aggregation (``token_weights``), multiplies each by an
importance ratio of a token or a whole sequence, clips that, and may leave cut completions out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_to_signal.audit.advice import Advice, number_text, percent, severity
from search_to_signal.audit.atlas import get_entry, source_of
from search_to_signal.audit.findings import OURS, Findings
from search_to_signal.audit.frameworks import options_of
from search_to_signal.audit.importers.scalar_files import scalar_runs
from search_to_signal.audit.scalars import Scalars, scalars

# Values of the option that names the rule, by the last part of its path.
_RULES: Mapping[str, Mapping[str, str]] = {
    # TRL 1.16.0, ms-swift.
    "loss_type": {
        **dict.fromkeys(("grpo", "sapo"), "sequence_mean"),
        **dict.fromkeys(("bnpo", "dapo", "cispo", "vespo"), "token_mean"),
        "dr_grpo": "constant_length",
        "luspo": "sequence_sum",
    },
    # verl 1dda039b.
    "loss_agg_mode": {
        "token-mean": "token_mean",
        "seq-mean-token-mean": "sequence_mean",
        "seq-mean-token-sum": "sequence_sum",
        "seq-mean-token-sum-norm": "constant_length",
    },
    # SkyRL a9564572.
    "loss_reduction": {
        "token_mean": "token_mean",
        "sequence_mean": "sequence_mean",
        "seq_mean_token_sum_norm": "constant_length",
    },
    # NeMo-RL 7ea279ab, slime 624b824a.
    "token_level_loss": {"True": "token_mean", "False": "sequence_mean"},
    "calculate_per_token_loss": {"True": "token_mean", "False": "sequence_mean"},
}
_LOW = ("epsilon", "clip_ratio_low", "clip_ratio", "ratio_clip_min", "eps_clip_low", "eps_clip")
_HIGH = ("epsilon_high", "clip_ratio_high", "ratio_clip_max", "eps_clip_high")
_DUAL = ("delta", "clip_ratio_c", "ratio_clip_c", "eps_clip_c")
_LEVEL = ("importance_sampling_level", "sequence_level_importance_ratios", "loss_mode", "policy_loss_type")
_OF_SEQUENCES = ("sequence", "sequence_token", "true", "gspo", "gmpo")
_MASKS = ("mask_truncated_completions", "overlong_filtering", "overlong_filter", "apply_overlong_filtering")
# Shares of the weight that are worth a finding: of cut completions or clipped tokens, of the longest quarter.
_LEAST, _LONG = 0.05, 0.4
# A rule has to move a share to this part of it to be an alternative.
_LESS = 0.85


@dataclass(frozen=True)
class Loss:
    """What is known of a loss: the ``rule`` of aggregation and how it is ``named``, empty for none.

    Ratios are clipped to 1 - ``low`` and 1 + ``high``, those of negative advantages at ``dual``; None where
    the configuration does not say. ``sequences``: the ratio is of the whole sequence. ``masks_cut``: cut
    completions are left out.
    """

    rule: str = ""
    named: str = ""
    low: float | None = None
    high: float | None = None
    dual: float | None = None
    sequences: bool | None = None
    masks_cut: bool | None = None


@dataclass(frozen=True)
class Section:
    """A part of the report that is found in another way: for people, and as a document."""

    heading: str
    lines: tuple[str, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Beside:
    """What is known of a run besides its rewards: its numbers per step, its loss, and further sections."""

    scalars: Scalars | None
    loss: Loss
    sections: Mapping[str, Section] = field(default_factory=dict)

    def lines(self) -> tuple[str, ...]:
        """What is known of the loss, in sentences; none where nothing is."""
        return loss_lines(self.loss, self.scalars)


def beside(place: Path, findings: Findings | None = None, files: Iterable[Path] = ()) -> Beside:
    """Numbers per step and configuration at a path, compared with the findings of its rollouts ``files``.

    TRL writes its rollouts into ``completions`` below the directory that has the rest: there that is looked
    through. Errors as in ``scalar_runs``.
    """
    runs = scalar_runs(place, files) if findings is None or place.is_dir() else []
    if not runs and place.is_dir() and place.resolve().name == "completions":
        runs = scalar_runs(place.resolve().parent, files)
    settings = next((run.settings for run in runs if run.settings), {})
    found = scalars([run for run in runs if run.values or run.notes], findings)
    # Numbers of which none is known, such as seconds, say nothing.
    return Beside(found if found.curves or found.notes else None, loss_of(settings, findings))


def loss_of(settings: Mapping[str, Any], findings: Findings | None = None) -> Loss:
    """The loss that a configuration names; without one the usual rule of the normalizer of a log."""
    known: dict[str, tuple[str, Any]] = {}
    for path, value in settings.items():
        # A worker's own settings of another role, such as critic/ppo, come under longer names.
        if value is not None and value != "":
            known.setdefault(path.rsplit("/", 1)[-1], (path, value))

    def first(names: tuple[str, ...]) -> Any:
        return next((known[name][1] for name in names if name in known), None)

    rule = named = ""
    for option, rules in _RULES.items():
        if option in known and str(_single(known[option][1])) in rules:
            rule = rules[str(_single(known[option][1]))]
            named = f"{known[option][0].replace('/', '.')}={_single(known[option][1])}"
    if not rule and findings is not None and not settings:
        entries = map(get_entry, (*findings.explaining, findings.normalizer))
        sources = ((entry, source_of(entry)) for entry in entries)
        own = [
            entry
            for entry, source in sources
            if source.framework == findings.framework and source.repository != OURS
        ]
        if own and own[0].aggregation not in ("backend", "unread"):
            rule = own[0].aggregation
            named = f"usual in {findings.framework}; no configuration was found"
    level, masks = first(_LEVEL), first(_MASKS)
    low = _number(first(_LOW))
    return Loss(
        rule=rule,
        named=named,
        low=low,
        high=_number(first(_HIGH), low),
        dual=_number(first(_DUAL)),
        sequences=None if level is None else str(level).lower() in _OF_SEQUENCES,
        masks_cut=None if masks is None else bool(masks),
    )


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _number(value: Any, default: float | None = None) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain else default


def loss_lines(loss: Loss, scalars: Scalars | None) -> tuple[str, ...]:
    """What is known of the loss, in sentences; none where nothing is."""
    lines = []
    if loss.rule:
        means = {
            "token_mean": "every token of the batch weighs the same, so a completion weighs as it is long",
            "sequence_mean": "every completion weighs the same, so a token of a long one weighs less",
            "constant_length": "every token weighs the same, as under token_mean up to the size of a step",
        }
        lines.append(f"Aggregation is {loss.rule} ({loss.named}){': ' if loss.rule in means else ''}")
        lines[0] += f"{means.get(loss.rule, '')}."
    if loss.low is not None and loss.high is not None:
        dual = "" if loss.dual is None else f", and at {loss.dual:g} where the advantage is negative"
        of = {None: "ratio", True: "ratio of a whole sequence (GSPO)", False: "ratio of a token"}
        lines.append(
            f"The {of[loss.sequences]} is clipped to {1 - loss.low:g} to {1 + loss.high:g}{dual}: beyond "
            "that the advantage gives no gradient."
        )
    clipped = scalars.curves.get("clipped") if scalars else None
    if clipped is not None and len(clipped.finite.value) and not clipped.finite.value.any():
        lines.append(
            f"No token was ever clipped ({clipped.name}): with one update per batch the ratio is 1, and the "
            "bounds have no effect."
        )
    if loss.masks_cut is not None:
        lines.append(f"Completions that were cut {'are left out' if loss.masks_cut else 'stay in the loss'}.")
    return tuple(lines)


def loss_advice(loss: Loss, findings: Findings) -> tuple[Advice, ...]:
    """What to change in the loss, by the share of the advantage times weight that it concerns."""
    known = {rule: sums for rule, sums in findings.lengths.items() if sums.weight}
    if not known:
        return ()
    rule = loss.rule if loss.rule in known else next(iter(known))
    made = (*_cut(loss, rule, findings), *_long(rule, findings), *_clipped(rule, findings))
    return tuple(sorted(made, key=lambda one: -one.cost))


def _cut(loss: Loss, rule: str, findings: Findings) -> Iterator[Advice]:
    sums, options = findings.lengths[rule], options_of(findings.framework)
    share = sums.part(sums.cut_weight) or 0.0
    if share < _LEAST or loss.masks_cut:
        return
    cut = percent(sums.cut / sums.completions)
    others = ", ".join(
        f"{percent(other.part(other.cut_weight) or 0.0)} under {name}"
        for name, other in findings.lengths.items()
        if name != rule and other.weight
    )
    yield Advice(
        severity(share),
        share,
        f"{cut} of the completions were cut off, and carry {percent(share)} of advantage times weight under "
        f"{rule}: an answer that was not finished is trained as a wrong one.",
        f"Raise {options.cap}, or leave them out: {options.cut}.",
        f"They carry {others}.",
    )


def _long(rule: str, findings: Findings) -> Iterator[Advice]:
    """The longest quarter has much more than its share of the weight, and another rule gives it less."""
    sums, options = findings.lengths[rule], options_of(findings.framework)
    share = sums.share or 0.0
    if not sums.longest or share < max(_LONG, 1.5 * sums.longest / sums.completions):
        return
    others = {
        name: other.share
        for name, other in findings.lengths.items()
        if name != rule and other.share is not None and other.share < _LESS * share
    }
    if others:
        name = min(others, key=lambda name: (others[name], name))
        setting = options.rules.get(name, f"the rule {name}")
        yield Advice(
            severity(share - sums.longest / sums.completions),
            share - sums.longest / sums.completions,
            f"The longest {percent(sums.longest / sums.completions)} of the completions carry "
            f"{percent(share)} of advantage times weight under {rule}: they decide the update.",
            f"Set {setting} if completions should weigh alike; keep the rule if every token should.",
            f"Under {name} they carry {percent(others[name])}.",
        )


def _clipped(rule: str, findings: Findings) -> Iterator[Advice]:
    sums, options = findings.lengths[rule], options_of(findings.framework)
    share = sums.part(sums.clipped_weight) or 0.0
    if share >= _LEAST:
        yield Advice(
            severity(share),
            share,
            f"{percent(share)} of advantage times weight is on tokens that the importance ratio masks: it is "
            "computed and gives no gradient.",
            f"Train on fresher rollouts (fewer updates per batch, less asynchrony), or widen {options.clip}.",
            f"{number_text(100 * share)} % under {rule}, from the tokens that the log marks.",
        )
