"""Whose rollouts a log holds: which model, adapter, template and way of drawing explains its tokens.

Explanations are compared by their likelihood ratio. The named one has a prior of one half, the others share
the rest; one is decided for when all others together have a posterior of at most ``ERROR``. Their ratio to
the named one is a martingale under it, so at most that share of honest logs is ever called otherwise, however
often one looks (Ville's inequality).
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.importers.rollouts import Chat, Ids, Prompt, Rollout
from search_to_signal.audit.loss import Section
from search_to_signal.base.errors import RecordError
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import stream
from search_to_signal.models.base import encoded
from search_to_signal.models.files import json_settings, model_directory
from search_to_signal.models.sampling import AS_IS, Drawing, Exchange, Lora, Read, read_completions, read_lora
from search_to_signal.models.settings import ModelLoading

Numbers = NDArray[np.float64]

# The share of honest logs that may be called otherwise.
ERROR = 1e-3
# An explanation this far behind the best, in nats, is read no further.
_HOPELESS = 25.0
# The best explanation's tokens are this many standard deviations from what it would draw: none is right.
_UNLIKE = 4.5
# Completions of one prompt that are read before another prompt.
_AT_ONCE = 4
# Nobody reads more tokens.
_MANY = 1_000_000
_TEMPERATURES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
_TOP_P = (0.8, 0.9, 0.95)
_TOP_K = (20, 50)

AS_LOGGED, CHAT = "the prompt as logged", "the prompt in the chat template"
BARE, TWICE, NO_SYSTEM = (
    "the prompt without a chat template",
    "the prompt in the chat template once more",
    "the prompt in the chat template without its system message",
)
# How a chat reads whose special tokens were left out, as verl writes its rollouts.
_TURN = re.compile(r"(?:^|\n)(system|user|assistant)\n")


@dataclass(frozen=True)
class Named:
    """What the caller says sampled the log: a model, its adapters (the right one last), and the drawing."""

    model: Path
    adapters: tuple[Path, ...] = ()
    drawing: Drawing = AS_IS
    tokens: int = 2000
    device: str = "cpu"


@dataclass(frozen=True)
class Weights:
    """A model's weights: with an adapter or none, and without its modules of one kind."""

    label: str
    action: str
    lora: Lora | None = None
    without: str = ""


@dataclass(frozen=True)
class Explanation:
    """One way in which the log's tokens may have come about."""

    weights: Weights
    template: str
    drawing: Drawing
    action: str = ""


@dataclass
class Account:
    """What was read under one explanation, token by token; ``live`` until it is hopeless."""

    explanation: Explanation
    log_prior: float
    log_probability: list[float] = field(default_factory=list)
    mean: float = 0.0
    variance: float = 0.0
    live: bool = True

    def add(self, read: Read) -> None:
        """Count the tokens of a completion."""
        self.log_probability += read.log_probability.tolist()
        self.mean += float(read.mean.sum())
        self.variance += float(read.variance.sum())

    @property
    def total(self) -> float:
        """The log-probability of all tokens and of the explanation itself."""
        return self.log_prior + math.fsum(self.log_probability)

    @property
    def deviations(self) -> float:
        """How far the tokens are from what it would draw, in standard deviations; below 0: less likely."""
        gap = math.fsum(self.log_probability) - self.mean
        return gap / math.sqrt(self.variance) if self.variance > 0.0 else 0.0


@dataclass(frozen=True)
class Line:
    """One explanation in the result: nats behind the best, posterior, and tokens that tell it from the best.

    ``mismatch`` is the mean distance of the logged log-probabilities to its own; None where not logged.
    """

    weights: str
    template: str
    drawing: str
    named: bool
    behind: float
    posterior: float
    tokens_needed: int | None
    mismatch: float | None
    action: str

    @property
    def label(self) -> str:
        """The explanation in words."""
        return f"{self.weights}; {self.template}; {self.drawing}"


