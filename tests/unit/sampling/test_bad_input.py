"""Latents and corpora that no window can be had of, or few: each has a row or an error that says why."""

import numpy as np
import pytest

from latentry.contracts import LATENTS, TOKENS
from latentry.errors import ContractError, CorpusError
from latentry.sampling.folders import is_signed, verify_same_tokens
from latentry.store import work
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

FEW = Asked(explain=Explain(n=10, n_contrast=5), held_out=HeldOut(n_activating=10, n_contrast=5), min_examples=20)


def row_of(token_set: PlantedTokens, values: np.ndarray, asked: Asked = FEW) -> dict[str, object]:
    return chosen_from(0, asked, corpus_of(token_set, PlantedStore({0: values}, 1)))[0].rows[0]


@pytest.fixture(scope="module")
def token_set() -> PlantedTokens:
    return tokens_of(random_texts(20, 130), context=64)


@pytest.mark.parametrize("windows", ["fixed", "centred"])
def test_a_latent_that_never_fires_is_dead(token_set: PlantedTokens, windows: str) -> None:
    row = row_of(token_set, np.zeros(token_set.tokens.size), FEW.but(windows=windows))
    assert (row["status"], row["n_windows"], row["firing_count"]) == ("dead", 0, 0)
    assert row["detail"] == f"never fires in {int(token_set.kept.sum())} tokens"


@pytest.mark.parametrize("windows", ["fixed", "centred"])
def test_a_latent_that_fires_on_every_token_has_windows_and_no_contrasts(token_set: PlantedTokens, windows: str) -> None:
    row = row_of(token_set, firing(token_set, 1.1, seed=1), FEW.but(windows=windows))
    assert (row["status"], row["activating_window_fraction"]) == ("ok", 1.0)
    assert row["shortfall"] == "held_out random: 0 of 5; explain random: 0 of 5"


@pytest.mark.parametrize("windows", ["fixed", "centred"])
def test_a_latent_with_fewer_windows_than_asked_is_undersampled_with_its_count(token_set: PlantedTokens, windows: str) -> None:
    values = np.zeros(token_set.tokens.size, dtype=np.float32)
    values[:100:33] = 1
    row = row_of(token_set, values, FEW.but(windows=windows))
    assert (row["status"], row["detail"]) == ("undersampled", "4 activating windows of distinct text, 20 wanted")


def test_a_latent_that_fires_only_at_special_tokens_is_a_fault_of_the_store(token_set: PlantedTokens) -> None:
    with pytest.raises(ContractError, match=r"latent 0: fires at \d+ positions that were left out.*rerun `dvc repro latents`"):
        row_of(token_set, token_set.special.reshape(-1).astype(np.float32))


def test_a_latent_that_fires_only_in_ends_that_the_grid_drops_is_undersampled_with_no_window(token_set: PlantedTokens) -> None:
    from latentry.sampling.grid import grid_of

    outside = (grid_of(token_set, WINDOW).window_of < 0) & ~token_set.special.reshape(-1)
    row = row_of(token_set, outside.astype(np.float32))
    assert (row["status"], row["n_windows"], row["firing_count"]) == ("undersampled", 0, int(outside.sum()))


def test_a_latent_of_one_document_says_that_a_split_by_context_may_do() -> None:
    long = tokens_of(random_texts(2, 2000), context=64)
    values = firing(long, 0.4, seed=2, documents=[1])
    row = row_of(long, values)
    assert row["status"] == "undersampled"
    assert "windows in 1 documents" in str(row["detail"])
    assert "split_by: context may do" in str(row["detail"])
    assert row_of(long, values, FEW.but(split_by="context"))["status"] == "ok"


@pytest.mark.parametrize("windows", ["fixed", "centred"])
def test_contexts_or_documents_shorter_than_a_window_are_refused_with_what_is_there(windows: str) -> None:
    for texts, context, window in ((random_texts(9, 5), 64, 8), (random_texts(9, 90), 6, 8), (random_texts(9, 90), 32, 40)):
        short = tokens_of(texts, context=context)
        with pytest.raises(CorpusError, match=rf"no document has {window} tokens in a row of {context}, found at most \d+; lower"):
            row_of(short, firing(short, 0.5, seed=1), FEW.but(window=window, windows=windows))


def test_a_store_of_more_tokens_than_there_are_is_refused(token_set: PlantedTokens) -> None:
    more = np.ones(token_set.tokens.size + 64, dtype=np.float32)
    with pytest.raises(ContractError, match=r"fires at position \d+, the tokens have \d+; the latents were made from other tokens"):
        row_of(token_set, more)


def test_a_store_made_with_another_tokenizer_is_refused_by_its_manifest(project) -> None:
    tokens, latents = project / "data/tokens", project / "data/latents/one"

    def made(tokenizer: str) -> None:
        with work(tokens, TOKENS, cell="tokens", params={"tokenizer": tokenizer}) as making:
            assert making is not None

    made("one")
    with work(latents, LATENTS, cell="latents@one", params={}, inputs=[tokens]) as making:
        assert making is not None
    verify_same_tokens(latents, LATENTS, tokens)
    made("another")
    with pytest.raises(ContractError, match=r"another tokenizer, corpus or context.*rerun `dvc repro latents`"):
        verify_same_tokens(latents, LATENTS, tokens)


@pytest.mark.parametrize(("described", "signed"), [({}, False), ({"signed": False}, False), ({"signed": True}, True)])
def test_a_folder_of_latents_says_whether_they_are_signed(project, described: dict, signed: bool) -> None:
    latents = project / "data/latents/one"
    with work(latents, LATENTS, cell="latents@one", params={}) as making:
        assert making is not None
        making.write_json("store.json", {"width": 4} | described)
    assert is_signed(latents) is signed
