"""The null of a latent is never the explanation of one that supplied its contrasts."""

import dataclasses

from latentry.records import Explanation, Status
from latentry.scorers.base import items_for, suppliers
from planted_windows import held_out, window


def test_partners_are_never_among_the_latents_that_supplied_the_contrasts_in_use() -> None:
    examples = {latent: held_out(latent, "tax") for latent in range(6)}
    for latent in range(6):
        alike = window(latent, 900, None, contrast="alike")
        examples[latent] += tuple(
            dataclasses.replace(alike, example_id=f"{latent}-{other}", supplier=other % 6) for other in (latent + 1, latent + 2)
        )
    explanations = [
        Explanation(
            latent=latent,
            explainer="told",
            text=f"text {latent}",
            status=Status.OK,
            detail="",
            prompt_digest="",
            reply=None,
            reply_key=None,
        )
        for latent in range(6)
    ]
    assert suppliers(examples, "random") == {latent: set() for latent in range(6)}
    found = suppliers(examples, "alike")
    assert found[4] == {5, 0}
    for seed in range(20):
        items = items_for(explanations, examples, ranked=range(6), seed=seed, excluded=found)
        partners = {item.latent: item.partner for item in items if item.null}
        assert len(partners) == 6
        assert all(partner not in found[latent] for latent, partner in partners.items())
