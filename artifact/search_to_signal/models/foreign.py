"""Model directories that somebody else made: tried in a confined child before this process opens them.

What libraries raise there becomes one line that names the file and the key. A tokenizer, whose template and
patterns may do anything with a text, stays in its child.
"""

import json
import os
import resource
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple, NoReturn

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, BatchEncoding
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from search_to_signal.base import errors
from search_to_signal.base.errors import ConfigError, ModelFileError, S2SError
from search_to_signal.base.processes import variables
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import DAY, Message, rendered
from search_to_signal.models.files import (
    LONGEST_SETTINGS,
    Shape,
    chat_template,
    json_settings,
    refuse_odd_settings,
    shipped,
    tensor_shapes,
)
from search_to_signal.models.releases import load_tokenizer_files
from search_to_signal.records.files import write_all
from search_to_signal.sandbox.locks import footprint

At = Callable[[str], None]
Answer = Callable[..., Any]


# A forked child with a budget of time and memory.


class Budget(NamedTuple):
    """Of one answer: seconds of processor time, bytes beyond what the process has, bytes of the answer."""

    seconds: int = 20
    memory: int = 4 << 30
    answer: int = 64 << 20

    @property
    def wall_seconds(self) -> float:
        """For what waits instead of computing; a busy machine takes longer, too."""
        return 6.0 * self.seconds


BUDGET = Budget()


class ConfinedError(Exception):
    """No answer: where the child was, and what it did or what the library said; ``over`` a budget or dead."""

    def __init__(self, place: str, what: str, *, over: bool) -> None:
        super().__init__(f"{place}: {what}")
        self.place, self.what, self.over = place, what, over


class _Child(NamedTuple):
    parent: int
    pid: int
    asked: int
    told: int


class Confined:
    """A function of JSON values, made and called in a forked child that a budget bounds, call after call.

    ``make`` runs in the child, too; it is given ``at``, which notes the place that an error names. A child
    that went over its budget is replaced at the next call. Errors of this package arrive as they are.
    """

    def __init__(self, make: Callable[[At], Answer], budget: Budget | None = None) -> None:
        self._make, self._budget = make, budget or BUDGET
        self._lock = threading.Lock()
        self._place = ""
        self._child: _Child | None = None
        self._end: Callable[[], object] = lambda: None

    def __call__(self, *arguments: Any) -> Any:
        """The child's answer; raises ConfinedError without one."""
        with self._lock:
            child = self._child
            # A process that was forked meanwhile has no child of its own yet.
            if child is None or child.parent != os.getpid():
                child = self._start()
            with suppress(BrokenPipeError):  # the answer says what it died of
                write_all(child.asked, json.dumps(arguments).encode() + b"\n")
            return self._answer(child)

    def close(self) -> None:
        """End the child."""
        self._child = None
        self._end()

    def _start(self) -> _Child:
        theirs_in, asked = os.pipe()
        told, theirs_out = os.pipe()
        # The library's threads do not come along with a fork; unless it is told so, it prints that.
        with variables(TOKENIZERS_PARALLELISM="false"):
            pid = os.fork()
            if pid == 0:
                _serve(self._make, self._budget, theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)
        child = self._child = _Child(os.getpid(), pid, asked, told)
        self._end = weakref.finalize(self, _ended, child)
        try:
            self._answer(child)
        except BaseException:
            self.close()
            raise
        return child

    def _answer(self, child: _Child) -> Any:
        try:
            answer = json.loads(self._line(child))
        except BaseException:
            self.close()  # it would answer the last question next
            raise
        if "raised" not in answer:
            return answer["made"]
        if isinstance(kind := getattr(errors, answer["raised"], None), type):
            raise kind(answer["text"])
        if answer["raised"] == MemoryError.__name__:
            self.close()
            raise ConfinedError(self._place, _too_much_memory(self._budget), over=True)
        raise ConfinedError(self._place, answer["text"], over=False)

    def _line(self, child: _Child) -> bytes:
        """The line of the answer; the lines before it say where the child is."""
        deadline, said, ready = time.monotonic() + self._budget.wall_seconds, bytearray(), select.poll()
        ready.register(child.told)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not ready.poll(1000 * left):
                what = f"takes more than {self._budget.wall_seconds:g} s"
                raise ConfinedError(self._place, what, over=True)
            block = os.read(child.told, 1 << 16)
            if not block:
                raise ConfinedError(self._place, self._death(child), over=True)
            said += block
            if len(said) > self._budget.answer:
                what = f"makes more than {self._budget.answer >> 20} MB of a short text"
                raise ConfinedError(self._place, what, over=True)
            while b"\n" in block and (end := said.find(b"\n")) >= 0:
                line = bytes(said[:end])
                if line.startswith(b"{"):
                    return line
                self._place = line.decode()
                del said[: end + 1]

    def _death(self, child: _Child) -> str:
        end = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        number = end.si_status if end and end.si_code != os.CLD_EXITED else 0
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return f"takes more than {self._budget.seconds} s of processor time"
        # Rust and C++ abort where memory ends, and Python ends where none is left to say so.
        no_memory = number in (0, signal.SIGABRT)
        return _too_much_memory(self._budget) if no_memory else "crashes the library that reads it"


