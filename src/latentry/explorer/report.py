"""The report: one HTML file that reads alone, without a network, made of the comparison's tables and a few latents.

What the page says of a latent is `samples.py`'s. Always true: text from corpora and models is escaped (jinja2 does it for
every value), isolated against changes of writing direction, and never a score where a status stands; the page's policy lets
a browser run no script but ours, which draws the charts anew to be hovered over, and load nothing.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import pyarrow as pa

from latentry import plots
from latentry.atomic import write_atomic
from latentry.explorer import samples
from latentry.explorer.jacobians import jacobian_context
from latentry.metric_kinds import METRIC_KINDS, chance_of, context_of, kind_of
from latentry.safe_text import visible
from latentry.store import manifest_digest

_PER_SAE = 6
"""Latents shown of each SAE: the head of the seeded sample, so the ones that the dearest judge scored too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that was run, for the list at the page's head."""

    name: str
    value: str


def write_report(*, data: Path, tables: Mapping[str, pa.Table], settings: Mapping[str, str], out: Path, per_sae: int = _PER_SAE) -> None:
    """Write the report of one comparison, whole or not at all.

    `tables` are those of `contracts.COMPARISON` by file name; `settings` is shown as it is (subject, corpus, judge, seed).

    Raises:
        ContractError: the examples or statistics of a SAE in the tables are not there.
    """
    html = report_html(data=data, tables=tables, settings=settings, per_sae=per_sae)
    write_atomic(out, lambda path: path.write_text(html, encoding="utf-8"))


def report_html(*, data: Path, tables: Mapping[str, pa.Table], settings: Mapping[str, str], per_sae: int = _PER_SAE) -> str:
    """The page itself; see `write_report`."""
    saes, cells, latents = (tables[name] for name in ("saes.parquet", "cells.parquet", "latents.parquet"))
    names = saes["sae"].to_pylist()
    rows, figures, scripts = cells.to_pylist(), plots.figures_of(tables), _scripts()
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            samples=[samples.sae_sample(data, sae, latents, rows, per_sae) for sae in names],
            digests=_digests(data, names),
            settings=settings,
            saes=[{**row, "explainers": _explainers(row["sae"], rows)} for row in saes.to_pylist()],
            scorers=_scorers(rows),
            pairs=tables["pairs.parquet"].to_pylist(),
            explainer_pairs=tables["explainer_pairs.parquet"].to_pylist(),
            overlaps=tables["overlaps.parquet"].to_pylist(),
            shared_pairs=[row for row in tables["shared_pairs.parquet"].to_pylist() if row["n"]],
            judges=tables["judges.parquet"].to_pylist(),
            imported=tables["imported.parquet"].to_pylist(),
            **jacobian_context(data, tables, per_sae),
            charts=[{"name": figure.name, "title": figure.title, "note": figure.note, "svg": _markup(figure.chart)} for figure in figures],
            specs=markupsafe.Markup(plots.to_json({figure.name: figure.chart for figure in figures})),
            scripts=[markupsafe.Markup(script) for script in scripts],
            policy=_policy(scripts),
        )
    )


def settings_of(params: Any) -> dict[str, str]:
    """What was run, in words, from the parameters."""
    clients = {name: getattr(client, "model", client.kind) for name, client in params.clients.items()}
    entries = (*params.explainers.values(), *params.scorers.values())
    asked = {getattr(entry, role, None) for entry in entries for role in ("client", "judge")}
    models = ", ".join(f"{model} ({name})" for name, model in clients.items() if name in asked)
    hookpoints = ", ".join(f"{name} ({_place(point)})" for name, point in params.subject.hookpoints.items())
    return {
        "Subject": params.subject.model,
        "Hookpoints": hookpoints,
        "Corpus": f"{getattr(params.corpus, 'path', params.corpus.kind)}, {params.tokens.n_tokens:,} tokens in contexts of {params.tokens.context}",
        "Explainers": ", ".join(params.explainers),
        "Scorers": ", ".join(params.scorers),
        "Models asked": models or "none",
        "Latents asked for": f"{params.examples.n_latents or 'all'} of each SAE",
        "Seed": str(params.seed),
    }


def _place(point: Any) -> str:
    redrawn = f", subject redrawn by seed {point.random.seed}" if point.random else ""
    return f"{point.side} of {point.module}{redrawn}"


def _explainers(sae: str, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one SAE in the table: each explainer with its headline cell per scorer."""
    mine = [cell for cell in cells if cell["sae"] == sae and cell["headline"]]
    names = dict.fromkeys(cell["explainer"] for cell in mine)
    return [{"name": name, "cells": {cell["scorer"]: cell for cell in mine if cell["explainer"] == name}} for name in names]


def _scorers(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    heads = {cell["scorer"]: cell for cell in cells if cell["headline"]}
    return [
        {
            "name": name,
            "metric": METRIC_KINDS[kind_of(cell["metric"])].title,
            "unit": METRIC_KINDS[kind_of(cell["metric"])].unit,
            "context": context_of(cell["metric"]),
            "chance": chance_of(cell["metric"]),
        }
        for name, cell in heads.items()
    ]


def _scripts() -> list[str]:
    """The page's only scripts, whose digests its policy names: no other can run."""
    ours = resources.files("latentry.explorer").joinpath("templates", "report.js").read_text(encoding="utf-8")
    return [plots.page_script(), ours]


def _policy(scripts: Sequence[str]) -> str:
    """What a browser lets the page do: run these scripts, and load nothing."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _markup(chart: Any) -> markupsafe.Markup:
    """Drawn by our own code from numbers and names, which the drawing escapes."""
    return markupsafe.Markup(plots.to_svg(chart))


def _digests(data: Path, names: list[str]) -> list[Setting]:
    folders = [data / "tokens", *(data / kind / name for name in names for kind in ("saes", "examples", "explanations"))]
    found = [folder for folder in folders if folder.is_dir()]
    return [Setting(name=folder.relative_to(data).as_posix(), value=manifest_digest(folder)[:12]) for folder in found]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("latentry.explorer"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "percent": _percent, "signed": _signed, "failures": _failures}
    environment.tests["below"] = lambda value, limit: value is not None and value < limit
    return environment


def _visible(value: Any) -> Any:
    """Every text that the templates write, but what is drawn."""
    return visible(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value


def _failures(counts: str | None) -> list[str]:
    """The failures among a cell's counts by status, in words."""
    return [f"{n} {status.replace('_', ' ')}" for status, n in json.loads(counts or "{}").items() if status != "ok"]


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None or value != value else f"{value:.{digits}f}"


def _signed(value: float | None, digits: int = 3) -> str:
    return "–" if value is None or value != value else f"{value:+.{digits}f}".replace("-", "−")


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None or value != value else f"{100 * value:.{digits}f} %"
