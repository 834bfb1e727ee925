"""What no section of params.yaml can see alone: names that must exist elsewhere, numbers that must fit each other."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from latentry.pair_checks import pair_faults
from latentry.records import NO_EXPLAINER
from latentry.registry import nearest

if TYPE_CHECKING:
    from latentry.params import Params

READ_TEXTS = ("surprisal", "intervention")
"""Kinds of scorers that read how likely a base model finds a text."""

OWN_NAMES = {"windows": "the activating examples in their ids", "wrong-position": "the contrasts that fuzzing makes itself"}
"""What no entry of `examples.contrasts` may be called, with what the name means."""


def cross_faults(params: "Params") -> list[str]:
    """All of them; a check that needs a section which is not there, since it is wrong itself, is left out."""
    faults: list[str] = []
    for faults_of in (
        _subject_faults,
        _hookpoint_faults,
        pair_faults,
        _asked_faults,
        _contrast_faults,
        _contrast_name_faults,
        _explainer_name_faults,
        _explained_sae_faults,
        _imported_faults,
        _steering_faults,
        _base_model_faults,
        _source_faults,
        _share_faults,
        _run_faults,
        _size_faults,
        _cell_faults,
        _latent_faults,
        _jacobian_faults,
    ):
        with contextlib.suppress(AttributeError):  # of a section that is wrong itself, and told already
            faults += faults_of(params)
    return faults


def _unnamed(path: str, name: Any, section: str, names: Iterable[str]) -> list[str]:
    known = list(names)
    return [] if name is None or name in known else [f"{path}: {name!r} is not under `{section}`{nearest(str(name), known)}"]


def _subject_faults(params: "Params") -> list[str]:
    return _unnamed("subject.model", params.subject.model, "models", params.models)


def _hookpoint_faults(params: "Params") -> Iterator[str]:
    for name, sae in params.saes.items():
        read, written = getattr(sae, "hookpoint", None), getattr(sae, "writes", None)
        yield from _unnamed(f"saes.{name}.hookpoint", read, "subject.hookpoints", params.subject.hookpoints)
        yield from _unnamed(f"saes.{name}.writes", written, "subject.hookpoints", params.subject.hookpoints)
        if written is not None and written == read:
            yield f"saes.{name}.writes: {written!r} is what it reads, `hookpoint`; leave it out, or name another"
        known = params.subject.hookpoints
        points = [known[point] for point in (read, written) if point in known]
        if len({str(point.random) for point in points}) > 1:
            yield f"saes.{name}.writes: {written!r} and {read!r} differ in `random`; name two hookpoints of one subject"


def _asked_faults(params: "Params") -> Iterator[str]:
    """Clients and models that explainers, scorers and clients name."""
    for section in ("explainers", "scorers", "clients"):
        for name, entry in getattr(params, section, {}).items():
            for role in ("client", "judge"):
                yield from _unnamed(f"{section}.{name}.{role}", getattr(entry, role, None), "clients", params.clients)
            if section != "clients" or entry.kind == "transformers":
                yield from _unnamed(f"{section}.{name}.model", getattr(entry, "model", None), "models", params.models)


def _contrast_faults(params: "Params") -> Iterator[str]:
    for name, scorer in params.scorers.items():
        own = ("wrong-position",) if scorer.kind == "fuzzing" else ()
        known = [*params.examples.contrasts, *own]
        yield from _unnamed(f"scorers.{name}.contrast", getattr(scorer, "contrast", None) or None, "examples.contrasts", known)
        yield from _own_model_faults(params, name)


def _own_model_faults(params: "Params", name: str) -> Iterator[str]:
    """A scorer cannot be set against contrasts that were chosen to be near by its own embeddings."""
    contrast, model = getattr(params.scorers[name], "contrast", ""), getattr(params.scorers[name], "model", None)
    entries = params.examples.contrasts
    for part in getattr(entries.get(contrast), "shares", (contrast,)):
        if model is not None and getattr(entries.get(part), "model", None) == model:
            yield f"scorers.{name}.contrast: {part!r} is chosen by {model!r}, the scorer's own model; name another contrast, or another model"


def _steering_faults(params: "Params") -> Iterator[str]:
    """Scorers and explainers that steer need prompts."""
    for section in ("explainers", "scorers"):
        for name, entry in getattr(params, section, {}).items():
            if getattr(entry, "steers", False) and params.examples.steering is None:
                yield f"{section}.{name}: steers latents on prompts, and none are drawn; set `examples.steering`, {{}} for its defaults"


def _base_model_faults(params: "Params") -> Iterator[str]:
    """Scorers that read the log-probabilities of a given text need a client that goes on from plain text."""
    for name, scorer in params.scorers.items():
        asked = getattr(scorer, "client", "")
        client = params.clients.get(asked)
        if scorer.kind not in READ_TEXTS or client is None:
            continue
        if client.kind == "transformers" and getattr(client, "chat", False):
            yield f"scorers.{name}.client: {asked!r} asks by a chat template; {scorer.kind} reads plain text, set `chat: false` on a client of its own"
        if client.kind == "openai_compatible" and getattr(client, "api", "") == "chat":
            yield f"scorers.{name}.client: {asked!r} is a chat endpoint; {scorer.kind} reads plain text, name a client with `api: completions`"


def _contrast_name_faults(params: "Params") -> Iterator[str]:
    for name in (name for name in OWN_NAMES if name in params.examples.contrasts):
        yield f"examples.contrasts.{name}: the name means {OWN_NAMES[name]}; rename the entry"


def _explainer_name_faults(params: "Params") -> Iterator[str]:
    if NO_EXPLAINER in params.explainers:
        yield f"explainers.{NO_EXPLAINER}: the name stands for what is scored without an explanation; rename the entry"


def _explained_sae_faults(params: "Params") -> Iterator[str]:
    """Whose texts a file holds."""
    for name, entry in params.explainers.items():
        yield from _unnamed(f"explainers.{name}.sae", getattr(entry, "sae", None), "saes", params.saes)


def _imported_faults(params: "Params") -> Iterator[str]:
    """Whose scores an import holds."""
    for name, entry in params.comparison.imported.items():
        yield from _unnamed(f"comparison.imported.{name}.sae", entry.sae, "saes", params.saes)
        yield from _unnamed(f"comparison.imported.{name}.explainer", entry.explainer, "explainers", params.explainers)


def _share_faults(params: "Params") -> Iterator[str]:
    """A share too small for one window; the explain split has contrasts of the first entry only."""
    examples = params.examples
    for place, (name, config) in enumerate(examples.contrasts.items()):
        for split in ("held_out", "explain")[: 1 if place else 2]:
            n = getattr(examples, split).n_contrast
            for part in (part for part, n_part in config.asked_of_parts(n).items() if n and not n_part):
                yield f"examples.contrasts.{name}.shares: {part!r} has none of the {n} windows of `examples.{split}.n_contrast`; raise either"


def _source_faults(params: "Params") -> Iterator[str]:
    """What contrast sources name: models, and other entries."""
    contrasts = params.examples.contrasts
    for name, config in contrasts.items():
        yield from _unnamed(f"examples.contrasts.{name}.model", getattr(config, "model", None), "models", params.models)
        for part in getattr(config, "shares", ()):
            path = f"examples.contrasts.{name}.shares"
            yield from _unnamed(path, part, "examples.contrasts", contrasts)
            if hasattr(contrasts.get(part), "shares"):
                yield f"{path}: {part!r} is mixed itself; name its parts"


def _run_faults(params: "Params") -> Iterator[str]:
    if params.run.shard_contexts % params.run.batch_contexts:
        yield (
            f"run.shard_contexts: is {params.run.shard_contexts}; a multiple of `run.batch_contexts`, {params.run.batch_contexts},"
            " so that every run cuts the same batches"
        )
    for name in ("workers", "ray_address"):
        if params.run.engine != "ray" and getattr(params.run, name) is not None:
            yield f"run.{name}: only `run.engine: ray` has it"
    for name in params.run.clients:
        yield from _unnamed(f"run.clients.{name}", name, "clients", params.clients)
    if params.run.budget.usd is not None:
        for name in (name for name, client in params.clients.items() if client.kind != "transformers"):
            if params.run_of(name).price is None:
                yield f"run.clients.{name}.price: is missing; `run.budget.usd` counts by the prices of all endpoints"


def _cell_faults(params: "Params") -> Iterator[str]:
    """DVC names a cell `sae-scorer`: two cells of one name would be one cell."""
    cells: dict[str, tuple[str, str]] = {}
    for cell in ((sae, scorer) for sae in params.saes for scorer in params.scorers):
        other = cells.setdefault("-".join(cell), cell)
        if other != cell:
            yield f"scorers.{cell[1]}: with SAE {cell[0]!r} it has the cell name {'-'.join(cell)!r}, as {other[1]!r} has with {other[0]!r}; rename one"


def _latent_faults(params: "Params") -> Iterator[str]:
    asked = params.examples.latents
    largest = 0 if asked == "all" else max(asked) if isinstance(asked, tuple) else asked.last
    lacking: dict[int, list[str]] = {}
    for name, sae in params.saes.items():
        if sae.n_latents is not None and largest >= sae.n_latents:
            lacking.setdefault(sae.n_latents, []).append(name)
    for n, names in lacking.items():
        have = f"SAE {names[0]!r}, which has" if len(names) == 1 else f"SAEs {', '.join(map(repr, names))}, which have"
        yield f"examples.latents: {largest} is no latent of {have} 0 to {n - 1}"


def _jacobian_faults(params: "Params") -> Iterator[str]:
    """What stands around an MLP, as far as names tell."""
    for name, asked in params.jacobians.items():
        for side in ("input", "output"):
            yield from _unnamed(f"jacobians.{name}.{side}", getattr(asked, side), "saes", params.saes)
        yield from _unnamed(f"jacobians.{name}.scorer", asked.scorer, "scorers", params.scorers)
        if asked.scorer in params.scorers and params.scorers[asked.scorer].kind != "embedding":
            yield (
                f"jacobians.{name}.scorer: {asked.scorer!r} is of kind {params.scorers[asked.scorer].kind!r}; edges are scored by"
                " embeddings, name an entry of kind 'embedding'"
            )
        if asked.input in params.saes and asked.output in params.saes:
            yield from _pair_faults(params, name, asked.input, asked.output)
    if params.jacobians and "jacobians" in params.saes:
        yield "saes.jacobians: the name stands for the section of that name in metrics/summary.json; rename the entry"


def _pair_faults(params: "Params", name: str, read: str, written: str) -> Iterator[str]:
    """Two SAEs that cannot be those of one MLP's input and output."""
    path, saes = f"jacobians.{name}", {"input": params.saes[read], "output": params.saes[written]}
    for side, sae in saes.items():
        if sae.writes is not None:
            yield f"{path}.{side}: {getattr(params.jacobians[name], side)!r} is a transcoder; name a SAE, which rebuilds what it reads"
        if getattr(sae, "half", side) != side:
            yield f"{path}.{side}: is the {getattr(sae, 'half', '')} half of its pair; name the {side} half"
    points = [params.subject.hookpoints.get(sae.hookpoint) for sae in saes.values()]
    if points[0] is not None and points[1] is not None:
        yield from (f"{path}.{fault}" for fault in _place_faults(*points))


