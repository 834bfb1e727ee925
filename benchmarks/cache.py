"""`activations` and `latents` against the least that would do: a bare forward to the same layer and a bare `x @ W_enc` with top-k.

Both in this process, with the same batches, dtypes and threads, in turn; each loads its weights. Ours also writes
and reads the activations, sorts and stores the latents, their statistics and digests. Left out of `ratio`, and shown apart,
is what a SAE costs once however many the tokens: the gate's look at 64 contexts, and the promoted tokens.
"""

import os
import statistics
import time

import torch
from safetensors.torch import load_file
from synthetic import Study, activations, bare_model, latents, lay_out, lay_out_sae, line, scratch

from latentry.corpora.token_set import TokenSet

QUICK = bool(os.environ.get("QUICK"))
WIDTHS = (4096,) if QUICK else (4096, 16384, 65536)
ROUNDS = 3
ONCE = ("gate", "promoted")


@torch.inference_mode()
def bare(study: Study) -> tuple[float, dict[int, float]]:
    """Seconds of the forward pass, and of the encoder with top-k by width."""
    start = time.perf_counter()
    model, tokens, found = bare_model(study), TokenSet(study.out("tokens")), []
    for first in range(0, study.n_contexts, study.batch_contexts):
        ids = torch.from_numpy(tokens.rows(first, min(first + study.batch_contexts, study.n_contexts)).astype("int64"))
        found.append(model(input_ids=ids, use_cache=False).last_hidden_state.flatten(0, 1))
    forward_s = time.perf_counter() - start
    return forward_s, {width: bare_encoder(study, width, torch.cat(found)) for width in WIDTHS}


def bare_encoder(study: Study, width: int, x: torch.Tensor) -> float:
    """Seconds of the largest k of each row of the product."""
    start = time.perf_counter()
    encoder = load_file(study.out(f"sae-{width}") / "sae_weights.safetensors")["W_enc"]
    for rows in x.split(study.batch_tokens):
        (rows.float() @ encoder).topk(study.k, dim=-1)
    return time.perf_counter() - start


def main() -> None:
    """Bare and ours in turn; the ratios are medians over the rounds, each of one round's two runs."""
    with scratch() as folder:
        n_layers, n_contexts, vocabulary = (4, 64, 8192) if QUICK else (16, 128, 49152)
        study = Study(folder=folder, d_in=576, n_layers=n_layers, n_contexts=n_contexts, context=256, vocabulary=vocabulary)
        lay_out(study)
        for width in WIDTHS:
            lay_out_sae(study, width)
        shown: dict[str, object] = {"n": study.n_tokens, "d_in": study.d_in, "layers": n_layers, "threads": study.threads, "rounds": ROUNDS}
        print(line("cache", shown | measured(study)))  # noqa: T201


def measured(study: Study) -> dict[str, object]:
    """The ratios and seconds, medians over the rounds; prints what each part of ours took in each."""
    ratios: dict[int, list[float]] = {width: [] for width in WIDTHS}
    forward: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        forward_s, encoder_s = bare(study)
        activations_s = activations(study)
        forward.append((forward_s, activations_s))
        for width in WIDTHS:
            seconds = latents(study, width)
            print(line(f"parts width={width}", {"bare_encoder": encoder_s[width]} | seconds))  # noqa: T201
            ours = activations_s + sum(value for part, value in seconds.items() if part not in ONCE)
            ratios[width].append(ours / (forward_s + encoder_s[width]))
    by_width = {f"ratio_{width}": statistics.median(found) for width, found in ratios.items()}
    forward_s, activations_s = (statistics.median(times) for times in zip(*forward, strict=True))
    return {"ratio": max(by_width.values()), **by_width, "activations_s": activations_s, "forward_s": forward_s}


if __name__ == "__main__":
    main()
