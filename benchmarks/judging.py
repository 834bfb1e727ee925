"""Judging by a model in this process: what share of the time is the model's own forward, and what a bare forward would take.

Each scorer judges the same items through the pool, as its stage does, from an empty reply store. `share` is the part of that
time spent inside the model's forward. The bare forward runs as many tokens, those that requests share once and all others, in full
rows without a mask or a cache. Calls are asserted to be those that `latentry estimate` counts.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from judged_items import model_folder, planted_items, scorer_inputs
from synthetic import line
from transformers import AutoModelForCausalLM

from latentry.call_counts import CallCounts
from latentry.clients.batch_run import common_beginning
from latentry.clients.given_text import given_text
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
from latentry.params import Params, parse_params
from latentry.records import Reply, Request
from latentry.registry import kinds, variant
from latentry.scorers.base import Item
from small_params import small_params

QUICK = bool(os.environ.get("QUICK"))
MODEL = os.environ.get("MODEL", "smollm2")
"""A model of the example, by its name; a larger one spends a larger share in its forward."""
KINDS = [kind for kind in ("detection", "surprisal", "simulation") if kind in kinds("scorers")]
LATENTS, EACH = (3, 4) if QUICK else (10, 10)
BATCH = 16
ROUNDS = 1 if QUICK else 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One scorer's run."""

    total_s: float
    forward_s: float
    calls: int
    tokens: "Tokens"


class Watched:
    """Passes on what is asked, and remembers it."""

    def __init__(self, ask: Any) -> None:
        self._ask, self.requests = ask, dict[Request, None]()

    def __call__(self, requests: Sequence[Request], /) -> list[Reply]:
        self.requests |= dict.fromkeys(requests)
        return self._ask(requests)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ask, name)


def params_of(kind: str) -> Params:
    """The smallest params with a judge in this process."""
    scorers = {kind: {"client": "judge"}}
    models = {MODEL: {"format": "folder", "sources": [{"kind": "folder", "path": "anywhere"}]}}
    clients = {"judge": {"kind": "transformers", "model": MODEL, "dtype": "bfloat16"}}
    tree = small_params(clients=clients, scorers=scorers, explainers={"lexical": {}}, run={"clients": {"judge": {"batch": BATCH}}})
    tree["models"] |= models
    return parse_params(tree)


def judged(kind: str, params: Params, items: Sequence[Item], models: Path) -> Measured:
    """The scorer's judging, from an empty store; weights are loaded before."""
    module = variant("scorers", kind)
    with tempfile.TemporaryDirectory() as store:
        pool = ClientPool(params.clients, {"judge": params.run_of("judge")}, models=models, store=ReplyStore(Path(store)))
        model = pool.client("judge")._model  # type: ignore[union-attr]
        watched = Watched(pool.asker("judge", "bench"))
        scorer = module.build(params.scorers[kind], scorer_inputs(ask=lambda _: watched))
        with timed_forward(model) as spent:
            start = time.perf_counter()
            judgments = scorer.judge(items)
            total_s = time.perf_counter() - start
        failed = {one.detail for one in judgments if one.status != "ok"}
        if failed:
            raise SystemExit(f"{kind}: {failed}")
        calls = len(watched.requests)
        if calls != estimated(kind, params, items, models):
            raise SystemExit(f"{kind}: {calls} distinct requests, estimated {estimated(kind, params, items, models)}")
        return Measured(total_s=total_s, forward_s=sum(spent), calls=calls, tokens=tokens_of(pool.client("judge"), list(watched.requests)))


def estimated(kind: str, params: Params, items: Sequence[Item], models: Path) -> int:
    """Calls as `latentry estimate` counts them: the scorer is run on clients that answer nothing."""
    with tempfile.TemporaryDirectory() as store:
        counts = CallCounts(params, models.parent, ReplyStore(Path(store)))
        module = variant("scorers", kind)
        module.build(params.scorers[kind], scorer_inputs(ask=counts.asker("cell", False))).judge(items)
        return sum(cell.calls for cell in counts.cells())


@contextmanager
def timed_forward(model: Any) -> Iterator[list[float]]:
    """Seconds of each forward of the model within the block."""
    began: list[float] = []
    spent: list[float] = []
    hooks = (
        model.register_forward_pre_hook(lambda *_: began.append(time.perf_counter())),
        model.register_forward_hook(lambda *_: spent.append(time.perf_counter() - began[-1])),
    )
    try:
        yield spent
    finally:
        for hook in hooks:
            hook.remove()


def bare(model: Any, tokens: "Tokens") -> float:
    """Seconds of one forward over the shared tokens, and of full rows over all others, read out where answers are graded."""
    n_rows = len(tokens.lengths)
    width = max(1, round(sum(tokens.lengths) / n_rows) - tokens.shared)
    kept = max(1, round(sum(tokens.graded) / n_rows))
    with torch.inference_mode():
        start = time.perf_counter()
        model(input_ids=torch.zeros(1, tokens.shared, dtype=torch.long), use_cache=False, logits_to_keep=1)
        for first in range(0, n_rows, BATCH):
            rows = min(BATCH, n_rows - first)
            model(input_ids=torch.zeros(rows, width, dtype=torch.long), use_cache=False, logits_to_keep=kept)
        return time.perf_counter() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What the requests hold."""

    lengths: list[int]
    """Of each request: its prompt, and the text given after it."""
    graded: list[int]
    """Places of each at which log-probabilities are read."""
    shared: int
    """Tokens that all begin with."""


def tokens_of(client: Any, requests: Sequence[Request]) -> Tokens:
    """By the model's own tokenizer."""
    prompts = [client._prompt(request.messages) for request in requests]
    further = [given_text(request, client._tokens) for request in requests]
    lengths = [len(prompt) + len(text.tokens) for prompt, text in zip(prompts, further, strict=True)]
    return Tokens(lengths=lengths, graded=[len(text.after) or 1 for text in further], shared=len(common_beginning(prompts)))


def main() -> None:
    """Every scorer in turn."""
    folder = model_folder(MODEL)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True).eval()
    _, items = planted_items(LATENTS, EACH)
    for kind in KINDS:
        params = params_of(kind)
        runs = [judged(kind, params, items, folder.parent) for _ in range(ROUNDS)]
        tokens = runs[0].tokens
        bare_s = statistics.median(bare(model, tokens) for _ in range(ROUNDS))
        total_s = statistics.median(run.total_s for run in runs)
        shown = {
            "n": runs[0].calls,
            "share": statistics.median(run.forward_s / run.total_s for run in runs),
            "ratio": total_s / bare_s,
            "total_s": total_s,
            "bare_s": bare_s,
            "tokens": sum(tokens.lengths),
            "shared_tokens": tokens.shared,
            "calls_per_latent": runs[0].calls / LATENTS,
            "rounds": ROUNDS,
        }
        print(line(f"judging-{kind}", {"model": MODEL} | shown))  # noqa: T201


if __name__ == "__main__":
    main()
