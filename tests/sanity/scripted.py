"""Every scorer that reads explanations, on the planted concepts, with a judge that follows the text."""

from collections.abc import Mapping, Sequence
from functools import cache

from fakes import ask_by, scorer_inputs
from latentry.scorers.base import WRONG_POSITION, ScorerInputs
from sanity.following_judge import FollowingEmbedder, FollowingJudge, PlantedSubject
from sanity.planted_concepts import CONCEPTS, HARD, LATENTS, RANDOM, rules
from sanity.sanity_runs import Scores, Setting, scores

JUDGE, EMBEDDER = FollowingJudge(rules()), FollowingEmbedder(rules())
SUBJECT = PlantedSubject({latent: CONCEPTS[concept] for latent, concept in LATENTS.items()})
CLIENT = {"client": "judge"}
INPUTS: Mapping[str, ScorerInputs] = {
    "detection": scorer_inputs(ask=lambda _: ask_by(JUDGE.says_where)),
    "fuzzing": scorer_inputs(ask=lambda _: ask_by(JUDGE.says_which)),
    "simulation": scorer_inputs(ask=lambda _: ask_by(JUDGE.writes_levels)),
    "embedding": scorer_inputs(embedder=lambda _: EMBEDDER),
    "surprisal": scorer_inputs(ask=lambda _: ask_by(JUDGE.reads_window)),
    "sensitivity": scorer_inputs(ask=lambda _: ask_by(JUDGE.writes_text), fired=SUBJECT.fired),
    "intervention": scorer_inputs(ask=lambda _: ask_by(JUDGE.reads_on), steered=SUBJECT.steered),
}
NONE = ""
"""The contrast of a scorer that sets nothing against activating examples."""
CONTRASTS: Mapping[str, Sequence[str]] = {
    "detection": (RANDOM, HARD),
    "fuzzing": (WRONG_POSITION, RANDOM, HARD),
    "simulation": (RANDOM, HARD),
    "embedding": (RANDOM, HARD),
    "surprisal": (RANDOM, HARD),
    "sensitivity": (NONE,),
    "intervention": (NONE,),
}
SETTINGS = tuple((kind, contrast) for kind, contrasts in CONTRASTS.items() for contrast in contrasts)


@cache
def scripted_scores(kind: str, contrast: str, *, only_top: bool = False, latents: Sequence[int] = tuple(LATENTS)) -> Scores:
    """All metrics of one scorer."""
    options = {} if kind == "embedding" else CLIENT
    return scores(Setting(kind=kind, contrast=contrast, options=options, only_top=only_top, latents=latents), INPUTS[kind])
