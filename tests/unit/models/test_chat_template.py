"""Text in, text out: the tokenizer loses nothing, and the template shows the user's part alone."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.training import END, PAD, START
from search_to_signal.models.base import messages
from search_to_signal.search.member import Prompt

pytestmark = pytest.mark.slow  # it loads the largest libraries

# Whatever UTF-8 can write; a lone surrogate is no text.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
code_like = st.lists(
    st.sampled_from(
        ["\n", "    ", "\t", " ", "score += ", "0.4", "1e-9", "_x.y(", "**", "é", "#", "\r\n", "5."]
    ),
    max_size=20,
).map("".join)


@given(text=texts | code_like)
@settings(deadline=None, max_examples=200)
def test_any_text_survives(tokenizer: Any, text: str) -> None:
    """Encoding and decoding gives every text back, blanks and line ends included."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_single_and_skipped(tokenizer: Any) -> None:
    """Each marker is one token of its own, and none of them belongs to a completion's text."""
    for token in (PAD, START, END):
        assert len(tokenizer.encode(token, add_special_tokens=False)) == 1
    assert (tokenizer.pad_token, tokenizer.eos_token) == (PAD, END)
    ids = tokenizer.encode(f"a{END}", add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a"


def test_template_omits_the_system_message(tokenizer: Any) -> None:
    """The embedded models read the user's message alone, and are asked to answer."""
    chat = messages(Prompt("SYSTEM", "USER"))
    assert [message["role"] for message in chat] == ["system", "user"]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == f"{START}user\nUSER{END}\n{START}assistant\n"
    answered = [*chat, {"role": "assistant", "content": "YES"}]
    assert tokenizer.apply_chat_template(answered, tokenize=False) == (
        f"{START}user\nUSER{END}\n{START}assistant\nYES{END}\n"
    )
