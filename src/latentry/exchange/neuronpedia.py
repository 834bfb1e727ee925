"""Upload batches for Neuronpedia (`feature/upload-batch`) of one SAE and explainer, and beside them what cannot be uploaded.

Always true: every batch keeps every limit when it is written, the tokens of an activation join to the corpus's own text, and no
explanation is cut.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry.errors import ExchangeError
from latentry.exchange import labels
from latentry.exchange.complete import COMPARISON, folders_of, require_complete, require_current
from latentry.exchange.export_place import MARK, new_folder, require_free
from latentry.exchange.neuronpedia_limits import KNOWN_NAMES, MAX_LATENTS, MAX_LOGITS, Breach, latent_breaches, name_breaches, told
from latentry.exchange.neuronpedia_names import Names
from latentry.exchange.plain_json import write_json, write_lines
from latentry.exchange.promoted_logits import Logits, promoted_logits
from latentry.exchange.provenance import answered_by, chain_of, provenance
from latentry.params import Params
from latentry.records import NO_EXPLAINER, Kind, Status

NOT_ASKED = "not asked"
"""Of latents that the explainer was not given (its `max_latents`)."""
BROKEN = "breaks a limit"

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be exported, and how."""

    sae: str
    explainer: str
    names: Names
    n_activations: int = 20
    """Windows of each latent, the strongest first."""
    also_known: tuple[str, ...] = ()
    """Names of methods and explainer models beside those of `neuronpedia_limits`."""
    with_logits: bool = True
    leave_out: bool = False
    """Whether latents that break a limit are left out and told; else one breach stops all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    n_latents: int
    n_batches: int
    n_scores: int
    left_out: Mapping[str, int]
    """Latents asked for that are in no batch, by why: the status of their explanation, or that a limit is broken."""
    breaches: tuple[Breach, ...]
    """Of latents that were left out."""


def export_neuronpedia(here: Path, params: Params, asked: Asked, out: Path, *, force: bool = False) -> Exported:
    """Write `batch-NNNNN.json`, `labels.jsonl`, `scores.jsonl` and `provenance.json`, whole or not at all.

    Raises:
        ContractError: the results are not complete, or not of these params.
        ExchangeError: a limit is broken (all are told), no latent has an explanation, or `out` is taken.
    """
    require_free(out, force=force)
    _require_kept(_name_breaches(asked), KNOWN_NAMES)
    folders = folders_of(params, [asked.sae])
    require_complete(here, [*folders, COMPARISON])
    require_current(here, params, [*folders, COMPARISON])
    explained = _explained(here / "data", asked)
    if not explained:
        left_out = dict(_left_out(here / "data", asked, explained, 0))
        raise ExchangeError(f"{asked.sae}: no latent has an explanation by {asked.explainer!r} to upload; of those asked for: {left_out}")
    with new_folder(out, force=force) as making:
        done = _write(making, here, params, asked, explained)
        chain = chain_of(here, folders)
        told = _told(asked, done, answered_by(chain, f"data/explanations/{asked.sae}", params.explainers[asked.explainer]))
        write_json(making / MARK, told | provenance(here, params, chain, [asked.sae]))
    return done


def token_texts(text: str, spans: Sequence[int]) -> list[str]:
    """The text cut into its tokens, so that they join to it: what lies between two tokens goes to the later, and characters that
    several tokens share (an emoji over several) to the first of them."""
    cuts, reached = [0], 0
    for end in spans[1::2]:
        reached = max(reached, end)
        cuts.append(reached)
    cuts[-1] = len(text)
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def _write(making: Path, here: Path, params: Params, asked: Asked, explained: Mapping[int, _Row]) -> Exported:
    """The batches, and what cannot be uploaded of the same latents."""
    data, breaches = here / "data", list[Breach]()
    logits = promoted_logits(here, params, asked.sae, MAX_LOGITS) if asked.with_logits else None
    features = _kept(_features(data, asked, explained, logits), asked, breaches)
    n_latents = [_write_batch(making, asked.names, number, batch) for number, batch in enumerate(_batched(features))]
    if not asked.leave_out:
        _require_kept(breaches, "mend the explainer's own limits and rerun it, or leave these latents out by --leave-out")
    if not n_latents:
        _require_kept(breaches, "every latent breaks a limit")
    broken = {breach.latent for breach in breaches}
    uploaded = {latent: row for latent, row in explained.items() if latent not in broken}
    write_lines(making / "labels.jsonl", uploaded.values())
    return Exported(
        n_latents=sum(n_latents),
        n_batches=len(n_latents),
        n_scores=write_lines(making / "scores.jsonl", _scores(data, params, asked, uploaded)),
        left_out=_left_out(data, asked, explained, len(broken)),
        breaches=tuple(breaches),
    )


def _name_breaches(asked: Asked) -> list[Breach]:
    names = asked.names
    return list(name_breaches(names.model, names.source, names.method, names.explainer_model, asked.also_known))


def _require_kept(breaches: Sequence[Breach], remedy: str) -> None:
    if breaches:
        raise ExchangeError("\n".join([*told(breaches), f"Neuronpedia would refuse this, so nothing was written; {remedy}"]))


def _explained(data: Path, asked: Asked) -> dict[int, _Row]:
    """The latents that the explainer explained, in the sample's order."""
    columns = ["latent", "label", "text", "prompt_digest", "reply_key", "firing_frequency"]
    table = labels.explanations(data, asked.sae)
    mine = table.filter((pc.field("explainer") == asked.explainer) & (pc.field("status") == Status.OK.value))
    return {row["latent"]: row for row in mine.select(columns).to_pylist()}


