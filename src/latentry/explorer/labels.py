"""What a latent is called on pages: its number, or, of a signed SAE, the number of its direction with its sign."""

import json
from collections.abc import Callable
from pathlib import Path

from latentry.saes.base import latent_label


def labels_of(data: Path, sae: str) -> Callable[[int], str]:
    """The names of one SAE's latents; plain numbers where the SAE has not been measured."""
    try:
        measured = json.loads((data / "saes" / sae / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return str
    width, signed = measured.get("width"), bool(measured.get("signed"))
    return lambda latent: latent_label(latent, width, signed=signed) if signed else str(latent)
