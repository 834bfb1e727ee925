"""The dataset's card: `README.md` with the metadata that Hugging Face reads, and in words what the labels are and how each is traced.

Everything in it comes from the results; what a reader must be told beside the numbers (chance, null, interval, n) stands with them.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import yaml

from latentry.contracts import COMPARISON
from latentry.exchange import labels
from latentry.exchange.provenance import asked_by, made_at
from latentry.metric_kinds import chance_of
from latentry.params import Params
from latentry.records import Status
from latentry.store import read_table

DEFAULT_TABLE = "explanations"
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))


def card(data: Path, params: Params, told: Mapping[str, Any], tables: Mapping[str, tuple[str, int]], licence: str | None) -> str:
    """The whole text; `tables` are what each configuration holds and its number of rows, `told` is `provenance`'s."""
    title = f"Labels of the latents of {len(params.saes)} sparse autoencoder{'s' if len(params.saes) > 1 else ''} of {params.subject.model}"
    parts = [
        f"---\n{_metadata(title, tables, licence)}---",
        f"# {_text(title)}",
        "What latents of sparse autoencoders (SAEs) stand for, in words, and how well those words fit: made and scored by latentry.",
        _loading(tables),
        _table(("table", "rows", "holds"), [(name, f"{n:,}", said) for name, (said, n) in tables.items()]),
        "## What was interpreted",
        _interpreted(params, told, licence),
        _sae_table(data, told),
        "## Explainers",
        _explainer_table(data, params),
        "## Scores",
        _SCORES,
        _score_table(data),
        "## How each label is traced",
        _TRACED,
    ]
    return "\n\n".join(parts) + "\n"


_SCORES = (
    "The mean over n latents of each scorer's headline metric, with its 95 % interval, and how many were asked for; *chance* is what an answer that does not look at"
    " the explanation gives, *null* the same examples scored under another latent's explanation, *lift* the mean difference to the null,"
    " over the latents that have both. A metric's name holds its contrasts: numbers of different names are not comparable. Intervals cover the"
    " latents drawn and the judge's noise, not the corpus or the seed. Latents without a score are in no mean and have a `status` in the tables."
)
_TRACED = (
    "Each row of `explanations`, `scores`, `judgments` and `examples` names the folder it came from in `manifest`. The row of `provenance` with"
    " that digest names the SAE's weights, the subject, tokenizer and corpus by digest, the settings, the models asked and those that answered"
    " (`models_served`: of an endpoint the name it gave, in process the digest of the model's files), the parameters and the commit."
    " `prompt_digest` is of the whole prompt that an explanation answers, `reply_key` names the reply. `provenance.json` holds the same as one"
    " tree, with every folder of the study and the digests that link them; what is null there was not in the project that exported this."
)


def _metadata(title: str, tables: Mapping[str, tuple[str, int]], licence: str | None) -> str:
    n = tables[DEFAULT_TABLE][1]
    configs = [
        {
            "config_name": name,
            "data_files": [{"split": "train", "path": f"data/{name}/**/*.parquet"}],
            **({"default": True} if name == DEFAULT_TABLE else {}),
        }
        for name in tables
    ]
    metadata = {
        **({"license": licence} if licence else {}),
        "pretty_name": title,
        "annotations_creators": ["machine-generated"],
        "tags": ["interpretability", "sparse-autoencoder", "latentry"],
        "size_categories": [next((name for limit, name in _SIZES if n < limit), "n>10M")],
        "configs": configs,
    }
    return yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)


def _loading(tables: Mapping[str, tuple[str, int]]) -> str:
    names = ", ".join(f"`{name}`" for name in tables)
    code = 'from datasets import load_dataset\n\nlabels = load_dataset("THIS_FOLDER", "explanations", split="train")'
    return f"```python\n{code}\n```\n\nThe tables are configurations: {names}."


