"""A grid of results at the level of contracts, with planted scores: what the comparison's tests read."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from latentry.comparison.compare import compare as compare_with
from latentry.comparison.grid import AskedScorer, Grid
from latentry.contracts import EXAMPLES, EXPLANATIONS, SAE, SCORES
from latentry.store import Manifest

SAES = {"topk-1k": 1024, "topk-2k": 2048, "jumprelu-1k": 1024}
LATENTS = list(range(10, 20))
DEAD = 19


def compare(grid, **decoders):
    """The tables; a SAE's decoder is the one given, else one of its own that matches no other's."""

    def rows(sae):
        width = 24
        found = np.zeros((width, 100), np.float32)
        found[np.arange(width), np.arange(width) + width * list(SAES).index(sae)] = 1
        return decoders.get(sae.replace("-", "_"), found)

    return compare_with(grid, rows)


def grid_of(data: Path, **changes) -> Grid:
    scorers = {
        "embedding": AskedScorer(contrast="random", max_latents=None),
        "fuzzing": AskedScorer(contrast="wrong-position", max_latents=4),
    }
    return Grid(**{"data": data, "seed": 0, "saes": tuple(SAES), "explainers": ("lexical", "default"), "scorers": scorers, **changes})


def put(folder, contract, tables, others=()):
    folder.mkdir(parents=True)
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows, schema=contract.tables[name]), folder / name)
    for name, value in dict(others).items():
        (folder / name).write_text(json.dumps(value))
    manifest = Manifest(
        contract=contract.name, version=contract.version, cell="", key="", params={}, inputs={}, counts={}, files={}, sizes={}
    )
    (folder / "manifest.json").write_text(json.dumps(asdict(manifest)))


def evaluation(sae):
    loss = sae.split("-")[0]
    about = {"name": sae, "loss": loss, "width": SAES.get(sae, 8192), "d_in": 64, "hookpoint": "h", "subject": "s", "baseline": None}
    return {**about, "l0": 32.0, "fvu": 0.25, "ce_recovered": 0.9, "dead_fraction": 0.1, "n_tokens": 1000, "n_training_tokens": 9000}


def score_row(latent, explainer, contrast, *, null=False, status="ok", graded=None, decided=None):
    names = SCORES.tables["scores.parquet"].names
    row = dict.fromkeys(names)
    row |= {"latent": latent, "explainer": explainer, "null": null, "contrast_source": contrast, "status": status, "detail": ""}
    return row | {"auroc": graded, "balanced_accuracy": decided}


def make_sae(data, sae, shift=0.0):
    """Embedding grades: .6 + shift on even latents, .8 + shift on odd ones, null .5 on all but two. Fuzzing decides."""
    put(data / "saes" / sae, SAE, {}, {"evaluation.json": evaluation(sae)})
    latents = [
        {"latent": latent, "rank": 9 - place, "status": "ok", "firing_frequency": 0.01 * (place + 1)}
        for place, latent in enumerate(LATENTS)
    ]
    put(data / "examples" / sae, EXAMPLES, {"latents.parquet": latents, "examples.parquet": []})
    explanations = [
        {
            "latent": latent,
            "explainer": explainer,
            "text": None if latent == DEAD else f"{explainer} {latent}",
            "status": "dead" if latent == DEAD else "ok",
        }
        for latent in LATENTS
        for explainer in ("lexical", "default")
    ]
    put(data / "explanations" / sae, EXPLANATIONS, {"explanations.parquet": explanations})
    embedding = [score_row(latent, "lexical", "random", graded=0.6 + 0.2 * (latent % 2) + shift) for latent in LATENTS[:-1]]
    embedding += [score_row(latent, "lexical", "random", null=True, graded=0.5) for latent in LATENTS[:-3]]
    embedding += [score_row(latent, "default", "random", status="parse_error") for latent in LATENTS[:-1]]
    put(data / "scores" / sae / "embedding", SCORES, {"scores.parquet": embedding, "judgments.parquet": []})
    fuzzing = [score_row(latent, "lexical", "wrong-position", decided=0.5) for latent in LATENTS[6:9]]
    put(data / "scores" / sae / "fuzzing", SCORES, {"scores.parquet": fuzzing, "judgments.parquet": []})
