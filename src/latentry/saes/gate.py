"""The first act of `latents@S`: does this SAE fit the activations that it is about to be applied to?

Stops on figures (FVU, L0) and on names (subject, hookpoints): figures alone do not show a chat model or the next layer.
Where nothing is recorded, it says which checks it could not make. Baselines are measured and never stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from latentry.errors import GateError
from latentry.saes.base import Sae
from latentry.saes.hook_names import Place, compared, place_of

if TYPE_CHECKING:
    from latentry.saes.evaluation import Reconstruction

FVU_FACTOR = 1.5
"""How far above the recorded FVU the measured one may be."""
L0_RANGE = (0.5, 2.0)
"""How far the measured L0 may be from the declared one, as factors of it."""

_CAUSES = {
    "hookpoint": "a hookpoint off by one layer, or on the other side of its module",
    "subject": "another subject: chat for base, another revision or precision",
    "activation": "an activation function other than in training, such as a TopK read as ReLU, or a threshold that was not loaded",
    "scaling": "activations of another scale than in training (normalised there, or folded into the weights twice)",
    "bos": "contexts with BOS where training had none, or the other way about",
}
"""Of figures out of bounds, in the order of how often they are the cause."""

_OTHER_NAMES = {"gpt2-small": "gpt2"}
"""TransformerLens's own names of models, which SAELens files hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """The subject and hookpoints that the activations came from."""

    subject: Sequence[str]
    """Every name the subject is known by: in params, on the hub, its folder."""
    subject_digest: str | None
    reads: Place
    """Of the activations that the SAE encodes."""
    writes: Place
    """Of those that it rebuilds; the same but for transcoders."""
    begins_with_bos: bool
    """Whether every context begins with BOS."""
    context: int
    """Tokens in a context."""


@dataclass(slots=True)
class _Findings:
    measured: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    ruled_out: set[str] = field(default_factory=set)
    """Keys of `_CAUSES` that a check of names has ruled out."""


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
    _check_subject(found, metadata, in_use)
    _check_hookpoints(found, metadata, in_use)
    _check_contexts(found, metadata, in_use)
    n_faults_of_names = len(found.faults)
    _check_fvu(found, max_fvu, at_training.get("fvu"))
    _check_l0(found, _declared_l0(at_training, sae.provenance))
    if found.faults and sae.baseline is None:
        raise GateError(_said(sae, found, by_figures=len(found.faults) > n_faults_of_names))
    return {
        **found.measured,
        "max_fvu": max_fvu,
        "baseline": sae.baseline,
        "passed": not found.faults,
        "faults": found.faults,
        "not_checked": found.not_checked,
    }


def name_faults(metadata: Mapping[str, Any], *, subject: Sequence[str], reads: Place, writes: Place) -> list[str]:
    """What the gate will find wrong by the names in a SAE's files alone, before anything is measured."""
    found = _Findings()
    in_use = InUse(subject=subject, subject_digest=None, reads=reads, writes=writes, begins_with_bos=False, context=0)
    _check_subject(found, metadata, in_use)
    _check_hookpoints(found, metadata, in_use)
    return found.faults


def _said(sae: Sae, found: _Findings, *, by_figures: bool) -> str:
    lines = [f"SAE {sae.name!r} at hookpoint {sae.hookpoint!r} does not fit:", *(f"  - {fault}" for fault in found.faults)]
    if by_figures:
        causes = [cause for key, cause in _CAUSES.items() if key not in found.ruled_out]
        lines += ["likely causes:", *(f"  - {cause}" for cause in causes)]
    if found.not_checked:
        lines += ["not checked:", *(f"  - {check}" for check in found.not_checked)]
    return "\n".join(lines)


def _check_fvu(found: _Findings, max_fvu: float, recorded: float | None) -> None:
    fvu = found.measured["fvu"]
    if not fvu <= max_fvu:
        found.faults.append(f"FVU is {fvu:.3f}, allowed is at most max_fvu = {max_fvu:g} (1 is what predicting the mean gives)")
    if recorded is None:
        found.not_checked.append("FVU against the recorded one: the SAE's files record none")
        return
    found.measured["recorded_fvu"] = recorded
    if fvu > FVU_FACTOR * recorded:
        found.faults.append(f"FVU is {fvu:.3f}, recorded is {recorded:.3f}, allowed is at most {FVU_FACTOR} times that")


