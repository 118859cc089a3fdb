"""How messages become tokens: the chat template of the embedded models, and its vocabulary."""

from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import TemplateError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import Message

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# The embedded models know their problems from the code in the prompt, so their template leaves the
# system message out; a 7B model brings its own template and reads it.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Words keep their underscores and dots, numbers stay whole, and a line break keeps its indent: the
# pieces that Python code is made of.
_PIECES = r"\n[^\S\n]*| ?[A-Za-z_.]+\(?| ?[0-9]*\.?[0-9]+| ?[^\sA-Za-z_0-9]+|\s+"

# What a template may add to messages, and how often it may repeat them.
_MOST_TEXT, _MOST_GROWTH = 1 << 20, 16


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer; every byte string can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.clean_up_tokenization_spaces = False
    return wrapped


def encoded(tokenizer: Any, chat: list[Message]) -> tuple[str, list[int]]:
    """A chat as the text that a model continues, and as its tokens.

    Raises ConfigError where the chat template refuses it, or makes nothing of it.
    """
    if hasattr(tokenizer, "encoded"):  # somebody else's
        return tokenizer.encoded(chat)  # type: ignore[no-any-return]
    return rendered(tokenizer, chat)


def rendered(tokenizer: Any, chat: list[Message], at: Callable[[str], object] = str) -> tuple[str, list[int]]:
    """The same in this process; ``at`` is told what is about to be done, as what fails is named."""
    at("chat_template")
    try:
        text: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise ConfigError(
            f"the chat template in {tokenizer.name_or_path} refuses these messages "
            f"({one_line(str(error), 200)}): give others, or another model"
        ) from error
    most = _MOST_TEXT + _MOST_GROWTH * sum(len(part) for message in chat for part in message.values())
    if len(text) > most:
        raise ConfigError(
            f"the chat template in {tokenizer.name_or_path} makes {len(text):,} characters of these "
            f"messages, more than {most:,}: give another model"
        )
    at("tokenizer.json")
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not ids:
        raise ConfigError(f"the chat template in {tokenizer.name_or_path} makes nothing of these messages")
    return text, ids


def end_ids(tokenizer: Any, generation_config: Any) -> frozenset[int]:
    """Every token that ends a completion: the tokenizer's, and those of the model's generation settings.

    Qwen's instruction models stop on two, of which the tokenizer has one.
    """
    configured = getattr(generation_config, "eos_token_id", None)
    more = configured if isinstance(configured, list | tuple) else [configured]
    return frozenset(token for token in [tokenizer.eos_token_id, *more] if token is not None)
