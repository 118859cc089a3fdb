"""A log's tokens say which model drew them, and how."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from search_to_signal.audit.importers.rollouts import Chat, Rollout, rollouts
from search_to_signal.base.errors import ModelFileError, RecordError
from search_to_signal.cli.main import main
from search_to_signal.learner.adapter import attach_adapter, save_adapter
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import encoded
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer
from search_to_signal.models.sampling import AS_IS, Drawing, Exchange, Filters, read_lora, sample_group
from search_to_signal.verify.whose import Named, Whose, whose

pytestmark = pytest.mark.slow

PROMPTS = ("def tour(nodes):\n    return", "import numpy as np\n", "for item in bins:\n")


class Quiet:
    """Takes progress, and shows none."""

    def update(self, task: str, done: int, total: int, note: str = "") -> None: ...
    def say(self, line: str) -> None: ...


def _adapter(model: Any, directory: Path, seed: int, scale: float) -> Path:
    torch.manual_seed(seed)
    adapted = attach_adapter(model, LearnerSettings(lora_rank=4, lora_alpha=8), seed)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, scale)
    save_adapter(adapted, directory)
    adapted.unload()
    return directory


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose draws vary, with the embedded model's tokenizer, and two adapters of it."""
    directory = tmp_path_factory.mktemp("whose") / "model"
    shutil.copytree(model_directory("qwen2-2.1m"), directory)
    (directory / "SHA256SUMS").unlink()
    torch.manual_seed(1)
    settings = AutoConfig.from_pretrained(directory, num_hidden_layers=1)
    opened = AutoModelForCausalLM.from_config(settings)
    for parameter in opened.parameters():
        if parameter.dim() > 1:
            parameter.data = torch.randn_like(parameter) * 0.09
    opened.save_pretrained(directory)
    _adapter(opened, directory.parent / "last", 1, 0.05)
    _adapter(opened, directory.parent / "older", 2, 0.05)
    return directory


def sampled(
    model: Path, adapter: str = "last", without: str = "", drawing: Drawing = AS_IS, chat: bool = True
) -> list[Rollout]:
    """Rollouts as a trainer logs them that believes in adapter, temperature 1 and its chat template."""
    tokenizer = load_tokenizer(model)
    opened = AutoModelForCausalLM.from_pretrained(model).eval()
    lora = read_lora(model.parent / adapter) if adapter else None
    for name, (first, second) in lora.factors.items() if lora else ():
        if name.rpartition(".")[2] != without:
            opened.get_submodule(name).weight.data += lora.scale * second @ first
    found = []
    for number, text in enumerate(PROMPTS):
        messages = ({"role": "user", "content": text},)
        ids = tuple(encoded(tokenizer, list(messages))[1])
        group = sample_group(
            opened,
            ids if chat else tuple(tokenizer.encode(text, add_special_tokens=False)),
            seeds=range(8 * number, 8 * number + 8),
            max_new_tokens=80,
            temperature=drawing.temperature,
            end_ids=frozenset(),
            filters=Filters(drawing.top_k, drawing.top_p),
        )
        found += [Rollout(f"log:{number}", number, Chat(messages), own) for own in group.completion_ids]
    return found


def asked(
    model: Path, found: Sequence[Rollout], *adapters: str, drawing: Drawing = AS_IS, tokens: int = 2000
) -> Whose:
    """What is found for a log of ``found``, by default of the last of both adapters."""
    named = tuple(model.parent / name for name in adapters or ("older", "last"))
    return whose(found, Named(model, named, drawing, tokens), Quiet())


def test_an_honest_log_is_what_was_named(model: Path) -> None:
    """So it is with base and adapter, and whatever way of drawing was named."""
    for drawing in (AS_IS, Drawing(0.7, 0.9)):
        result = asked(model, sampled(model, drawing=drawing), drawing=drawing, tokens=640)
        assert result.verdict in ("as_named", "undecided")
        assert result.lines[0].named


@pytest.mark.parametrize(
    ("fault", "part", "expected"),
    [
        ({"adapter": ""}, "weights", "the base model"),
        ({"adapter": "older"}, "weights", "older"),
        ({"without": "up_proj"}, "weights", "without up_proj"),
        ({"drawing": Drawing(0.7)}, "drawing", "temperature 0.7"),
        ({"drawing": Drawing(1.0, 0.9)}, "drawing", "top-p 0.9"),
        ({"chat": False}, "template", "without a chat template"),
    ],
)
def test_what_sampled_is_found(model: Path, fault: dict[str, Any], part: str, expected: str) -> None:
    """Each fault is found from at most 2,000 tokens, with something to do about it."""
    result = asked(model, sampled(model, **fault))
    best = result.lines[0]
    assert result.verdict == "otherwise"
    assert result.tokens < 2000
    assert getattr(best, part).endswith(expected)
    assert best.action
    # Nothing else is said to be wrong.
    named = next(line for line in result.lines if line.named)
    others = {"weights", "template", "drawing"} - {part}
    assert all(getattr(best, other) == getattr(named, other) for other in others)


