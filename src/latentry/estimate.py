"""What a run of params.yaml will take before it is started: tokens that the subject runs, and disk. It runs nothing.

What only a stage can know (the length of activations before the model is there, the L0 of a SAE that is not trained) is said to
be unknown, never guessed.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentry.params import Params

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
CE_PASSES = 3
"""Cross entropy runs the whole subject clean, with zeros, and with the SAE in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Tokens and bytes of one run, nothing of it cached."""

    n_contexts: int
    n_tokens: int
    forward_tokens: dict[str, int]
    """Tokens that the subject runs, by cell; with `activations.store: false` each SAE's cells run it themselves."""
    disk_bytes: dict[str, int | None]
    """By folder; None where it cannot be known yet."""

    @property
    def passes(self) -> float:
        """How often, in all, the subject runs over the tokens."""
        return sum(self.forward_tokens.values()) / self.n_tokens


def estimate(params: Params, data: Path = Path("data")) -> Estimate:
    """From params, and from what earlier stages left in `data`."""
    n_contexts = max(1, round(params.tokens.n_tokens / params.tokens.context))
    n_tokens = n_contexts * params.tokens.context
    return Estimate(
        n_contexts=n_contexts,
        n_tokens=n_tokens,
        forward_tokens=dict(_forward_tokens(params, n_contexts)),
        disk_bytes=dict(_disk_bytes(params, data, n_contexts)),
    )


def _forward_tokens(params: Params, n_contexts: int) -> Iterator[tuple[str, int]]:
    context = params.tokens.context
    held_out = min(n_contexts - 1, params.evaluation.contexts)
    n_subjects = len({str(point.random) for point in params.subject.hookpoints.values()})
    yield "activations", n_subjects * n_contexts * context
    for name, sae in params.saes.items():
        epochs = getattr(getattr(sae, "train", None), "epochs", None)
        training = (n_contexts - held_out) * (1 + math.ceil(epochs)) if epochs else 0  # one more for the mean activation
        streamed = 0 if params.activations.store else training + held_out
        ce_passes = CE_PASSES + (sae.writes is not None)  # one more for what a transcoder reads
        yield f"sae@{name}", (streamed + ce_passes * params.evaluation.ce_contexts) * context
        yield f"latents@{name}", (0 if params.activations.store else n_contexts + held_out) * context


def _disk_bytes(params: Params, data: Path, n_contexts: int) -> Iterator[tuple[str, int | None]]:
    n_tokens = n_contexts * params.tokens.context
    for name in params.subject.hookpoints:
        folder = data / "activations" / name
        d_in = _d_in(params, data, name)
        stored = None if d_in is None else n_tokens * (d_in * ITEM_BYTES[params.activations.dtype] + 4)
        yield folder.as_posix(), stored if params.activations.store else n_tokens
    for name, sae in params.saes.items():
        l0 = _l0(sae, data / "saes" / name)
        position = 4 if n_tokens <= 2**32 else 8
        each = position + ITEM_BYTES[params.latents.dtype]
        yield (data / "latents" / name).as_posix(), None if l0 is None else round(n_tokens * l0 * each) + 8 * (sae.n_latents or 0)


def _d_in(params: Params, data: Path, hookpoint: str) -> int | None:
    """As `activations` found it, else the subject's hidden size where the hookpoint is a whole layer."""
    found = _read(data / "activations" / hookpoint / "hookpoint.json").get("d_in")
    config = _read(data / "models" / params.subject.model / "config.json")
    config = config.get("text_config", config)
    is_layer = params.subject.hookpoints[hookpoint].module.rpartition(".")[2].isdecimal()
    return found or (config.get("hidden_size") or config.get("n_embd") if is_layer else None)


def _l0(sae: Any, folder: Path) -> float | None:
    """As measured, else what a TopK recipe allows."""
    return _read(folder / "evaluation.json").get("l0") or getattr(getattr(sae, "train", None), "k", None)


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
