"""A folder of `data/activations` opened for reading: its shards, or the running subject where none were stored."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from latentry.activations.activation_store import ActivationPair, ActivationStore, Recorded, redrawn_in
from latentry.activations.positions import HOOKPOINT_FILE
from latentry.activations.stream import ActivationStream
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.saes.base import Sae
from latentry.store import read_manifest
from latentry.subjects.causal_lm import load_subject
from latentry.subjects.hooks import Hookpoint


def open_activations(
    folder: Path, *, tokens: Path, model: Path, dtype: str, device: torch.device, batch_contexts: int, written: Path | None = None
) -> ActivationStore | ActivationPair | ActivationStream:
    """Activations to read; the subject is loaded only where the folder stores none, and then runs no further than its hookpoints.

    Args:
        dtype: the subject's own (`subject.dtype`); that of the activations is in the folder.
        batch_contexts: `run.batch_contexts`, as in the pass that made the folder.
        written: the folder of what a transcoder rebuilds, to be read beside what it reads; None for a SAE, which rebuilds that.

    Raises:
        ContractError: the folder holds no complete activations of this version.
    """
    described = [_described(one) for one in (folder, written) if one is not None]
    if described[0]["stored"]:
        return ActivationStore(folder) if written is None else ActivationPair(folder, written)
    points = [Hookpoint(name=one["hookpoint"], module=one["module"], side=one["side"], random=redrawn_in(one)) for one in described]
    subject = load_subject(model, points, dtype=dtype, device=device)
    return ActivationStream(folder, subject, TokenSet(tokens), batch_contexts, None if written is None else Recorded(written))


def _described(folder: Path) -> dict[str, Any]:
    read_manifest(folder, ACTIVATIONS)
    return json.loads((folder / HOOKPOINT_FILE).read_text(encoding="utf-8"))


def labelled(sae: Sae, activations: Recorded) -> Sae:
    """The SAE as the baseline that it is where the activations that it reads are of a redrawn subject."""
    return replace(sae, baseline="random_subject") if activations.random and sae.baseline is None else sae
