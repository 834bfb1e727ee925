"""A made-up study at the level of contracts: every folder under `data/` that tracking, comparison's readers and the report read.

No model, corpus or SAE stands behind it; numbers are drawn from one seed, better for wider SAEs and for the `default` explainer.
One document holds hostile text, so that every page made of it shows whether it escapes.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from latentry import contracts
from latentry.contracts import Contract
from latentry.metric_kinds import JACOBIAN_FIGURES
from latentry.store import Manifest, digest_of, file_digest, manifest_digest

HOSTILE = '<script>alert("x")</script> \'"& \u202eright to left\u202c <img src=x onerror=alert(1)>'
WIDTHS = {"1k": 1024, "2k": 2048, "4k": 4096}
LOSSES = ("topk", "jumprelu")
SCORERS = {"embedding": "random", "detection": "random", "fuzzing": "wrong-position"}
EXPLAINERS = ("lexical", "default")
_WORDS = [
    "the",
    "union",
    "of",
    "whale",
    "and",
    "sea",
    "we",
    "must",
    "build",
    "a",
    "nation",
    "that",
    "sails",
    "beyond",
    "every",
    "storm",
    "with",
    "hope",
    "under",
    "an",
    "endless",
    "sky",
    "tonight",
]


def make_study(root: Path, *, n_latents: int = 30, n_default: int = 6, seed: int = 7, widths: Mapping[str, int] = WIDTHS) -> Path:
    """Write `data/`, `report/`, `params.yaml`, `dvc.yaml` and `dvc.lock` under a folder; returns the folder."""
    rng = np.random.default_rng(seed)
    data = root / "data"
    _folder(data / "tokens", contracts.TOKENS, "tokens", {}, {"n_tokens": 250_000, "n_documents": 140})
    saes, latent_rows, cell_rows = [], [], []
    for loss in LOSSES:
        for size, width in widths.items():
            name = f"{loss}-{size}"
            saes.append(_sae(data, name, loss, width, rng))
            latents = _examples(data, name, width, n_latents, rng)
            explanations = _explanations(data, name, latents, n_default)
            rows = _scores(data, name, width, latents, explanations, rng)
            latent_rows += rows
            cell_rows += _cells(name, rows)
    _comparison(data, saes, latent_rows, cell_rows)
    _project(root, saes)
    return root


def rewrite(root: Path, name: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Put every row of a table of the comparison through `change`; None drops it. The manifest tells of what stands there then."""
    path = root / "data" / "comparison" / name
    table = pq.read_table(path)
    rows = [new for row in table.to_pylist() if (new := change(row)) is not None]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    manifest = path.with_name("manifest.json")
    told = json.loads(manifest.read_text())
    told["sizes"][path.name], told["files"][path.name] = path.stat().st_size, file_digest(path)
    manifest.write_text(json.dumps(told))


