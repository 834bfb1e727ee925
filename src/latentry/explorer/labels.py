"""What a latent is called on pages: its number, or, of a signed SAE, the number of its direction with its sign."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latentry.errors import ParamsError
from latentry.saes.base import latent_label


def labels_of(data: Path, sae: str) -> Callable[[int], str]:
    """The names of one SAE's latents; plain numbers where the SAE has not been measured."""
    width = _signed_width(data, sae)
    return lambda latent: str(latent) if width is None else latent_label(latent, width, signed=True)


def latent_of(data: Path, sae: str, label: str) -> int:
    """The latent of a name: its number, or, of a signed SAE, also such as `22-`.

    Raises:
        ParamsError: it is neither, or the SAE is not signed or has no such direction.
    """
    found = re.fullmatch(r"(\d{1,18})([+-]?)", label, re.ASCII)
    if found is None:
        raise ParamsError("LATENT", [f"{label!r} names no latent; wanted a number such as 22, or of a signed SAE also 22+ or 22-"])
    number, sign = int(found[1]), found[2]
    if not sign:
        return number
    width = _signed_width(data, sae)
    if width is None:
        raise ParamsError("LATENT", [f"{label}: only latents of a signed SAE have a sign, and {sae} is not known as one; wanted a number"])
    if number >= width // 2:
        raise ParamsError("LATENT", [f"{label}: {sae} has no such direction; it has 0+ and 0- to {width // 2 - 1}+ and {width // 2 - 1}-"])
    return number + (width // 2 if sign == "-" else 0)


def width_of(data: Path, sae: str) -> int | None:
    """How many latents a SAE has; None where it has not been measured."""
    return _measured(data, sae).get("width")


def _signed_width(data: Path, sae: str) -> int | None:
    """How many latents a signed SAE has; None of any other, or where it has not been measured."""
    return width_of(data, sae) if _measured(data, sae).get("signed") else None


def _measured(data: Path, sae: str) -> Mapping[str, Any]:
    try:
        return json.loads((data / "saes" / sae / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