def _too_much_memory(budget: Budget) -> str:
    return f"takes more than {budget.memory / (1 << 30):g} GiB of memory"


def _ended(child: _Child) -> None:
    os.close(child.asked)
    os.close(child.told)
    if child.parent != os.getpid():
        return
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child.pid, 0)


def _serve(make: Callable[[At], Answer], budget: Budget, asked: int, told: int) -> NoReturn:
    try:
        _confine(budget, asked, told)
        with os.fdopen(asked, "rb") as questions:
            _answer_all(make, budget, questions, lambda line: write_all(told, line + b"\n"))
    finally:
        os._exit(0)


def _confine(budget: Budget, *kept: int) -> None:
    # A terminal, and whoever stops a group of processes, signals both, and the parent ends both: in order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(silent, descriptor)
    # Locks and sockets of the parent end with the parent.
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with suppress(OSError):  # the one of the listing is closed already
                os.close(descriptor)
    _limit(resource.RLIMIT_AS, footprint()[0] + budget.memory)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer_all(
    make: Callable[[At], Answer], budget: Budget, questions: BinaryIO, tell: Callable[[bytes], None]
) -> None:
    def at(place: str) -> None:
        tell(place.encode())

    with _Attempt(tell, budget) as made:
        answer = make(at)
        made.answer = b'{"made": null}'
    for line in questions:
        with _Attempt(tell, budget) as attempt:
            attempt.answer = json.dumps({"made": answer(*json.loads(line))}).encode()


class _Attempt:
    """Within it is bounded processor time; its answer, or whatever was raised, is told as one line.

    Whatever: a panic of a Rust library is no Exception.
    """

    def __init__(self, tell: Callable[[bytes], None], budget: Budget) -> None:
        self._tell, self._budget, self.answer = tell, budget, b""

    def __enter__(self) -> "_Attempt":
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        _limit(resource.RLIMIT_CPU, int(used) + 1 + self._budget.seconds)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if kind is not None:
            self.answer = json.dumps({"raised": kind.__name__, "text": str(error)[:1000]}).encode()
        self._tell(self.answer)
        return True


_AGAIN = "correct it, or get the model's files again from who published them"
# What a text of code and words holds, and what slow patterns are slow with.
_TEXT = (
    "def select_next_node(current_node):\n    return 0.25 * distances[current_node].mean()  # é 中文 🙂\n"
    f"\t{'a' * 40}! {' ' * 40}{'1' * 40} x_y-z <|im_end|> e\u0301\ufb01\ufdfa\r\n\n"
)
_TRIAL: list[Message] = [{"role": "system", "content": "-"}, {"role": "user", "content": _TEXT}]
_DECODED = 4096
# The longest that Unicode makes of one character is 18.
_MOST_GROWTH = 32
_LAYERS = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}
_BLAMING_SECONDS = 30
_TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
# A tokenizer without this part is none; this one loads.
_PLAIN = {"model": {"type": "BPE", "vocab": {}, "merges": []}}


