"""One latent in a terminal: its statistics, explanations with their scores, examples by decile and contrasts, marks in colour.

Reads what is there and says what is not, and which of it params do not name any more or came of earlier explanations; every text is
made harmless for a terminal, character for character.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry import contracts
from latentry.contracts import Contract
from latentry.errors import ParamsError
from latentry.explorer.labels import labels_of, latent_of, width_of
from latentry.metric_kinds import METRIC_KINDS
from latentry.params import Params
from latentry.records import NO_EXPLAINER
from latentry.registry import nearest
from latentry.safe_text import harmless
from latentry.store import MANIFEST, file_digest, read_manifest, read_table

BOLD, MARK, DIM, RESET = "\x1b[1m", "\x1b[1;30;43m", "\x1b[2m", "\x1b[0m"
PER_DECILE, PER_CONTRAST = 2, 4
"""Examples shown of each."""
_FEW = 10
_MARKED, _ANSI = re.compile(f"{re.escape(MARK)}(.*?){re.escape(RESET)}"), re.compile(r"\x1b\[[0-9;]*m")
_LEFT_OVER = " (not in params.yaml any more)"
_SPLITS = {"explain": "explain ", "held_out": "held out"}


def latent_page(data: Path, sae: str, named: int | str, params: Params | None = None) -> Iterator[str]:
    """The page of one latent, line by line, with ANSI colours; it is named by its number, or, of a signed SAE, also as `22-`.

    Without params nothing is marked as left over.

    Raises:
        ParamsError: there is no such SAE or latent.
        ContractError: results of it are of another version.
    """
    _require_known(data, sae)
    latent = latent_of(data, sae, str(named))
    yield from _head(data, sae, latent)
    yield from _explanations(data, sae, latent, params)
    folder = data / "examples" / sae
    rows = _rows(folder, contracts.EXAMPLES, "examples.parquet", latent)
    if rows is None:
        yield f"\n{DIM}no examples yet: run `dvc repro examples@{sae}`{RESET}"
        return
    yield from _activating([row for row in rows if row["kind"] == "activating"])
    yield from _contrasts([row for row in rows if row["kind"] == "contrast"])


def _head(data: Path, sae: str, latent: int) -> Iterator[str]:
    statistics = _rows(data / "latents" / sae, contracts.LATENTS, "statistics.parquet", latent)
    chosen = (_rows(data / "examples" / sae, contracts.EXAMPLES, "latents.parquet", latent) or [None])[0]
    row = _figures(data, sae, latent, statistics, chosen)
    status = f"{chosen['status']} {chosen['detail']}".strip() if chosen else "not among the latents looked at"
    label = labels_of(data, sae)(latent)
    named = f"{latent} ({label})" if label != str(latent) else label
    yield f"{BOLD}latent {named} of {sae}{RESET}  {harmless(status)}"
    yield f"  fires at {row['firing_count']:,} tokens ({row['firing_frequency']:.3%})" + _strengths(row)
    if chosen:
        windows = f"{chosen['n_windows']:,} windows, {chosen['n_distinct_windows']:,} of distinct text"
        yield f"  in {windows} ({chosen['activating_window_fraction']:.2%} of all)"
        if chosen["shortfall"]:
            yield f"  missing: {harmless(chosen['shortfall'])}"
    at = [f"{_quoted(token)} {share:.0%}" for token, share in zip(row["top_tokens"], row["top_token_fractions"], strict=True)]
    for name, tokens in (
        ("fires at", at),
        ("promotes", _all_quoted(row["promoted_tokens"])),
        ("suppresses", _all_quoted(row["suppressed_tokens"])),
    ):
        if tokens:
            yield f"  {name:<10} {' '.join(tokens)}"
    if statistics is None:
        yield f"  {DIM}quantiles and the tokens it fires at are in data/latents, which is not shared: `dvc repro latents@{sae}`{RESET}"


def _figures(
    data: Path, sae: str, latent: int, statistics: Sequence[Mapping[str, Any]] | None, chosen: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """The latent's statistics; where its activations are not here, what the examples tell of it.

    Raises:
        ParamsError: there is no such latent, or nothing here tells of it.
    """
    if statistics:
        return statistics[0]
    if statistics is not None:
        n = pq.read_metadata(data / "latents" / sae / "statistics.parquet").num_rows
        raise ParamsError("LATENT", [f"{latent}: {sae} has no such latent; it has 0 to {n - 1}"])
    if chosen is None:
        raise ParamsError("LATENT", [_untold(data, sae, latent)])
    promoted = (_rows(data / "examples" / sae, contracts.EXAMPLES, "promoted.parquet", latent) or [{}])[0]
    tokens = {name: promoted.get(name) or [] for name in ("promoted_tokens", "suppressed_tokens")}
    return {**chosen, **tokens, "top_tokens": [], "top_token_fractions": []}


def _untold(data: Path, sae: str, latent: int) -> str:
    """Why a latent cannot be shown where its SAE's activations are not here, and which can be."""
    width = width_of(data, sae)
    if width is not None and latent >= width:
        return f"{latent}: {sae} has no such latent; it has 0 to {width - 1}"
    looked_at = read_table(data / "examples" / sae, contracts.EXAMPLES, "latents.parquet", ["latent"])["latent"].to_pylist()
    some = f"{', '.join(map(str, looked_at[:_FEW]))}{', ...' if len(looked_at) > _FEW else ''}"
    found = f"{latent}: data/latents/{sae} is not here, and the examples tell of the {len(looked_at):,} latents looked at only"
    return f"{found}; take one of those ({some}), or run `dvc repro latents@{sae}`"


