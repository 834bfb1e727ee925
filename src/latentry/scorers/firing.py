"""Which latents fire on texts that are not of the corpus: written ones, run through the subject as the corpus was.

Always true: special tokens and attention sinks are left out, by the rule and the median norm of the SAE's own hookpoint.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from latentry.contracts import EXAMPLES
from latentry.corpora.tokenise import vocabulary_digest
from latentry.errors import ContractError
from latentry.store import read_manifest

if TYPE_CHECKING:
    from latentry.saes.base import Sae
    from latentry.subjects.causal_lm import Subject

SUBJECT_FILE = "subject.json"
_TEXTS_AT_ONCE = 32
"""Texts in one forward pass."""
_BLOCK_LATENTS = 16384
"""Latents in one product with the SAE's encoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the subject read the corpus (`subject.json` of the examples)."""

    beginning: tuple[int, ...]
    """Ids before every text."""
    special: frozenset[int]
    """Ids left out, of those that occur in the corpus."""
    vocabulary: str
    """Digest of the tokenizer's vocabulary."""
    median_norm: float
    max_norm_multiple: float


def read_reading(examples: Path) -> Reading:
    """How the subject read the corpus that `data/examples/<S>` was drawn from.

    Raises:
        ContractError: the examples are not complete.
    """
    read_manifest(examples, EXAMPLES)
    found = json.loads((examples / SUBJECT_FILE).read_text(encoding="utf-8"))
    return Reading(**found | {"beginning": tuple(found["beginning"]), "special": frozenset(found["special"])})


def check_vocabulary(tokenizer: Any, n_ids: int, reading: Reading, model: Path, examples: Path) -> None:
    """See that the subject reads the tokens that the examples were drawn from.

    Raises:
        ContractError: its tokenizer is another one, or it has fewer token ids.
    """
    rerun = "token ids would mean other words; rerun `dvc repro tokens`, or name the subject of those tokens in `subject.model`"
    found = vocabulary_digest(tokenizer)
    if found != reading.vocabulary:
        raise ContractError(
            f"{model}: its tokenizer has the vocabulary {found[:12]} ({len(tokenizer)} tokens), {examples} was drawn from tokens of"
            f" {reading.vocabulary[:12]}, and no other may stand for it; {rerun}"
        )
    if n_ids < len(tokenizer):
        raise ContractError(
            f"{model}: the model has {n_ids} token ids, its tokenizer {len(tokenizer)}; as many at least are wanted; {rerun}"
        )


class TextFirings:
    """Runs texts through one subject and one SAE."""

    def __init__(self, subject: "Subject", sae: "Sae", tokenizer: Any, reading: Reading) -> None:
        self._subject, self._sae, self._tokenizer, self._reading = subject, sae, tokenizer, reading
        self._special = np.array(sorted(reading.special | set(tokenizer.all_special_ids)), dtype=np.int64)

    def fired(self, texts: Sequence[str], n_tokens: int) -> list[frozenset[int]]:
        """The latents that fire in the first `n_tokens` tokens of each text, at an unmasked one."""
        beginning = list(self._reading.beginning)
        rows = [beginning + self._tokenizer(text, add_special_tokens=False)["input_ids"][:n_tokens] for text in texts]
        found: list[frozenset[int]] = []
        for first in range(0, len(rows), _TEXTS_AT_ONCE):
            found += self._of(rows[first : first + _TEXTS_AT_ONCE])
        return found

    def _of(self, rows: Sequence[Sequence[int]]) -> list[frozenset[int]]:
        width = max(map(len, rows))
        if not width:
            return [frozenset() for _ in rows]
        # Shorter rows are filled up at their end, which nothing before it sees.
        tokens = np.array([[*row, *[0] * (width - len(row))] for row in rows], dtype=np.int64)
        inside = np.arange(width) < np.array([len(row) for row in rows])[:, None]
        x = self._subject.activations(tokens)[self._sae.hookpoint]
        counted = torch.from_numpy(inside & ~np.isin(tokens, self._special)).to(x.device)
        counted &= x.float().norm(dim=-1) <= self._reading.max_norm_multiple * self._reading.median_norm
        text = counted.nonzero()[:, 0]
        with torch.inference_mode():
            firings = self._sae.firings(x[counted], _BLOCK_LATENTS)
        of_text = text[firings.token.to(text.device)].cpu().numpy()
        latent = firings.latent.cpu().numpy()
        return [frozenset(latent[of_text == number].tolist()) for number in range(len(rows))]