class ForeignTokenizer:
    """A tokenizer that lives in a confined child: its settings, and what it makes of texts and tokens.

    Whatever it is asked raises ModelFileError where the child goes over its budget, or fails.
    """

    def __init__(self, directory: Path) -> None:
        """Open and try it; raises ModelFileError."""
        self._directory = directory
        self._confined = Confined(partial(_opened, directory))
        try:
            self._confined("name_or_path", None, None)
        except ConfinedError as error:
            raise _fault(directory, error, _TOKENIZER_FILES, _load) from error
        except ConfigError as error:  # of the trial's messages, as every search sends them
            raise ModelFileError(f"{directory / _template(directory)}: {error}") from error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self._asked(name)
        if "value" not in found:
            raise AttributeError(name)
        return partial(self._called, name) if found["called"] else found["value"]

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens a child of its own."""
        return ForeignTokenizer, (self._directory,)

    def __len__(self) -> int:
        return int(self._called("__len__"))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._called("__call__", *arguments, **options)

    def encoded(self, chat: list[Message], for_template: dict[str, Any]) -> tuple[str, list[int]]:
        """As ``base.encoded``."""
        text, ids = self._called("encoded", chat, for_template)
        return text, ids

    @property
    def pad_token_id(self) -> int:
        if (found := self._asked("pad_token_id")["value"]) is None:
            path = self._directory / "tokenizer_config.json"
            raise ModelFileError(f"{path} names no pad_token, with which batches are filled: name one")
        return int(found)

    def _called(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self._asked(name, arguments, options)

    def _asked(self, name: str, arguments: Sequence[Any] | None = None, options: Any = None) -> Any:
        try:
            return self._confined(name, arguments, options)
        except ConfinedError as error:
            raise _fault(self._directory, error) from error


def _load(directory: Path, at: At) -> Any:
    at("tokenizer.json")
    return load_tokenizer_files(directory)


def _opened(directory: Path, at: At) -> Answer:
    """What answers in the child: a method by name with its arguments, or without them an attribute."""
    tokenizer = _load(directory, at)

    def placed(place: str) -> None:
        at(_template(directory) if place == "chat_template" else place)

    def answer(name: str, arguments: list[Any] | None, options: dict[str, Any] | None) -> Any:
        if name == "encoded":
            chat, for_template = arguments or [[], {}]
            return rendered(tokenizer, chat, for_template, placed)
        placed({"decode": "tokenizer.json: decoder", "apply_chat_template": "chat_template"}.get(name, ""))
        if arguments is None:
            if not hasattr(tokenizer, name):
                return {}
            found = getattr(tokenizer, name)
            return {"called": callable(found), "value": None if callable(found) else found}
        made = getattr(tokenizer, name)(*arguments, **(options or {}))
        return dict(made) if isinstance(made, BatchEncoding) else made

    _try_parts(tokenizer, directory, at)
    answer("encoded", [_TRIAL, {}], None)
    answer("decode", [list(range(min(len(tokenizer), _DECODED)))], {"skip_special_tokens": True})
    return answer


def _template(directory: Path) -> str:
    own = "chat_template.jinja"
    return own if (directory / own).is_file() else "tokenizer_config.json: chat_template"


def template_facts(directory: Path, for_template: dict[str, Any]) -> Iterator[str]:
    """What becomes of a prompt in a model's chat template, for people; raises as ``ForeignTokenizer``."""
    tokenizer, template = ForeignTokenizer(directory), chat_template(directory)
    system, user = "What you are told first.", "What you are asked."
    chat = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    text, _ = tokenizer.encoded(chat, for_template)
    yield f"its chat template {'shows' if system in text else 'leaves out'} the system message"
    if "strftime_now" in template:
        yield f"its chat template names the day, which is always {DAY}"
    thought, behind = text.rfind("<think>"), text.rfind("</think>")
    switch = "enable_thinking" in template and not for_template
    remedy = "; generation.template_kwargs = {enable_thinking = false} has it answer at once" * switch
    if thought > behind:
        yield f"each answer begins inside a thought, and one that ends in it is read as it is{remedy}"
    elif behind > text.rfind(user):
        yield "it answers without a thought"
    elif "think" in template:
        yield f"it may think first, and what follows </think> is its answer{remedy}"


def _try_parts(tokenizer: Any, directory: Path, at: At) -> None:
    """Run the parts of a tokenizer one by one, so that what fails has a name."""
    parts = getattr(tokenizer, "backend_tokenizer", None)
    text = _TEXT
    if parts is not None and parts.normalizer is not None:
        at("tokenizer.json: normalizer")
        text = parts.normalizer.normalize_str(_TEXT)
        if len(text) > _MOST_GROWTH * len(_TEXT):
            raise ModelFileError(
                f"{directory / 'tokenizer.json'}: normalizer makes {len(text):,} characters of {len(_TEXT)}: "
                f"{_AGAIN}"
            )
    if parts is not None and parts.pre_tokenizer is not None:
        at("tokenizer.json: pre_tokenizer")
        parts.pre_tokenizer.pre_tokenize_str(text)


def try_model(directory: Path) -> None:
    """Raise ModelFileError where a model's settings and weights do not fit, or weights are no numbers.

    The model is built without weights in a confined child: what its settings claim is compared with what the
    files hold before this process makes room for it. A model of this package is what its sums say.
    """
    if shipped(directory):
        return
    adapter = directory / "adapter_config.json"
    if adapter.exists():
        raise ModelFileError(f"{adapter} is an adapter's: merge that into its base first")
    refuse_odd_settings(directory)
    held = tensor_shapes(directory)
    path, config = directory / "config.json", json_settings(directory / "config.json")
    for key in _LAYERS & config.keys():
        # Each has tensors of its own, and each that is claimed takes time to build.
        if type(config[key]) is not int or not 0 < config[key] <= len(held):
            raise ModelFileError(
                f"{path}: {key} is {one_line(repr(config[key]), 60)}, the weights hold {len(held)} tensors: "
                f"{_AGAIN}"
            )
    try:
        claimed = _confined_once(partial(_built, directory))
    except ConfinedError as error:
        raise _fault(directory, error, ("config.json",), _built) from error
    for name, shape in claimed["shapes"].items():
        if name in held and tuple(shape) != held[name]:
            raise ModelFileError(
                f"{path} makes {name} {tuple(shape)}, the weights hold {held[name]}: {_AGAIN}"
            )
    # A shared table counts twice.
    if claimed["numbers"] > 2 * sum(map(prod, held.values())) + (1 << 24):
        raise ModelFileError(
            f"{path} makes a model of {claimed['numbers']:,} numbers, the weights hold "
            f"{sum(map(prod, held.values())):,}: {_AGAIN}"
        )
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:  # type: ignore[no-untyped-call]
            for name in stored.keys():  # noqa: SIM118  # it is no dict
                if not _finite(stored.get_tensor(name)):
                    raise ModelFileError(f"{file}: {name} holds NaN or infinite values: get the file again")


