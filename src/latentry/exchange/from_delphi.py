"""Delphi's results (0.1.x): a JSON text per latent in `explanations`, and per scorer and latent the samples that were judged.

A classifier's samples give two numbers: the share that delphi marked as right, and ours, made anew from truth, answer and probability.
A simulation gives the correlation that delphi wrote. What else a folder of scores holds is told as unreadable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentry.errors import ExchangeError
from latentry.exchange.answers import counts_of, recomputed
from latentry.exchange.reading import NotJson, Unreadable, name_of, whole_json
from latentry.exchange.source import Counts, Entry, Score, Source, require_folder, said

_FILE = re.compile(r"(?P<hookpoint>.+)_latent(?P<latent>-?\d{1,400})\.txt")
_SAYS_NONE = ("Explanation could not be parsed.", "No explanation found")
"""What delphi writes for a text where its explainer gave none."""
_MAX_TEXT, _MAX_SAMPLES = 1 << 20, 64 << 20
"""Bytes in a file of a text, and in one of samples."""
_ABOUT = {"explainer_model": "explainer_model", "explainer": "method", "model": "model", "sparse_model": "sae", "fuzz_type": "fuzz_type"}
_ALL = -1
"""The group of a simulation that holds all its windows."""


def source(path: Path) -> Source:
    """The explanations and scores of a results folder.

    Raises:
        ExchangeError: it is no folder, or holds no explanations; while rows are read: a file is too large or cannot be read.
    """
    require_folder(path, "delphi", "a run's results, with explanations/ and scores/")
    explanations = _texts_in(path / "explanations")
    if not explanations:
        raise ExchangeError(f"{path}: holds no explanations/HOOKPOINT_latentN.txt; name the folder of a run's results (results/NAME)")
    scores = [file for folder in sorted((path / "scores").glob("*")) for file in _texts_in(folder)]
    config = path / "run_config.json"
    about = _about(config)
    rows = (row for file in (*explanations, *scores) for row in _rows(file, path, about))
    files = (*([config] if config.is_file() else []), *explanations, *scores)
    return Source(root=path, files=files, rows=rows, provenance=about)


def _texts_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*") if file.suffix == ".txt") if folder.is_dir() else []


def _about(config: Path) -> dict[str, str]:
    found = whole_json(config, config.name, _MAX_TEXT) if config.is_file() else {}
    return said(found, _ABOUT) if isinstance(found, Mapping) else {}


def _rows(file: Path, root: Path, about: Mapping[str, str]) -> Iterator[Entry | Unreadable]:
    place, scorer = name_of(file, root), None if file.parent.name == "explanations" and file.parent.parent == root else file.parent.name
    named = _FILE.fullmatch(file.name)
    if named is None:
        yield Unreadable(place=place, why="its name is not HOOKPOINT_latentN.txt", holds_scores=scorer is not None)
        return
    of = {"place": place, "latent": named["latent"], "labels": {"hookpoint": named["hookpoint"].replace("/", "--")}}
    found = whole_json(file, place, _MAX_TEXT if scorer is None else _MAX_SAMPLES)
    if isinstance(found, NotJson):
        yield Unreadable(place=place, why=found.why, holds_scores=scorer is not None)
    elif scorer is None:
        author = {name: about[name] for name in ("explainer_model", "method") if name in about}
        yield Entry(**of, text=None if found in _SAYS_NONE else found, about=author)
    else:
        scores = _scores(found, scorer)
        yield Entry(**of, has_text=False, scores=scores) if scores else Unreadable(place=place, why=_UNKNOWN, holds_scores=True)


_UNKNOWN = "it holds no samples with `activating`, `prediction` and `correct`, nor a simulation's correlation over all windows"


def _scores(found: Any, scorer: str) -> tuple[Score, ...]:
    if not isinstance(found, list) or not found or not all(isinstance(sample, Mapping) for sample in found):
        return ()
    if all(_is_sample(sample) for sample in found):
        return (*_theirs(found, scorer), *recomputed(found, scorer))
    return tuple(_simulated(group, scorer) for group in found if group.get("distance") == _ALL and "ev_correlation_score" in group)


def _is_sample(sample: Mapping[str, Any]) -> bool:
    probability = sample.get("probability")
    return (
        sample.get("activating") in (True, False)
        and sample.get("prediction", "") in (True, False, None)
        and sample.get("correct", "") in (True, False, None)
        and (probability is None or (isinstance(probability, int | float) and 0 <= probability <= 1))
    )


def _theirs(samples: Sequence[Mapping[str, Any]], scorer: str) -> Iterator[Score]:
    answered = [sample for sample in samples if sample["correct"] is not None]
    share = sum(sample["correct"] for sample in answered) / len(answered) if answered else None
    told = "share of the answered samples that delphi marked as correct"
    yield Score(scorer=scorer, metric="accuracy", score=share, definition=told, counts=counts_of(answered, len(samples)))


def _simulated(group: Mapping[str, Any], scorer: str) -> Score:
    windows = group.get("scored_sequence_simulations")
    told = "correlation of simulated and true activations over the tokens of all windows, as delphi wrote it"
    n = len(windows) if isinstance(windows, list) else None
    return Score(scorer=scorer, metric="pearson", score=group["ev_correlation_score"], definition=told, counts=Counts(n=n))
