"""What Neuronpedia calls a study's model, source, method and explainer model, as far as params tell.

Always true: a name that params do not tell is asked for, never made up.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from latentry.errors import ParamsError
from latentry.exchange.neuronpedia_limits import METHODS
from latentry.exchange.provenance import asked_by
from latentry.params import Params
from latentry.registry import nearest
from latentry.saes.hook_names import place_of

_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How an upload names what it is of."""

    model: str
    source: str
    """`{layer}-{set}`."""
    method: str
    """Of the explanations."""
    explainer_model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user said of it; None where params are to tell."""

    model: str | None = None
    source: str | None = None
    method: str | None = None
    explainer_model: str | None = None


def explainer_of(params: Params, named: str | None) -> str:
    """The explainer whose labels are uploaded: the one named, or the only one there is.

    Raises:
        ParamsError: there are several and none is named, or there is none of that name.
    """
    if named is None and len(params.explainers) == 1:
        return next(iter(params.explainers))
    if named is None:
        raise ParamsError("--explainer", [f"is missing, and params.yaml has several; name one of {', '.join(params.explainers)}"])
    params.named("explainers", named)
    return named


def names_of(params: Params, sae: str, explainer: str, given: Given) -> Names:
    """Every name, as given or as params tell it.

    Raises:
        ParamsError: each name that is not given and that params do not tell.
    """
    faults: list[str] = []
    names = Names(
        model=given.model or _model_id(params),
        source=given.source or _source(params, sae, faults),
        method=given.method or _method(params, explainer, faults),
        explainer_model=given.explainer_model or _explainer_model(params, explainer, faults),
    )
    if faults:
        raise ParamsError("names for Neuronpedia", faults)
    return names


def _model_id(params: Params) -> str:
    return (_hub_name(params, params.subject.model) or params.subject.model).lower()


def _hub_name(params: Params, model: str) -> str | None:
    """A model's name on the hub without its owner; None where no source is on the hub."""
    ids: Iterable[str] = filter(None, (getattr(source, "id", None) for source in params.sources(model)))
    return next((name.split("/")[-1] for name in ids), None)


def _source(params: Params, sae: str, faults: list[str]) -> str:
    point = params.subject.hookpoints[params.saes[sae].hookpoint]
    layer = place_of(point.module, point.side).layer
    found = _NUMBER.search(point.module)
    if layer is None and found:
        layer = int(found[1])
    if layer is None or layer < 0:
        faults.append(
            f"--source: the layer cannot be told from {point.side} of {point.module!r}; give it as {{layer}}-{{set}}, such as 6-{sae}"
        )
    return f"{layer}-{sae}"


def _method(params: Params, explainer: str, faults: list[str]) -> str:
    """The method that Neuronpedia has of our explainer: delphi's default one on the 20 strongest windows; no other is the same."""
    config, explain = params.explainers[explainer], params.examples.explain
    if config.kind == "default" and explain.how == "top" and min(explain.n, getattr(config, "max_examples", explain.n)) == 20:
        return "eleuther_acts_top20"
    faults.append(
        f"--method: explainer {explainer!r} (kind {config.kind}, {explain.n} windows by {explain.how}) is none of the methods that Neuronpedia"
        f" names; give the nearest of {', '.join(METHODS)}, or one of its others"
    )
    return ""


def _explainer_model(params: Params, explainer: str, faults: list[str]) -> str:
    asked = asked_by(params, params.explainers[explainer]).get("client")
    if asked is None:
        faults.append(
            f"--explainer-model: explainer {explainer!r} (kind {params.explainers[explainer].kind}) asks no model; give the name to show"
        )
        return ""
    if asked not in params.models:
        return asked
    hub = _hub_name(params, asked)
    if hub is None:
        faults.append(f"--explainer-model: no source of models.{asked} is on the hub, so its public name is not known; give it")
    return hub or ""


def check_sae(params: Params, sae: str) -> None:
    """See that params name the SAE.

    Raises:
        ParamsError: they do not; names the nearest.
    """
    if sae not in params.saes:
        raise ParamsError("SAE", [f"there is no {sae!r} under `saes`{nearest(sae, params.saes)}"])
