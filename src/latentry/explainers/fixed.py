"""Fixed: explanations from a file: from people, from another run, from Neuronpedia; to be scored beside the others.

Reads Parquet, CSV, JSON (a list) and JSONL. Each row names a latent (`latent`, `feature` or `index`) and its text (`text`,
`explanation` or `description`); those of one `layer` and `modelId` at a time are taken. Whose texts they are says a row's own
`sae`, else the setting `sae`, else they are taken for every SAE. Always true: what is read has the digest stated, and a text is
taken as it is or told.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from latentry.clients.base import Ask
from latentry.errors import ParamsError
from latentry.explainers.base import LatentExamples, SaeFacts, unexplained, without_text
from latentry.pinned_files import check_pinned
from latentry.records import Explanation, Status
from latentry.registry import ExplainerConfig

LATENT = ("latent", "feature", "index")
TEXT = ("text", "explanation", "description")
_CHOICES = {"explainer": "explainer", "layer": "layer", "model": "modelId"}
"""Columns by which rows are chosen, by the field that does."""


class Config(ExplainerConfig):
    """Which file, and whose rows of it."""

    path: str
    """The file: .parquet, .csv, .json or .jsonl."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Digest of the file, so that a changed file is a changed study; the error that it is missing tells it."""
    sae: Annotated[str, Field(min_length=1)] | None = None
    """Under `saes`: whose texts these are, where rows have no `sae` of their own; latents of others have none. None: every SAE's."""
    explainer: str | None = None
    """Of a file with a column `explainer`, whose rows are taken; None: there is only one."""
    layer: str | None = None
    """Of a file with a column `layer` (Neuronpedia's), whose rows are taken; None: there is only one."""
    model: str | None = None
    """Of a file with a column `modelId` (Neuronpedia's), whose rows are taken; None: there is only one."""
    max_chars: Annotated[int, Field(ge=20)] = 300
    """Longest explanation taken, in characters."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "Fixed":  # noqa: ARG001
    """The explainer.

    Raises:
        ParamsError: the file is not there, is not the one stated, or cannot be read as explanations of this SAE.
    """
    where = f"explainers.{name}"
    rows = checked_rows(config, where)
    own = [row for row in rows if _of(row, config) in (None, sae.name)]
    if others := sorted({str(_of(row, config)) for row in rows} if rows and not own else ()):
        return Fixed(name, {}, config.sha256 or "", f"the file's texts are of SAE {', '.join(map(repr, others[:3]))}")
    return Fixed(name, texts_of(own, config, sae, where), config.sha256 or "", "the file has no explanation of this latent")


class Fixed:
    """Gives every latent the text that the file has for it."""

    def __init__(self, name: str, texts: Mapping[int, str], digest: str, otherwise: str) -> None:
        self._name, self._digest, self._otherwise = name, digest, otherwise
        self.texts = texts
        """By latent; empty where the file is of other SAEs."""

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; UNSUPPORTED where the file has none."""
        return [unexplained(latent, self._name) or self._explained(latent.latent) for latent in latents]

    def _explained(self, latent: int) -> Explanation:
        text = self.texts.get(latent)
        if text is None:
            return without_text(latent, self._name, Status.UNSUPPORTED, self._otherwise)
        return Explanation(
            latent=latent,
            explainer=self._name,
            text=text,
            status=Status.OK,
            detail="",
            prompt_digest=self._digest,
            reply=None,
            reply_key=None,
        )


def checked_rows(config: Config, where: str) -> list[Mapping[str, Any]]:
    """The rows of the file, after its digest is compared.

    Raises:
        ParamsError: the file is not there, is another one, or is of no format that is read.
    """
    path = Path(config.path)
    check_pinned(path, config.sha256, where, "a file of explanations")
    try:
        rows = _READERS[path.suffix.lower()](path)
    except KeyError:
        raise ParamsError(f"{where}.path", [f"{config.path}: is none of {', '.join(_READERS)}"]) from None
    except (ValueError, OSError) as error:
        raise ParamsError(f"{where}.path", [f"{config.path}: cannot be read ({error})"]) from None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise ParamsError(f"{where}.path", [f"{config.path}: holds no list of rows with names"])
    return rows


