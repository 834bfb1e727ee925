"""What sampling takes from finished folders of other stages, as their contracts say it stands there."""

import json
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from latentry.contracts import LATENTS, SAE, Contract
from latentry.errors import ContractError
from latentry.registry import SaeConfig, variant
from latentry.store import manifest_digest, read_manifest


def decoder_rows(config: SaeConfig, name: str, sae: Path) -> Float32[np.ndarray, "latent d_out"]:
    """The decoder of `data/saes/<S>`, of whatever kind and dtype, one row per latent: of a signed SAE one for each direction.

    Raises:
        ContractError: the SAE is not complete, or not the one that params describe.
    """
    read_manifest(sae, SAE)
    return variant("saes", config.kind).build(config, name, sae).decoder.float().numpy()


def is_signed(latents: Path) -> bool:
    """Whether `data/latents/<S>` is of a signed SAE, so that each latent has a twin.

    Raises:
        ContractError: the folder is not complete.
    """
    read_manifest(latents, LATENTS)
    return bool(json.loads((latents / "store.json").read_text()).get("signed", False))


def verify_same_tokens(folder: Path, contract: Contract, tokens: Path) -> None:
    """Check that a folder was made from the tokens that are there now: positions of other tokens are other places.

    Raises:
        ContractError: it was made from others, of another tokenizer or corpus.
    """
    made_from, there = read_manifest(folder, contract).inputs.get(tokens.as_posix()), manifest_digest(tokens)
    if made_from != there:
        raise ContractError(
            f"{folder}: was made from tokens {str(made_from)[:12]}, in {tokens} are {there[:12]} (another tokenizer, corpus or"
            f" context); positions would mean other places; rerun `dvc repro {contract.stage}`"
        )
