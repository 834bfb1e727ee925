"""The whole way from activations to the two tables, on latents whose windows are known."""

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from latentry.contracts import EXAMPLES
from latentry.errors import ContractError, ParamsError
from latentry.records import Example, Kind, Split
from latentry.registry import variant
from latentry.rows import records_of, table_of
from latentry.sampling.grid import grid_of, texts_at
from planted_corpus import (
    WINDOW,
    Asked,
    Explain,
    HeldOut,
    PlantedStore,
    PlantedTokens,
    chosen_from,
    corpus_of,
    firing,
    random_texts,
    tokens_of,
)

ORDINARY, SECOND, DEAD, RARE, EVERYWHERE, ONE_DOCUMENT, REPEATED = range(7)


@cache
def planted() -> tuple[PlantedTokens, PlantedStore]:
    """30 documents of their own, 10 that say one thing again and again, and 7 latents."""
    token_set = tokens_of([*random_texts(30, 200), *["the sea is wide and the ship is small " * 12] * 10], context=64)
    dense = {
        ORDINARY: firing(token_set, 0.05, seed=1),
        SECOND: firing(token_set, 0.1, seed=2),
        RARE: firing(token_set, 0.002, seed=3),
        EVERYWHERE: firing(token_set, 1.1, seed=4),
        ONE_DOCUMENT: firing(token_set, 0.9, seed=5, documents=[7]),
        REPEATED: firing(token_set, 0.2, seed=6, documents=range(30, 40)),
    }
    return token_set, PlantedStore(dense, width=7)


def chosen(seed: int = 0, asked: Asked | None = None) -> tuple[dict[int, dict[str, Any]], pa.Table]:
    token_set, store = planted()
    found, table = chosen_from(seed, asked or Asked(), corpus_of(token_set, store))
    table_of(found.rows, EXAMPLES.tables["latents.parquet"])
    return {row["latent"]: row for row in found.rows}, table


def examples_of(table: pa.Table, latent: int) -> list[Example]:
    return [example for example in records_of(table, Example) if example.latent == latent]


def test_every_latent_has_a_row_that_says_why_it_has_no_examples() -> None:
    rows, table = chosen()
    assert {latent: row["status"] for latent, row in rows.items()} == {
        ORDINARY: "ok",
        SECOND: "ok",
        DEAD: "dead",
        RARE: "undersampled",
        EVERYWHERE: "ok",
        ONE_DOCUMENT: "undersampled",
        REPEATED: "undersampled",
    }
    assert sorted(row["rank"] for row in rows.values()) == list(range(7))
    assert {latent for latent, row in rows.items() if row["rank"] < 3} == {ORDINARY, SECOND, EVERYWHERE}
    assert set(table["latent"].to_pylist()) == {ORDINARY, SECOND, EVERYWHERE}
    assert "never fires in" in rows[DEAD]["detail"]
    assert rows[RARE]["detail"] == f"{rows[RARE]['n_distinct_windows']} activating windows of distinct text, 40 wanted"
    assert rows[REPEATED]["n_distinct_windows"] < 10 < rows[REPEATED]["n_windows"]


def test_a_latent_of_one_document_is_undersampled_by_document_and_says_what_may_do() -> None:
    asked = Asked(min_examples=10, explain=Explain(n=8), held_out=HeldOut(n_activating=8))
    rows, _ = chosen(asked=asked)
    assert rows[ONE_DOCUMENT]["status"] == "undersampled"
    assert "windows in 1 documents" in rows[ONE_DOCUMENT]["detail"]
    assert "split_by: context may do" in rows[ONE_DOCUMENT]["detail"]


def test_split_by_context_leaves_a_context_between_the_splits() -> None:
    rows, table = chosen(asked=Asked(split_by="context"))
    assert rows[ORDINARY]["status"] == "ok"
    for latent in (ORDINARY, SECOND, EVERYWHERE):
        contexts = {split: {e.context for e in examples_of(table, latent) if e.split is split} for split in Split}
        assert min(abs(a - b) for a in contexts[Split.EXPLAIN] for b in contexts[Split.HELD_OUT]) >= 2


def test_window_counts_and_fraction_include_duplicates() -> None:
    token_set, store = planted()
    grid = grid_of(token_set, WINDOW)
    rows, _ = chosen()
    for latent, row in rows.items():
        fires = np.zeros(token_set.tokens.size, dtype=bool)
        fires[store.read(latent)[0].astype(int)] = True
        texts = [text for text, s in zip(texts_at(token_set, grid.starts, WINDOW), grid.starts, strict=True) if fires[s : s + WINDOW].any()]
        assert row["n_windows"] == len(texts)
        assert row["n_distinct_windows"] == len(set(texts)) or latent == DEAD
        assert row["activating_window_fraction"] == pytest.approx(len(texts) / grid.n_windows, abs=1e-12)