def _declared_l0(at_training: Mapping[str, Any], provenance: Mapping[str, Any]) -> float | None:
    """As measured in training, else what its recipe aims at; sae-lens keeps the recipe of a BatchTopK, which it stores as JumpReLU."""
    recipe = (provenance.get("metadata") or {}).get("training_architecture_details") or {}
    stated = (at_training.get("l0"), provenance.get("k"), recipe.get("k"), recipe.get("target_l0"))
    return next((float(value) for value in stated if isinstance(value, int | float) and not isinstance(value, bool)), None)


def _check_l0(found: _Findings, declared: float | None) -> None:
    if declared is None:
        found.not_checked.append("L0 against the declared one: the SAE's files declare none")
        return
    l0, low, high = found.measured["l0"], L0_RANGE[0] * declared, L0_RANGE[1] * declared
    found.measured["declared_l0"] = declared
    if not low <= l0 <= high:
        found.faults.append(f"L0 is {l0:.1f}, declared is {declared:.1f}, allowed is {low:.1f} to {high:.1f}")


def _check_subject(found: _Findings, metadata: Mapping[str, Any], in_use: InUse) -> None:
    named, digest = metadata.get("model_name"), metadata.get("subject_digest")
    if digest is not None and in_use.subject_digest is not None:
        if digest != in_use.subject_digest:
            found.faults.append(
                f"the SAE was trained on subject weights {digest[:12]}, in use are {in_use.subject_digest[:12]};"
                " likely another revision, precision or a fine-tuned model: train the SAE again, or name the subject it belongs to"
            )
        else:
            found.ruled_out.add("subject")
        return
    found.not_checked.append("digest of the subject's weights: the SAE's file names none")
    if not named:
        found.not_checked.append("name of the subject: the SAE's file names none")
    elif _short(named) not in {_short(name) for name in in_use.subject}:
        found.faults.append(
            f"the SAE's file names subject {named!r}, in use is {', '.join(map(repr, in_use.subject))};"
            " likely a chat or base variant of the same model: name the subject it was trained on; if this is it, give it that name"
            f" under `models` ({_short(named).replace('.', '-')})"
        )


def _short(name: str) -> str:
    """A model's name without its owner or folder, in lower case, with `-` for what a name in params cannot hold."""
    short = name.rstrip("/").rsplit("/", 1)[-1].lower().replace(".", "-")
    return _OTHER_NAMES.get(short, short)


def _check_hookpoints(found: _Findings, metadata: Mapping[str, Any], in_use: InUse) -> None:
    reads = _check_hookpoint(found, metadata, "", in_use.reads)
    writes = reads
    if in_use.writes != in_use.reads or metadata.get("hook_name_out") or metadata.get("hf_hook_name_out"):
        writes = _check_hookpoint(found, metadata, "_out", in_use.writes)
    if reads and writes:
        found.ruled_out.add("hookpoint")


def _check_hookpoint(found: _Findings, metadata: Mapping[str, Any], end: str, here: Place) -> bool:
    """Whether it is the one that the file names; `end` is that of the metadata's keys."""
    what, knob = ("hookpoint written", "`writes`") if end else ("hookpoint", "`hookpoint`")
    named = metadata.get(f"hf_hook_name{end}") or metadata.get(f"hook_name{end}")
    if not named:
        found.not_checked.append(f"{what}: the SAE's file names none")
        return False
    outcome = compared(place_of(named, metadata.get(f"hook_side{end}")), here)
    if outcome == "different":
        found.faults.append(
            f"the SAE's file names {what} {named!r}, in use is {here.side} of {here.name!r}; FVU alone would not show the next layer:"
            f" correct {knob}, or `module` and `side` of what it names"
        )
    if outcome == "not known":
        found.not_checked.append(f"{what}: the SAE's file names {named!r}, which does not translate to a module of this subject")
    return outcome == "same"


def _check_contexts(found: _Findings, metadata: Mapping[str, Any], in_use: InUse) -> None:
    """A SAE is applied to contexts such as it was trained on: with BOS or without, and no longer."""
    begins, longest = metadata.get("prepend_bos"), metadata.get("context_size")
    if begins is None:
        found.not_checked.append("BOS: the SAE's file does not say whether contexts began with it")
    elif begins != in_use.begins_with_bos:
        with_or_without = "with" if begins else "without"
        found.faults.append(f"the SAE was trained on contexts {with_or_without} BOS: set `tokens.prepend_bos` to {str(begins).lower()}")
    else:
        found.ruled_out.add("bos")
    if longest is None:
        found.not_checked.append("context length: the SAE's file names none")
    elif in_use.context > longest:
        found.faults.append(f"contexts have {in_use.context} tokens, the SAE was trained on {longest}: lower `tokens.context` to that")
