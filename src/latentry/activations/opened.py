"""A folder of `data/activations` opened for reading: its shards, or the running subject where none were stored."""

import json
from dataclasses import replace
from pathlib import Path

import torch

from latentry.activations.activation_store import ActivationStore, Recorded, redrawn_in
from latentry.activations.positions import HOOKPOINT_FILE
from latentry.activations.stream import ActivationStream
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.saes.base import Sae
from latentry.store import read_manifest
from latentry.subjects.causal_lm import load_subject
from latentry.subjects.hooks import Hookpoint


def open_activations(
    folder: Path, *, tokens: Path, model: Path, dtype: str, device: torch.device, batch_contexts: int
) -> ActivationStore | ActivationStream:
    """Activations to read; the subject is loaded only where the folder stores none, and then runs no further than its hookpoint.

    Args:
        dtype: the subject's own (`subject.dtype`); that of the activations is in the folder.
        batch_contexts: `run.batch_contexts`, as in the pass that made the folder.

    Raises:
        ContractError: the folder holds no complete activations of this version.
    """
    read_manifest(folder, ACTIVATIONS)
    described = json.loads((folder / HOOKPOINT_FILE).read_text(encoding="utf-8"))
    if described["stored"]:
        return ActivationStore(folder)
    point = Hookpoint(name=described["hookpoint"], module=described["module"], side=described["side"], random=redrawn_in(described))
    subject = load_subject(model, [point], dtype=dtype, device=device)
    return ActivationStream(folder, subject, TokenSet(tokens), batch_contexts)


def labelled(sae: Sae, activations: Recorded) -> Sae:
    """The SAE as the baseline that it is where the activations that it reads are of a redrawn subject."""
    return replace(sae, baseline="random_subject") if activations.random and sae.baseline is None else sae
