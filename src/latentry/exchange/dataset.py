"""A study's labels as a dataset that Hugging Face's `datasets` loads from the folder, without a network: tables in Parquet, and a card.

Every row names the folder that it came from by its manifest's digest, which the table `provenance` leads on from. Memory holds one
cell at a time. What the card says is `card.py`'s.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from latentry.atomic import write_atomic
from latentry.contracts import COMPARISON as COMPARISON_CONTRACT
from latentry.contracts import EXAMPLES, SCORES
from latentry.errors import ParamsError
from latentry.exchange import labels
from latentry.exchange.card import card
from latentry.exchange.complete import COMPARISON, folders_of, require_complete, require_current
from latentry.exchange.export_place import MARK, new_folder, require_free
from latentry.exchange.plain_json import write_json
from latentry.exchange.provenance import Chain, answered_by, asked_by, chain_of, provenance, sae_digest, served
from latentry.metric_kinds import chance_of
from latentry.params import Params
from latentry.store import digest_of, read_table

TABLES: Mapping[str, str] = {
    "explanations": "one row per latent asked for and explainer: the text, or why there is none",
    "scores": "one row per latent, explainer, scorer and metric, beside chance, shuffled null and 95 % interval",
    "judgments": "one row per held-out example judged, also under another latent's explanation (`null`)",
    "summary": "one row per SAE, explainer, scorer and metric: the mean over latents with its interval, chance, null and lift",
    "saes": "one row per SAE: size, loss, hookpoint, and how well it rebuilds",
    "provenance": "one row per cell: what its labels or scores were made from",
    "examples": "the windows of text with their tokens and activations, both splits and the contrasts",
}
"""What each configuration of the dataset holds."""
EXAMPLES_TABLE = "examples"
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: rows by table."""

    n_rows: Mapping[str, int]


def export_dataset(here: Path, params: Params, out: Path, *, licence: str | None, with_examples: bool, force: bool = False) -> Written:
    """Write the dataset, whole or not at all.

    Raises:
        ContractError: the results are not complete, or not of these params.
        ExchangeError: `out` is taken.
        ParamsError: the licence is no name of one.
    """
    require_free(out, force=force)
    _require_licence(licence)
    saes = list(params.saes)
    folders = [*folders_of(params, saes), COMPARISON]
    require_complete(here, folders)
    require_current(here, params, folders)
    chain = chain_of(here, folders)
    told = provenance(here, params, chain, saes)
    n_rows: dict[str, int] = {}
    with new_folder(out, force=force) as making:
        for table, name, rows in _tables(here / "data", params, chain, told, with_examples=with_examples):
            write_atomic(
                making / "data" / table / f"{name}.parquet", lambda path, rows=rows: pq.write_table(rows, path, compression="zstd")
            )
            n_rows[table] = n_rows.get(table, 0) + len(rows)
        text = card(here / "data", params, told, {table: (TABLES[table], n) for table, n in n_rows.items()}, licence)
        write_atomic(making / "README.md", lambda path: path.write_text(text, encoding="utf-8"))
        write_json(making / MARK, {"export": "parquet", "n_rows": n_rows, **told})
    return Written(n_rows=n_rows)


def _require_licence(licence: str | None) -> None:
    if licence is not None and not _LICENCE.fullmatch(licence):
        raise ParamsError(
            "--licence", [f"{licence!r} is no name as Hugging Face has them: lower case, such as cc-by-4.0, apache-2.0 or other"]
        )


def _tables(
    data: Path, params: Params, chain: Chain, told: Mapping[str, Any], *, with_examples: bool
) -> Iterator[tuple[str, str, pa.Table]]:
    """Every file: its table, its name below it and its rows."""
    for sae in params.saes:
        yield "explanations", sae, _explanations(data, params, chain, sae)
        for scorer in params.scorers:
            cell = f"data/scores/{sae}/{scorer}"
            asked = params.scorers[scorer]
            judge = {"judge": _joined(asked_by(params, asked).values()), "judge_served": _joined(answered_by(chain, cell, asked))}
            yield "scores", f"{sae}/{scorer}", labels.with_constants(labels.scores(data, sae, scorer), judge | _origin(chain, sae, cell))
            yield "judgments", f"{sae}/{scorer}", labels.with_constants(_judgments(data, sae, scorer), _origin(chain, sae, cell))
        if with_examples:
            yield EXAMPLES_TABLE, sae, labels.with_constants(_examples(data, sae), _origin(chain, sae, f"data/examples/{sae}"))
    yield "summary", "cells", _summary(data)
    yield "saes", "saes", _saes(data, chain)
    yield "provenance", "provenance", _provenance(params, chain, told)