@dataclass(frozen=True)
class Whose:
    """The result: ``lines`` from the likeliest on, of which the first ``left`` are not ruled out.

    ``verdict`` is as_named, otherwise, undecided, or unexplained, where the tokens are unlike any.
    ``worst`` are the tokens whose logged log-probability is farthest from the named explanation's: distance
    and place.
    """

    verdict: str
    tokens: int
    completions: int
    deviations: float
    left: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    worst: tuple[tuple[float, str], ...] = ()

    @property
    def is_otherwise(self) -> bool:
        """Whether something else sampled than was named."""
        return self.verdict in ("otherwise", "unexplained")

    def section(self) -> Section:
        """The result as a part of an audit's report."""
        return Section("Whose rollouts", tuple(self._lines()), msgspec.to_builtins(self))

    def _lines(self) -> Iterator[str]:
        best, named = self.lines[0], next(line for line in self.lines if line.named)
        read = f"{self.tokens:,} tokens of {self.completions:,} completions"
        says = {
            "as_named": f"The log is what you named: {named.label}.",
            "otherwise": f"The log is not what you named. It fits: {best.label}.",
            "undecided": f"Nothing speaks against what you named; {self.left - 1} others are not ruled out.",
            "unexplained": "The log fits no explanation: another model, or texts that were changed.",
        }
        yield says[self.verdict]
        yield (
            f"Read: {read}; the best explanation is {self.deviations:+.1f} standard deviations from what it "
            "would draw"
        )
        if self.is_otherwise:
            yield f"Named: {named.label}: {named.behind:,.0f} nats behind"
        if self.verdict == "otherwise":
            yield f"Change: {best.action}."
        for line in self.lines[: max(self.left, 4)]:
            needed = _tokens(line.tokens_needed)
            apart = "" if line.mismatch is None else f", log-probabilities {line.mismatch:.3f} apart"
            yield f"{line.behind:.1f} nats behind{needed}{apart}: {line.label}"
        for distance, where in self.worst:
            yield f"A logged log-probability {distance:.2f} from that of what you named: {where}"
        yield from (f"Assumed: {note}" for note in self.notes)


def _tokens(needed: int | None) -> str:
    if needed is None:
        return ""
    return f", decided in about {needed:,} tokens" if needed <= _MANY else f", not in {_MANY:,} tokens"


def whose(found: Iterable[Rollout], named: Named, progress: Progress) -> Whose:
    """Read rollouts until one explanation of their tokens is left, or ``named.tokens`` are read.

    Raises ConfigError and ModelFileError for a model or adapter that cannot be read, RecordError for rollouts
    that are not of the model.
    """
    from search_to_signal.models.local import load_tokenizer

    directory = model_directory(str(named.model))
    tokenizer = load_tokenizer(directory)
    model = _opened(directory, named.device)
    exchange, weights = Exchange(model), _weights(named.adapters)
    exchange.add(one.lora for one in weights if one.lora is not None)
    prompts = Prompts(tokenizer, int(model.config.vocab_size))
    units = prompts.units(found)
    first = next(units)
    ways = list(_explanations(weights, first.prompts, named.drawing, _defaults(directory)))
    others = math.log(0.5 / max(1, len(ways) - 1))
    accounts = [Account(one, others if number else math.log(0.5)) for number, one in enumerate(ways)]
    logged = _read_all(accounts, chain([first], units), exchange, named.tokens, progress)
    return _result(accounts, logged, prompts.notes)


def _opened(directory: Path, device: str) -> Any:
    from search_to_signal.models.device import prepare_processor
    from search_to_signal.models.local import open_base_model, open_for_reading

    if device == "cuda":
        return open_base_model(directory, ModelLoading(device="cuda", dtype="bfloat16"))
    prepare_processor(len(os.sched_getaffinity(0)))
    config = json_settings(directory / "config.json")
    half = str(config.get("torch_dtype", config.get("dtype"))) in ("bfloat16", "float16")
    return open_for_reading(directory, ModelLoading(dtype="bfloat16" if half else "float32"))