def _strengths(row: Mapping[str, Any]) -> str:
    if not row["firing_count"]:
        return ""
    named = (("median", "median"), ("90 %", "quantile_90"), ("99 %", "quantile_99"), ("peak", "peak"))
    return "; " + ", ".join(f"{name} {row[key]:.3g}" for name, key in named if key in row)


def _explanations(data: Path, sae: str, latent: int, params: Params | None) -> Iterator[str]:
    explanations = _rows(data / "explanations" / sae, contracts.EXPLANATIONS, "explanations.parquet", latent) or []
    folders = sorted((data / "scores" / sae).glob("*/"))
    scores = [(folder, row) for folder in folders for row in _rows(folder, contracts.SCORES, "scores.parquet", latent) or ()]
    texts = {one["explainer"]: f"{one['status']}: {one['detail']}" if one["text"] is None else one["text"] for one in explanations}
    if any(row["explainer"] == NO_EXPLAINER for _, row in scores):
        texts[NO_EXPLAINER] = "(scored without an explanation)"
    explainers, scorers = (None, None) if params is None else ({*params.explainers, NO_EXPLAINER}, params.scorers)
    if texts:
        yield f"\n{BOLD}explanations{RESET}"
    for explainer, text in texts.items():
        yield f"  {explainer}{_left_over(explainer, explainers)}: {harmless(text)}"
        for folder, row in scores:
            if row["explainer"] == explainer:
                name = f"{folder.name}{_left_over(folder.name, scorers)}{' null' if row['null'] else ''}"
                yield f"    {DIM}{name}{RESET} {_score(row)}{'' if explainer == NO_EXPLAINER else _earlier(data, sae, folder)}"


def _left_over(name: str, named: Container[str] | None) -> str:
    return "" if named is None or name in named else _LEFT_OVER


def _earlier(data: Path, sae: str, folder: Path) -> str:
    """What marks scores that were made from explanations other than those that are there."""
    explained = data / "explanations" / sae
    read = read_manifest(folder, contracts.SCORES).inputs
    of = next((digest for name, digest in read.items() if name.endswith(f"explanations/{sae}")), None)
    same = of is None or not (explained / MANIFEST).exists() or of == file_digest(explained / MANIFEST)
    return "" if same else ", of earlier explanations"


