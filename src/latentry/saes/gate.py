"""The first act of `latents@S`: does this SAE fit the activations that it is about to be applied to?

Stops on figures (FVU, L0) and on names (subject, hookpoint): figures alone do not show a chat model or the next layer.
Where nothing is recorded, it says which checks it could not make. Baselines are measured and never stopped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from latentry.errors import GateError
from latentry.saes.base import Sae
from latentry.saes.evaluation import Reconstruction

FVU_FACTOR = 1.5
"""How far above the recorded FVU the measured one may be."""
L0_RANGE = (0.5, 2.0)
"""How far the measured L0 may be from the declared one, as factors of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """The subject and hookpoint that the activations came from."""

    subject: Sequence[str]
    """Every name the subject is known by: in params, on the hub, its folder."""
    subject_digest: str | None
    module: str
    """Module name of the hookpoint, such as `model.layers.15`."""
    side: str
    """`input` or `output` of that module."""
    begins_with_bos: bool
    """Whether every context begins with BOS."""
    context: int
    """Tokens in a context."""


@dataclass(slots=True)
class _Findings:
    measured: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)


def gate(
    sae: Sae, measured: Reconstruction, in_use: InUse, *, max_fvu: float = 0.9, recorded: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Check a SAE against what was measured of it on these activations; returns what `gate.json` holds.

    `recorded` is the evaluation.json beside the SAE, where there is one. It stands for the training only where the SAE was trained
    here; of one from elsewhere it says what these very activations gave, and only the SAE's own file declares anything.

    Raises:
        GateError: a check failed, and the SAE is no baseline; names the figures and the likely causes.
    """
    found = _Findings(measured={"fvu": measured.fvu, "l0": measured.l0, "n_tokens": measured.n_tokens})
    metadata = sae.provenance.get("metadata") or {}
    at_training = recorded if recorded and recorded.get("n_training_tokens") else metadata
    _check_fvu(found, max_fvu, at_training.get("fvu"))
    _check_l0(found, at_training.get("l0"), sae.provenance.get("k"))
    _check_subject(found, metadata, in_use)
    _check_hookpoint(found, metadata, in_use)
    _check_contexts(found, metadata, in_use)
    if found.faults and not sae.baseline:
        raise GateError(
            "\n".join([f"SAE {sae.name!r} at hookpoint {sae.hookpoint!r} does not fit:", *(f"  - {fault}" for fault in found.faults)])
        )
    return {
        **found.measured,
        "max_fvu": max_fvu,
        "baseline": sae.baseline,
        "passed": not found.faults,
        "faults": found.faults,
        "not_checked": found.not_checked,
    }


def _check_fvu(found: _Findings, max_fvu: float, recorded: float | None) -> None:
    fvu = found.measured["fvu"]
    causes = "wrong layer or side, another subject, another scaling of activations or dtype"
    if not fvu <= max_fvu:
        found.faults.append(
            f"FVU is {fvu:.3f}, allowed is at most max_fvu = {max_fvu:g} (1 is what predicting the mean gives); likely {causes}"
        )
    if recorded is None:
        found.not_checked.append("FVU against the recorded one: the SAE's files record none")
        return
    found.measured["recorded_fvu"] = recorded
    if fvu > FVU_FACTOR * recorded:
        found.faults.append(
            f"FVU is {fvu:.3f}, recorded is {recorded:.3f}, allowed is at most {FVU_FACTOR} times that; likely {causes}, or text far from the training text"
        )


def _check_l0(found: _Findings, recorded: float | None, k: int | None) -> None:
    stated = recorded if recorded is not None else k
    if stated is None:
        found.not_checked.append("L0 against the declared one: the SAE's files declare none")
        return
    declared = float(stated)
    l0, low, high = found.measured["l0"], L0_RANGE[0] * declared, L0_RANGE[1] * declared
    found.measured["declared_l0"] = declared
    if not low <= l0 <= high:
        found.faults.append(
            f"L0 is {l0:.1f}, declared is {declared:.1f}, allowed is {low:.1f} to {high:.1f};"
            " likely activations of another scale, a threshold that was not loaded, or another hookpoint"
        )


def _check_subject(found: _Findings, metadata: Mapping[str, Any], in_use: InUse) -> None:
    named, digest = metadata.get("model_name"), metadata.get("subject_digest")
    if digest is not None and in_use.subject_digest is not None:
        if digest != in_use.subject_digest:
            found.faults.append(
                f"the SAE was trained on subject weights {digest[:12]}, in use are {in_use.subject_digest[:12]};"
                " likely another revision, precision or a fine-tuned model: train the SAE again, or name the subject it belongs to"
            )
        return
    found.not_checked.append("digest of the subject's weights: the SAE's file names none")
    if not named:
        found.not_checked.append("name of the subject: the SAE's file names none")
    elif _short(named) not in {_short(name) for name in in_use.subject}:
        found.faults.append(
            f"the SAE's file names subject {named!r}, in use is {', '.join(map(repr, in_use.subject))};"
            " likely a chat or base variant of the same model: name the subject it was trained on"
        )


def _short(name: str) -> str:
    """A model's name without its owner or folder, in lower case."""
    return name.rstrip("/").rsplit("/", 1)[-1].lower()


def _check_hookpoint(found: _Findings, metadata: Mapping[str, Any], in_use: InUse) -> None:
    here = _site(in_use.module, in_use.side)
    named = metadata.get("hf_hook_name") or metadata.get("hook_name")
    if not named:
        found.not_checked.append("hookpoint: the SAE's file names none")
        return
    there = _site(named, metadata.get("hook_side") or "output")
    if there == here:
        return
    if there[0] == here[0] == "module" or "module" not in (there[0], here[0]):
        found.faults.append(
            f"the SAE's file names hookpoint {named!r}, in use is {in_use.side} of {in_use.module!r};"
            " FVU alone would not show the next layer: correct `module` or `side` of the hookpoint"
        )
    else:
        found.not_checked.append(f"hookpoint: the SAE's file names {named!r}, which does not translate to a module of this subject")


def _check_contexts(found: _Findings, metadata: Mapping[str, Any], in_use: InUse) -> None:
    """A SAE is applied to contexts such as it was trained on: with BOS or without, and no longer."""
    begins, longest = metadata.get("prepend_bos"), metadata.get("context_size")
    if begins is None:
        found.not_checked.append("BOS: the SAE's file does not say whether contexts began with it")
    elif begins != in_use.begins_with_bos:
        with_or_without = "with" if begins else "without"
        found.faults.append(f"the SAE was trained on contexts {with_or_without} BOS: set `tokens.prepend_bos` to {str(begins).lower()}")
    if longest is None:
        found.not_checked.append("context length: the SAE's file names none")
    elif in_use.context > longest:
        found.faults.append(f"contexts have {in_use.context} tokens, the SAE was trained on {longest}: lower `tokens.context` to that")


_LENS = re.compile(r"blocks\.(\d+)\.hook_(resid_pre|resid_post|mlp_out|attn_out)$")
_BLOCK = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.(\d+)(?:\.(mlp|self_attn|attn|attention))?$")


def _site(name: str, side: str) -> tuple[str, ...]:
    """A place in a transformer, the same for TransformerLens's names and for module names; the input of a block is the output of the one before."""
    lens, block = _LENS.match(name), _BLOCK.match(name)
    if lens:
        layer, site = int(lens[1]), lens[2]
        return ("resid", str(layer - (site == "resid_pre"))) if site.startswith("resid") else (site, str(layer))
    if block and block[2] is None:
        return "resid", str(int(block[1]) - (side == "input"))
    if block and side == "output":
        return ("mlp_out" if block[2] == "mlp" else "attn_out"), block[1]
    return "module", name, side