# The explanations: one of weights, prompt and drawing differs from what is named; base and older adapters may
# also have drawn in another way.

_NO_ADAPTER = (
    "the sampler ignores the adapter: have it load the weights after each update (vLLM: a LoRARequest with a "
    "new name and id; merged weights: load them again), and drop the rollouts since"
)
_OLDER = "the sampler is behind: wait until the new weights are loaded, or correct by the importance ratio"
_LEFT_OUT = "the sampler's adapter lacks these modules: target_modules of trainer and engine have to agree"
_DRAWING = "pass these values to the sampler as the trainer assumes them; engines take others by default"
_TEMPLATE = "give trainer and sampler one chat template, and log the token ids that were sent"


def _weights(adapters: Sequence[Path]) -> list[Weights]:
    base = Weights("the base model", _NO_ADAPTER if adapters else "")
    if not adapters:
        return [base]
    loras = [Weights(f"adapter {path}", _OLDER, read_lora(path)) for path in adapters]
    last, lora = loras[-1], loras[-1].lora
    kinds = lora.kinds if lora else ()
    return [
        last,
        base,
        *loras[:-1],
        *(Weights(f"{last.label} without {kind}", _LEFT_OUT, lora, kind) for kind in kinds),
    ]


def _defaults(directory: Path) -> Drawing | None:
    """The drawing that a model's own generation settings ask for, which engines use unless told otherwise."""
    path = directory / "generation_config.json"
    own = json_settings(path) if path.is_file() else {}
    if not own.get("do_sample"):
        return None
    top_k = own.get("top_k")
    return Drawing(
        float(own.get("temperature") or 1.0),
        float(own.get("top_p") or 1.0),
        top_k if isinstance(top_k, int) and top_k > 0 else None,
        float(own.get("repetition_penalty") or 1.0),
    )


def _explanations(
    weights: Sequence[Weights], prompts: Mapping[str, Ids], drawing: Drawing, defaults: Drawing | None
) -> Iterator[Explanation]:
    as_named, *other_prompts = prompts
    drawings = [
        *(drawing._replace(temperature=value) for value in _TEMPERATURES),
        *(drawing._replace(top_p=value) for value in (*_TOP_P, 1.0)),
        *(drawing._replace(top_k=value) for value in (*_TOP_K, None)),
        *([defaults] if defaults else []),
    ]
    others = [one for one in dict.fromkeys(drawings) if one != drawing]
    whole = [one for one in weights if not one.without]
    yield Explanation(weights[0], as_named, drawing)
    yield from (Explanation(one, as_named, drawing, one.action) for one in weights[1:])
    yield from (Explanation(weights[0], prompt, drawing, _TEMPLATE) for prompt in other_prompts)
    for one in whole:
        action = f"{one.action}; and {_DRAWING}" if one is not weights[0] else _DRAWING
        yield from (Explanation(one, as_named, other, action) for other in others)


class Unit(NamedTuple):
    """Completions of one prompt, whose tokens go by the name of the template that makes them."""

    prompts: Mapping[str, Ids]
    rollouts: tuple[tuple[Rollout, Ids], ...]