def _score(row: Mapping[str, Any]) -> str:
    """The number that stands for the scorer and, where it is another, the balanced accuracy."""
    if row["status"] != "ok":
        return harmless(f"{row['status']} {row['detail']}".strip())
    given = [kind for kind in METRIC_KINDS if row[kind] is not None]
    shown = dict.fromkeys([*given[:1], *(kind for kind in given if kind == "balanced_accuracy")])
    against = f" against {row['contrast_source']}" if row["contrast_source"] else ""
    n = f"{row['n_activating']} + {row['n_contrast']}" if row["n_contrast"] else f"{row['n_activating']}"
    early = ", stopped early" if row["stopped_early"] else ""
    return f"{', '.join(_number(row, kind) for kind in shown)}{against}, n = {n}{early}"


def _number(row: Mapping[str, Any], kind: str) -> str:
    low, high = row[f"{kind}_low"], row[f"{kind}_high"]
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"{METRIC_KINDS[kind].title} {row[kind]:.2f}{interval}"


def _activating(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The strongest decile first; of each, some of either split."""
    if not rows:
        return
    yield f"\n{BOLD}examples by decile{RESET}"
    for decile in range(10, 0, -1):
        of_decile = sorted((row for row in rows if row["decile"] == decile), key=lambda row: (row["split"], row["rank"]))
        for split, name in _SPLITS.items():
            for row in [row for row in of_decile if row["split"] == split][:PER_DECILE]:
                yield f"  {DIM}{decile:>2} {name} {max(row['activations']):>7.3g}{RESET}  {_coloured(row['text'], row['marks'])}"


def _contrasts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for contrast in dict.fromkeys(row["contrast"] for row in rows):
        held_out = [row for row in rows if (row["contrast"], row["split"]) == (contrast, "held_out")]
        yield f"\n{BOLD}contrasts: {contrast}{RESET} {DIM}{len(held_out)} held out{RESET}"
        for row in sorted(held_out, key=lambda row: row["rank"])[:PER_CONTRAST]:
            supplier = "" if row["supplier"] is None else f" of latent {row['supplier']}"
            yield f"  {DIM}{row['source']}{supplier}{RESET}  {harmless(row['text'])}"


def _coloured(text: str, marks: Sequence[int]) -> str:
    shown, parts, done = harmless(text), [], 0
    for start, end in zip(marks[::2], marks[1::2], strict=True):
        parts += [shown[done:start], MARK, shown[start:end], RESET]
        done = end
    return "".join([*parts, shown[done:]])


def without_colours(line: str) -> str:
    """A line of the page for a pipe or a file, with what is marked in << >>."""
    return _ANSI.sub("", _MARKED.sub(r"<<\1>>", line))


def _quoted(token: str) -> str:
    return f"'{harmless(token)}'"


def _all_quoted(tokens: Iterable[str] | None) -> list[str]:
    return [_quoted(token) for token in tokens or ()]


def _require_known(data: Path, sae: str) -> None:
    names = sorted({path.name for kind in ("latents", "examples") for path in (data / kind).glob("*/")})
    if sae not in names:
        raise ParamsError("SAE", [f"{sae}: there is none of that name{nearest(sae, names)}"])


def _rows(folder: Path, contract: Contract, name: str, latent: int) -> list[dict[str, Any]] | None:
    """The rows of one latent; None where the folder is not there. Of a large file only the row groups with it are read.

    Raises:
        ContractError: the folder is of another version, or what it says of itself cannot be read.
    """
    if not (folder / MANIFEST).exists():
        return None
    read_manifest(folder, contract)
    with pq.ParquetFile(folder / name) as file:
        groups = [group for group in range(file.num_row_groups) if _may_hold(file, group, latent)]
        found = [_of_latent(file.read_row_group(group), latent) for group in groups if _holds(file, group, latent)]
    return pa.concat_tables(found).to_pylist() if found else []


def _may_hold(file: pq.ParquetFile, group: int, latent: int) -> bool:
    statistics = file.metadata.row_group(group).column(file.schema_arrow.get_field_index("latent")).statistics
    return statistics is None or not statistics.has_min_max or statistics.min <= latent <= statistics.max


def _holds(file: pq.ParquetFile, group: int, latent: int) -> bool:
    return bool(np.any(file.read_row_group(group, columns=["latent"])["latent"].to_numpy() == latent))


def _of_latent(table: pa.Table, latent: int) -> pa.Table:
    return table.filter(pc.field("latent") == latent)
