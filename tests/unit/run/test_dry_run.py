"""What --dry-run says of a model of somebody else's, and what it refuses in one line."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.profiles import profile_head

from search_to_signal.base.errors import ConfigError, ModelFileError
from search_to_signal.base.package_data import MODELS
from search_to_signal.cli import main
from search_to_signal.models.base import encoded
from search_to_signal.models.local import load_tokenizer

pytestmark = pytest.mark.slow

ANSWER = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
EACH = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
USER_ALONE = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
DATED = "Today is {{ strftime_now('%d %B %Y') }}. {{ messages[1].content }}"
CHAT = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of a shipped model, whose files may be changed."""
    copied = Path(shutil.copytree(MODELS / "qwen2-2.1m", tmp_path / "model"))
    (copied / "SHA256SUMS").unlink()
    return copied


def put(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def told(model: Path, capsys: pytest.CaptureFixture[str], code: int = 0, **generation: str) -> str:
    """What a dry run of a profile with the model prints."""
    limits = {"max_prompt_tokens": "1024", "max_completion_tokens": "320", **generation}
    lines = "\n".join(f"{key} = {value}" for key, value in limits.items())
    profile = model.parent / "mine.toml"
    profile.write_text(
        f"{profile_head('frozen', 'native', groups=20, model=str(model))}[generation]\n{lines}\n"
    )
    out = model.parent / "out"
    assert (
        main(["run", "--profile", str(profile), "--out", str(out), "--layer", "cohort", "--dry-run"]) == code
    )
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == (code > 0)
    return (printed.err if code else printed.out).replace(str(model), "MODEL")


@pytest.mark.parametrize(
    ("template", "generation", "expected"),
    [
        (EACH + ANSWER, {}, "shows the system message"),
        (
            EACH + ANSWER + SWITCH,
            {},
            "it may think first, and what follows </think> is its answer; generation.",
        ),
        (
            EACH + ANSWER + SWITCH,
            {"template_kwargs": "{enable_thinking = false}"},
            "answers without a thought",
        ),
        (EACH + ANSWER + "<think>\n", {}, "begins inside a thought"),
        (DATED + ANSWER, {}, "leaves out the system message"),
        (DATED + ANSWER, {}, "names the day, which is always 2024-07-26"),
    ],
)
def test_a_template_is_described(
    model: Path, capsys: pytest.CaptureFixture[str], template: str, generation: dict[str, str], expected: str
) -> None:
    """By what it makes of messages with the settings; kind, context and memory stand beside it."""
    put(model / "tokenizer_config.json", chat_template=template)
    printed = told(model, capsys, **generation)
    assert f"{expected}" in printed
    assert "MODEL: qwen2; prompt and completion take up to 1,344 tokens, it reads 2,048" in printed
    assert "MODEL: a trained run takes up to " in printed


def _short(model: Path) -> None:
    put(model / "config.json", max_position_embeddings=1343)


def _no_system(model: Path) -> None:
    put(model / "tokenizer_config.json", chat_template=USER_ALONE + EACH + ANSWER)


def _no_template(model: Path) -> None:
    put(model / "tokenizer_config.json", chat_template=None)


def _own_code(model: Path) -> None:
    put(model / "config.json", model_type="mine", auto_map={"AutoModelForCausalLM": "mine.Model"})


def _pickled(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        (
            _short,
            ConfigError.exit_code,
            "reads 1,343 tokens, but prompt and completion may take 1,344: lower",
        ),
        (_no_system, ModelFileError.exit_code, "no system role"),
        (_no_template, ModelFileError.exit_code, "has no chat template"),
        (_own_code, ModelFileError.exit_code, "its own code (auto_map) is never run"),
        (_pickled, ModelFileError.exit_code, "pickled weights"),
    ],
)
def test_a_model_that_cannot_run_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str], change: Any, code: int, expected: str
) -> None:
    change(model)
    assert expected in told(model, capsys, code)


def test_what_a_template_does_not_read_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be ignored without a word."""
    line = told(model, capsys, ConfigError.exit_code, template_kwargs="{enable_thinking = false}")
    assert "template_kwargs has enable_thinking, which the chat template in MODEL does not read" in line


def test_a_prompt_is_the_same_on_any_day_and_takes_the_settings(model: Path) -> None:
    """In the child that a tokenizer of somebody else's lives in, too."""
    put(model / "tokenizer_config.json", chat_template=DATED + ANSWER + SWITCH)
    tokenizer = load_tokenizer(model)
    text, ids = encoded(tokenizer, CHAT)
    assert text == "Today is 26 July 2024. U<|im_start|>assistant\n"
    quick, more = encoded(tokenizer, CHAT, {"enable_thinking": False})
    assert quick == f"{text}<think>\n\n</think>\n\n"
    assert len(more) > len(ids)
