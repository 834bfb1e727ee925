"""The logits of the tokens that latents promote and suppress, made anew from subject and SAE: results keep the tokens alone.

Always true: the subject is the one of the results (its folder was checked against the chain); nothing is made up where it is not here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from latentry.contracts import MODEL
from latentry.errors import ContractError
from latentry.params import Params
from latentry.store import MANIFEST

Logits = Callable[[Sequence[int]], list[dict[str, list[dict[str, Any]]]]]
"""From latents to `topLogits` and `bottomLogits` of each, strongest first; empty mappings where the SAE does not write to the residual stream."""


def promoted_logits(here: Path, params: Params, sae: str, n: int) -> Logits:
    """What gives the n largest and smallest logits of latents of one SAE.

    Raises:
        ContractError: the subject is not here.
    """
    from latentry.corpora.tokenise import load_tokenizer
    from latentry.runtime import device_of
    from latentry.sampling.folders import decoder_rows
    from latentry.subjects.causal_lm import hookpoints_of, load_subject

    model, config = here / "data" / "models" / params.subject.model, params.saes[sae]
    if not (model / MANIFEST).is_file():
        raise ContractError(
            f"{model}: the subject is not here, and the values of promoted tokens are made from it; rerun"
            f" `dvc repro {MODEL.stage}@{params.subject.model}`, or leave them out by --no-logits"
        )
    writes = config.writes or config.hookpoint
    points = hookpoints_of(params.subject.hookpoints, {config.hookpoint, writes})
    subject = load_subject(model, points, dtype=params.subject.dtype, device=device_of(params.run.device))
    if not subject.is_residual(writes):
        return lambda latents: [{} for _ in latents]
    decoder, tokenizer = decoder_rows(config, sae, here / "data" / "saes" / sae), load_tokenizer(model)

    def logits_of(latents: Sequence[int]) -> list[dict[str, list[dict[str, Any]]]]:
        import torch

        found = subject.promoted(torch.from_numpy(decoder[list(latents)]))
        most = min(n, found.shape[1])
        ends = {"topLogits": found.topk(most, dim=1), "bottomLogits": found.topk(most, dim=1, largest=False)}
        listed = {end: (top.indices.tolist(), top.values.tolist()) for end, top in ends.items()}
        return [{end: _named(tokenizer, ids[row], values[row]) for end, (ids, values) in listed.items()} for row in range(len(latents))]

    return logits_of


def _named(tokenizer: Any, ids: Sequence[int], values: Sequence[float]) -> list[dict[str, Any]]:
    return [{"token": tokenizer.decode([token]), "value": value} for token, value in zip(ids, values, strict=True)]
