"""The scorers that small real models can carry, on the planted concepts: MiniLM embeds, Qwen 1.5B judges, SmolLM2 reads.

The models lie in $LATENTRY_MODELS, else in data/models of this checkout, as `dvc repro models` puts them there.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fakes import scorer_inputs
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
from latentry.clients.transformers import Config
from latentry.embeddings import Embedder
from latentry.sections import ClientRun
from sanity.planted_concepts import FEW, HARD, RANDOM
from sanity.sanity_runs import Scores, Setting, scores

MODELS: Mapping[str, str] = {"embedding": "minilm", "surprisal": "smollm2", "detection": "qwen"}
"""By scorer."""
DEAR: Mapping[str, Any] = {"client": "judge", "max_examples": 6}
READ: Mapping[str, Any] = {"client": "judge", "max_examples": 10}
SETTINGS = (
    Setting(kind="embedding", contrast=RANDOM, options={}),
    Setting(kind="embedding", contrast=HARD, options={}),
    Setting(kind="surprisal", contrast=RANDOM, options=READ),
    Setting(kind="surprisal", contrast=HARD, options=READ),
    Setting(kind="detection", contrast=RANDOM, options=DEAR, latents=FEW),
    Setting(kind="detection", contrast=HARD, options=DEAR, latents=FEW),
)


def models_folder() -> Path:
    """Where the models should lie."""
    return Path(os.environ.get("LATENTRY_MODELS") or Path(__file__).parents[2] / "data" / "models")


def missing(kind: str) -> str | None:
    """Why the scorer cannot run here; None where it can."""
    folder = models_folder() / MODELS[kind]
    if (folder / "manifest.json").exists():
        return None
    return f"{folder} is not here; run `dvc repro models`, or set LATENTRY_MODELS to where the example's models lie"


def model_scores(setting: Setting, caches: Path) -> Scores:
    """All metrics of one scorer by its real model; what it was asked stays in `caches`."""
    name = MODELS[setting.kind]
    run = {"judge": ClientRun(batch=16)}
    pool = ClientPool(
        {"judge": Config(kind="transformers", model=name, chat=setting.kind != "surprisal")},
        run,
        models=models_folder(),
        store=ReplyStore(caches / "replies"),
    )
    embedder = Embedder(models_folder() / name, "cpu", 64, caches / "embeddings.sqlite") if setting.kind == "embedding" else None
    given = scorer_inputs(ask=lambda client: pool.asker(client, f"sanity {setting.kind}"), embedder=lambda _: embedder)
    return scores(setting, given)