def _features(data: Path, asked: Asked, explained: Mapping[int, _Row], logits: Logits | None) -> Iterator[dict[str, Any]]:
    """One object per explained latent, made as many at once as fill a batch."""
    windows = _windows(data / "examples" / asked.sae / "examples.parquet", explained, asked.n_activations)
    while some := list(itertools.islice(windows, MAX_LATENTS)):
        ends = logits([latent for latent, _ in some]) if logits else [{} for _ in some]
        for (latent, activations), promoted in zip(some, ends, strict=True):
            yield _feature(explained[latent], asked.names, activations) | promoted


def _feature(row: _Row, names: Names, activations: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "index": row["latent"],
        "density": row["firing_frequency"],
        "explanations": [{"text": row["text"], "methodName": names.method, "modelName": names.explainer_model}],
        "activations": activations,
    }


def _windows(path: Path, latents: Iterable[int], n: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Of each latent its strongest activating windows of both splits, in the file's order, where a latent's rows are together.

    Latents without a window come last, with none.
    """
    waiting = dict.fromkeys(latents)
    for latent, rows in itertools.groupby(_rows(path), key=lambda row: row["latent"]):
        if latent in waiting:
            del waiting[latent]
            strongest = sorted(rows, key=lambda row: (-max(row["activations"]), row["example_id"]))[:n]
            yield latent, [{"tokens": token_texts(row["text"], row["spans"]), "values": row["activations"]} for row in strongest]
    yield from ((latent, []) for latent in waiting)


def _rows(path: Path) -> Iterator[_Row]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=4096, columns=["latent", "example_id", "kind", "activations", "text", "spans"]):
            yield from batch.filter(pc.field("kind") == Kind.ACTIVATING.value).to_pylist()


def _kept(features: Iterable[dict[str, Any]], asked: Asked, breaches: list[Breach]) -> Iterator[dict[str, Any]]:
    """Those that break no limit; the breaches of all others are noted."""
    for feature in features:
        found = list(latent_breaches(feature, 0, asked.also_known))
        breaches += found
        if not found:
            yield feature


def _batched(features: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(features, MAX_LATENTS)):
        yield batch


def _write_batch(making: Path, names: Names, number: int, features: list[dict[str, Any]]) -> int:
    write_lines(making / f"batch-{number:05d}.json", [{"modelId": names.model, "source": names.source, "features": features}])
    return len(features)


def _scores(data: Path, params: Params, asked: Asked, uploaded: Mapping[int, _Row]) -> Iterator[_Row]:
    """Every score of the labels, and those of the same latents that no explanation was needed for."""
    for scorer in params.scorers:
        table = labels.scores(data, asked.sae, scorer)
        mine = table.filter(pc.field("explainer").isin([asked.explainer, NO_EXPLAINER]) & pc.field("latent").isin(list(uploaded)))
        for batch in mine.to_batches(max_chunksize=4096):
            yield from batch.to_pylist()


def _left_out(data: Path, asked: Asked, explained: Mapping[int, _Row], n_broken: int) -> Counter[str]:
    table = labels.explanations(data, asked.sae)
    mine = table.filter(pc.field("explainer") == asked.explainer)
    statuses = dict(zip(mine["latent"].to_pylist(), mine["status"].to_pylist(), strict=True))
    sample = labels.latents_asked(data, asked.sae)["latent"].to_pylist()
    found = Counter(statuses.get(latent, NOT_ASKED) for latent in sample if latent not in explained)
    return found + Counter({BROKEN: n_broken})


def _told(asked: Asked, done: Exported, answered: Sequence[str]) -> dict[str, Any]:
    names = asked.names
    return {
        "export": "neuronpedia",
        "sae": asked.sae,
        "explainer": asked.explainer,
        "model_id": names.model,
        "source": names.source,
        "method_name": names.method,
        "model_name": names.explainer_model,
        "model_served": list(answered),
        "n_latents": done.n_latents,
        "left_out": dict(sorted(done.left_out.items())),
    }
