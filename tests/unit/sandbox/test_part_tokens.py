"""Which tokens of a completion are its rationale and which its program (D43)."""

import pytest

from search_to_signal.base.package_data import MODELS
from search_to_signal.models.base import completion_text
from search_to_signal.models.local import load_tokenizer
from search_to_signal.sandbox.programs import OPENING, Proposal, parse, part_spans, part_tokens

pytestmark = pytest.mark.slow  # it loads the largest libraries

IDEA = f"{OPENING} go to the nearest place, Größe 🗺 first."
CODE = "\ndef f(current, places):\n    return min(places)\n"
TEXT = f"{{{{{IDEA}}}}}\n```python{CODE}```<|im_end|>"


@pytest.mark.parametrize("model", ["qwen2-2.1m", "llama-2.1m"])
def test_tokens_of_a_part_hold_its_text(model: str) -> None:
    """They cover it, share no token beyond its edges, and the end token is of neither part."""
    tokenizer = load_tokenizer(MODELS / model)
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    decode = completion_text(tokenizer)
    found = parse(decode(ids))
    assert isinstance(found, Proposal)
    kept = {part: part_tokens(ids, part, decode) for part in ("rationale", "code")}  # type: ignore[arg-type]
    texts = {
        part: decode([i for i, chosen in zip(ids, row, strict=True) if chosen]) for part, row in kept.items()
    }
    assert found.idea in texts["rationale"]
    assert len(texts["rationale"]) <= len(found.idea) + 8
    assert found.code in texts["code"]
    assert "```python" not in texts["code"]
    assert not any(a and b for a, b in zip(kept["rationale"], kept["code"], strict=True))
    assert not kept["rationale"][-1]
    assert not kept["code"][-1]
    assert all(part_tokens(ids, "both", decode))


def test_a_part_counts_where_it_stands() -> None:
    """Without an idea there is no rationale, without a block no code, and several blocks are all code."""
    assert part_spans("nothing", "rationale") == part_spans("nothing", "code") == ()
    lone = f"no idea ```python{CODE}```"
    assert part_spans(lone, "rationale") == ()
    ((start, stop),) = part_spans(lone, "code")
    assert lone[start:stop] == CODE
    assert len(part_spans(f"```python{CODE}``` ```python{CODE}```", "code")) == 2
    ((start, stop),) = part_spans(IDEA, "rationale")
    assert IDEA[start:stop] == IDEA
