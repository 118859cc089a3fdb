"""How messages become tokens: the chat template of the embedded models, and its vocabulary."""

from collections.abc import Iterable
from typing import Protocol

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast


class Prompt(Protocol):
    """The two chat messages that a search asks with."""

    @property
    def system(self) -> str: ...
    @property
    def user(self) -> str: ...


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


def messages(prompt: Prompt) -> list[dict[str, str]]:
    """A prompt as chat messages."""
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