def _place_faults(read: Any, written: Any) -> Iterator[str]:
    """Two hookpoints that are not what one MLP reads and what it writes."""
    if written.side != "output":
        yield f"output: its hookpoint is the input of {written.module}; name a SAE of an MLP's output (`side: output` of the MLP)"
    elif read.module == written.module and read.side == "output":
        yield f"input: its hookpoint is the output of {read.module}; name a SAE of the MLP's input (`side: input` of the MLP)"
    layers = [re.findall(r"\.(\d+)(?:\.|$)", point.module)[:1] for point in (read, written)]
    if layers[0] != layers[1]:
        yield f"output: reads {written.module}, and the input SAE {read.module}: another layer; name two SAEs of one MLP"
    if read.random != written.random:
        yield "output: its hookpoint and that of the input SAE differ in `random`; name two SAEs of one subject"


def _size_faults(params: "Params") -> Iterator[str]:
    if params.examples.window > params.tokens.context:
        yield f"examples.window: is {params.examples.window}; at most `tokens.context`, {params.tokens.context}"
    if params.examples.steering is not None and params.examples.steering.tokens > params.tokens.context:
        yield f"examples.steering.tokens: is {params.examples.steering.tokens}; at most `tokens.context`, {params.tokens.context}"
    if params.tokens.n_tokens < params.tokens.context:
        yield f"tokens.n_tokens: is {params.tokens.n_tokens}; at least `tokens.context`, {params.tokens.context}"
    if params.evaluation.ce_contexts > params.evaluation.contexts:
        yield f"evaluation.ce_contexts: is {params.evaluation.ce_contexts}; at most `evaluation.contexts`, {params.evaluation.contexts}"
    n_contexts = params.tokens.n_tokens // params.tokens.context
    if params.evaluation.contexts >= n_contexts:
        yield f"evaluation.contexts: is {params.evaluation.contexts}; fewer than the {n_contexts} contexts of `tokens.n_tokens`, for some must train"
    wanted = params.examples.explain.n + params.examples.held_out.n_activating
    if params.examples.min_examples < wanted:
        yield f"examples.min_examples: is {params.examples.min_examples}; at least {wanted}, explain.n and held_out.n_activating together"
    for name, scorer in params.scorers.items():
        asked = getattr(scorer, "max_examples", None)
        most = min(params.examples.held_out.n_activating, params.examples.held_out.n_contrast)
        if asked is not None and asked > most:
            yield f"scorers.{name}.max_examples: is {asked}; at most the {most} that `examples.held_out` keeps"
