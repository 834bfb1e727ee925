"""What is tracked of the made-up study: its parameters, and the names of the runs that they make."""

from types import SimpleNamespace

from latentry.params import Params
from latentry.sections import TrackingSettings

SAES = ("topk-1k", "jumprelu-1k")
ALL = {f"{sae}/{explainer}" for sae in SAES for explainer in ("lexical", "default")} | {"comparison of 2 SAEs"}


def params_of(*, required: bool = False, experiment: str = "sizes") -> Params:
    judged = SimpleNamespace(client="judge")
    return Params.model_construct(
        seed=7,
        saes=dict.fromkeys(SAES),
        scorers={"embedding": SimpleNamespace(), "detection": judged, "fuzzing": judged},
        explainers={"lexical": SimpleNamespace(), "default": judged},
        clients={"judge": SimpleNamespace(model="a-small-judge")},
        examples=SimpleNamespace(n_latents=12),
        tracking=TrackingSettings(experiment=experiment, required=required),
    )