class Prompts:
    """Prompts and completions as tokens of a model; ``notes`` say what had to be assumed."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self._tokenizer = tokenizer
        self._size = size
        self._special = [text for text in tokenizer.all_special_tokens if text]
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, each once."""
        return tuple(self._notes)

    def units(self, found: Iterable[Rollout]) -> Iterator[Unit]:
        """Rollouts by prompt, a few of each at a time, in an order that no training step decides.

        Each is made tokens when it is asked for: most logs are longer than what is read of them.
        """
        by_prompt: dict[str, list[Rollout]] = {}
        for one in found:
            by_prompt.setdefault(repr(one.prompt), []).append(one)
        parts = [
            own[start : start + _AT_ONCE]
            for own in by_prompt.values()
            for start in range(0, len(own), _AT_ONCE)
        ]
        if not parts:
            raise RecordError("no rollout is of these steps: give others in --steps")
        order = stream(0, "whose").permutation(len(parts))
        yield from (self._unit(parts[place]) for place in order.tolist())

    def _unit(self, rollouts: Sequence[Rollout]) -> Unit:
        prompts = self._prompts(rollouts[0].prompt)
        pairs = [(one, self._completion(one)) for one in rollouts]
        for ids, where in [(ids, one.where) for one, ids in pairs] + [
            (prompts[next(iter(prompts))], rollouts[0].where)
        ]:
            if unknown := [token for token in ids if not 0 <= token < self._size]:
                raise RecordError(
                    f"{where}: token {unknown[0]} is none of the model's: name the model that sampled"
                )
        return Unit(prompts, tuple(pair for pair in pairs if pair[1]))

    def _completion(self, rollout: Rollout) -> Ids:
        if isinstance(rollout.completion, tuple):
            return rollout.completion
        self._notes["texts were made tokens again, and whether a completion ended is not read"] = None
        return self._encoded(rollout.completion)

    def _encoded(self, text: str) -> Ids:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _prompts(self, prompt: Prompt) -> dict[str, Ids]:
        """The named reading of a prompt first; readings with equal tokens are one."""
        if isinstance(prompt, str):
            prompt = self._chat(prompt)
        if isinstance(prompt, Chat):
            chat = [dict(message) for message in prompt.messages]
            text = "\n".join(message["content"] for message in chat)
            fewer = [message for message in chat if message["role"] != "system"]
            readings = {
                CHAT: self._templated(chat),
                BARE: self._encoded(text),
                NO_SYSTEM: self._templated(fewer),
            }
        else:
            ids = self._encoded(prompt) if isinstance(prompt, str) else prompt
            bare = str(self._tokenizer.decode(list(ids), skip_special_tokens=True))
            whole = prompt if isinstance(prompt, str) else str(self._tokenizer.decode(list(ids)))
            readings = {AS_LOGGED: ids, BARE: self._encoded(bare), TWICE: self._templated([_user(whole)])}
        known: dict[Ids, str] = {}
        for name, ids in readings.items():
            if ids:
                known.setdefault(ids, name)
        return {name: ids for ids, name in known.items()}

    def _chat(self, text: str) -> Prompt:
        """A text as it is where it has special tokens, or else the chat that it is or was."""
        if any(special in text for special in self._special):
            return text
        parts = _TURN.split(text)
        if not parts[0] and len(parts) > 3 and parts[-2:] == ["assistant", ""]:
            self._notes["the log leaves special tokens out of prompts: the chats were made from it again"] = (
                None
            )
            turns = zip(parts[1:-2:2], parts[2:-2:2], strict=True)
            return Chat(tuple({"role": role, "content": content} for role, content in turns))
        self._notes[
            "prompts are logged without a template: one user message in the model's own is assumed"
        ] = None
        return Chat((_user(text),))

    def _templated(self, chat: list[dict[str, str]]) -> Ids:
        return tuple(encoded(self._tokenizer, chat)[1])


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


Logged = list[tuple[str, float]]


def _read_all(
    accounts: Sequence[Account], units: Iterable[Unit], exchange: Exchange, tokens: int, progress: Progress
) -> tuple[Logged, int]:
    """Read units of completions; returns place and logged log-probability of each token, and completions."""
    logged: Logged = []
    completions = 0
    for whole in units:
        unit = _cut(whole, tokens - len(logged))
        texts = [ids for _, ids in unit.rollouts]
        for (weights, template), own in _passes(accounts).items():
            exchange.use(weights.lora, weights.without)
            drawings = [account.explanation.drawing for account in own]
            # A reading that this prompt has not is that of the log.
            prompt = unit.prompts.get(template) or next(iter(unit.prompts.values()))
            for reads in read_completions(exchange.model, prompt, texts, drawings):
                for account, read in zip(own, reads, strict=True):
                    account.add(read)
        for rollout, ids in unit.rollouts:
            given = rollout.logprobs or (math.nan,) * len(ids)
            logged += [(f"{rollout.where}, token {at}", given[at]) for at in range(len(ids))]
        completions += len(texts)
        best = max(account.total for account in accounts if account.live)
        for account in accounts:
            account.live = account.live and (account.total > best - _HOPELESS or account is accounts[0])
        progress.update("whose rollouts", min(len(logged), tokens), tokens)
        if _left(accounts) == 1 or len(logged) >= tokens:
            break
    return logged, completions