def _folder(
    folder: Path,
    contract: Contract,
    cell: str,
    tables: Mapping[str, list[dict[str, Any]]],
    counts: Mapping[str, Any],
    others: Mapping[str, str] | None = None,
    inputs: tuple[Path, ...] = (),
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows, schema=contract.tables[name]), folder / name)
    for name, text in (others or {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    files = {path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.name != "manifest.json"}
    manifest = Manifest(
        contract=contract.name,
        version=contract.version,
        cell=cell,
        key=digest_of([cell, files]),
        params={},
        inputs={path.as_posix(): manifest_digest(path) for path in inputs},
        counts=counts,
        files=files,
        sizes={name: (folder / name).stat().st_size for name in files},
    )
    (folder / "manifest.json").write_text(json.dumps(dataclasses.asdict(manifest), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _sae(data: Path, name: str, loss: str, width: int, rng: np.random.Generator) -> dict[str, Any]:
    step = np.log2(width) - 10
    row = {
        "sae": name,
        "loss": loss,
        "width": width,
        "d_in": 576,
        "hookpoint": "model.layers.15.output",
        "subject": "smollm2-135m",
        "l0": 32.0 if loss == "topk" else 48.3 + 3 * step,
        "fvu": 0.34 - 0.05 * step + (0.03 if loss == "jumprelu" else 0.0) + float(rng.normal(0, 0.005)),
        "ce_recovered": 0.9 + 0.02 * step,
        "dead_fraction": 0.04 + 0.07 * step,
        "n_tokens": 250_000,
        "baseline": None,
    }
    points = "".join(f"{n + 1},{n * 10_000},{1.0 / (n + 1):.4f},{0.5 / (n + 1):.4f},{0.5 / (n + 1):.4f},32\n" for n in range(24))
    curve = "step,tokens,loss,mse,sparsity,l0\n" + points
    others = {"evaluation.json": json.dumps(row), "loss.csv": curve, "cfg.json": "{}"}
    _folder(data / "saes" / name, contracts.SAE, f"sae@{name}", {}, {}, others, inputs=(data / "tokens",))
    return row


def _examples(data: Path, name: str, width: int, n_latents: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    chosen = sorted(rng.choice(width, n_latents, replace=False).tolist())
    latents = [_latent(latent, rank, rng) for rank, latent in enumerate(chosen)]
    statistics = [_statistics(row) for row in latents]
    _folder(
        data / "latents" / name, contracts.LATENTS, f"latents@{name}", {"statistics.parquet": statistics}, {}, None, (data / "saes" / name,)
    )
    examples = [example for row in latents if row["status"] == "ok" for example in _windows(row, rng)]
    promoted = [{key: row[key] for key in ("latent", "promoted_tokens", "suppressed_tokens")} for row in statistics]
    tables = {"latents.parquet": latents, "examples.parquet": examples, "promoted.parquet": promoted}
    inputs = (data / "latents" / name, data / "tokens", data / "saes" / name)
    _folder(data / "examples" / name, contracts.EXAMPLES, f"examples@{name}", tables, {"asked": n_latents}, None, inputs)
    return latents


def _latent(latent: int, rank: int, rng: np.random.Generator) -> dict[str, Any]:
    status = {0: "dead", 1: "undersampled"}.get(rank % 15 - 13, "ok")
    count = 0 if status == "dead" else int(rng.integers(250, 9000))
    return {
        "latent": latent,
        "rank": rank,
        "status": status,
        "detail": "" if status == "ok" else "did not fire often enough",
        "n_windows": count,
        "n_distinct_windows": count,
        "activating_window_fraction": count / 8000,
        "firing_count": count,
        "firing_frequency": count / 250_000,
        "peak": 9.0,
        "shortfall": "",
    }


def _statistics(row: Mapping[str, Any]) -> dict[str, Any]:
    numbers = dict.fromkeys(("peak", "mean", "median", "quantile_90", "quantile_99"), 1.0)
    return {
        "latent": row["latent"],
        "firing_count": row["firing_count"],
        "firing_frequency": row["firing_frequency"],
        **numbers,
        "dead": row["status"] == "dead",
        "top_tokens": [" whale", " nation", "<b>", "\n"],
        "top_token_fractions": [0.4, 0.2, 0.1, 0.05],
        "promoted_tokens": [" ship", " sea"],
        "suppressed_tokens": [" law"],
    }


def _windows(row: Mapping[str, Any], rng: np.random.Generator) -> list[dict[str, Any]]:
    plan = [("explain", "activating", "", 5), ("held_out", "activating", "", 5)]
    plan += [("held_out", "contrast", contrast, 3) for contrast in ("random", "wrong-position")]
    return [_window(row["latent"], split, kind, contrast, rank, rng) for split, kind, contrast, n in plan for rank in range(n)]


def _window(latent: int, split: str, kind: str, contrast: str, rank: int, rng: np.random.Generator) -> dict[str, Any]:
    words = [str(word) for word in rng.choice(_WORDS, 24)]
    if rank == 0 and split == "explain":
        words[3] = HOSTILE
    pieces = [words[0], *(f" {word}" for word in words[1:])]
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    spans = [edge for start, end in zip([0, *ends[:-1]], ends, strict=True) for edge in (start, end)]
    activations = [0.0] * len(pieces)
    if kind == "activating":
        for place, strength in zip(rng.choice(24, 4, replace=False).tolist(), (9.0, 6.0, 3.0, 0.5), strict=True):
            activations[place] = strength * (10 - rank) / 10
    marked = [2 * place for place, value in enumerate(activations) if value >= 0.3 * max(activations) > 0]
    return {
        "latent": latent,
        "example_id": f"{latent}-{split}-{kind}-{contrast}-{rank}",
        "split": split,
        "kind": kind,
        "source": "windows" if kind == "activating" else contrast,
        "contrast": contrast,
        "rank": rank,
        "decile": 10 - rank if kind == "activating" else 0,
        "document": rank + (50 if split == "held_out" else 0),
        "context": 3,
        "start": 32,
        "tokens": list(range(24)),
        "activations": activations,
        "text": "".join(pieces),
        "spans": spans,
        "marks": [edge for place in marked for edge in (spans[place], spans[place + 1])],
    }


def _explanations(data: Path, name: str, latents: list[dict[str, Any]], n_default: int) -> list[dict[str, Any]]:
    rows = []
    for latent in latents:
        for explainer in EXPLAINERS:
            if explainer == "default" and latent["rank"] >= n_default:
                continue
            rows.append(_explanation(latent, explainer))
    inputs = (data / "examples" / name,)
    _folder(data / "explanations" / name, contracts.EXPLANATIONS, f"explain@{name}", {"explanations.parquet": rows}, {}, None, inputs)
    return rows


def _explanation(latent: Mapping[str, Any], explainer: str) -> dict[str, Any]:
    unreadable = explainer == "default" and latent["rank"] == 2
    status = "parse_error" if latent["status"] == "ok" and unreadable else latent["status"]
    texts = {
        "lexical": f"the words whale, nation and sea ({latent['latent']})",
        "default": f"Mentions of ships at sea <b>no {latent['latent']}</b>",
    }
    return {
        "latent": latent["latent"],
        "explainer": explainer,
        "text": texts[explainer] if status == "ok" else None,
        "status": status,
        "detail": "" if status == "ok" else "no text came",
        "prompt_digest": digest_of([explainer, latent["latent"]])[:16],
        "reply": None,
        "reply_key": digest_of(["explain", latent["latent"]]) if explainer == "default" else None,
    }


def _scores(
    data: Path, name: str, width: int, latents: list[dict[str, Any]], explanations: list[dict[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    by_latent = {row["latent"]: row for row in latents}
    rows = []
    for scorer, contrast in SCORERS.items():
        cell_rows, score_rows, judgments = [], [], []
        for explanation in explanations:
            latent = by_latent[explanation["latent"]]
            if scorer != "embedding" and latent["rank"] >= 6:
                continue
            quality = 0.58 + 0.04 * (np.log2(width) - 10) + (0.1 if explanation["explainer"] == "default" else 0.0)
            scores = _score(float(np.clip(rng.normal(quality, 0.12), 0.05, 1.0)), float(np.clip(rng.normal(0.5, 0.08), 0.0, 1.0)))
            ok = explanation["status"] == "ok"
            graded = scores if ok else dict.fromkeys(scores)
            has_null = ok and (scorer == "embedding" or latent["rank"] < 4)
            null = {key: value if has_null else None for key, value in graded.items() if key.startswith("null_")}
            cell_rows.append(
                {
                    "sae": name,
                    "explainer": explanation["explainer"],
                    "scorer": scorer,
                    "latent": explanation["latent"],
                    "explanation": explanation["text"],
                    "explanation_status": explanation["status"],
                    "firing_frequency": latent["firing_frequency"],
                    "status": explanation["status"],
                    **graded,
                    **null,
                }
            )
            score_rows.append(_score_row(explanation, contrast, graded))
            judgments += _judgments(explanation, scorer) if ok else []
        rows += cell_rows
        tables = {"scores.parquet": score_rows, "judgments.parquet": judgments}
        inputs = (data / "explanations" / name, data / "examples" / name)
        _folder(data / "scores" / name / scorer, contracts.SCORES, f"score@{name}-{scorer}", tables, {}, None, inputs)
    return rows


def _score(score: float, null: float) -> dict[str, float]:
    return {
        "auroc": score,
        "auroc_low": max(score - 0.1, 0.0),
        "auroc_high": min(score + 0.1, 1.0),
        "balanced_accuracy": score * 0.95,
        "balanced_accuracy_low": max(score - 0.15, 0.0),
        "balanced_accuracy_high": min(score + 0.05, 1.0),
        "null_auroc": null,
        "null_balanced_accuracy": null,
    }


def _score_row(explanation: Mapping[str, Any], contrast: str, graded: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "latent": explanation["latent"],
        "explainer": explanation["explainer"],
        "null": False,
        "contrast_source": contrast,
        "status": explanation["status"],
        "detail": explanation["detail"],
        **{key: value for key, value in graded.items() if not key.startswith("null_")},
        "n_activating": 5,
        "n_contrast": 5,
        "n_failed": 0,
        "partner": None,
    }


def _judgments(explanation: Mapping[str, Any], scorer: str) -> list[dict[str, Any]]:
    asks = scorer != "embedding"
    return [
        {
            "latent": explanation["latent"],
            "explainer": explanation["explainer"],
            "example_id": f"{explanation['latent']}-{n}",
            "null": False,
            "is_activating": n % 2 == 0,
            "says_activating": n % 2 == 0,
            "confidence": 0.7,
            "status": "ok",
            "detail": "",
            "reply_key": digest_of([scorer, explanation["explainer"], explanation["latent"], n]) if asks else None,
        }
        for n in range(4)
    ]


def _cells(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    cells = []
    for explainer in EXPLAINERS:
        for scorer, contrast in SCORERS.items():
            mine = [row for row in rows if (row["explainer"], row["scorer"]) == (explainer, scorer)]
            for metric in ("auroc", "balanced_accuracy"):
                cells.append(_cell(name, explainer, scorer, contrast, metric, mine))
    return cells


def _cell(name: str, explainer: str, scorer: str, contrast: str, metric: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    values = np.array([row[metric] for row in rows if row[metric] is not None])
    nulls = np.array([row[f"null_{metric}"] for row in rows if row[f"null_{metric}"] is not None])
    half = 1.96 * float(values.std()) / np.sqrt(len(values))
    lift = float(values.mean() - nulls.mean())
    statuses = {status: sum(row["status"] == status for row in rows) for status in sorted({row["status"] for row in rows})}
    return {
        "sae": name,
        "explainer": explainer,
        "scorer": scorer,
        "metric": f"{metric}_{contrast.replace('-', '_')}",
        "contrast_source": contrast,
        "headline": metric == "auroc",
        "mean": float(values.mean()),
        "low": float(values.mean() - half),
        "high": float(values.mean() + half),
        "median": float(np.median(values)),
        "quartile_1": float(np.quantile(values, 0.25)),
        "quartile_3": float(np.quantile(values, 0.75)),
        "frequency_weighted_mean": float(values.mean()),
        "n": len(values),
        "n_asked": len(rows),
        "null": float(nulls.mean()),
        "null_low": float(nulls.mean() - 0.05),
        "null_high": float(nulls.mean() + 0.05),
        "lift": lift,
        "lift_low": lift - 0.06,
        "lift_high": lift + 0.06,
        "n_lift": len(nulls),
        "n_calls": 0 if scorer == "embedding" else 4 * len(values),
        "statuses": json.dumps(statuses),
    }


def _decile(cell: Mapping[str, Any], decile: int) -> dict[str, Any]:
    found = cell["mean"] - 0.4 + 0.04 * decile
    named = {name: cell[name] for name in ("sae", "explainer", "scorer", "n")}
    return {**named, "decile": decile, "found": found, "low": found - 0.1, "high": min(1.0, found + 0.1)}


def _comparison(data: Path, saes: list[dict[str, Any]], latents: list[dict[str, Any]], cells: list[dict[str, Any]]) -> None:
    names = [row["sae"] for row in saes]
    pairs = [
        {
            "scorer": "embedding",
            "metric": "auroc_random",
            "explainer": "lexical",
            "sae_a": a,
            "sae_b": b,
            "difference": 0.04,
            "low": -0.01,
            "high": 0.09,
            "p_value": 0.02,
            "p_adjusted": 0.3,
            "smallest_detectable": 0.06,
            "n_a": 26,
            "n_b": 26,
        }
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]
    shared = {name: value for name, value in pairs[0].items() if name not in ("explainer", "sae_a", "sae_b", "n_a", "n_b")}
    explainers = [{**shared, "sae": name, "explainer_a": "lexical", "explainer_b": "default", "n": 6} for name in names]
    tables = {"saes.parquet": saes, "latents.parquet": latents, "cells.parquet": cells, "pairs.parquet": pairs}
    tables["explainer_pairs.parquet"] = explainers
    pair = {"sae_a": names[0], "sae_b": names[1]}
    matched = next(row["latent"] for row in latents if row["sae"] == names[0])
    tables["matches.parquet"] = [{**pair, "latent_a": matched, "latent_b": 5, "cosine": 0.91}]
    tables["overlaps.parquet"] = [{**pair, "hookpoint": "h", "n_shared": 1, "n_only_a": 1023, "n_only_b": 2047, "mean_cosine": 0.91}]
    tables["shared_pairs.parquet"] = [{**shared, **pair, "explainer": "default", "n": 3}]
    correlated = {"scorer_a": "embedding", "scorer_b": "detection", "low": 0.1, "high": 0.6, "spearman": 0.4, "n": 6}
    tables["correlations.parquet"] = [{**correlated, "sae": sae, "explainer": name} for sae in (*names, None) for name in EXPLAINERS]
    tables["deciles.parquet"] = [_decile(cell, decile) for cell in cells if cell["headline"] for decile in range(1, 11)]
    tables["judges.parquet"] = []
    tables["imported.parquet"] = [_imported(names[0])]
    driven = next(row["latent"] for row in latents if row["sae"] == names[1])
    tables |= _jacobian_tables(names, driven)
    inputs = tuple(data / "saes" / name for name in names)
    _folder(data / "comparison", contracts.COMPARISON, "compare", tables, {}, None, inputs)
    edge = {"out": 3, "in": 7, "mean": -0.0456, "mean_abs": 0.05, "count": 120}
    _folder(data / "jacobians" / "jsae", contracts.JACOBIAN, "jacobian@jsae", {"edges.parquet": [edge], "contexts.parquet": []}, {})


def _jacobian_tables(names: list[str], driven: int) -> dict[str, list[dict[str, Any]]]:
    """Two Jacobians between the first two SAEs; the explanation of an input is hostile."""
    figures = {f"{name}{end}": value for name in JACOBIAN_FIGURES for end, value in (("", 0.0123), ("_low", 0.0111), ("_high", 0.0135))}
    row = {"input": names[0], "output": names[1], "module": "model.layers.1.mlp", "n_tokens": 16000, "n_edges": 90000, **figures}
    row |= {f"{name}_{side}": value for side in ("input", "output") for name, value in (("width", 1024), ("l0", 32.0), ("fvu", 0.25))}
    means = {f"{name}{end}": 0.5 for name in ("score", "null", "lift", "own", "own_lead") for end in ("", "_low", "_high")}
    means |= {f"n_{name}": 6 for name in ("score", "null", "lift", "own", "own_lead")}
    edge = {"jacobian": "jsae", "explainer": "lexical", "latent": driven, "text": "ships", "rank": 0, "input": 7, "input_text": HOSTILE}
    edge |= {"n_inputs": 40, "n_explained": 11, "strength_explained": 0.25}
    edge |= {"mean": -0.0456, "mean_abs": 0.05, "count": 120, "weight": 1.0}
    pair = {"jacobian_a": "jsae", "jacobian_b": "separate", "difference": -0.0071, "low": -0.0081, "high": -0.0061, "unlike": []}
    return {
        "jacobians.parquet": [
            {**row, "jacobian": "jsae", "pair": "one training", "redrawn": False},
            {**row, "jacobian": "separate", "pair": None, "redrawn": True},
        ],
        "jacobian_pairs.parquet": [{**pair, "figure": name} for name in JACOBIAN_FIGURES],
        "edge_scores.parquet": [
            {"jacobian": "jsae", "explainer": "lexical", "n_asked": 9, "statuses": '{"no_inputs": 3, "ok": 6}', **means}
        ],
        "explained_edges.parquet": [edge],
    }


def _imported(sae: str) -> dict[str, Any]:
    """Scores of others beside ours, named as one who means harm might."""
    named = {"imported": "theirs", "sae": sae, "explainer": "lexical", "their_scorer": "fuzz<script>", "their_metric": "accuracy"}
    numbers = {"their_mean": 0.71, "their_mean_low": 0.66, "their_mean_high": 0.75, "mean": 0.6, "mean_low": 0.55, "mean_high": 0.64}
    ranks = {"spearman": 0.42, "spearman_low": 0.1, "spearman_high": 0.66}
    told = {"recomputed": False, "definition": "share of right answers", "scorer": "embedding", "metric": "auroc_random"}
    return {**named, **told, **numbers, **ranks, "n": 20, "n_theirs": 30, "n_ours": 26}


def _project(root: Path, saes: list[dict[str, Any]]) -> None:
    (root / "report").mkdir(exist_ok=True)
    (root / "report" / "index.html").write_text("<!doctype html><title>made up</title>", encoding="utf-8")
    (root / "params.yaml").write_text("seed: 7\n", encoding="utf-8")
    (root / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    names = [row["sae"] for row in saes]
    stages = {f"{stage}@{name}": _lock_entry(f"{stage} {name}") for name in names for stage in ("sae", "latents", "examples", "explain")}
    stages |= {f"score@{name}-{scorer}": _lock_entry(f"score {name} {scorer}") for name in names for scorer in SCORERS}
    stages |= {"compare": _lock_entry("compare"), "track": _lock_entry("track")}
    (root / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}, indent=1), encoding="utf-8")


def _lock_entry(command: str) -> dict[str, Any]:
    md5 = digest_of(command)[:32]
    return {"cmd": command, "deps": [], "outs": [{"path": f"data/{command.replace(' ', '/')}", "hash": "md5", "md5": f"{md5}.dir"}]}