def refuse_no_numbers(model: Any, directory: Path) -> None:
    """Raise ModelFileError where a loaded model does not compute with two tokens, or computes no numbers."""
    if shipped(directory):
        return
    try:
        with torch.inference_mode():
            finite = bool(torch.isfinite(model(torch.zeros((1, 2), dtype=torch.long)).logits).all())
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError) as error:
        what = one_line(str(error), 160)
        raise ModelFileError(f"the model in {directory} cannot compute ({what}): {_AGAIN}") from error
    if not finite:
        raise ModelFileError(f"the model in {directory} computes NaN or infinite values: {_AGAIN}")


def kind_of(directory: Path) -> str:
    """The model_type of a directory; raises ModelFileError for one that the installed transformers lacks."""
    settings = json_settings(directory / "config.json")
    kind = settings.get("model_type")
    if isinstance(kind, str) and kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return kind
    own = " and its own code (auto_map) is never run" if "auto_map" in settings else ""
    raise ModelFileError(
        f"{directory / 'config.json'}: model_type is {one_line(repr(kind), 60)}, no language model that "
        f"transformers {transformers.__version__} knows{own}: install a newer one, or give another model"
    )


def _built(directory: Path, at: At) -> Answer:
    at("config.json")
    kind_of(directory)
    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", trust_remote_code=False)
    shapes: dict[str, Shape] = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    numbers = sum(tensor.numel() for tensor in [*model.parameters(), *model.buffers()])
    return lambda: {"shapes": shapes, "numbers": numbers}


def _finite(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point():
        return True
    values = tensor.float()
    # A sum needs no second table; finite numbers may overflow it.
    return bool(torch.isfinite(values.sum()) or torch.isfinite(values).all())


def _confined_once(make: Callable[[At], Answer]) -> Any:
    confined = Confined(make)
    try:
        return confined()
    finally:
        confined.close()


def _fault(
    directory: Path,
    error: ConfinedError,
    files: Sequence[str] = (),
    load: Callable[[Path, At], Any] | None = None,
) -> ModelFileError:
    """One line for what happened in the child; the key to blame is looked for where loading failed."""
    if error.over:
        return ModelFileError(f"{directory / error.place} {error.what}: {_AGAIN}")
    if load is not None and (found := _blamed(directory, files, load)):
        path, key, value = found
        short = one_line(json.dumps(value, ensure_ascii=False), 80)
        return ModelFileError(f"{path}: {key} cannot be {short}: {_AGAIN}")
    what = one_line(error.what, 160)
    return ModelFileError(f"{directory / error.place} cannot be used ({what}): {_AGAIN}")


def _blamed(
    directory: Path, files: Sequence[str], load: Callable[[Path, At], Any]
) -> tuple[Path, str, object] | None:
    """The file, key and value without which the rest loads; None where there is no such one."""
    deadline = time.monotonic() + _BLAMING_SECONDS
    if _loads(directory, load):
        return None
    for name in files:
        path = directory / name
        # A vocabulary is longer than settings are.
        short = path.is_file() and path.stat().st_size <= LONGEST_SETTINGS
        settings = json_settings(path) if short else {}
        for key in settings:
            if time.monotonic() > deadline:
                return None
            rest = {other: value for other, value in settings.items() if other != key}
            if key in _PLAIN and name == "tokenizer.json":
                rest[key] = _PLAIN[key]
            with _changed(directory, name, rest) as changed:
                if _loads(changed, load):
                    return path, key, settings[key]
    return None


def _loads(directory: Path, load: Callable[[Path, At], Any]) -> bool:
    def make(at: At) -> Answer:
        load(directory, at)
        return bool

    with suppress(ConfinedError, S2SError):
        _confined_once(make)
        return True
    return False


@contextmanager
def _changed(directory: Path, name: str, settings: dict[str, Any]) -> Iterator[Path]:
    with TemporaryDirectory() as made:
        for path in directory.iterdir():
            if path.name != name:
                Path(made, path.name).symlink_to(path.absolute())
        Path(made, name).write_text(json.dumps(settings))
        yield Path(made)
