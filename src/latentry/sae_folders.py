"""What is wrong with the SAEs that params take from local folders, told before any work and without reading weights.

What a format's files must be is its variant's; what names of hookpoints and subjects mean is the gate's. Always true: what this says
of a SAE by its names, its gate says too.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentry.errors import LatentryError
from latentry.params import Params
from latentry.registry import SaeConfig, variant
from latentry.saes.gate import name_faults
from latentry.saes.hook_names import place_of

_AS_LONG_AS_THE_STREAM = (
    "residual stream",
    "residual stream after attention",
    "attention output",
    "mlp output",
    "mlp input",
    "normalised mlp input before the norm's scale",
)
"""Places whose activations are as long as the subject's hidden size."""

_TRAINED = 4
"""Weights, their gradients and the two moments of Adam."""

Told = tuple[str, str]
"""A SAE, and a fault in which `{sae}` stands for it."""


def sae_faults(params: Params, models: Path, not_checked: list[str]) -> Iterator[str]:
    """Faults of all SAEs; what is the same of several is told once, with their names."""
    shared: list[Told] = []
    for name, sae in params.saes.items():
        folder, distant = getattr(sae, "folder", None), getattr(sae, "hub", None) or getattr(sae, "pretrained", None)
        if distant is not None:
            not_checked.append(f"saes.{name}: its files are fetched from the hub by `dvc repro sae@{name}`, and looked at then")
        elif folder is not None and not Path(folder).is_dir():
            yield f"saes.{name}.folder: {folder} is not there; name a folder that holds the SAE's files"
        elif folder is None:
            yield from _memory_faults(params, name, sae, models)
        else:
            yield from _folder_faults(params, name, sae, models, shared, not_checked)
    yield from told_once(shared)


def told_once(faults: Iterable[Told]) -> Iterator[str]:
    """Each fault once, in the order in which they first come, with the SAEs that have it."""
    by_fault: dict[str, list[str]] = {}
    for sae, fault in faults:
        by_fault.setdefault(fault, []).append(sae)
    for fault, saes in by_fault.items():
        named = ", ".join(map(repr, saes[:8])) + (f" and {len(saes) - 8} more" if len(saes) > 8 else "")
        yield fault.replace("{sae}", f"{'SAE' if len(saes) == 1 else 'SAEs'} {named}")


def _folder_faults(params: Params, name: str, sae: SaeConfig, models: Path, shared: list[Told], not_checked: list[str]) -> Iterator[str]:
    """A SAE's folder that cannot be used, does not fit subject and tokens, or is no longer what was copied from it."""
    room, copied = variant("saes", sae.kind), Path("data/saes", name)
    try:
        recorded = room.check_folder(sae)
        shared += [(name, fault) for fault in _context_faults(params, name, recorded, not_checked)]
        yield from (f"saes.{name}.folder: {fault}" for fault in _subject_faults(params, sae, models, recorded))
        if (copied / "manifest.json").is_file() and not room.is_copy(sae, copied):
            yield f"saes.{name}.folder: changed since it was copied to {copied}, which is what is read; `dvc repro --force sae@{name}` copies it again"
    except LatentryError as error:
        yield f"saes.{name}.folder: {error}"


def _context_faults(params: Params, name: str, recorded: Mapping[str, Any], not_checked: list[str]) -> Iterator[str]:
    """A SAE applied to other contexts than it was trained on: with or without BOS, or longer ones."""
    begins, context = recorded.get("prepend_bos"), recorded.get("context_size")
    if begins is None or params.tokens.prepend_bos is None:
        not_checked.append(
            f"tokens.prepend_bos: whether SAE {name!r} is applied to contexts such as it was trained on is known at its gate"
        )
    elif begins != params.tokens.prepend_bos:
        yield (
            f"tokens.prepend_bos: is {json.dumps(params.tokens.prepend_bos)}; {{sae}} trained on contexts"
            f" {'with' if begins else 'without'} BOS: set it to {json.dumps(begins)}"
        )
    if context is not None and context < params.tokens.context:
        yield f"tokens.context: is {params.tokens.context}; {{sae}} trained on contexts of {context}: lower it to that"


def _subject_faults(params: Params, sae: SaeConfig, models: Path, recorded: Mapping[str, Any]) -> Iterator[str]:
    """A SAE of another subject or hookpoint: by the names in its files, and by how long its activations are."""
    points = params.subject.hookpoints
    reads, writes = points[sae.hookpoint], points[sae.writes or sae.hookpoint]
    if reads.random is not None:  # a baseline: measured, never stopped
        return
    place = place_of(reads.module, reads.side)
    yield from name_faults(
        recorded, subject=params.known_as(params.subject.model), reads=place, writes=place_of(writes.module, writes.side)
    )
    d_in, hidden = recorded.get("d_in"), hidden_size(models / params.subject.model)
    if None not in (d_in, hidden) and place.what in _AS_LONG_AS_THE_STREAM and d_in != hidden:
        yield (
            f"reads activations of {d_in} numbers, {sae.hookpoint!r} ({place.side} of {place.name!r}) has {hidden};"
            " name the subject and the hookpoint that it was trained on"
        )


def _memory_faults(params: Params, name: str, sae: SaeConfig, models: Path) -> Iterator[str]:
    """A SAE made here whose weights alone, in float32, are more than this machine's memory."""
    width, d_in = getattr(sae, "width", 0), hidden_size(models / params.subject.model) or 1
    needed = 2 * width * d_in * 4 * (_TRAINED if getattr(sae, "train", None) else 1)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        yield (
            f"saes.{name}.width: is {width:,}; with activations of {d_in} numbers it takes {needed / 1e9:,.1f} GB, this machine has"
            f" {there / 1e9:,.1f}: lower it"
        )


def hidden_size(model: Path) -> int | None:
    """How long the activations of a model's residual stream are; None where the model is not there yet, or does not say."""
    try:
        described = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    stated: Sequence[Any] = [
        part.get(name)
        for part in (described, described.get("text_config"))
        if isinstance(part, Mapping)
        for name in ("hidden_size", "n_embd", "d_model")
    ]
    return next((size for size in stated if isinstance(size, int)), None)
