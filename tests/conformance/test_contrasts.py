"""Every contrast source found in the room keeps the promises of `Wanted`; and each is what its name says."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from latentry.records import Split
from latentry.registry import kinds, variant
from latentry.sampling.base import SourceInputs, Windows
from latentry.sampling.chooser import cut_of
from latentry.sampling.draws import keys_of
from latentry.sampling.grid import grid_of
from latentry.sampling.mixed import parts_of
from latentry.sampling.neighbours import Jaccard
from latentry.sampling.splits import Sides
from latentry.sampling.wanted import Wanted
from latentry.sampling.windows import Cut, Firing
from planted_corpus import WINDOW, PlantedStore, firing, random_texts, tokens_of

N_LATENTS = 12
TOKENS = tokens_of([*random_texts(20, 200), *["again and again it says the same thing " * 20] * 4], context=64)
GRID = grid_of(TOKENS, WINDOW)
DOCUMENTS = np.arange(len(TOKENS.texts))
EVEN_DOCUMENTS = Sides(key=np.uint64(0), n_held_out=1, n_explain=1, units=DOCUMENTS, held_out=DOCUMENTS % 2 == 0)
"""In tests the split is that of the even documents."""
SETTINGS: dict[str, dict[str, Any]] = {
    "semantic": {"model": "letters"},
    "mixed": {"shares": {"random": 0.5, "same_document": 0.5}},
}


def letters(model: str, texts: Sequence[str]) -> np.ndarray:
    """Stands for an embedding model: the unit vector of how often each letter occurs."""
    assert model == "letters"
    counts = np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz "] for text in texts], dtype=np.float32) + 0.01
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def inputs_of(store: PlantedStore, **changes: Any) -> SourceInputs:
    contrasts = {kind: variant("sampling", kind).Config(kind=kind, **SETTINGS.get(kind, {})) for kind in kinds("sampling")}
    whole: dict[str, Any] = {
        "seed": 0,
        "grid": GRID,
        "token_set": TOKENS,
        "store": store,
        "signed": False,
        "firing_counts": np.array([store.read(latent)[0].size for latent in range(store.width)]),
        "decoder": lambda: np.random.default_rng(0).standard_normal((store.width, 5)).astype(np.float32),
        "embedded": letters,
        "contrasts": contrasts,
        "source": lambda name: variant("sampling", name).build(contrasts[name], inputs_of(store, **changes)),
    }
    return SourceInputs(**(whole | changes))


def store_of(first: np.ndarray) -> PlantedStore:
    """The latent looked at is 0; the others fire at random."""
    others = {latent: firing(TOKENS, 0.02 * latent, seed=100 + latent) for latent in range(1, N_LATENTS)}
    return PlantedStore({0: first, **others}, width=N_LATENTS)


def cut(windows: str, inputs: SourceInputs) -> Cut:
    return cut_of(windows, TOKENS.kept, inputs)


def wanted(inputs: SourceInputs, n: int, seed: int = 0, windows: str = "fixed", latent: int = 0) -> Wanted:
    fires = Firing.of(inputs.store, latent, signed=inputs.signed)
    found = cut(windows, inputs).activating(fires)
    even = np.flatnonzero(GRID.document[found.window] % 2 == 0)
    shown = even[np.random.default_rng(seed).permutation(even.size)[:20]]
    return Wanted(
        n=n,
        grid=GRID,
        cut=cut(windows, inputs),
        firing=fires,
        n_silent=GRID.n_windows - found.n_grid,
        refused_texts=found.texts,
        split=Split.HELD_OUT,
        split_by="document",
        sides=EVEN_DOCUMENTS,
        activating=Windows(window=found.window[shown], starts=found.starts(GRID, shown), supplier=shown, part=shown),
        key=keys_of(seed, "contrast", np.array([latent]))[0],
    )


def built(kind: str, inputs: SourceInputs, **settings: Any):
    found = variant("sampling", kind)
    return found.build(found.Config(kind=kind, **(SETTINGS.get(kind, {}) | settings)), inputs)


def text_at(start: int) -> str:
    flat_start, flat_end = TOKENS.text_start.reshape(-1), TOKENS.text_end.reshape(-1)
    return TOKENS.texts[TOKENS.document.reshape(-1)[start]][flat_start[start] : flat_end[start + WINDOW - 1]]


@pytest.mark.parametrize("windows", ["fixed", "centred"])
@pytest.mark.parametrize("kind", kinds("sampling"))
@pytest.mark.parametrize("probability", [0.01, 0.1, 0.25])
def test_contrasts_are_silent_allowed_distinct_and_drawn_again_the_same(kind: str, probability: float, windows: str) -> None:
    values = firing(TOKENS, probability, seed=1)
    inputs = inputs_of(store_of(values))
    asked = wanted(inputs, n=8, windows=windows)
    drawn = built(kind, inputs).draw([asked])[0]
    assert 0 < drawn.starts.size <= 8
    activating = {text_at(start) for start in cut(windows, inputs).activating(asked.firing).starts(GRID).tolist()}
    for start in drawn.starts.tolist():
        place = slice(start, start + WINDOW)
        assert not values[place].any()
        assert set(TOKENS.document.reshape(-1)[place].tolist()) == {int(TOKENS.document.reshape(-1)[start])}
        assert TOKENS.document.reshape(-1)[start] % 2 == 0
        assert text_at(start) not in activating
    assert len({text_at(start) for start in drawn.starts.tolist()}) == drawn.starts.size
    assert np.diff(np.sort(drawn.starts)).min(initial=WINDOW) >= WINDOW
    apart = np.abs(drawn.starts[:, None] - asked.activating.starts)
    assert apart.min() >= WINDOW, "no token in common with an activating window of the split"
    again = built(kind, inputs).draw([wanted(inputs, n=8, windows=windows)])[0]
    assert drawn.starts.tolist() == again.starts.tolist()
    assert drawn.supplier.tolist() == again.supplier.tolist()


@pytest.mark.parametrize("windows", ["fixed", "centred"])
@pytest.mark.parametrize("kind", kinds("sampling"))
def test_contrasts_of_a_signed_latent_are_silent_for_its_twin_too(kind: str, windows: str) -> None:
    """Latent 0 and its twin, 6, fire at tokens of their own."""
    both = firing(TOKENS, 0.14, seed=1)
    negative = np.random.default_rng(2).random(both.size) < 0.5
    others = {latent: firing(TOKENS, 0.02 * latent, seed=100 + latent) for latent in range(1, N_LATENTS)}
    store = PlantedStore({**others, 0: np.where(negative, 0, both), N_LATENTS // 2: np.where(negative, both, 0)}, width=N_LATENTS)
    drawn = {
        (latent, signed): built(kind, inputs := inputs_of(store, signed=signed)).draw([wanted(inputs, 8, windows=windows, latent=latent)])[
            0
        ]
        for latent in (0, N_LATENTS // 2)
        for signed in (False, True)
    }
    fires = {key: [bool(both[start : start + WINDOW].any()) for start in found.starts.tolist()] for key, found in drawn.items()}
    for latent in (0, N_LATENTS // 2):
        assert any(fires[latent, False]), "else the twin would not matter here"
        assert fires[latent, True]
        assert not any(fires[latent, True])


@pytest.mark.parametrize("windows", ["fixed", "centred"])
@pytest.mark.parametrize("kind", kinds("sampling"))
def test_a_latent_without_silent_windows_gets_none(kind: str, windows: str) -> None:
    inputs = inputs_of(store_of(firing(TOKENS, 1.1, seed=1)))
    assert built(kind, inputs).draw([wanted(inputs, n=8, windows=windows)])[0].starts.size == 0


def test_random_finds_every_silent_window_when_more_are_wanted_than_there_are() -> None:
    values = firing(TOKENS, 1.1, seed=1)
    silent = [GRID.n_windows // 3, 5, 60]
    for window in silent:
        values[GRID.starts[window] : GRID.starts[window] + WINDOW] = 0
    inputs = inputs_of(store_of(values))
    found = built("random", inputs).draw([wanted(inputs, n=50)])[0].starts
    assert sorted(found) == sorted(GRID.starts[window] for window in silent if GRID.document[window] % 2 == 0)


def test_random_draws_each_silent_window_equally_often() -> None:
    values = firing(TOKENS, 0.3, seed=2)
    inputs = inputs_of(store_of(values))
    counts = np.zeros(GRID.n_windows)
    n_rounds = 1500
    asked, source = [wanted(inputs, n=5, seed=seed) for seed in range(n_rounds)], built("random", inputs)
    for one in asked:
        counts[GRID.window_of[source.draw([one])[0].starts]] += 1
    fires = np.array([values[start : start + WINDOW].any() for start in GRID.starts.tolist()])
    silent = np.flatnonzero(~fires & (GRID.document % 2 == 0))
    silent = silent[~np.isin(GRID.text_id[silent], GRID.text_id[fires])]
    assert counts.sum() == 5 * n_rounds
    assert counts[silent].sum() == counts.sum()
    expected = 5 * n_rounds / silent.size
    # Windows that repeat a text count once per drawn text; these random texts are all distinct. Five standard deviations.
    assert np.abs(counts[silent] - expected).max() < 5 * np.sqrt(expected)


def test_same_document_takes_turns_of_the_documents_of_the_activating_windows_by_rank() -> None:
    inputs = inputs_of(store_of(firing(TOKENS, 0.05, seed=3)))
    asked = wanted(inputs, n=30)
    ranked = list(dict.fromkeys(GRID.document[asked.activating.window].tolist()))
    drawn = built("same_document", inputs).draw([asked])[0].starts
    documents = GRID.document[GRID.window_of[drawn]].tolist()
    assert set(documents) <= set(ranked)
    assert documents[: len(ranked)] == ranked, "every one of these documents has silent windows"
    counts = Counter(documents)
    assert max(counts.values()) - min(counts.values()) <= 1


def brute_jaccard(store: PlantedStore, latent: int) -> dict[int, float]:
    sets = [set(store.read(other)[0].tolist()) for other in range(store.width)]
    return {
        other: len(sets[latent] & sets[other]) / len(sets[latent] | sets[other])
        for other in range(store.width)
        if other != latent and sets[latent] & sets[other]
    }


def overlapping_store() -> PlantedStore:
    """Latent i fires where latent 0 does with probability i / 12, and elsewhere at random."""
    base, rng = firing(TOKENS, 0.1, seed=4), np.random.default_rng(5)
    dense: Mapping[int, np.ndarray] = {
        latent: np.where(rng.random(base.size) < latent / 12, base, firing(TOKENS, 0.08, seed=50 + latent)) for latent in range(1, 11)
    }
    return PlantedStore({0: base, **dense}, width=N_LATENTS)


def test_jaccard_similarities_equal_brute_force_over_sets() -> None:
    store = overlapping_store()
    rows = Jaccard.of(inputs_of(store), 10**9).rows(np.arange(N_LATENTS))
    for latent in range(N_LATENTS):
        expected = brute_jaccard(store, latent)
        assert rows[latent, [other for other in range(N_LATENTS) if other != latent]].tolist() == pytest.approx(
            [expected.get(other, 0.0) for other in range(N_LATENTS) if other != latent], abs=1e-6
        )


def test_jaccard_of_a_sample_of_positions_is_near_the_exact_one() -> None:
    store = overlapping_store()
    exact, sampled = (Jaccard.of(inputs_of(store), most).rows(np.arange(11)) for most in (10**9, 1500))
    assert 0 < np.abs(exact - sampled).max() < 0.12
    assert np.corrcoef(exact.reshape(-1), sampled.reshape(-1))[0, 1] > 0.97


def nearest(similarity: Mapping[int, float], n: int) -> list[int]:
    return sorted(similarity, key=lambda other: (-round(similarity[other], 5), other))[:n]


def test_neighbours_are_the_most_similar_latents_and_give_equally_many_silent_windows_of_theirs() -> None:
    store = overlapping_store()
    decoder = np.random.default_rng(1).standard_normal((N_LATENTS, 6)).astype(np.float32)
    unit = decoder / np.linalg.norm(decoder, axis=1, keepdims=True)
    cosine = {other: float(unit[0] @ unit[other]) for other in range(1, N_LATENTS) if unit[0] @ unit[other] > 0}
    inputs = inputs_of(store, decoder=lambda: 3 * decoder)
    for by, expected in (("jaccard", nearest(brute_jaccard(store, 0), 3)), ("cosine", nearest(cosine, 3))):
        drawn = built("neighbours", inputs, by=by, n_neighbours=3).draw([wanted(inputs, n=12)])[0]
        assert drawn.supplier.tolist() == expected * 4
        for start, supplier in zip(drawn.starts.tolist(), drawn.supplier.tolist(), strict=True):
            values = np.zeros(TOKENS.tokens.size)
            values[store.read(supplier)[0].astype(int)] = 1
            assert values[start : start + WINDOW].any()


@pytest.mark.parametrize("kind", kinds("sampling"))
def test_latents_worked_on_together_are_given_what_each_is_given_alone(kind: str) -> None:
    inputs = inputs_of(store_of(firing(TOKENS, 0.1, seed=1)))
    asked = [wanted(inputs, n=8, latent=latent) for latent in (0, 3, 7)]
    together = built(kind, inputs).draw(asked)
    for one, found in zip(asked, together, strict=True):
        alone = built(kind, inputs).draw([one])[0]
        assert found.starts.tolist() == alone.starts.tolist()
        assert found.supplier.tolist() == alone.supplier.tolist()


def test_a_neighbour_with_few_windows_leaves_its_part_to_the_others() -> None:
    store = overlapping_store()
    inputs = inputs_of(store)
    drawn = built("neighbours", inputs, n_neighbours=11).draw([wanted(inputs, n=60)])[0]
    assert drawn.starts.size == 60
    assert len(set(drawn.supplier.tolist())) > 5


def test_a_latent_without_neighbours_gets_none() -> None:
    store = PlantedStore({0: firing(TOKENS, 0.1, seed=1)}, width=N_LATENTS)
    inputs = inputs_of(store)
    assert built("neighbours", inputs).draw([wanted(inputs, n=8)])[0].starts.size == 0


def test_semantic_contrasts_are_the_nearest_silent_windows_spread_over_the_queries() -> None:
    values = firing(TOKENS, 0.03, seed=6)
    inputs = inputs_of(store_of(values))
    asked = wanted(inputs, n=12)
    drawn = built("semantic", inputs).draw([asked])[0].starts
    embedded = letters("letters", [text_at(start) for start in GRID.starts.tolist()])
    usable = [
        window
        for window, start in enumerate(GRID.starts.tolist())
        if not values[start : start + WINDOW].any() and GRID.document[window] % 2 == 0
    ]
    expected: list[int] = []
    texts: set[str] = set()
    queries = asked.activating.window.tolist()
    ranked = [np.argsort(np.linalg.norm(embedded - embedded[query], axis=1), kind="stable").tolist() for query in queries]
    for turn in range(GRID.n_windows):
        for of_query in ranked:
            start = int(GRID.starts[of_query[turn]])
            if of_query[turn] in usable and text_at(start) not in texts:
                expected.append(start)
                texts.add(text_at(start))
    # Windows at one distance may stand in either order: the sets are compared, up to such a pair at the end.
    assert len(set(drawn.tolist()) & set(expected[:12])) >= 11


def test_semantic_goes_on_to_farther_windows_where_the_nearest_all_fire() -> None:
    """The latent fires in all documents but two, whose words are others than all the rest."""
    token_set_documents = [document for document in range(24) if document not in (10, 12)]
    inputs = inputs_of(store_of(firing(TOKENS, 1.1, seed=1, documents=token_set_documents)))
    drawn = built("semantic", inputs, n_queries=2).draw([wanted(inputs, n=10)])[0].starts
    assert drawn.size == 10
    assert set(GRID.document[GRID.window_of[drawn]].tolist()) <= {10, 12}


def test_mixed_contrasts_hold_each_part_in_its_share_and_say_which() -> None:
    inputs = inputs_of(store_of(firing(TOKENS, 0.05, seed=7)))
    shares = {"random": 0.25, "same_document": 0.75}
    drawn = built("mixed", inputs, shares=shares).draw([wanted(inputs, n=20)])[0]
    assert Counter(drawn.part.tolist()) == {0: 5, 1: 15}
    assert Counter(drawn.part[:8].tolist()) == {0: 2, 1: 6}
    config = variant("sampling", "mixed").Config(kind="mixed", shares=shares)
    assert config.source(inputs.contrasts) == "mixed_random_25_same_document_75"
    assert config.parts(inputs.contrasts) == ("random", "same_document")


def test_shares_become_whole_numbers_that_add_up() -> None:
    assert parts_of(10, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}) == {"a": 4, "b": 3, "c": 3}
    assert parts_of(50, {"a": 0.7, "b": 0.3}) == {"a": 35, "b": 15}


def test_sources_are_named_with_what_makes_their_scores_incomparable() -> None:
    named = {
        kind: config.source(inputs_of(store_of(firing(TOKENS, 0.1, seed=1))).contrasts)
        for kind, config in inputs_of(store_of(firing(TOKENS, 0.1, seed=1))).contrasts.items()
    }
    assert named["neighbours"] == "neighbours_jaccard"
    assert variant("sampling", "neighbours").Config(kind="neighbours", by="cosine").source({}) == "neighbours_cosine"
    assert named["semantic"] == "semantic_letters"
    assert named["random"] == "random"
