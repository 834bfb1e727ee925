"""The prompts on which latents are steered, against a reference that walks token by token."""

from dataclasses import dataclass

import numpy as np
import pytest

from latentry.records import Purpose, SteeringPrompt
from latentry.sampling.steering_prompts import PromptDrawer, shortfall
from planted_corpus import PlantedStore, PlantedTokens, firing, random_texts, tokens_of

TOKENS = 8


@dataclass(frozen=True)
class Steering:
    contexts: int = 40
    tokens: int = TOKENS


@pytest.fixture(scope="module")
def token_set() -> PlantedTokens:
    return tokens_of(random_texts(30, 120), context=64)


def drawer(token_set: PlantedTokens, dense: dict[int, np.ndarray], beginning: tuple[int, ...] = (), seed: int = 0) -> PromptDrawer:
    return PromptDrawer(seed, Steering(), token_set, token_set.kept, PlantedStore(dense, 10), beginning)


def texts_by_walking(token_set: PlantedTokens, dense: np.ndarray) -> dict[str, tuple[float, str]]:
    """Of each context of distinct text in which the latent fires: its text, its peak, and the text up to where it first fires."""
    found: dict[str, tuple[float, str]] = {}
    for row, documents in enumerate(token_set.document):
        place = 0
        while place + TOKENS <= len(documents):
            stretch = documents[place : place + TOKENS]
            if (stretch != stretch[0]).any() or stretch[0] < 0:
                place += 1
                continue
            at = row * len(documents) + place
            activations = dense[at : at + TOKENS]
            if activations.any():
                start, end = token_set.text_start[row], token_set.text_end[row]
                document = token_set.texts[stretch[0]]
                first = place + int(np.flatnonzero(activations)[0])
                whole, cut = document[start[place] : end[place + TOKENS - 1]], document[start[place] : end[first]]
                if first > place:
                    found.setdefault(whole, (float(activations.max()), cut))
            place += TOKENS
    return found


def test_prompts_are_contexts_cut_after_the_first_firing_eight_of_each_quintile(token_set):
    dense = firing(token_set, 0.1, seed=1)
    prompts = drawer(token_set, {3: dense}).prompts(3)
    known = texts_by_walking(token_set, dense)
    by_peak = sorted(known.values())
    cuts = {cut: 1 + 5 * rank // len(by_peak) for rank, (_, cut) in enumerate(by_peak)}
    assert len(prompts) == 40
    assert len({prompt.text for prompt in prompts}) == 40
    assert all(prompt.text in cuts for prompt in prompts)
    unique = [cut for _, cut in by_peak]
    assert all(cuts[prompt.text] == prompt.quintile for prompt in prompts if unique.count(prompt.text) == 1)
    for quintile in range(1, 6):
        purposes = [prompt.purpose for prompt in prompts if prompt.quintile == quintile]
        assert (purposes.count(Purpose.SCORE), purposes.count(Purpose.EXPLAIN)) == (6, 2)


def test_a_prompt_knows_its_place_and_ends_where_the_latent_first_fires(token_set):
    dense = firing(token_set, 0.1, seed=2)
    for prompt in drawer(token_set, {0: dense}).prompts(0):
        at = prompt.context * 64 + prompt.start
        length = len(prompt.tokens)
        assert token_set.tokens.reshape(-1)[at : at + length].tolist() == list(prompt.tokens)
        assert not dense[at : at + length - 1].any() and dense[at + length - 1] > 0
        assert prompt.document == token_set.document.reshape(-1)[at]


def test_every_prefix_is_even_over_the_quintiles(token_set):
    prompts = drawer(token_set, {0: firing(token_set, 0.1, seed=3)}).prompts(0)
    for purpose in Purpose:
        mine = [prompt.quintile for prompt in prompts if prompt.purpose is purpose]
        assert all(sorted(mine[first : first + 5]) == [1, 2, 3, 4, 5] for first in range(0, len(mine), 5))


def test_other_latents_and_their_order_change_nothing_and_the_seed_does(token_set):
    dense = {latent: firing(token_set, 0.1, seed=latent) for latent in range(3)}
    alone = drawer(token_set, {1: dense[1]}).prompts(1)
    among = drawer(token_set, dense)
    assert [among.prompts(latent) for latent in (2, 1, 0)][1] == alone
    assert drawer(token_set, dense, seed=1).prompts(1) != alone


def test_too_few_contexts_give_fewer_prompts_and_say_so(token_set):
    rare = firing(token_set, 0.1, seed=4, documents=[0, 1])
    prompts = drawer(token_set, {0: rare}).prompts(0)
    assert 0 < len(prompts) < 40
    assert shortfall(prompts, Steering()) == f"steering: {len(prompts)} of 40"
    n_explain = sum(prompt.purpose is Purpose.EXPLAIN for prompt in prompts)
    assert n_explain <= len(prompts) / 4
    assert drawer(token_set, {0: rare}).prompts(7) == []


def test_without_bos_nothing_is_steered_at_the_first_position_and_with_it_bos_comes_first():
    token_set = tokens_of([" ".join(f"w{document}x{i}" for i in range(TOKENS)) for document in range(30)], context=TOKENS + 1)
    dense = np.zeros(token_set.tokens.shape, np.float32)
    dense[:, 0] = np.arange(30) + 1

    def of(beginning: tuple[int, ...]) -> list[SteeringPrompt]:
        return drawer(token_set, {0: dense.reshape(-1)}, beginning).prompts(0)

    assert of(()) == []
    assert {len(prompt.tokens) for prompt in of((5,))} == {2} and {prompt.tokens[0] for prompt in of((5,))} == {5}
    assert all(len(prompt.text.split()) == 1 for prompt in of((5,)))


def test_a_context_that_stands_twice_is_used_once():
    text = " ".join(f"w{i}" for i in range(TOKENS))
    others = [" ".join(f"v{document}x{i}" for i in range(TOKENS)) for document in range(10)]
    token_set = tokens_of([text, text, *others], context=TOKENS + 1)
    dense = np.zeros(token_set.tokens.shape, np.float32)
    dense[:, 3] = 1
    prompts = drawer(token_set, {0: dense.reshape(-1)}).prompts(0)
    assert len(prompts) == 11 and [prompt.text for prompt in prompts].count("w0 w1 w2 w3") == 1