def _parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


def _csv(path: Path) -> Any:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


_READERS: Mapping[str, Callable[[Path], Any]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()],
}


def texts_of(rows: Iterable[Mapping[str, Any]], config: Config, sae: SaeFacts, where: str) -> dict[int, str]:
    """The text of each latent, from rows of this SAE; rows without a text, or with a status that is not ok, give none.

    Raises:
        ParamsError: latents that are none of the SAE's, two texts of one latent, rows of several layers or models, what is
            no text or too long a one, or rows without the columns needed.
    """
    taken = [row for row in rows if _is_taken(row, config)]
    texts: dict[int, str] = {}
    faults = list(_mixed(taken))
    for row in taken:
        latent, text = latent_of(_first(row, LATENT)), _first(row, TEXT)
        if latent is None:
            faults.append(f"{_first(row, LATENT)!r} is no latent ({', '.join(LATENT)})")
        elif sae.width is not None and latent >= sae.width:
            faults.append(f"{latent} is no latent of SAE {sae.name!r}, which has 0 to {sae.width - 1}")
        elif _has_none(row, text):
            continue
        elif fault := _fault_of(text, config.max_chars):
            faults.append(f"latent {latent}: {fault}")
        elif texts.setdefault(latent, _plain(text)) != _plain(text):
            faults.append(f"latent {latent} has two texts; name one `explainer`, or leave one")
    if faults:
        more = [f"and {len(faults) - 5} more like these"] if len(faults) > 5 else []
        raise ParamsError(f"{where}.path", [f"{config.path}: {fault}" for fault in faults[:5]] + more)
    if not texts:
        raise ParamsError(f"{where}.path", [f"{config.path}: has no explanation of SAE {sae.name!r}; a text is one of {', '.join(TEXT)}"])
    return texts


def _of(row: Mapping[str, Any], config: Config) -> Any:
    """The SAE that a row is of; None where neither it nor the setting says."""
    own = row.get("sae")
    return config.sae if own in (None, "") else own


def _is_taken(row: Mapping[str, Any], config: Config) -> bool:
    wanted = {column: getattr(config, name) for name, column in _CHOICES.items()}
    return all(value is None or str(row.get(column)) == value for column, value in wanted.items())


def _mixed(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Rows of several layers or models are of several SAEs, whose latents only share their numbers."""
    for name in ("layer", "model"):
        column = _CHOICES[name]
        found = sorted({str(row[column]) for row in rows if row.get(column) not in (None, "")})
        if len(found) > 1:
            yield f"rows of {len(found)} values of `{column}`: {', '.join(map(repr, found[:3]))}; set `{name}` to one, or give the rows a column `sae`"


def latent_of(found: Any) -> int | None:
    """The number of a latent, also as a text or, from a column that had gaps, as a float; None where it is none."""
    if isinstance(found, bool):
        return None
    match = re.fullmatch(r"\s*(\d{1,18})(\.0*)?\s*", str(found))
    return int(match[1]) if match else None


def _has_none(row: Mapping[str, Any], text: Any) -> bool:
    """Whether a row says that it has no text: a gap, or a failure of another run of ours."""
    failed = row.get("status") in {status.value for status in Status if status is not Status.OK}
    gap = text is None or (isinstance(text, float) and math.isnan(text)) or (isinstance(text, str) and not text.strip())
    return failed or gap


def _fault_of(text: Any, max_chars: int) -> str:
    """Why what stands for a text is none that is taken; empty where it is."""
    if not isinstance(text, str):
        return f"{text!r} is no text; put it in quotes"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "its text holds half of a character (a lone surrogate); write it anew"
    if len(_plain(text)) > max_chars:
        return f"its text has {len(_plain(text))} characters; at most `max_chars`, {max_chars}: shorten it, or raise that"
    return ""


def _plain(text: str) -> str:
    return " ".join(text.split())


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)
