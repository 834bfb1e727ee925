"""A tiny model of random weights, made on the spot: for trying a pipeline and for tests. It knows nothing."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from latentry.registry import VariantConfig

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


class Config(VariantConfig):
    purpose: Literal["language_model", "embedding_model"]
    """A Llama-shaped causal model with a byte-level tokenizer and a chat template, or a BERT-shaped sentence encoder."""
    d_model: Annotated[int, Field(ge=8, le=1 << 14, multiple_of=8)] = 32
    """Width of the residual stream: four heads of an even width."""
    n_layers: Annotated[int, Field(ge=1, le=1000)] = 4
    """Layers of the model."""
    seed: int = 0
    """Of its weights alone; the study's own seed does not enter."""


def build(config: Config) -> "Random":
    """A source that is always there."""
    return Random(config)


class Random:
    """See the file's docstring."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def fetch(self, downloads: Path, into: Path) -> Path:  # noqa: ARG002 (nothing is fetched)
        """Make the model in the folder given."""
        import torch
        from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

        tokenizer = _byte_tokenizer()
        tokenizer.save_pretrained(into)
        shape: dict[str, Any] = {"hidden_size": self._config.d_model, "num_hidden_layers": self._config.n_layers, "num_attention_heads": 4}
        shape |= {"intermediate_size": 2 * self._config.d_model, "vocab_size": len(tokenizer), "max_position_embeddings": 8192}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._config.seed)
            if self._config.purpose == "language_model":
                ends: dict[str, Any] = {
                    "bos_token_id": None,
                    "eos_token_id": tokenizer.eos_token_id,
                    "pad_token_id": tokenizer.pad_token_id,
                }
                model = LlamaForCausalLM(LlamaConfig(**shape, **ends, initializer_range=0.2))
            else:
                model = BertModel(BertConfig(**shape))
                _describe_sentence_encoder(into, self._config.d_model)
            model.save_pretrained(into)
        return into


def _byte_tokenizer():
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"eos_token": "<|end|>", "pad_token": "<|pad|>", "additional_special_tokens": ["<|start|>"]}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _describe_sentence_encoder(folder: Path, d_model: int) -> None:
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256, "do_lower_case": False}), encoding="utf-8")
    pooling = {"word_embedding_dimension": d_model, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
