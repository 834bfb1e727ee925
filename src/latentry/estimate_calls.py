"""What a run of params.yaml will ask of models before anything is asked: calls, tokens, price, and what it will be able to show.

Explainers and scorers are run as they are, on clients that count and answer nothing. Always true: where a SAE's examples are
drawn, the number of calls is exact where every reply can be read, no two explanations are equal and no judging is adaptive,
else at most that; a reply
that the store has is not counted again.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from latentry.call_counts import CallCounts, CellCalls
from latentry.clients.ledger import Spent
from latentry.clients.progress import shown
from latentry.clients.reply_store import ReplyStore
from latentry.contracts import EXAMPLES, SCORES
from latentry.errors import ContractError
from latentry.explainers.run import explain_all, facts_of, latents_for
from latentry.metric_kinds import METRIC_KINDS
from latentry.metrics import smallest_detectable_with
from latentry.params import Params
from latentry.planned_examples import planned_examples
from latentry.records import NO_EXPLAINER, Example, Explanation, Split, Status
from latentry.registry import variant
from latentry.sampling.disjoint import read_examples
from latentry.scorer_stand_ins import scorer_stand_ins, steered_stand_in
from latentry.scorers.base import items_for, suppliers, unexplained_items
from latentry.store import cache_folder, read_table

ASSUMED_SPREAD = 0.15
"""Standard deviation of a score over latents, where none was measured yet (AUROC in the example: .13 to .2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The smallest difference between two SAEs that one explainer's and scorer's latents can show, at 80 % power and 5 %."""

    explainer: str
    scorer: str
    n_latents: int
    """Of each SAE, at most."""
    spread: float
    """Standard deviation of the score over latents."""
    measured: bool
    """Whether the spread comes from scores that are there, or is assumed."""
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEstimate:
    """All cells that ask, and what they will show."""

    cells: tuple[CellCalls, ...]
    detectable: tuple[Detectable, ...]
    spent: Spent
    """At endpoints so far, by the ledger that `run.budget` looks at."""


def estimate_calls(params: Params, data: Path = Path("data"), store: ReplyStore | None = None) -> CallEstimate:
    """Count every request that `explain` and `score` would make with these params.

    Raises:
        CorpusError: there are neither examples nor a corpus to stand in for them.
    """
    kept = store or ReplyStore(cache_folder("replies"))
    counts = CallCounts(params, data, kept)
    for sae in params.saes:
        _count_sae(params, data, sae, counts)
    return CallEstimate(cells=tuple(counts.cells()), detectable=tuple(_detectable(params, data)), spent=kept.ledger.spent())


def said(found: CallEstimate) -> Iterator[str]:
    """The estimate in lines, as a command prints it."""
    yield "calls (one that an earlier cell or run asked is not asked again):"
    for cell in found.cells:
        kept = f", {cell.kept:,} in the reply store" if cell.kept else ""
        yield (
            f"  {cell.cell:<32}{cell.calls:>9,} calls{kept}; {cell.prompt_tokens:,} prompt tokens by {cell.counted_by},"
            f" at most {cell.reply_tokens:,} of replies{_money(cell.usd)}{'; examples are not drawn yet' if cell.planned else ''}"
        )
    calls, prompt, reply = (sum(getattr(cell, name) for cell in found.cells) for name in ("calls", "prompt_tokens", "reply_tokens"))
    usd = None if any(cell.usd is None for cell in found.cells) else sum(cell.usd or 0.0 for cell in found.cells)
    yield f"  {'in all':<32}{calls:>9,} calls; {prompt:,} prompt tokens, at most {reply:,} of replies{_money(usd)}"
    yield f"spent at endpoints so far: {shown(found.spent)}"
    yield "smallest difference of means between two SAEs that shows (80 % power, 5 %):"
    for one in found.detectable:
        source = "measured" if one.measured else "assumed"
        yield (
            f"  {one.explainer} by {one.scorer}: {one.difference:.3f} with {one.n_latents:,} latents each (spread over latents {one.spread:.2f}, {source})"
        )


def _money(usd: float | None) -> str:
    return ", price unknown (run.clients.*.price)" if usd is None else f", at most ${usd:,.4f}" if usd else ""


def _count_sae(params: Params, data: Path, sae: str, counts: "CallCounts") -> None:
    asked, examples, planned = _examples(params, data, sae)
    folder = data / "examples" / sae
    facts = facts_of(sae, params.saes[sae].n_latents, folder)
    facts = dataclasses.replace(facts, steered=steered_stand_in(params, examples, folder))
    explanations: list[Explanation] = []
    for name, config in params.explainers.items():
        ask = counts.asker(f"explain@{sae} {name}", planned)
        built = variant("explainers", config.kind).build(config, name, params.seed, ask, facts)
        try:
            explanations += explain_all(built, asked, config.max_latents)
        except ContractError:  # promoted tokens, of examples that are not drawn
            if not planned:
                raise
    ranked = [latent.latent for latent in asked]
    held_out = {latent: [one for one in of if one.split is Split.HELD_OUT] for latent, of in examples.items()}
    for name, config in params.scorers.items():
        if getattr(config, "client", None) is None:
            continue
        mine = ranked[: config.max_latents]
        inputs = scorer_stand_ins(params, counts.asker(f"score@{sae}-{name}", planned), examples, folder)
        whole = config.model_copy(update={"adaptive": None}) if config.is_adaptive else config
        scorer = variant("scorers", config.kind).build(whole, inputs)
        some: Any = {"ranked": mine, "seed": params.seed, "null_latents": config.null_latents if config.has_null else 0}
        if config.reads_explanations:
            theirs = [one for one in explanations if one.latent in set(mine)]
            scorer.judge(items_for(theirs, held_out, **some, excluded=suppliers(held_out, scorer.contrast)))
        else:
            scorer.judge(unexplained_items(held_out, **some))


def _examples(params: Params, data: Path, sae: str) -> tuple[list[Any], Mapping[int, Sequence[Example]], bool]:
    """The latents as explainers get them, all their examples, and whether these are stand-ins."""
    folder = data / "examples" / sae
    try:
        examples = read_examples(folder)
        return latents_for(read_table(folder, EXAMPLES, "latents.parquet"), examples), examples, False
    except ContractError:
        n_latents = params.examples.n_latents or params.saes[sae].n_latents or 1000
        planned = planned_examples(params, sae, n_latents)
        rows = [{"latent": latent, "rank": latent, "status": Status.OK.value, "detail": ""} for latent in planned]
        return latents_for(pa.Table.from_pylist(rows), planned), planned, True


def _detectable(params: Params, data: Path) -> Iterator[Detectable]:
    for scorer, scorer_config in params.scorers.items():
        spread = _spread(data, list(params.saes), scorer)
        explainers = {name: one.max_latents for name, one in params.explainers.items()}
        for explainer, max_latents in (explainers if scorer_config.reads_explanations else {NO_EXPLAINER: None}).items():
            limits = (params.examples.n_latents, max_latents, scorer_config.max_latents)
            n = min((limit for limit in limits if limit is not None), default=0)
            if n > 1:
                s = ASSUMED_SPREAD if spread is None else spread
                yield Detectable(
                    explainer=explainer,
                    scorer=scorer,
                    n_latents=n,
                    spread=s,
                    measured=spread is not None,
                    difference=smallest_detectable_with(s, n, s, n),
                )


def _spread(data: Path, saes: Sequence[str], scorer: str) -> float | None:
    """Standard deviation over latents of the scores that are there, pooled over SAEs; None below ten degrees of freedom."""
    squares, freedom = 0.0, 0
    for sae in saes:
        try:
            rows = read_table(data / "scores" / sae / scorer, SCORES, "scores.parquet").to_pylist()
        except ContractError:
            continue
        by_explainer: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            value = next((row[kind] for kind in METRIC_KINDS if row[kind] is not None), None)
            if value is not None and not row["null"]:
                by_explainer[row["explainer"]].append(value)
        for values in by_explainer.values():
            squares += float(np.sum((np.array(values) - np.mean(values)) ** 2))
            freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom >= 10 else None
