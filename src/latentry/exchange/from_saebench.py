"""SAEBench's autointerp results: one JSON file of a SAE, with the explanation, the answers and the score of each latent.

Their number is the share of right answers among windows of which a third fire at most, so one who never says yes does well; ours is
made anew from the answers, where the numbers in the file agree on how many windows there were.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from latentry.errors import ExchangeError
from latentry.exchange.answers import counts_of, recomputed
from latentry.exchange.imported import number_of
from latentry.exchange.reading import NotJson, name_of, whole_json
from latentry.exchange.source import Counts, Entry, Score, Source, plain, require_file, said

_SCORER = "autointerp"
_ABOUT = {
    "sae_lens_id": "sae_lens_id",
    "sae_lens_release_id": "sae_lens_release",
    "datetime_epoch_millis": "date_ms",
    "eval_id": "evaluation",
}
_SHOWN = ("n_top_ex_for_scoring", "n_random_ex_for_scoring", "n_iw_sampled_ex_for_scoring")
"""What in the file's settings adds up to the windows judged of a latent."""


def source(path: Path) -> Source:
    """The explanations and scores of one results file.

    Raises:
        ExchangeError: it is no file, no JSON, or has averages only.
    """
    require_file(path, "saebench", "the results of its autointerp evaluation, NAME_eval_results.json")
    name = name_of(path, path)
    found = whole_json(path, name)
    if isinstance(found, NotJson) or not isinstance(found, Mapping):
        raise ExchangeError(
            f"{name}: is no JSON object ({found.why if isinstance(found, NotJson) else type(found).__name__}); name a file of results"
        )
    latents = found.get("eval_result_unstructured")
    if not isinstance(latents, Mapping):
        raise ExchangeError(
            f"{name}: has no `eval_result_unstructured`, so no texts of single latents; name results of the evaluation autointerp"
        )
    settings = found.get("eval_config")
    config = settings if isinstance(settings, Mapping) else {}
    rows = (_entry(f"{name}:{plain(key)}", key, row, _n_shown(config)) for key, row in latents.items())
    return Source(root=path, files=(path,), rows=rows, provenance=said(found, _ABOUT) | said(config, {"model_name": "model"}))


def _n_shown(config: Mapping[str, Any]) -> int | None:
    """Windows judged of a latent; None where the settings do not say."""
    numbers = [config.get(name) for name in _SHOWN]
    return sum(numbers) if all(isinstance(number, int) and 0 <= number < 10_000 for number in numbers) else None  # type: ignore[arg-type]


def _entry(place: str, key: str, row: Any, n: int | None) -> Entry:
    if not isinstance(row, Mapping):
        return Entry(place=place, latent=key, text=None)
    scores = tuple(_scores(row, n)) if "score" in row else ()
    return Entry(
        place=place, latent=row.get("latent", key), text=row.get("explanation"), scores=scores, about={"method": "saebench autointerp"}
    )


def _scores(row: Mapping[str, Any], n: int | None) -> Iterator[Score]:
    samples = _samples(row, n)
    told = "share of windows judged rightly, activating or not, as SAEBench wrote it"
    counts = counts_of(samples, len(samples)) if samples else Counts(n=n)
    yield Score(scorer=_SCORER, metric="accuracy", score=row["score"], definition=told, counts=counts)
    yield from recomputed(samples, _SCORER)


def _samples(row: Mapping[str, Any], n: int | None) -> list[dict[str, bool]]:
    """Truth and answer of each window; none where they do not give the score that is written, so that n must be another."""
    said_to_be, fires, score = row.get("predictions"), row.get("correct seqs"), number_of(row.get("score"))
    if n is None or score is None or not (isinstance(said_to_be, list) and isinstance(fires, list)):
        return []
    chosen, true = ({place for place in places if isinstance(place, int)} for places in (said_to_be, fires))
    samples = [{"activating": place in true, "prediction": place in chosen} for place in range(1, n + 1)]
    right = sum(sample["activating"] == sample["prediction"] for sample in samples)
    return samples if n and abs(right / n - score) < 1e-6 else []