def _cut(unit: Unit, most: int) -> Unit:
    """A unit with so many tokens of its completions at most; the beginning of a text is read like a whole."""
    kept = []
    for rollout, ids in unit.rollouts:
        if most > 0:
            kept.append((rollout, ids[:most]))
            most -= len(ids)
    return Unit(unit.prompts, tuple(kept))


def _passes(accounts: Sequence[Account]) -> dict[tuple[Weights, str], list[Account]]:
    passes: dict[tuple[Weights, str], list[Account]] = {}
    for account in accounts:
        if account.live:
            one = account.explanation
            passes.setdefault((one.weights, one.template), []).append(account)
    return passes


def _posteriors(accounts: Sequence[Account]) -> Numbers:
    totals = np.array([account.total if account.live else -math.inf for account in accounts])
    shares = np.exp(totals - totals.max())
    posterior: Numbers = shares / shares.sum()
    return posterior


def _left(accounts: Sequence[Account]) -> int:
    """How many of the likeliest explanations have a posterior of 1 - ERROR together."""
    ordered = np.sort(_posteriors(accounts))[::-1]
    return int(np.searchsorted(np.cumsum(ordered), 1.0 - ERROR)) + 1


def _result(accounts: Sequence[Account], read: tuple[Logged, int], notes: tuple[str, ...]) -> Whose:
    logged, completions = read
    posterior = _posteriors(accounts)
    order = sorted(range(len(accounts)), key=lambda at: (-posterior[at], -accounts[at].total, at))
    best = accounts[order[0]]
    left = _left(accounts)
    values = np.array([value for _, value in logged])
    lines = tuple(_line(accounts[at], best, float(posterior[at]), values, named=at == 0) for at in order)
    verdict = "undecided" if 0 in order[:left] else "otherwise"
    if order[:left] == [0]:
        verdict = "as_named"
    if abs(best.deviations) > _UNLIKE:
        verdict = "unexplained"
    worst: tuple[tuple[float, str], ...] = ()
    if np.isfinite(values).any():
        distance = np.nan_to_num(np.abs(values - np.array(accounts[0].log_probability)), nan=0.0)
        worst = tuple((float(distance[at]), logged[at][0]) for at in np.argsort(-distance, kind="stable")[:3])
    return Whose(verdict, len(logged), completions, best.deviations, left, lines, notes, worst)


def _line(account: Account, best: Account, posterior: float, logged: Numbers, *, named: bool) -> Line:
    own = np.array(account.log_probability)
    ahead = np.array(best.log_probability)[: len(own)] - own
    # For near explanations the ratio's mean is half its variance, which few tokens tell well.
    rate = max(float(ahead.mean()), float(ahead.var()) / 2) if account is not best else 0.0
    needed = math.ceil(math.log(1 / ERROR) / rate) if rate > 1e-12 else None
    distance = np.abs(logged[: len(own)] - own)
    mismatch = float(np.nanmean(distance)) if np.isfinite(distance).any() else None
    one = account.explanation
    return Line(
        one.weights.label,
        one.template,
        str(one.drawing),
        named,
        math.fsum(best.log_probability[: len(own)]) - math.fsum(own),
        posterior,
        needed,
        mismatch,
        one.action,
    )
