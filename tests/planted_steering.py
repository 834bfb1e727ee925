"""A subject whose words the test knows: what its residual stream holds of a word's direction is what makes it write that word.

Its layers add nothing, so that a token's embedding reaches the unembedding as it is; a word is a token.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from latentry.records import Purpose, SteeringPrompt
from latentry.saes.base import Sae
from latentry.scorers.passages import Mode, Steered
from latentry.scorers.steering import Steering
from latentry.subjects.causal_lm import Subject
from latentry.subjects.hooks import Hookpoint

WORDS = ("<end>", "whale", "tax", "the", "old", "house", "was", "seen", "by", "many", "men", "in", "their", "long", "day", "sea")
D_IN = 32
WHALE, RANDOM, NOTHING, SEEN = range(4)
"""Latents: one that promotes the word "whale", a random direction, no direction at all, and one that fires at "sea" and promotes "tax"."""


class WordTokenizer:
    """A token a word."""

    all_special_ids = (0,)

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return " ".join(WORDS[token] for token in tokens)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [WORDS.index(word) for word in text.split()]}

    def get_vocab(self) -> dict[str, int]:
        return {word: token for token, word in enumerate(WORDS)}

    def __len__(self) -> int:
        return len(WORDS)


def directions() -> torch.Tensor:
    """Unit rows, at right angles, of every word."""
    generator = torch.Generator().manual_seed(1)
    return torch.linalg.qr(torch.randn(D_IN, D_IN, generator=generator)).Q[: len(WORDS)]


def subject() -> Subject:
    """A word says little of the next, only "sea" says "tax"."""
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=D_IN, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, tie_word_embeddings=False
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    generator = torch.Generator().manual_seed(2)
    embedding = torch.randn(len(WORDS), D_IN, generator=generator) / 4
    words = directions()
    embedding -= embedding @ words.T @ words  # no word says any other
    embedding[WORDS.index("sea")] += 1.5 * words[WORDS.index("tax")]
    model.model.embed_tokens.weight.copy_(embedding)
    model.lm_head.weight.copy_(words)
    return Subject(model, [Hookpoint(name="here", module="model.layers.0", side="output")], torch.device("cpu"))


def sae() -> Sae:
    """Each latent fires where the activations hold its direction, except that nothing fires for the third."""
    words = directions()
    generator = torch.Generator().manual_seed(3)
    outside = torch.randn(D_IN, generator=generator)
    outside -= words.T @ (words @ outside)  # what no word reads
    rows = torch.stack([words[WORDS.index("whale")], outside / outside.norm(), torch.zeros(D_IN), words[WORDS.index("tax")]])
    return Sae(
        name="planted",
        hookpoint="here",
        writes="here",
        loss="standard",
        d_in=D_IN,
        encode_block=lambda x, block: (x @ rows[block].T - 0.5).relu(),
        decoder=rows,
        decoder_bias=torch.zeros(D_IN),
        provenance={},
    )


def prompt(latent: int, number: int, text: str, purpose: Purpose = Purpose.SCORE) -> SteeringPrompt:
    return SteeringPrompt(
        latent=latent,
        example_id=f"{latent}/steering/{purpose}/{number}",
        purpose=purpose,
        quintile=1 + number % 5,
        document=number,
        context=number,
        start=0,
        tokens=tuple(WORDS.index(word) for word in text.split()),
        text=text,
    )


def prompts(latent: int, last: str = "seen", n: int = 20) -> list[SteeringPrompt]:
    """Three quarters to score and one to explain, of different length and text, all of the same last word."""
    made = []
    for number in range(n):
        words = [WORDS[3 + (number * step + step) % 11] for step in range(1, 2 + number % 6)]
        purpose = Purpose.EXPLAIN if number % 4 == 3 else Purpose.SCORE
        made.append(prompt(latent, number, " ".join([*words, last]), purpose))
    return made


class PlantedSteering:
    """`ScorerInputs.steered` of the planted subject."""

    def __init__(self, of: Mapping[int, Sequence[SteeringPrompt]], seed: int = 0) -> None:
        self._steering = Steering(seed, subject(), sae(), WordTokenizer(), of)
        self._made: dict[tuple[Any, ...], list[tuple[int, Steered]]] = {}

    def __call__(self, latents: Sequence[int], kl: float, mode: Mode) -> Iterator[tuple[int, Steered]]:
        """Steered once for all tests that ask the same."""
        asked = (tuple(latents), kl, mode)
        if asked not in self._made:
            self._made[asked] = list(self._steering.steered(latents, kl, mode))
        return iter(self._made[asked])