@pytest.mark.parametrize("how", ["deciles", "top", "random", "importance", "mix"])
@pytest.mark.parametrize("seed", [0, 1])
def test_splits_share_no_document_and_no_text_and_hold_what_was_asked(how: str, seed: int) -> None:
    rows, table = chosen(seed, Asked(explain=Explain(how=how)))
    for latent in (ORDINARY, SECOND):
        examples = examples_of(table, latent)
        explain, held_out = ([e for e in examples if e.split is split] for split in (Split.EXPLAIN, Split.HELD_OUT))
        assert not {e.document for e in explain} & {e.document for e in held_out}
        assert len({e.text for e in examples}) == len(examples)
        assert Counter((e.split, e.kind) for e in examples) == {
            (Split.EXPLAIN, Kind.ACTIVATING): 20,
            (Split.EXPLAIN, Kind.CONTRAST): 10,
            (Split.HELD_OUT, Kind.ACTIVATING): 20,
            (Split.HELD_OUT, Kind.CONTRAST): 10,
        }
        assert rows[latent]["shortfall"] == ""
        assert set(Counter(e.decile for e in held_out if e.kind is Kind.ACTIVATING).values()) == {2}


def test_ranks_count_on_and_each_prefix_is_even_over_the_deciles() -> None:
    _, table = chosen()
    for latent in (ORDINARY, SECOND, EVERYWHERE):
        for split in Split:
            activating = [e for e in examples_of(table, latent) if e.kind is Kind.ACTIVATING and e.split is split]
            assert [e.rank for e in activating] == list(range(20))
            assert sorted(e.decile for e in activating[:10]) == list(range(1, 11))


def test_explaining_from_the_top_takes_the_strongest_that_the_held_out_split_left() -> None:
    _, table = chosen(asked=Asked(explain=Explain(how="top")))
    _, evenly = chosen()
    peaks = [max(e.activations) for e in examples_of(table, SECOND) if e.kind is Kind.ACTIVATING and e.split is Split.EXPLAIN]
    others = [max(e.activations) for e in examples_of(evenly, SECOND) if e.kind is Kind.ACTIVATING and e.split is Split.EXPLAIN]
    assert peaks == sorted(peaks, reverse=True)
    assert min(peaks) > np.median(others)


def test_examples_hold_the_true_tokens_activations_and_text_of_their_place() -> None:
    token_set, store = planted()
    _, table = chosen()
    ids = table["example_id"].to_pylist()
    assert len(set(ids)) == len(ids)
    for example in records_of(table, Example):
        values = np.zeros(token_set.tokens.size, dtype=np.float32)
        position, activation = store.read(example.latent)
        values[position.astype(int)] = activation
        place = slice(example.context * 64 + example.start, example.context * 64 + example.start + WINDOW)
        assert example.activations == tuple(values[place].tolist())
        assert example.tokens == tuple(token_set.tokens.reshape(-1)[place].tolist())
        assert set(token_set.document.reshape(-1)[place].tolist()) == {example.document}
        assert example.text in token_set.texts[example.document]
        words = [example.text[a:b] for a, b in zip(example.spans[::2], example.spans[1::2], strict=True)]
        assert words == example.text.split()
        assert bool(example.marks) == (example.kind is Kind.ACTIVATING)


def test_contrasts_are_silent_and_have_no_text_of_an_activating_window() -> None:
    token_set, store = planted()
    grid = grid_of(token_set, WINDOW)
    texts = texts_at(token_set, grid.starts, WINDOW)
    _, table = chosen(asked=Asked(min_examples=20))
    for latent in (ORDINARY, SECOND):
        fires = np.zeros(token_set.tokens.size, dtype=bool)
        fires[store.read(latent)[0].astype(int)] = True
        activating = {text for text, start in zip(texts, grid.starts, strict=True) if fires[start : start + WINDOW].any()}
        contrasts = [e for e in examples_of(table, latent) if e.kind is Kind.CONTRAST]
        assert contrasts
        for example in contrasts:
            start = example.context * 64 + example.start
            assert not fires[start : start + WINDOW].any()
            assert example.text not in activating
            assert (example.source, example.contrast, example.decile) == ("random", "random", 0)


def test_contrasts_share_no_text_between_splits_where_the_silent_text_repeats() -> None:
    """All silent windows are one of five texts, in many documents."""
    token_set = tokens_of(
        [*random_texts(20, 80), *[f"{word} " * WINDOW * 4 for word in ("one", "two", "six", "ten", "zero")] * 12], context=64
    )
    store = PlantedStore({0: firing(token_set, 1.1, seed=1, documents=range(20))}, width=1)
    found, table = chosen_from(0, Asked(), corpus_of(token_set, store))
    contrasts = [e for e in records_of(table, Example) if e.kind is Kind.CONTRAST]
    assert len(contrasts) == len({e.text for e in contrasts}) == 5
    assert found.rows[0]["shortfall"] == "held_out random: 5 of 10; explain random: 0 of 10"


