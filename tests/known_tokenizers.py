"""Tokenizers built here whose tokens are known, and texts in several scripts."""

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE, WordLevel
from transformers import PreTrainedTokenizerFast

TEXTS = [
    "A plain line.  Two spaces,\nnew line\n\n  and a tail ",
    "日本語の文章です。漢字かな交じり",
    "🙂👩\u200d👩\u200d👧 flags 🇫🇷 and 👍🏽",
    "שלום עולם، مرحبا بالعالم",
    "e\u0301 a\u0308 \u200b zero\r\nCRLF\ttab",
]
END, START = "<|end|>", "<|start|>"


def byte_level(*, begins: bool = False, words: int = 0) -> PreTrainedTokenizerFast:
    """Every byte a token, `<|end|>` being id 0; with `words`, merges learnt from the texts on top; with `begins`, a BOS before each text."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=258 + words, special_tokens=[END, START], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if begins:
        template = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, tokenizer.token_to_id(START))])
        tokenizer.post_processor = template
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=START)


def word_level(**settings) -> PreTrainedTokenizerFast:
    """`a` is 0, `b` is 1, the rest is as it is named."""
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "[END]": 2, "[UNK]": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **settings)
