"""Model directories that somebody else made: soon a line that names file and key, or a model that works."""

import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from search_to_signal.base.errors import ModelFileError, S2SError
from search_to_signal.base.package_data import MODELS
from search_to_signal.cli import main
from search_to_signal.models import foreign
from search_to_signal.models.base import encoded
from search_to_signal.models.files import tensor_shapes
from search_to_signal.models.foreign import Budget, ForeignTokenizer
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.sandbox.locks import footprint

pytestmark = pytest.mark.slow

CHAT = [{"role": "user", "content": "score += 0.4"}]
SMALL = Budget(seconds=1, memory=1 << 30, answer=4 << 20)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of a shipped model, which anybody could have changed."""
    return Path(shutil.copytree(MODELS / "qwen2-2.1m", tmp_path / "model"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget that ends soon."""
    monkeypatch.setattr(foreign, "BUDGET", SMALL)


def put(path: Path, changes: dict[str, Any]) -> None:
    """Change keys of a JSON file, behind the first: looking for the one to blame begins with the first."""
    first, *others = [(key, value) for key, value in json.loads(path.read_text()).items()]
    path.write_text(json.dumps(dict([first, *changes.items(), *others]) | changes))


def refusal(load: Callable[[Path], Any], model: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The line of a refusal, which is all that anybody sees of it."""
    with pytest.raises(ModelFileError) as raised:
        load(model)
    told = str(raised.value)
    assert "\n" not in told
    assert len(told) < 600
    assert capfd.readouterr().err == ""
    return told


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
LONG = "{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}"
HUGE = "{{ 'x' * 99999999999 }}"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("template", "said"),
    [
        (LOOP, "takes more than"),
        (LONG, "999,890,001 characters of these messages"),
        (HUGE, "takes more than 1 GiB of memory"),
        ("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", "cannot be used"),
        ("{{ messages[0]['content'] * 9999999 }}", "characters of these messages"),
        ("{{ 'x' * 9000000 }}", "makes 9,000,000 characters"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages.x.y }}", "refuses these messages"),
        ("{% if %}", "refuses these messages"),
        ("{{ raise_exception('no') }}", "refuses these messages (no)"),
        ("{# #}", "makes nothing"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_template_has_a_budget(
    model: Path, capfd: pytest.CaptureFixture[str], template: str, said: str
) -> None:
    """Of time, memory and text, when it is opened; whatever it does, the file and the key are named."""
    put(model / "tokenizer_config.json", {"chat_template": template})
    start = time.monotonic()
    told = refusal(load_tokenizer, model, capfd)
    assert said in told
    assert f"{model}/tokenizer_config.json: chat_template" in told
    assert time.monotonic() - start < 60


SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
GROW = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 40}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": [GROW] * 9}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "((a+)+)+$"}, "content": ""}),
        ("normalizer", {"type": "Prepend", "prepend": "x" * 99999}),
        ("pre_tokenizer", {**SPLIT, "pattern": {"Regex": "("}}),
        ("decoder", {"type": "Sequence", "decoders": [GROW] * 9}),
        ("padding", {"strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None}),
        ("truncation", {"max_length": 3, "strategy": "LongestFirst", "stride": 9, "direction": "Left"}),
        ("added_tokens", 3),
        ("model", {"type": "x"}),
        ("post_processor", {"type": "TemplateProcessing", "single": 3, "pair": 3, "special_tokens": {}}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_tokenizer_has_a_budget(
    model: Path, capfd: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    """Of its parts the one that multiplies a text, never ends, or panics is named."""
    put(model / "tokenizer.json", {key: value})
    start = time.monotonic()
    told = refusal(load_tokenizer, model, capfd)
    assert f"{model}/tokenizer.json" in told
    assert key in told
    assert time.monotonic() - start < 60


WHEN = "{% if '0.4' in messages[-1]['content'] %}"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("template", "said"),
    [
        (f"{WHEN}{LOOP}{{% endif %}}hello", "takes more than"),
        (f"{WHEN}{HUGE}{{% endif %}}hello", "takes more than 1 GiB of memory"),
        (f"{WHEN}{{{{ 1 / 0 }}}}{{% endif %}}hello", "division by zero"),
    ],
    ids=["loop", "huge", "zero"],
)
def test_a_template_that_waits_for_its_text_has_the_budget_then(
    model: Path, capfd: pytest.CaptureFixture[str], template: str, said: str
) -> None:
    """One text ends it, and the next one is encoded again."""
    put(model / "tokenizer_config.json", {"chat_template": template})
    tokenizer = load_tokenizer(model)
    hello = encoded(tokenizer, [{"role": "user", "content": "hi"}])
    assert said in refusal(lambda _: encoded(tokenizer, CHAT), model, capfd)
    assert encoded(tokenizer, [{"role": "user", "content": "hi"}]) == hello


def test_a_stop_of_all_processes_leaves_the_tokenizer_to_its_run() -> None:
    """A run that is told to stop still finishes its group, though its child was told so, too."""
    child = foreign.Confined(lambda at: os.getpid)
    own = child()
    os.kill(own, signal.SIGTERM)
    assert child() == own
    child.close()


def test_a_foreign_tokenizer_is_the_tokenizer(model: Path) -> None:
    """In texts, tokens and settings it is what the library makes of its files."""
    own, foreign = load_tokenizer(MODELS / "qwen2-2.1m"), load_tokenizer(model)
    assert isinstance(foreign, ForeignTokenizer)
    assert encoded(foreign, CHAT) == encoded(own, CHAT)
    text = "score += home * 0.25  # é \ud800".encode("utf-8", "replace").decode()
    ids = own.encode(text, add_special_tokens=False)
    assert foreign.encode(text, add_special_tokens=False) == ids == foreign(text)["input_ids"]
    assert foreign.decode(ids, skip_special_tokens=True) == own.decode(ids, skip_special_tokens=True)
    for name in ("pad_token_id", "eos_token_id", "eos_token", "chat_template", "vocab_size"):
        assert getattr(foreign, name) == getattr(own, name)
    assert len(foreign) == len(own)
    assert foreign.convert_ids_to_tokens([40, 41]) == own.convert_ids_to_tokens([40, 41])
    assert not hasattr(foreign, "nothing")


def config(**changes: Any) -> Callable[[Path], None]:
    """Change the configuration."""
    return lambda model: put(model / "config.json", changes)


def weights(change: Callable[[dict[str, torch.Tensor]], object], **metadata: str) -> Callable[[Path], None]:
    """Change the weights."""

    def write(model: Path) -> None:
        tensors = load_file(model / "model.safetensors")
        change(tensors)
        save_file(tensors, model / "model.safetensors", metadata or {"format": "pt"})

    return write


def _not_a_number(tensors: dict[str, torch.Tensor]) -> None:
    tensors["model.norm.weight"][3] = torch.nan


def _infinite(tensors: dict[str, torch.Tensor]) -> None:
    tensors["model.embed_tokens.weight"][3, 4] = torch.inf


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (config(num_attention_heads=0), "config.json: num_attention_heads cannot be 0"),
        (config(hidden_act="os.system"), 'config.json: hidden_act cannot be "os.system"'),
        (config(hidden_size=None), "config.json: hidden_size cannot be null"),
        (config(vocab_size=10**8), "config.json"),
        (config(num_hidden_layers=10**7), "num_hidden_layers is 10000000"),
        (config(num_hidden_layers=5), "layers.4"),
        (config(intermediate_size=10**9), "config.json"),
        (config(pad_token_id=10**9), "config.json"),
        (config(eos_token_id="x"), "config.json: eos_token_id is 'x'"),
        (config(eos_token_id=[[2]]), "config.json: eos_token_id is [[2]]"),
        (config(max_position_embeddings=10**12), "max_position_embeddings is 1000000000000"),
        (config(max_position_embeddings=0), "max_position_embeddings is 0"),
        (config(max_position_embeddings="2048"), "max_position_embeddings is '2048'"),
        (config(model_type="os.system"), "model_type is 'os.system'"),
        (config(model_type=["qwen2"]), "model_type is ['qwen2']"),
        (config(model_type="bert_"), "model_type is 'bert_'"),
        (config(torch_dtype="os.system"), "config.json: torch_dtype"),
        (config(rope_scaling={"rope_type": "x", "factor": 2.0}), "config.json: rope_scaling"),
        (config(rope_theta="x"), "config.json: rope_theta"),
        (config(rope_theta=float("nan")), "config.json"),
        (config(rms_norm_eps=float("inf")), "config.json"),
        (config(rms_norm_eps=-5.0), "config.json: rms_norm_eps is -5.0"),
        (config(rope_theta=0), "config.json: rope_theta is 0"),
        (config(rms_norm_eps="x"), "config.json: rms_norm_eps"),
        (config(quantization_config={"quant_method": "awq"}), "config.json: quantization_config"),
        (lambda m: (m / "config.json").write_text("[" * 99999), "config.json is not JSON"),
        (lambda m: (m / "config.json").write_text("[]"), "config.json holds no settings"),
        (lambda m: (m / "config.json").write_text(" " * (17 << 20)), "config.json has more than"),
        (lambda m: put(m / "generation_config.json", {"eos_token_id": "x"}), "generation_config.json: eos_"),
        (lambda m: (m / "generation_config.json").write_text("[]"), "generation_config.json"),
        (lambda m: (m / "adapter_config.json").write_text("{}"), "adapter_config.json"),
        (weights(_not_a_number), "model.safetensors: model.norm.weight holds NaN or infinite values"),
        (weights(_infinite), "model.safetensors: model.embed_tokens.weight holds NaN or infinite values"),
        (weights(lambda tensors: tensors.pop("model.norm.weight")), "model.norm.weight"),
        (weights(len, format="tf"), "model.safetensors: __metadata__.format is not 'pt'"),
        (weights(len, format="flax"), "model.safetensors: __metadata__.format is not 'pt'"),
        (weights(len, format="os.system"), "model.safetensors: __metadata__.format is not 'pt'"),
    ],
)
def test_a_model_that_cannot_be_is_refused_by_file_and_key(
    model: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], None], said: str
) -> None:
    """Before there is memory for what it claims, and with nothing that a library says of its own."""
    damage(model)
    start = time.monotonic()
    told = refusal(load_model, model, capfd)
    assert said in told
    assert time.monotonic() - start < 90


ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 3, 10**9, 10**30, 1e300, float("nan")),
    *("", "x", "os.system", "\x00", "../../etc/passwd", "x" * 5000),
    *([], {}, [3], [None], {"x": 3}, [[[]]], {"type": "x"}, {"type": 3}),
)


def changed(settings: Any, draw: random.Random) -> Any:
    """The same with one value, at whatever depth, replaced by an odd one, or left out."""
    if not isinstance(settings, dict | list) or not settings or draw.random() < 0.2:
        return draw.choice(ODD)
    places = list(settings) if isinstance(settings, dict) else range(len(settings))
    place, copied = draw.choice(list(places)), settings.copy()
    if draw.random() < 0.1:
        del copied[place]
    else:
        copied[place] = changed(settings[place], draw)
    return copied


def flipped(data: bytes, end: int, draw: random.Random) -> bytes:
    """Bytes with a few of the first ones changed, doubled or missing."""
    place = draw.randrange(end)
    number = draw.choice((0, 1, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1))
    long, short = number.to_bytes(8, "little"), (number % 2**32).to_bytes(4, "little")
    new = draw.choice((b"", long, short, data[place : place + 8] * 2, bytes([draw.randrange(256)])))
    return data[:place] + new + data[place + draw.choice((0, 1, len(new))) :]


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    """Within it what asks for more than 4 GiB fails."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (footprint()[0] + (4 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def answers(call: Callable[[], object], what: str) -> None:
    """It returns, or it ends in one line of this package, soon."""
    start, said = time.monotonic(), ""
    try:
        call()
    except S2SError as error:
        said = str(error)
    assert "\n" not in said, what
    assert len(said) < 1000, what
    assert time.monotonic() - start < 90, what


@pytest.mark.usefixtures("bounded_memory")
def test_odd_settings_end_in_one_line(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Any value in any place of a model's JSON files, and those of its tokenizer."""
    draw = random.Random(65)
    whole = {name: (model / name).read_bytes() for name in FILES}
    for number in range(8):
        name = FILES[number % len(FILES)]
        settings = changed(json.loads(whole[name]), draw)
        (model / name).write_text(json.dumps(settings))
        load = load_model if name == "config.json" else load_tokenizer
        answers(partial(load, model), f"{number} {name}")
        (model / name).write_bytes(whole[name])
    assert capfd.readouterr().err == ""


FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@pytest.mark.usefixtures("bounded_memory")
def test_odd_headers_of_weights_end_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of safetensors, as bytes and as JSON: whatever they claim of places, sizes and names."""
    draw = random.Random(65)
    save_file({"a": torch.ones(3, 4), "b": torch.ones(5)}, tmp_path / "w.safetensors", {"format": "pt"})
    data = (tmp_path / "w.safetensors").read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    for number in range(300):
        odd = flipped(data, size, draw)
        if number % 2:
            header = json.dumps(changed(json.loads(data[8:size]), draw)).encode()
            odd = len(header).to_bytes(8, "little") + header + data[size:]
        (tmp_path / "w.safetensors").write_bytes(odd)
        answers(partial(tensor_shapes, tmp_path), f"safetensors {number}")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ({str(at): {"dtype": "U8", "shape": [8], "data_offsets": [at, at + 8]} for at in (0, 4)}, 12),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, 8),
        ({"a": {"dtype": "F32", "shape": [-2, -1], "data_offsets": [0, 8]}}, 8),
        ({"a": {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 0]}}, 0),
        ({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, 8),
        ({"a": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}, 8),
        ({"a": {"dtype": "F32", "shape": [1] * 99999, "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}}, 8),
        ({"a": 3}, 0),
        ({"__metadata__": 3}, 0),
        ([], 0),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: object, size: int) -> None:
    """Of tensors that overlap, leave gaps, or are of another size, sign or kind."""
    text = json.dumps(header).encode()
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    with pytest.raises(ModelFileError, match=r"w\.safetensors"):
        tensor_shapes(tmp_path)


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Two readers could take another one each."""
    text = b'{"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "a": {}}'
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(ModelFileError, match="twice"):
        tensor_shapes(tmp_path)


@pytest.mark.parametrize("name", ["SHA256SUMS", "config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_opened(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    """A pipe would be waited for, an endless device read for ever: in a served, and in a given directory."""
    monkeypatch.chdir(model.parent)
    (model / name).unlink()
    os.mkfifo(model / name) if kind == "pipe" else (model / name).symlink_to("/dev/zero")
    for command in (["serve", "model"], ["model", "fetch", "Qwen2.5-7B-Instruct", "--from", "model"]):
        assert main(command) == ModelFileError.exit_code or name == "SHA256SUMS"
        assert capsys.readouterr().err.count("\n") <= 1
    assert main(["model", "fetch", "own", "--sha256", "0" * 64, "--from", str(model / name)]) == 3