def test_a_mixture_that_is_short_says_which_of_its_parts_lack_windows() -> None:
    """Every document with an activating window is full of them: none of its windows is silent."""
    token_set = tokens_of(random_texts(60, 64), context=64)
    store = PlantedStore({0: firing(token_set, 1.1, seed=1, documents=range(30))}, width=1)
    shares = {"random": 0.6, "same_document": 0.4}
    kinds = {"random": {}, "same_document": {}, "mixed": {"shares": shares}}
    contrasts = {kind: variant("sampling", kind).Config(kind=kind, **settings) for kind, settings in kinds.items()}
    found, _ = chosen_from(0, Asked().but(contrasts=contrasts), corpus_of(token_set, store))
    assert "held_out mixed: 6 of 10 (same_document 0 of 4)" in found.rows[0]["shortfall"]


def test_a_latent_that_fires_everywhere_has_no_contrasts_and_says_so() -> None:
    rows, table = chosen()
    assert rows[EVERYWHERE]["shortfall"] == "held_out random: 0 of 10; explain random: 0 of 10"
    assert {e.kind for e in examples_of(table, EVERYWHERE)} == {Kind.ACTIVATING}


def test_contrasts_of_a_signed_sae_are_silent_for_both_signs() -> None:
    """Latents 0 and 2 are two signs of one, 1 and 3 of another."""
    token_set, _ = planted()
    both, negative = firing(token_set, 0.16, seed=1), np.random.default_rng(2).random(token_set.tokens.size) < 0.5
    other = firing(token_set, 0.05, seed=3)
    store = PlantedStore({0: np.where(negative, 0, both), 2: np.where(negative, both, 0), 1: other}, width=4)
    _, table = chosen_from(0, Asked(), corpus_of(token_set, store, signed=True))
    contrasts = [example for example in records_of(table, Example) if example.kind is Kind.CONTRAST]
    assert {example.latent for example in contrasts} == {0, 1, 2}
    for example in contrasts:
        start = example.context * 64 + example.start
        assert not (other if example.latent == 1 else both)[start : start + WINDOW].any()
    _, unsigned = chosen_from(0, Asked(), corpus_of(token_set, store))
    places = [e.context * 64 + e.start for e in records_of(unsigned, Example) if e.kind is Kind.CONTRAST and e.latent == 0]
    assert any(both[start : start + WINDOW].any() for start in places), "else the twin would not matter here"


def test_a_second_contrast_entry_has_its_own_examples_and_changes_no_other() -> None:
    config = variant("sampling", "random").Config(kind="random")
    _, one = chosen()
    _, two = chosen(asked=Asked(contrasts={"random": config, "again": config}))
    assert {(e.split, e.contrast) for e in examples_of(two, ORDINARY) if e.kind is Kind.CONTRAST} == {
        (Split.HELD_OUT, "random"),
        (Split.HELD_OUT, "again"),
        (Split.EXPLAIN, "random"),
    }
    held_out = {e.example_id: e for e in records_of(one, Example) if e.split is Split.HELD_OUT}
    assert held_out.items() <= {e.example_id: e for e in records_of(two, Example)}.items()


def test_running_one_latent_alone_or_in_another_order_changes_no_row() -> None:
    _, whole = chosen()
    for latents in ([ORDINARY], [EVERYWHERE, SECOND, ORDINARY, RARE]):
        _, table = chosen(asked=Asked(latents=latents))
        for latent in latents:
            assert examples_of(table, latent) == examples_of(whole, latent)
    _, other_order = chosen(asked=Asked(latents=[ORDINARY, RARE, SECOND, EVERYWHERE]))
    assert other_order.equals(table)
    assert chosen(seed=1)[1] != whole


def test_the_walk_ends_at_the_latents_wanted_and_a_longer_one_begins_with_them() -> None:
    ordered = {n: [latent for latent, row in chosen(asked=Asked(n_latents=n))[0].items() if row["status"] == "ok"] for n in (1, 2, 3, 5)}
    assert [len(latents) for latents in ordered.values()] == [1, 2, 3, 3]
    assert ordered[5][:1] == ordered[1]
    assert ordered[5][:2] == ordered[2]


def test_a_latent_outside_the_sae_is_refused_by_name() -> None:
    with pytest.raises(ParamsError, match=r"\[7\]: the SAE has latents 0 to 6"):
        chosen(asked=Asked(latents=[0, 7]))


def test_firing_where_a_position_was_left_out_is_an_error() -> None:
    token_set, store = planted()
    kept = token_set.kept.copy()
    kept.reshape(-1)[store.read(ORDINARY)[0].astype(int)[0]] = 0
    with pytest.raises(ContractError, match="fires at 1 positions that were left out"):
        chosen_from(0, Asked(latents=[ORDINARY]), corpus_of(token_set, store, kept=kept))


def test_no_latent_with_examples_gives_an_empty_table_of_the_contract() -> None:
    rows, table = chosen(asked=Asked(latents=[DEAD, RARE]))
    assert len(rows) == 2
    assert table.schema.equals(EXAMPLES.tables["examples.parquet"])
    assert table.num_rows == 0
