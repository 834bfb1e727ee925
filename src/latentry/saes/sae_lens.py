"""SAEs in the SAELens layout (`cfg.json`, `sae_weights.safetensors`): trained here, or from a folder, the hub or sae-lens's registry.

What the layout means is `sae_lens_layout.py`'s. A SAE from elsewhere is copied as it is, and the copy is what is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
from jaxtyping import Int
from pydantic import SerializeAsAny, ValidationInfo, field_validator, model_validator

from latentry.registry import SaeConfig, Width
from latentry.saes import sae_lens_registry
from latentry.saes.base import Activations, Sae
from latentry.saes.pinned import Format, HubFolder, written_hookpoint
from latentry.saes.recipe import Loss, Recipe, recipe_of
from latentry.saes.sae_lens_layout import CONFIG_FILE, NOT_BY_ROW, RUN_FILE, WEIGHTS_FILE, check_weights, read_described, read_parts

FORMAT = Format(name="SAELens", files=((CONFIG_FILE, WEIGHTS_FILE),), besides=(RUN_FILE,))


class Config(SaeConfig):
    """One SAE of the grid: trained in the DAG (`train`), or from elsewhere (`folder`, `hub`, `pretrained`)."""

    width: Width
    """Number of latents in its file; a signed one (`abstopk`) has twice as many here."""
    loss: Loss
    """Training loss, and the label of the SAE in every comparison."""
    train: SerializeAsAny[Recipe] | None = None
    """How it is trained here, with the knobs of its loss; exactly one of `train`, `folder`, `hub` and `pretrained`."""
    folder: Path | None = None
    """A folder in the SAELens layout; it is copied, and the copy is what is read."""
    hub: HubFolder | None = None
    """The same on the Hugging Face hub, at a commit."""
    pretrained: sae_lens_registry.Pretrained | None = None
    """An entry of sae-lens's registry, which sae-lens itself reads and saves."""

    @field_validator("loss", mode="before")
    @classmethod
    def _by_row(cls, loss: Any) -> Any:
        if isinstance(loss, str) and loss in NOT_BY_ROW:
            raise ValueError(f"unsupported, for {NOT_BY_ROW[loss]}; allowed are {', '.join(get_args(Loss))}")
        return loss

    @field_validator("train", mode="before")
    @classmethod
    def _of_its_loss(cls, knobs: Any, info: ValidationInfo) -> Any:
        known = {"loss", "width"} <= info.data.keys() and knobs is not None
        return recipe_of(info.data["loss"], info.data["width"], knobs) if known else None

    @model_validator(mode="after")
    def _one_origin(self) -> Config:
        named = [name for name in ("train", "folder", "hub", "pretrained") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"found {' and '.join(named) or 'none'} of `train`, `folder`, `hub` and `pretrained`; name exactly one")
        if self.loss.endswith("transcoder") != (self.writes is not None):
            raise ValueError(
                f"loss {self.loss!r} with writes {self.writes!r}; a transcoder `writes` another hookpoint, and nothing else does"
            )
        return self

    @property
    def n_latents(self) -> int:
        """As `SaeConfig`."""
        return self.width * (2 if self.loss == "abstopk" else 1)


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The SAE that the folder holds, checked against its entry in params.

    Raises:
        SourceError: a file is missing, or holds a pickle.
        ContractError: keys, shapes, width or loss are not those wanted.
        NumericsError: a weight is NaN or infinite.
        UnsupportedError: an architecture or option whose result sae-lens alone computes.
    """
    FORMAT.names_in(folder)
    parts = read_parts(folder, config.width, config.loss, device)
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=written_hookpoint(config, folder / CONFIG_FILE, is_transcoder=parts.is_transcoder),
        loss=config.loss,
        d_in=parts.d_in,
        encode_block=parts.encode_block,
        k=parts.k,
        decoder=parts.decoder,
        decoder_bias=parts.decoder_bias,
        encoder=parts.encoder,
        skip=parts.skip,
        restore=parts.restore,
        signed=parts.signed,
        provenance=FORMAT.provenance(folder, architecture=parts.architecture, k=parts.declared_k, metadata=parts.metadata)
        | ({"source": "trained here"} if config.train is not None else {}),
    )


def make(
    config: Config,
    activations: Activations,
    contexts: Int[np.ndarray, " context"],
    *,
    seed: int,
    folder: Path,
    metadata: Mapping[str, Any],
    checkpoint_tokens: int,
    device: str = "cpu",
) -> int | None:
    """Write the SAE's files to the folder: trained on those contexts, or copied. Returns on how many tokens it was
    trained here, None where others trained it. After a kill it goes on, at most `checkpoint_tokens` tokens back."""
    if config.pretrained is not None:
        return sae_lens_registry.fetch(config.pretrained, folder)
    if config.train is None:
        return FORMAT.make(config, folder=folder)
    from latentry.saes.training import train

    return train(
        config.train,
        loss=config.loss,
        width=config.width,
        activations=activations,
        contexts=contexts,
        seed=seed,
        folder=folder,
        metadata=metadata,
        checkpoint_tokens=checkpoint_tokens,
        device=device,
    )


def check_folder(config: Config) -> dict[str, Any] | None:
    """Look at a SAE in a local folder without reading its weights; returns what is said of its training, None where it is not here.

    Raises:
        SourceError, ContractError, UnsupportedError: as `build`.
    """
    if config.folder is None:
        return None
    folder = FORMAT.opened(config)
    described = read_described(folder, config.width, config.loss)
    check_weights(folder / WEIGHTS_FILE, described, config.width)
    return FORMAT.metadata(config.folder, described["metadata"]) | {"d_in": described["d_in"]}


def origin_digest(config: Config) -> str | None:
    """Digest of what is copied, so that others in its place are noticed; None for a SAE that is trained here.

    Raises:
        SourceError: a file is missing.
    """
    if config.pretrained is not None:
        return sae_lens_registry.origin_digest(config.pretrained)
    return FORMAT.origin_digest(config) if config.train is None else None


def is_copy(config: Config, folder: Path) -> bool:
    """Whether a folder holds what would be copied now."""
    if config.pretrained is not None:
        return sae_lens_registry.is_copy(config.pretrained, folder)
    return config.train is not None or FORMAT.is_copy(config, folder)
