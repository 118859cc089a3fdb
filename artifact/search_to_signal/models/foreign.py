"""Model directories that somebody else made: tried in a confined child before this process opens them.

What libraries raise there becomes one line that names the file and the key. A tokenizer, whose template and
patterns may do anything with a text, stays in its child.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, BatchEncoding
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from search_to_signal.base.errors import ConfigError, ModelFileError, S2SError
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import DAY, Message, rendered
from search_to_signal.models.confined import Answer, At, Confined, ConfinedError
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
    """A directory of links to a model's files, with other settings in one of them."""
    with TemporaryDirectory() as made:
        for path in directory.iterdir():
            if path.name != name:
                Path(made, path.name).symlink_to(path.absolute())
        Path(made, name).write_text(json.dumps(settings))
        yield Path(made)