def test_adapters_that_are_alike_are_not_decided(model: Path) -> None:
    """An adapter one tiny step older: not decided, and how many tokens it would take."""
    last = model.parent / "last"
    step = shutil.copytree(last, model.parent / "step")
    import safetensors.torch

    tensors = safetensors.torch.load_file(last / "adapter_model.safetensors")
    moved = {name: tensor * 1.001 for name, tensor in tensors.items()}
    safetensors.torch.save_file(moved, step / "adapter_model.safetensors")
    result = asked(model, sampled(model), "step", "last")
    assert result.verdict == "undecided"
    assert result.left == 2
    other = next(line for line in result.lines if line.weights.endswith("step"))
    assert other.tokens_needed is not None
    assert other.tokens_needed > 10 * result.tokens


def test_tokens_of_another_model_fit_nothing(model: Path) -> None:
    """Tokens that no explanation would draw are not given to the least unlikely."""
    found = [replace(one, completion=tuple(range(5, 85))) for one in sampled(model)]
    assert asked(model, found).verdict == "unexplained"


def test_logged_log_probabilities_are_compared(model: Path) -> None:
    """Those of the named model are its own to rounding; a wrong one is named with its place."""
    honest = sampled(model)
    exchange, lora = (
        Exchange(AutoModelForCausalLM.from_pretrained(model).eval()),
        read_lora(model.parent / "last"),
    )
    exchange.add([lora])
    exchange.use(lora)
    tokenizer, found = load_tokenizer(model), []
    for one in honest[:4]:
        assert isinstance(one.prompt, Chat)
        ids = encoded(tokenizer, [dict(message) for message in one.prompt.messages])[1]
        with torch.no_grad():
            logits = exchange.model(torch.tensor([[*ids, *one.completion]])).logits[0, len(ids) - 1 : -1]
        tokens = torch.tensor(one.completion)[:, None]
        found.append(
            replace(one, logprobs=tuple(torch.log_softmax(logits, -1).gather(1, tokens)[:, 0].tolist()))
        )
    wrong = list(found[0].logprobs)
    wrong[7] -= 2.0
    found[0] = replace(found[0], logprobs=tuple(wrong))
    result = asked(model, found)
    named = next(line for line in result.lines if line.named)
    assert named.mismatch == pytest.approx(2.0 / result.tokens, rel=0.05)
    distance, where = result.worst[0]
    assert distance == pytest.approx(2.0, rel=1e-3)
    assert where.endswith("log:0, token 7")


def test_false_alarms_are_rare(model: Path) -> None:
    """Of many honest logs of the base model none is called otherwise, at whatever time reading stops."""
    found = sampled(model, adapter="")
    results = [
        whose(found[start : start + 1], Named(model, (), tokens=60), Quiet()) for start in range(0, 24, 3)
    ]
    assert {result.verdict for result in results} <= {"as_named", "undecided"}
    assert max(result.tokens for result in results) <= 60


def test_the_command_says_it(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``s2s audit LOG --model --adapter`` ends with 1 where something else sampled, and says what to do."""
    log = tmp_path / "log.jsonl"
    rows = [
        {"group": one.where, "reward": number % 3, "step": one.step, "prompt": PROMPTS[one.step]}
        | {"completion_ids": one.completion}
        for number, one in enumerate(sampled(model, adapter=""))
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["audit", str(log), "--model", str(model), "--adapter", str(model.parent / "last")]
    assert main([*command, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["sampler"]
    assert told["verdict"] == "otherwise"
    assert told["lines"][0]["weights"] == "the base model"
    assert main(["audit", str(log), "--model", str(model), "--steps", "0-1"]) == 0
    assert "Whose rollouts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"prompt": "a", "completion": "b"}, ("a", "b", ())),
        ({"input": "a", "output": "b", "score": 1.0}, ("a", "b", ())),
        (
            {"prompt_ids": [1, 2], "completion_ids": [3, 4], "logprobs": [-1.0, -2.0], "prompt": "a"},
            ((1, 2), (3, 4), (-1.0, -2.0)),
        ),
        (
            {"token_ids": [1, 2, 3, 4, 5], "loss_mask": [0, 0, 1, 1, 0], "logprobs": [0, 0, -1, -2, 0]},
            ((1, 2), (3, 4), (-1.0, -2.0)),
        ),
        (
            {
                "prompt": [{"role": "user", "content": "a"}],
                "completion": [{"role": "assistant", "content": "b"}],
            },
            (Chat(({"role": "user", "content": "a"},)), "b", ()),
        ),
    ],
)
def test_rollouts_are_read_as_they_are_logged(tmp_path: Path, record: dict[str, Any], expected: Any) -> None:
    """Texts, tokens, chats and masked sequences, with the sampler's log-probabilities where they are."""
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"group": 1, "reward": 0.0, "step": 3} | record) + "\n")
    (one,) = rollouts(log)
    assert (one.prompt, one.completion, one.logprobs, one.step) == (*expected, 3)


def test_what_cannot_be_read_is_one_line(model: Path, tmp_path: Path) -> None:
    """Rewards without texts, tokens of another vocabulary, and adapters of another model or kind."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"group": 1, "reward": 0.0}\n')
    with pytest.raises(RecordError):
        list(rollouts(log))
    with pytest.raises(RecordError):
        asked(model, [Rollout("log", 0, (1, 2), (10**6,))])
    config = json.loads((model.parent / "last" / "adapter_config.json").read_text())
    broken = shutil.copytree(model.parent / "last", tmp_path / "broken")
    (broken / "adapter_config.json").write_text(json.dumps(config | {"use_dora": True}))
    with pytest.raises(ModelFileError):
        read_lora(broken)
