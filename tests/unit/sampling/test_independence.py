"""What is chosen of a latent depends on nothing but that latent: every source, both kinds of windows, strata and processes."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from latentry.records import Example, Kind, Split
from latentry.registry import variant
from latentry.rows import records_of
from latentry.sampling import choose
from latentry.sampling.choose import Corpus
from planted_corpus import Asked, Explain, HeldOut, PlantedStore, chosen_from, corpus_of, firing, random_texts, tokens_of

N_LATENTS = 24
SOURCES: dict[str, dict[str, Any]] = {
    "random": {},
    "same_document": {},
    "jaccard": {"kind": "neighbours", "n_neighbours": 3},
    "cosine": {"kind": "neighbours", "by": "cosine", "n_neighbours": 3},
    "semantic": {"model": "letters", "n_queries": 4},
    "mixed": {"shares": {"random": 0.5, "jaccard": 0.5}},
}


def letters(_: str, texts: Sequence[str]) -> np.ndarray:
    counts = np.array([[text.count(letter) for letter in "aeiouhs "] for text in texts], dtype=np.float32) + 0.01
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def decoder() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N_LATENTS, 7)).astype(np.float32)


@cache
def corpus() -> Corpus:
    token_set = tokens_of(random_texts(40, 160), context=64)
    rates = np.geomspace(0.01, 0.2, N_LATENTS)
    dense = {latent: firing(token_set, rate, seed=latent) for latent, rate in enumerate(rates) if latent != 5}
    return corpus_of(token_set, PlantedStore(dense, N_LATENTS), decoder=decoder, embedded=letters)


def asked(**changes: Any) -> Asked:
    contrasts = {
        name: variant("sampling", settings.get("kind", name)).Config(**({"kind": name} | settings)) for name, settings in SOURCES.items()
    }
    whole = Asked(
        explain=Explain(n=10, n_contrast=5), held_out=HeldOut(n_activating=10, n_contrast=6), min_examples=20, contrasts=contrasts
    )
    return whole.but(**changes)


def of_latent(table: pa.Table, latent: int) -> pa.Table:
    return table.filter(pc.field("latent") == latent).combine_chunks()


@pytest.mark.parametrize("windows", ["fixed", "centred"])
def test_alone_shuffled_in_other_blocks_or_processes_every_latent_has_the_same_rows(windows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, whole = chosen_from(0, asked(windows=windows), corpus())
    assert found.n_ok == N_LATENTS - 1
    assert chosen_from(0, asked(windows=windows), corpus(), processes=3)[1].equals(whole)
    ranked = [row["latent"] for row in found.rows if row["status"] == "ok"]
    for alone in (ranked[:1], ranked[4:7]):
        _, table = chosen_from(0, asked(windows=windows, latents=alone), corpus())
        assert [of_latent(table, latent).equals(of_latent(whole, latent)) for latent in alone] == [True] * len(alone)
    _, stratified = chosen_from(0, asked(windows=windows, strata=3, n_latents=9), corpus())
    for latent in set(stratified["latent"].to_pylist()):
        assert of_latent(stratified, latent).equals(of_latent(whole, latent))
    monkeypatch.setattr(choose, "LATENTS_PER_BLOCK", 5)
    for processes in (1, 2):
        assert chosen_from(0, asked(windows=windows), corpus(), processes)[1].equals(whole)


def test_a_walk_that_ends_within_a_block_has_the_same_rows_in_several_processes() -> None:
    one, several = (chosen_from(0, asked(n_latents=7), corpus(), processes) for processes in (1, 3))
    assert one[0] == several[0]
    assert one[1].equals(several[1])
    assert one[0].n_ok == 7
    assert one[0].n_examples == one[1].num_rows


def test_a_fault_in_another_process_is_told_here() -> None:
    kept = np.zeros_like(corpus().kept)
    faulty = corpus_of(corpus().token_set, corpus().store, kept=kept, decoder=decoder, embedded=letters)
    with pytest.raises(Exception, match="positions that were left out"):
        chosen_from(0, asked(), faulty, processes=2)


def test_every_source_stands_in_the_rows_by_name_with_the_latents_that_supplied_it() -> None:
    _, table = chosen_from(0, asked(), corpus())
    contrasts = [example for example in records_of(table, Example) if example.kind is Kind.CONTRAST and example.split is Split.HELD_OUT]
    sources = {entry: {example.source for example in contrasts if example.contrast == entry} for entry in SOURCES}
    assert sources == {
        "random": {"random"},
        "same_document": {"same_document"},
        "jaccard": {"neighbours_jaccard"},
        "cosine": {"neighbours_cosine"},
        "semantic": {"semantic_letters"},
        "mixed": {"random", "neighbours_jaccard"},
    }
    assert all((example.supplier is not None) == example.source.startswith("neighbours") for example in contrasts)
    assert all(example.supplier != example.latent for example in contrasts)


def test_an_inclusion_probability_stands_in_every_row() -> None:
    found, _ = chosen_from(0, asked(strata=3, n_latents=6), corpus())
    by_stratum: dict[int, list[float]] = {}
    for row in found.rows:
        by_stratum.setdefault(row["stratum"], []).append(row["inclusion_probability"])
    assert set(by_stratum) <= {0, 1, 2, 3}
    for probabilities in by_stratum.values():
        assert len(set(probabilities)) == 1
        assert len(probabilities) / probabilities[0] == pytest.approx(round(len(probabilities) / probabilities[0]))
