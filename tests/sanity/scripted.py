"""Every scorer that reads explanations, on the planted concepts, with a judge that follows the text."""

from collections.abc import Mapping
from functools import cache

from fakes import ask_by, scorer_inputs
from latentry.scorers.base import WRONG_POSITION, ScorerInputs
from sanity.following_judge import FollowingEmbedder, FollowingJudge
from sanity.planted_concepts import HARD, RANDOM, rules
from sanity.sanity_runs import Scores, Setting, scores

JUDGE, EMBEDDER = FollowingJudge(rules()), FollowingEmbedder(rules())
CLIENT = {"client": "judge"}
INPUTS: Mapping[str, ScorerInputs] = {
    "detection": scorer_inputs(ask=lambda _: ask_by(JUDGE.says_where)),
    "fuzzing": scorer_inputs(ask=lambda _: ask_by(JUDGE.says_which)),
    "embedding": scorer_inputs(embedder=lambda _: EMBEDDER),
}
OPTIONS = {"detection": CLIENT, "fuzzing": CLIENT, "embedding": {}}
CONTRASTS = {"detection": (RANDOM, HARD), "fuzzing": (WRONG_POSITION, RANDOM, HARD), "embedding": (RANDOM, HARD)}
SETTINGS = tuple((kind, contrast) for kind, contrasts in CONTRASTS.items() for contrast in contrasts)


@cache
def scripted_scores(kind: str, contrast: str, *, only_top: bool = False) -> Scores:
    """All metrics of one scorer."""
    return scores(Setting(kind=kind, contrast=contrast, options=OPTIONS[kind], only_top=only_top), INPUTS[kind])
