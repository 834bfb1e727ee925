"""Fixed: explanations from a file: from people, from another run, from Neuronpedia; to be scored beside the others.

Reads Parquet, CSV, JSON (a list) and JSONL. Each row names a latent (`latent`, `feature` or `index`) and its text (`text`,
`explanation` or `description`); rows with a `sae` are for that SAE alone. Always true: what is read has the digest stated.
"""

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from latentry.clients.base import Ask
from latentry.errors import ParamsError
from latentry.explainers.base import LatentExamples, SaeFacts, unexplained, without_text
from latentry.records import Explanation, Status
from latentry.registry import ExplainerConfig

LATENT = ("latent", "feature", "index")
TEXT = ("text", "explanation", "description")


class Config(ExplainerConfig):
    """Which file, and whose rows of it."""

    path: str
    """The file: .parquet, .csv, .json or .jsonl."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Digest of the file, so that a changed file is a changed study; the error that it is missing tells it."""
    explainer: str | None = None
    """Of a file with a column `explainer`, whose rows are taken; None: there is only one."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "Fixed":  # noqa: ARG001
    """The explainer.

    Raises:
        ParamsError: the file is not there, is not the one stated, or cannot be read as explanations of this SAE.
    """
    where = f"explainers.{name}"
    return Fixed(name, texts_of(checked_rows(config, where), config, sae, where), config.sha256 or "")


class Fixed:
    """Gives every latent the text that the file has for it."""

    def __init__(self, name: str, texts: Mapping[int, str], digest: str) -> None:
        self._name, self._texts, self._digest = name, texts, digest

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; UNSUPPORTED where the file has none."""
        return [unexplained(latent, self._name) or self._explained(latent.latent) for latent in latents]

    def _explained(self, latent: int) -> Explanation:
        text = self._texts.get(latent)
        if text is None:
            return without_text(latent, self._name, Status.UNSUPPORTED, "the file has no explanation of this latent")
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
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ParamsError(f"{where}.path", [f"{config.path}: cannot be read ({error.strerror}); name a file of explanations"]) from None
    digest = hashlib.sha256(content).hexdigest()
    if config.sha256 != digest:
        said = "is missing" if config.sha256 is None else f"is {config.sha256}"
        raise ParamsError(f"{where}.sha256", [f"{said}; {config.path} has {digest}: write that, if this is the file"])
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
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()],
}


def texts_of(rows: Iterable[Mapping[str, Any]], config: Config, sae: SaeFacts, where: str) -> dict[int, str]:
    """The text of each latent of this SAE; rows without a text (another run's failures) give none.

    Raises:
        ParamsError: latents that are none of the SAE's, two texts of one latent, or rows without the columns needed.
    """
    texts: dict[int, str] = {}
    faults: list[str] = []
    for row in rows:
        if row.get("sae") not in (None, "", sae.name) or config.explainer not in (None, row.get("explainer")):
            continue
        latent, text = _first(row, LATENT), _first(row, TEXT)
        if latent is None or not str(latent).strip().isdecimal():
            faults.append(f"{latent!r} is no latent ({', '.join(LATENT)})")
        elif sae.width is not None and int(latent) >= sae.width:
            faults.append(f"{latent} is no latent of SAE {sae.name!r}, which has 0 to {sae.width - 1}")
        elif isinstance(text, str) and text.strip() and texts.setdefault(int(latent), _plain(text)) != _plain(text):
            faults.append(f"latent {latent} has two texts; name one `explainer`, or leave one")
    if faults:
        more = [f"and {len(faults) - 5} more like these"] if len(faults) > 5 else []
        raise ParamsError(f"{where}.path", [f"{config.path}: {fault}" for fault in faults[:5]] + more)
    if not texts:
        raise ParamsError(f"{where}.path", [f"{config.path}: has no explanation of SAE {sae.name!r}; a text is one of {', '.join(TEXT)}"])
    return texts


def _plain(text: str) -> str:
    return " ".join(text.split())


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)
