"""What can be wrong with SAEs that are trained, or come, in pairs: the halves of a JSAE, which must stand on both sides of one MLP and agree.

A half that comes alone from elsewhere is an ordinary SAE.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from latentry.registry import nearest

if TYPE_CHECKING:
    from latentry.params import Params


def pair_faults(params: "Params") -> Iterator[str]:
    """All of them, each with its path."""
    halves = {name: sae for name, sae in params.saes.items() if hasattr(sae, "half")}
    for name, half in halves.items():
        if half.pair is None:
            yield from _origin_faults(params, halves, name)
            continue
        misplaced = [*_place_faults(params, name, half)]
        yield from misplaced
        if not misplaced:
            yield from _partner_faults(halves, name)


def _place_faults(params: "Params", name: str, half: Any) -> Iterator[str]:
    """A pair reads the input and the output of one module, in one subject."""
    known, partner = params.subject.hookpoints, half.train.partner
    if half.hookpoint not in known:
        return  # told of every SAE
    if partner not in known:
        yield f"saes.{name}.train.partner: {partner!r} is not under `subject.hookpoints`{nearest(partner, known)}"
        return
    read, written = (known[point] for point in half.pair)
    wanted = f"the half of the {half.half} reads the {half.half} of an MLP, its partner the other side of it"
    if read.module != written.module:
        yield f"saes.{name}.train.partner: {partner!r} is of {known[partner].module!r}, {half.hookpoint!r} of {known[half.hookpoint].module!r}; {wanted}"
    elif (read.side, written.side) != ("input", "output"):
        yield (
            f"saes.{name}.hookpoint: {half.hookpoint!r} is the {known[half.hookpoint].side} of {read.module!r}, {partner!r} the"
            f" {known[partner].side}; {wanted}: correct `half`, or the hookpoints' `side`"
        )
    elif read.random != written.random:
        yield f"saes.{name}.train.partner: {partner!r} and {half.hookpoint!r} differ in `random`; name two hookpoints of one subject"


def _partner_faults(halves: dict[str, Any], name: str) -> Iterator[str]:
    """Some entry is the other half of the same training."""
    half = halves[name]
    others = {other: one for other, one in halves.items() if one.pair == half.pair and one.half != half.half}
    differing = {other: _differing(half, one) for other, one in others.items()}
    if not others:
        other = {"input": "output", "output": "input"}[half.half]
        yield (
            f"saes.{name}: its partner is missing: no entry of kind jsae is the half of the {other} at {half.train.partner!r} with"
            f" `train.partner: {half.hookpoint}`; add it, with the same `width` and `train`"
        )
    elif all(differing.values()):
        other, knobs = min(differing.items(), key=lambda one: len(one[1]))
        yield f"saes.{name}: differs from its partner {other!r} in {' and '.join(knobs)}; two halves are one training: give both the same"


def _differing(one: Any, other: Any) -> list[str]:
    """Knobs of two halves that are not the same, with what each has."""
    mine, its = (
        {"width": half.width} | {f"train.{knob}": value for knob, value in half.train.model_dump().items()} for half in (one, other)
    )
    return [f"`{knob}` ({mine[knob]!r}, {its[knob]!r})" for knob in mine if knob != "train.partner" and mine[knob] != its[knob]]


def _origin_faults(params: "Params", halves: dict[str, Any], name: str) -> Iterator[str]:
    """Both halves of one folder stand on both sides of one MLP; said of the output half."""
    half, known = halves[name], params.subject.hookpoints
    if half.half == "input" or half.hookpoint not in known:
        return
    if known[half.hookpoint].side != "output":
        yield f"saes.{name}.hookpoint: {half.hookpoint!r} is an input; the half of the output reads an MLP's output: correct `half` or `side`"
    for other, one in halves.items():
        if one.half == "output" or (one.folder, one.hub) != (half.folder, half.hub) or one.hookpoint not in known:
            continue
        layers = [known[point].module.rpartition(".")[0] for point in (one.hookpoint, half.hookpoint)]
        if layers[0] != layers[1]:
            yield (
                f"saes.{name}.hookpoint: {half.hookpoint!r} is of {layers[1] or 'no layer'}, the pair's other half {other!r} of"
                f" {layers[0] or 'no layer'}; the halves of a pair read the input and the output of one MLP: correct either `hookpoint`"
            )
        if one.width != half.width:
            yield f"saes.{name}.width: is {half.width}, the pair's other half {other!r} has {one.width}; a pair has one width"