def _interpreted(params: Params, told: Mapping[str, Any], licence: str | None) -> str:
    subject, tokens = told["subject"], told["tokens"]
    counts = tokens["counts"] or {}
    n_tokens = f"{counts['n_tokens']:,} tokens" if "n_tokens" in counts else f"{params.tokens.n_tokens:,} tokens asked for"
    lines = [
        f"- Subject, run in {subject['dtype']}: {_model(subject)}",
        f"- Corpus: {_text(tokens['corpus'].get('path', tokens['corpus']['kind']))}, {n_tokens} in contexts of {params.tokens.context};"
        f" {_digest('text', tokens['corpus_digest'])}; {_digest('tokenizer', tokens['tokenizer_digest'])}",
        *(f"- Model asked: {_model(told['models'][name])}" for name in _models_asked(params)),
        f"- Latents: {params.examples.n_latents or 'all'} eligible ones of each SAE, a seeded sample (seed {params.seed})",
        f"- Made at {made_at(told)}",
        f"- Licence: {licence}" if licence else "- Licence: not stated by whoever exported this; texts and models have their own",
    ]
    return "\n".join(lines)


def _models_asked(params: Params) -> list[str]:
    """The models under `models` that explainers and scorers ask."""
    asked = [name for entry in (*params.explainers.values(), *params.scorers.values()) for name in asked_by(params, entry).values()]
    return [name for name in dict.fromkeys(asked) if name in params.models]


def _model(model: Mapping[str, Any]) -> str:
    digest = model["files_digest"] or model["sha256"]
    return f"{_text(model['name'])}; {_digest('files', digest)}; from {_sources(model['sources'])}"


def _sae_table(data: Path, told: Mapping[str, Any]) -> str:
    columns = ("sae", "loss", "width", "hookpoint", "l0", "fvu", "ce_recovered", "dead_fraction")
    rows = read_table(data / "comparison", COMPARISON, "saes.parquet").to_pylist()
    shown = [[*(_number(row[name]) for name in columns), f"`{(told['saes'][row['sae']]['digest'] or 'unknown')[:16]}`"] for row in rows]
    return _table(("SAE", "loss", "width", "hookpoint", "L0", "FVU", "CE recovered", "dead", "weights, sha256"), shown)


def _explainer_table(data: Path, params: Params) -> str:
    statuses = {sae: labels.explanations(data, sae).select(["explainer", "status"]).to_pylist() for sae in params.saes}
    rows = []
    for name, entry in params.explainers.items():
        asked = ", ".join(asked_by(params, entry).values()) or "no model"
        for sae, explained in statuses.items():
            mine = [row["status"] for row in explained if row["explainer"] == name]
            rows.append((name, entry.kind, asked, sae, f"{mine.count(Status.OK.value):,} of {len(mine):,}"))
    return _table(("explainer", "kind", "asks", "SAE", "explained"), rows)


def _score_table(data: Path) -> str:
    cells = read_table(data / "comparison", COMPARISON, "cells.parquet").filter(pc.field("headline")).to_pylist()
    rows = [
        (
            *(cell[name] for name in ("sae", "explainer", "scorer", "metric")),
            _interval(cell["mean"], cell["low"], cell["high"]),
            f"{cell['n']} of {cell['n_asked']}",
            _number(chance_of(cell["metric"])),
            "none" if cell["null"] is None else _number(cell["null"]),
            _interval(cell["lift"], cell["lift_low"], cell["lift_high"]),
            cell["n_lift"],
        )
        for cell in cells
    ]
    return _table(("SAE", "explainer", "scorer", "metric", "mean (95 %)", "n", "chance", "null", "lift (95 %)", "n of the lift"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_text(value) for value in line)} |" for line in lines)


def _sources(sources: Sequence[Mapping[str, Any]]) -> str:
    def said(source: Mapping[str, Any]) -> str:
        named = source.get("id") or source.get("path") or ", ".join(source.get("requirements", ())) or ""
        return f"{source['kind']} {named}".strip() + (f" at {source['revision']}" if source.get("revision") else "")

    return _text(", or ".join(said(source) for source in sources))


def _digest(what: str, digest: str | None) -> str:
    return f"{what} `{digest[:16]}`" if digest else f"digest of {what} unknown here"


def _interval(value: Any, low: Any, high: Any) -> str:
    if value is None:
        return "no latent has one"
    return f"{_number(value)} ({_number(low)} to {_number(high)})"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return "unknown" if value != value else f"{value:.3g}"
    return "unknown" if value is None else str(value)


def _text(value: Any) -> str:
    """Words of a study within a line of Markdown: nothing in them makes a column, a line, a link or a tag."""
    escaped = html.escape(str(value), quote=False).replace("|", "&#124;").replace("[", "&#91;")
    return " ".join(escaped.split())