def _explanations(data: Path, params: Params, chain: Chain, sae: str) -> pa.Table:
    table, folder = labels.explanations(data, sae), f"data/explanations/{sae}"
    models = {name: _joined(asked_by(params, entry).values()) for name, entry in params.explainers.items()}
    answered = {name: _joined(answered_by(chain, folder, entry)) for name, entry in params.explainers.items()}
    for column, found in (("explainer_model", models), ("explainer_model_served", answered)):
        values = [found.get(name) for name in table["explainer"].to_pylist()]
        table = table.append_column(column, pa.array(values, pa.string()))
    return labels.with_constants(table, _origin(chain, sae, folder))


def _origin(chain: Chain, sae: str, folder: str) -> dict[str, str | None]:
    return {"sae_digest": sae_digest(chain, sae), "manifest": chain.digests[folder]}


def _judgments(data: Path, sae: str, scorer: str) -> pa.Table:
    table = read_table(data / "scores" / sae / scorer, SCORES, "judgments.parquet")
    return _behind({"sae": sae, "scorer": scorer}, table)


def _examples(data: Path, sae: str) -> pa.Table:
    return _behind({"sae": sae}, read_table(data / "examples" / sae, EXAMPLES, "examples.parquet"))


def _behind(names: Mapping[str, str], table: pa.Table) -> pa.Table:
    """The table with columns of one value in front."""
    columns = [pa.repeat(pa.scalar(value), len(table)) for value in names.values()]
    return pa.table([*columns, *table.columns], names=[*names, *table.column_names])


def _summary(data: Path) -> pa.Table:
    table = read_table(data / "comparison", COMPARISON_CONTRACT, "cells.parquet")
    return table.append_column("chance", pa.array([chance_of(metric) for metric in table["metric"].to_pylist()], pa.float64()))


def _saes(data: Path, chain: Chain) -> pa.Table:
    table = read_table(data / "comparison", COMPARISON_CONTRACT, "saes.parquet")
    return table.append_column("sae_digest", pa.array([sae_digest(chain, name) for name in table["sae"].to_pylist()], pa.string()))


def _provenance(params: Params, chain: Chain, told: Mapping[str, Any]) -> pa.Table:
    """A row per folder of labels, scores or examples, all columns text; settings and models as JSON."""
    rows = []
    for sae in params.saes:
        rows.append(_cell_row(chain, told, sae, f"data/examples/{sae}", params.examples.model_dump(mode="json", serialize_as_any=True)))
        rows.append(_cell_row(chain, told, sae, f"data/explanations/{sae}", told["explainers"]))
        rows += [_cell_row(chain, told, sae, f"data/scores/{sae}/{name}", told["scorers"][name]) for name in params.scorers]
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in rows[0]]))


def _cell_row(chain: Chain, told: Mapping[str, Any], sae: str, folder: str, settings: Mapping[str, Any]) -> dict[str, str | None]:
    subject, tokens, manifest = told["subject"], told["tokens"], chain.manifests[folder]
    return {
        "manifest": chain.digests[folder],
        "cell": manifest.cell,
        "key": manifest.key,
        "sae": sae,
        "sae_digest": sae_digest(chain, sae),
        "subject": subject["name"],
        "subject_sources": _json(subject["sources"]),
        "subject_digest": subject["files_digest"] or subject["sha256"],
        "tokenizer_digest": tokens["tokenizer_digest"],
        "corpus": _json(tokens["corpus"]),
        "corpus_digest": tokens["corpus_digest"],
        "settings": _json(settings),
        "settings_digest": digest_of(settings),
        "clients": _json(told["clients"]),
        "models": _json(told["models"]),
        "models_served": _json(served(chain, folder)),
        "params_digest": told["params_digest"],
        "commit": told["commit"],
        "dirty": told["dirty"],
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _joined(names: Iterable[str]) -> str | None:
    return ", ".join(dict.fromkeys(names)) or None
