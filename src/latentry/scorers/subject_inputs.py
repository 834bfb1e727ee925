"""One SAE with its subject, opened from finished folders when a scorer or an explainer first wants them."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from latentry.contracts import SAE
from latentry.corpora.tokenise import load_tokenizer
from latentry.params import Params
from latentry.registry import variant
from latentry.runtime import device_of
from latentry.saes.base import Sae
from latentry.scorers.firing import TextFirings, check_vocabulary, read_reading
from latentry.scorers.passages import Mode, Steered
from latentry.scorers.steering import Steering, read_prompts
from latentry.store import read_manifest
from latentry.subjects.causal_lm import Subject, hookpoints_of, load_subject


class SubjectInputs:
    """What runs the subject, for one SAE; nothing is loaded before it is asked for, and then once."""

    def __init__(self, params: Params, sae: str) -> None:
        self._params, self._name = params, sae
        self._model, self._examples = Path("data/models", params.subject.model), Path("data/examples", sae)

    def steered(self, latents: Sequence[int], kl: float, mode: Mode) -> Iterator[tuple[int, Steered]]:
        """Each latent that has prompts, steered to a KL, or ablated.

        Raises:
            ContractError: something it is made from is not complete, or the subject has another vocabulary than the tokens.
        """
        prompts = read_prompts(self._examples)
        steering = Steering(self._params.seed, self._subject, self._sae, self._tokenizer, prompts)
        return steering.steered(latents, kl, mode)

    def fired(self, texts: Sequence[str], n_tokens: int) -> list[frozenset[int]]:
        """The latents that fire at an unmasked token of each text.

        Raises:
            ContractError: as `steered`.
        """
        return TextFirings(self._subject, self._sae, self._tokenizer, read_reading(self._examples)).fired(texts, n_tokens)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_tokenizer(self._model)
        check_vocabulary(tokenizer, self._subject.vocabulary, read_reading(self._examples), self._model, self._examples)
        return tokenizer

    @cached_property
    def _subject(self) -> Subject:
        config = self._params.saes[self._name]
        names = dict.fromkeys(name for name in (config.hookpoint, config.writes) if name)
        points = hookpoints_of({name: self._params.subject.hookpoints[name] for name in names})
        return load_subject(self._model, points, dtype=self._params.subject.dtype, device=device_of(self._params.run.device))

    @cached_property
    def _sae(self) -> Sae:
        folder, config = Path("data/saes", self._name), self._params.saes[self._name]
        read_manifest(folder, SAE)
        return variant("saes", config.kind).build(config, self._name, folder, str(device_of(self._params.run.device)))
